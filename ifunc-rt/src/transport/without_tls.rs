//! TLS where this crate is built without its feature `tls`: its addresses are known, and lead nowhere.

use std::time::Instant;

use super::address::HostPort;
use super::{ConnectConfig, ConnectError, Link, ListenConfig, ListenError, Listener};

/// What a user of such an address is told.
const PROBLEM: &str = "this program was built without TLS, which addresses `tls://` need; help: build `ifunc-rt` with its feature `tls`, or use `shm:NAME` for a process of this host";

pub(super) fn listen(_: &HostPort, _: ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    Err(ListenError::Library {
        problem: PROBLEM.into(),
    })
}

pub(super) fn connect(_: &HostPort, _: &ConnectConfig, _: Instant) -> Result<Link, ConnectError> {
    Err(ConnectError::Library {
        problem: PROBLEM.into(),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Source, Target};

    #[test]
    fn addresses_of_tls_are_refused_with_help() {
        let listening = Target::builder().listen("tls://127.0.0.1:0").map(drop);
        let connecting = Source::connect("tls://127.0.0.1:1").map(drop);
        for error in [
            listening.unwrap_err().to_string(),
            connecting.unwrap_err().to_string(),
        ] {
            assert!(
                error.contains("help: build `ifunc-rt` with its feature `tls`"),
                "{error}"
            );
        }
    }
}
