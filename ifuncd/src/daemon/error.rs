//! Why the daemon does not run.

use ifunc_rt::{PolicyError, TargetError};

/// Why the daemon does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The file of the store.
    #[error("cannot open the store `{path}`: {error}")]
    Store {
        /// The file.
        path: String,
        /// Why.
        error: redb::Error,
    },
    /// The folder of the files.
    #[error("cannot open the folder `{path}`: {error}")]
    Files {
        /// The folder.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// A target does not listen, or stopped.
    #[error("the target at `{address}`: {error}")]
    Target {
        /// The address.
        address: String,
        /// Why.
        error: TargetError,
    },
    /// The policy of a target.
    #[error("the policy: {0}")]
    Policy(#[from] PolicyError),
    /// The address of the metrics.
    #[error("cannot serve metrics at `{address}`: {error}")]
    Metrics {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// A target ended without a request.
    #[error("the target at `{address}` stopped serving: a panic in the daemon")]
    Panicked {
        /// The address.
        address: String,
    },
    /// The system refused something.
    #[error("cannot {what}: {error}")]
    Os {
        /// What.
        what: &'static str,
        /// Why.
        error: std::io::Error,
    },
}

pub(super) fn os(what: &'static str) -> impl FnOnce(std::io::Error) -> DaemonError {
    move |error| DaemonError::Os { what, error }
}
