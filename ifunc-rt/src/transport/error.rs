//! Why a target cannot listen, and why a source cannot connect.

use std::io;
use std::path::PathBuf;

use crate::keys::PublicKey;

/// Why a target cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A living target has the name.
    #[error(
        "`{address}` is in use{}; help: stop that target or choose another name",
        holder.map(|pid| format!(" by process {pid}")).unwrap_or_default()
    )]
    InUse {
        /// The address.
        address: String,
        /// Process id of the target that has it, if it said so.
        holder: Option<i32>,
    },
    /// The directory for sockets cannot be trusted.
    #[error("`{}` cannot hold sockets: {problem}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The library that the transport is made of is not there.
    #[error("{problem}")]
    Library {
        /// Which, why, and what to do.
        problem: String,
    },
    /// The port of a transport of networks is taken.
    #[error("`{address}` is in use; help: stop that target or choose another port")]
    PortInUse {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// A worker's address is where a target is, not where one can be made.
    #[error(
        "a target cannot listen at the address of another worker; help: listen at `ucx-worker:`; the target then says what its address is"
    )]
    Worker,
    /// The worker is closed.
    #[error("a target cannot listen on a worker that is closed; help: lend the runtime another one")]
    WorkerClosed,
    /// UCX refused something.
    #[error("{doing}: UCX says: {problem}")]
    Ucx {
        /// What was being done.
        doing: &'static str,
        /// What UCX said.
        problem: String,
    },
    /// The target has no key for `tls`, or admits no peer by any.
    #[error("cannot listen at `{address}`: {problem}")]
    Keys {
        /// The address.
        address: String,
        /// What is missing, and what to do.
        problem: String,
    },
    /// Ring sizes that cannot be.
    #[error(
        "a ring of {slots} slots and {data} bytes cannot be; help: use powers of two, 2 to 2^16 slots, 2^16 to 2^30 bytes"
    )]
    Ring {
        /// Slots asked for.
        slots: u32,
        /// Bytes asked for.
        data: u32,
    },
    /// The system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a source cannot connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No target listens there.
    #[error("no target listens at `{address}`{}; help: start the target first",
        path.as_ref().map(|path| format!(" (`{}`)", path.display())).unwrap_or_default())]
    NobodyListens {
        /// The address.
        address: String,
        /// Where its socket was looked for.
        path: Option<PathBuf>,
    },
    /// The library that the transport is made of is not there.
    #[error("{problem}")]
    Library {
        /// Which, why, and what to do.
        problem: String,
    },
    /// UCX refused something.
    #[error("{doing}: UCX says: {problem}")]
    Ucx {
        /// What was being done.
        doing: &'static str,
        /// What UCX said.
        problem: String,
    },
    /// `ucx-worker:` alone is no target's address.
    #[error("`ucx-worker:` names no target; help: write what the target said that its address is")]
    Worker,
    /// The worker is closed.
    #[error("a source cannot connect over a worker that is closed; help: lend the runtime another one")]
    WorkerClosed,
    /// The target said no.
    #[error("the target at `{address}` refused the connection: {reason}")]
    Refused {
        /// The address.
        address: String,
        /// What it said.
        reason: String,
    },
    /// The target takes no connection at this moment, and may take one a moment later.
    #[error("the target at `{address}` takes no connection at this moment: {reason}")]
    Busy {
        /// The address.
        address: String,
        /// What it said.
        reason: String,
    },
    /// The target speaks another version of the transport.
    #[error(
        "the target at `{address}` speaks version {theirs} of the transport, this process speaks version {ours}; help: build both with the same release of ifunc-rt"
    )]
    Version {
        /// The address.
        address: String,
        /// The target's version.
        theirs: u32,
        /// This process's version.
        ours: u32,
    },
    /// The deadline passed first.
    #[error("the target at `{address}` did not answer in time: {waiting_for}")]
    Timeout {
        /// The address.
        address: String,
        /// What the source was waiting for.
        waiting_for: &'static str,
    },
    /// What listens there does not follow the protocol.
    #[error(
        "what listens at `{address}` is not an ifunc target: {problem}; help: another program has the address, or had it first: choose another one"
    )]
    Protocol {
        /// The address.
        address: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// A process of another user listens there, as the kernel reports.
    #[error(
        "what listens at `{address}` belongs to user {uid}, who is neither this process's nor root; help: `SourceOptions::other_users`, if that user is to be trusted with what is sent there"
    )]
    OtherUser {
        /// The address.
        address: String,
        /// The user's id.
        uid: u32,
    },
    /// The source has no key for `tls`, or knows none of a target.
    #[error("cannot connect to `{address}`: {problem}")]
    Keys {
        /// The address.
        address: String,
        /// What is missing, and what to do.
        problem: String,
    },
    /// What listens there has another key than the targets that the source connects to.
    #[error(
        "what listens at `{address}` has the key {key}, which is of no target that this source knows; help: if it is the target's, add it to the peers of this process's keys (`TlsKeys::peer`, or a file that IFUNC_TLS_PEERS names)"
    )]
    UnknownTarget {
        /// The address.
        address: String,
        /// The key that it has.
        key: PublicKey,
    },
    /// What listens there is not certified as the target that the source connects to.
    #[cfg(feature = "tls")]
    #[error("the certificate of what listens at `{address}` is not accepted: {problem}")]
    Certificate {
        /// The address.
        address: String,
        /// Why not.
        problem: crate::keys::CertificateError,
    },
    /// The target chose a larger ring than this source maps.
    #[error(
        "the target at `{address}` has rings of {bytes} bytes, and this source maps at most {max}; help: `SourceOptions::max_ring`, or `Target::builder().ring(..)` on the target"
    )]
    Ring {
        /// The address.
        address: String,
        /// What the larger ring takes.
        bytes: usize,
        /// The source's limit.
        max: usize,
    },
    /// The directory for sockets cannot be trusted.
    #[error("`{}` cannot hold sockets: {problem}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl ConnectError {
    /// Whether trying again may help: a target that is being restarted is not there for a moment.
    pub(crate) fn may_pass(&self) -> bool {
        #[cfg(feature = "tls")]
        if matches!(self, Self::Certificate { .. }) {
            return false;
        }
        !matches!(
            self,
            Self::Refused { .. }
                | Self::Version { .. }
                | Self::OtherUser { .. }
                | Self::Ring { .. }
                | Self::Keys { .. }
                | Self::UnknownTarget { .. }
                | Self::Directory { .. }
                | Self::Library { .. }
                | Self::Worker
                | Self::WorkerClosed
        )
    }
}
