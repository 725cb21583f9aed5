//! What a target admits: which peers connect, whose code runs, what that code may import and use, and what a fault does.

mod allowance;
mod authority;
#[cfg(feature = "tls")]
mod certificates;
mod connect;
mod file;
mod grant;
mod live;
mod quotas;
mod rules;
mod verdict;
mod verified;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use allowance::Allowance;
pub(crate) use authority::{Authority, Limited};
pub(crate) use connect::Connect;
pub use connect::{AddressRange, InvalidRange};
pub use file::PolicyFileError;
pub use grant::Grant;
pub use live::PolicyHandle;
pub(crate) use live::{CLOSED, LivePolicy, SharedConnect};
pub use quotas::Quotas;
pub(crate) use quotas::{Charge, Meter};
pub(crate) use rules::{Candidate, Readmission, Rules};
pub use verdict::Verdict;

use crate::RunnerOptions;
use crate::keys::PublicKey;
use crate::target::Level;
use crate::transport::Peer;
use crate::transport::address::Knows;

/// A connected source, as far as the kernel identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceInfo {
    /// Number of the connection on this target: the value of [`Context::sender`](ifunc_abi::context::Context::sender).
    pub connection: u64,
    /// Its user id; `None` if the transport does not know it.
    pub uid: Option<u32>,
    /// Its process id.
    pub pid: Option<i32>,
    /// The key that it connected by, over `tls`, or over `ucx` to a target that has keys.
    pub key: Option<PublicKey>,
    /// The name of the certificate that it connected by, over `tls`: that of the [policy](Policy::connect_certificate) by which it was
    /// admitted.
    pub name: Option<Arc<str>>,
    /// When it connected, its user was that of this process. Asked of the kernel once.
    pub(crate) is_same_user: bool,
}

impl SourceInfo {
    pub(crate) fn new(connection: u64, peer: &Peer) -> Self {
        let me = rustix::process::geteuid().as_raw();
        Self {
            is_same_user: peer.uid == Some(me),
            connection,
            uid: peer.uid,
            pid: peer.pid,
            key: peer.key,
            name: peer
                .certified
                .as_ref()
                .map(|certified| Arc::clone(&certified.name)),
        }
    }
}

/// An image that asks to be installed, by one of its entries. An image with several entries is accepted if each of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageInfo<'a> {
    /// Name that the image gives the entry; not an identity.
    pub name: &'a str,
    /// BLAKE3 of its bytes: its identity.
    pub id: &'a [u8; 32],
    /// Its size in bytes.
    pub len: usize,
    /// The name that the [policy](Policy::accept_key) gives the key that signed it. `None`: it was accepted as unsigned code.
    pub signer: Option<&'a str>,
    /// What it imports: names of functions and variables of the target, and of the runtime (those begin with `__ifunc_`).
    pub imports: &'a [&'a str],
    /// Whether it is installed already: the policy was [replaced](crate::PolicyHandle::replace), and the check decides whether it stays.
    pub is_installed: bool,
}

/// A function of the host's that refuses images. One thread at a time calls it.
pub(crate) type Check = Arc<Mutex<Box<dyn Fn(&SourceInfo, &ImageInfo<'_>) -> Verdict + Send>>>;

/// Sources whose code a target may run without a signature: see [`Policy::accept_unsigned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsigned {
    /// Processes of the target's own user, as the kernel reports it. No network transport knows users.
    SameUser,
    /// Every process that may connect: other users if they may, over UCX every peer that reaches the address, and over `tls`, or
    /// over `ucx` if the target has keys, the holders of the keys that the target admits.
    EveryPeer,
}

/// What a target admits. The default admits processes of its own user, and runs no code.
///
/// ```no_run
/// use ifunc_rt::keys::PublicKey;
/// use ifunc_rt::{Grant, Level, Policy, Quotas, Target};
///
/// let (builds, _) = PublicKey::read("/etc/store/builds.pub")?;
/// let (analysts, _) = PublicKey::read("/etc/store/analysts.pub")?;
/// // SAFETY: the holders of these keys may do in this process whatever they like: a signature tells who made an image, and the
/// // grants are for mistakes.
/// let policy = unsafe {
///     Policy::new()
///         .accept_key("builds", builds, Grant::new())
///         .accept_key("analysts", analysts, Grant::new().imports(["kv_get", "log_*"]))
/// };
/// let policy = policy
///     .connect_from(["10.1.0.0/16".parse()?])
///     .quotas(Quotas::default().images(64).installs_per_second(20))
///     .level(Level::Contained);
/// let target = Target::builder().policy(policy).listen("ucx://10.1.0.7:7000")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The same from a file: [`read`](Self::read).
///
/// | what is refused | status at the source |
/// |---|---|
/// | a connection of another user, from another address, or by another key or certificate | [`ConnectError::Refused`](crate::ConnectError::Refused) |
/// | an image of a source of which nothing is accepted, or that [`accept_if`](Self::accept_if) refuses | [`Rejection::Policy`](crate::Rejection::Policy) |
/// | an image without a signature, with a wrong one, or one by an unknown key | [`Rejection::Signature`](crate::Rejection::Signature) |
/// | an image signed by a revoked key | [`Rejection::Revoked`](crate::Rejection::Revoked) |
/// | an import that is not granted | [`Rejection::Import`](crate::Rejection::Import) |
/// | an image that is not pure | [`Rejection::NotPure`](crate::Rejection::NotPure) |
/// | what exceeds a quota, but for [`run_time`](Quotas::run_time), at which an invocation fails | [`Rejection::Quota`](crate::Rejection::Quota), [`Rejection::TooLarge`](crate::Rejection::TooLarge) for sizes that the target has stated |
///
/// For each the target logs one line (`WARN`), limited as other lines that peers cause. Its field `refused` says what was refused. The lines
/// that the limit leaves out are events of the target [`SUPPRESSED_EVENTS`](crate::SUPPRESSED_EVENTS).
#[derive(Clone)]
#[must_use]
pub struct Policy {
    pub(crate) connect: Connect,
    same_user: Option<Grant>,
    every_peer: Option<Grant>,
    keys: Vec<TrustedKey>,
    revoked: BTreeSet<PublicKey>,
    check: Option<Check>,
    pub(crate) quotas: Quotas,
    pub(crate) stack: usize,
    pub(crate) level: Level,
    pub(crate) runners: RunnerOptions,
    pub(crate) max_run_time: Option<Duration>,
}

/// A key whose code runs.
#[derive(Clone, Debug)]
struct TrustedKey {
    name: String,
    key: PublicKey,
    grant: Grant,
}

/// Why a target cannot serve by a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Over a network the policy would refuse all code.
    #[error(
        "this policy accepts code of the target's own user alone, and `{address}` knows no users; help: sign the images and `Policy::accept_key`, or, where every peer that reaches the address is trusted, `Policy::trust_every_peer`"
    )]
    NoUsers {
        /// The address.
        address: String,
    },
    /// Address ranges where the transport knows no addresses.
    #[error(
        "this policy admits connections by address, and `{address}` does not know the addresses of its peers; help: listen at `tls://HOST:PORT` or `ucx://HOST:PORT`, or leave out `Policy::connect_from`"
    )]
    NoAddresses {
        /// The address.
        address: String,
    },
    /// Keys of peers where the transport authenticates none.
    #[error(
        "this policy admits connections by key, and the peers of `{address}` prove none; help: listen at `tls://HOST:PORT`, give a target at `ucx://HOST:PORT` keys (`TargetBuilder::tls`, IFUNC_TLS_KEY), or leave out `Policy::connect_key`"
    )]
    NoPeerKeys {
        /// The address.
        address: String,
    },
    /// A name that no certificate has.
    #[error(
        "`{name}` is not a name by which a certificate connects; help: write a DNS name, an IP address or a URI; a wildcard is for certificates"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A policy that [replaces](PolicyHandle::replace) another one changes what holds for as long as the target serves.
    #[error(
        "{what} cannot change while the target serves; help: start the target again for that, or leave it as it was"
    )]
    Fixed {
        /// What the new policy changes.
        what: &'static str,
    },
    /// One key with two grants.
    #[error(
        "the keys `{first}` and `{second}` of this policy are the same key {key}; help: keep one of the two"
    )]
    SameKey {
        /// Name of one.
        first: String,
        /// Name of the other.
        second: String,
        /// The key.
        key: PublicKey,
    },
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            connect: Connect::default(),
            same_user: None,
            every_peer: None,
            keys: Vec::new(),
            revoked: BTreeSet::new(),
            check: None,
            quotas: Quotas::default(),
            stack: 4 << 20,
            level: Level::default(),
            runners: RunnerOptions::default(),
            max_run_time: None,
        }
    }
}

impl Policy {
    /// Admits processes of the target's own user, and runs no code.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs code of processes of the target's own user, without signatures: the default of embedded uses.
    /// [`TargetBuilder::accept_code`](crate::TargetBuilder::accept_code) uses it.
    ///
    /// # Safety
    /// As for [`accept_unsigned`](Self::accept_unsigned).
    pub unsafe fn trust_same_user() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new().accept_unsigned(Unsigned::SameUser, Grant::new()) }
    }

    /// Runs code of every peer that may connect, without signatures. Over UCX that is every process that reaches the address, over
    /// `tls` every process with a key that the target [admits](Self::connect_key).
    ///
    /// # Safety
    /// As for [`accept_unsigned`](Self::accept_unsigned).
    pub unsafe fn trust_every_peer() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new().accept_unsigned(Unsigned::EveryPeer, Grant::new()) }
    }

    // Which peers connect.

    /// Lets processes of these users connect over `shm`, beside those of the target's own user. The target copies the payloads
    /// of other users out of shared memory before it uses them.
    pub fn connect_users(mut self, users: impl IntoIterator<Item = u32>) -> Self {
        self.connect.add_users(users);
        self
    }

    /// Lets processes of all users connect over `shm`: see [`connect_users`](Self::connect_users).
    pub fn connect_any_user(mut self) -> Self {
        self.connect.add_any_user();
        self
    }

    /// Lets the holder of this key connect over `tls`, and over `ucx` to a target that has keys, beside the [peers](crate::keys::TlsKeys::peer) of the target's own keys. The
    /// name stands for the key in logs. It says nothing of the code that the peer sends: see [`accept_key`](Self::accept_key).
    pub fn connect_key(mut self, name: impl Into<String>, key: PublicKey) -> Self {
        self.connect.add_key(name.into(), key);
        self
    }

    /// Lets peers connect over `tls`, `ucx` and `ucx-put` from these addresses only. Called again, from those, too. Without this, from
    /// every address.
    ///
    /// Over UCX it is a filter for honest peers: what reaches the ports that UCX opens reaches UCX, which trusts its peers (`SECURITY.md`).
    pub fn connect_from(mut self, ranges: impl IntoIterator<Item = AddressRange>) -> Self {
        self.connect.add_addresses(ranges);
        self
    }

    // Whose code runs.

    /// Accepts code without a signature from these sources, and code signed by keys that the policy does not know. A second call
    /// for the same sources replaces the grant. For processes of the same user the grant of [`Unsigned::SameUser`] holds, if
    /// there is one.
    ///
    /// # Safety
    /// Accepted code runs with all the rights of this process, but at [`Level::Process`]. Nothing confines it: neither a signature, which proves its
    /// author, nor a grant. The caller trusts these sources with this process's memory. The arguments of
    /// [`allow`](crate::TargetBuilder::allow), [`allow_set`](crate::TargetBuilder::allow_set) and
    /// [`allow_library`](crate::TargetBuilder::allow_library) must be what the accepted code takes them for.
    ///
    /// A panic leaves an invocation by a jump, as `longjmp` would, and so does everything else that ends one early. A
    /// function passed to those three that calls back into injected code (as `qsort` calls its comparison) has its
    /// frames jumped over: none of their values are dropped, and locks that they hold stay locked. Each such function
    /// must tolerate that. Functions registered by `#[ifunc::export]` need not: a panic in a callback (`&mut dyn
    /// FnMut`) lets them return first, and one in what they call by a raw pointer ends the process.
    pub unsafe fn accept_unsigned(mut self, from: Unsigned, grant: Grant) -> Self {
        match from {
            Unsigned::SameUser => self.same_user = Some(grant),
            Unsigned::EveryPeer => self.every_peer = Some(grant),
        }
        self
    }

    /// Accepts code that is signed by this key, from every source that may connect. The name stands for the key in
    /// messages and logs.
    ///
    /// # Safety
    /// As for [`accept_unsigned`](Self::accept_unsigned), for every holder of the secret key.
    pub unsafe fn accept_key(mut self, name: impl Into<String>, key: PublicKey, grant: Grant) -> Self {
        let name = name.into();
        self.keys.push(TrustedKey { name, key, grant });
        self
    }

    /// Refuses code that is signed by this key, and connections by it, whatever else is said of the key or the source.
    pub fn revoke(mut self, key: PublicKey) -> Self {
        self.connect.revoke(key);
        self.revoked.insert(key);
        self
    }

    /// Refuses images for which `check` returns `false`, or a [`Verdict`] that refuses them with a reason; a verdict may also state an
    /// [`Allowance`], which the image then uses. The target calls it at every install of an image that the rest of the
    /// policy accepts, and for each slice for other machines that the image brings along; and again for each installed image of each
    /// connection when the policy is [replaced](crate::PolicyHandle::replace), by that of the new policy: one that it refuses is released,
    /// and the invocations of the others use the allowance of the new verdict. (Their memory counts as it did, until they are released.) If
    /// the image comes over a link that carries invocations both ways, the link is locked meanwhile: `check` must not use a source that
    /// sends over it.
    pub fn accept_if<V: Into<Verdict>>(
        mut self,
        check: impl Fn(&SourceInfo, &ImageInfo<'_>) -> V + Send + 'static,
    ) -> Self {
        let check = move |source: &SourceInfo, image: &ImageInfo<'_>| check(source, image).into();
        self.check = Some(Arc::new(Mutex::new(Box::new(check))));
        self
    }

    // What code may use.

    /// What each connection may use. Those of a key or of unsigned code are in its [`Grant`].
    pub fn quotas(mut self, quotas: Quotas) -> Self {
        self.quotas = quotas;
        self
    }

    /// Changes some of the quotas of each connection, and keeps the others: of a policy that a file says, for example.
    ///
    /// ```
    /// use ifunc_rt::Policy;
    ///
    /// // SAFETY: no code runs by this text.
    /// let policy = unsafe { Policy::from_toml("[quotas]\nimages = 64\npayload-bytes = 4096\n") }?;
    /// let policy = policy.change_quotas(|quotas| quotas.images(8)); // and at most 4096 bytes of payload
    /// # Ok::<(), ifunc_rt::PolicyFileError>(())
    /// ```
    pub fn change_quotas(mut self, change: impl FnOnce(Quotas) -> Quotas) -> Self {
        self.quotas = change(self.quotas);
        self
    }

    /// Stack of injected code in bytes, at least 512 KiB. Default 4 MiB; memory is committed when it is touched.
    pub fn stack(mut self, bytes: usize) -> Self {
        self.stack = bytes;
        self
    }

    // What a fault does.

    /// What ends an invocation alone, and what ends the process. Default [`Level::Panics`].
    ///
    /// With [`Level::Contained`], a fault of an ifunc is reported to its source as [`Failure::Fault`](crate::Failure::Fault),
    /// with the signal, the address and the place. It is for bugs, not for attackers: whatever the ifunc wrote before stays
    /// written. A fault that is not the ifunc's own ends the process as before: one in an exported function, or in a
    /// function that was [`allow`](crate::TargetBuilder::allow)ed without a guard. As for a panic, an invocation that ends early
    /// is left by a jump: see [`accept_unsigned`](Self::accept_unsigned).
    ///
    /// The handlers of SIGSEGV, SIGBUS, SIGFPE and SIGILL (on AArch64 also of SIGTRAP) that the process has when the first target is made keep everything that is
    /// not contained. A handler that is installed afterwards takes the place of the target's: a later target warns of that.
    pub fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// The runner processes of [`Level::Process`]: their program, and what they may use.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use ifunc_rt::{Level, Policy, RunnerOptions, Target};
    ///
    /// // SAFETY: ifuncs run in processes that are confined.
    /// let policy = unsafe { Policy::trust_every_peer() }
    ///     .level(Level::Process)
    ///     .runners(RunnerOptions::new().memory(64 << 20))
    ///     .max_run_time(Duration::from_millis(100));
    /// let target = Target::builder().policy(policy).listen("shm:store")?;
    /// # Ok::<(), ifunc_rt::TargetError>(())
    /// ```
    pub fn runners(mut self, options: RunnerOptions) -> Self {
        self.runners = options;
        self
    }

    /// Changes some of the options of runner processes, and keeps the others: of a policy that a file says, for example.
    pub fn change_runners(mut self, change: impl FnOnce(RunnerOptions) -> RunnerOptions) -> Self {
        self.runners = change(self.runners);
        self
    }

    /// How long an invocation may run; the entries of a batch that run together count as one. Default: without a limit. At
    /// the limit, or at most a quarter (at least a millisecond) after it, the invocation ends with
    /// [`Failure::Deadline`](crate::Failure::Deadline), at whatever instruction it is. A function of the host is not
    /// interrupted: the invocation ends when that returns.
    ///
    /// A thread of the target's own watches all invocations; they pay nothing for it. A thread that runs an invocation
    /// that is overdue gets SIGURG. A target that moves to another thread and is polled there by hand watches that thread once it has
    /// been armed ([`Target::arm`](crate::Target::arm)) there, or has taken an image.
    pub fn max_run_time(mut self, limit: Duration) -> Self {
        self.max_run_time = Some(limit);
        self
    }

    /// Whether it accepts code of processes of its own user alone.
    fn knows_users_only(&self) -> bool {
        self.same_user.is_some() && self.every_peer.is_none() && self.keys.is_empty()
    }

    /// Checks whether the policy suits what a transport knows of its peers.
    pub(crate) fn check_transport(&self, address: &str, knows: Knows) -> Result<(), PolicyError> {
        let address = || address.to_owned();
        if !knows.users && self.knows_users_only() {
            return Err(PolicyError::NoUsers { address: address() });
        }
        if !knows.users && !knows.addresses && self.connect.has_addresses() {
            return Err(PolicyError::NoAddresses { address: address() });
        }
        if !knows.users && !knows.keys && self.connect.has_keys() {
            return Err(PolicyError::NoPeerKeys { address: address() });
        }
        Ok(())
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connect,
            same_user,
            every_peer,
            keys,
            revoked,
            check,
            quotas,
            stack,
            level,
            runners,
            max_run_time,
        } = self;
        f.debug_struct("Policy")
            .field("connect", connect)
            .field("same_user", same_user)
            .field("every_peer", every_peer)
            .field("keys", keys)
            .field("revoked", revoked)
            .field("has_check", &check.is_some())
            .field("quotas", quotas)
            .field("stack", stack)
            .field("level", level)
            .field("runners", runners)
            .field("max_run_time", max_run_time)
            .finish()
    }
}
