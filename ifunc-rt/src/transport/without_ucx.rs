//! UCX where this crate is built without its feature `ucx`: its addresses are known, and lead nowhere.

use std::time::Instant;

use super::address::Address;
use super::{ConnectConfig, ConnectError, Link, ListenConfig, ListenError, Listener};

/// What a user of such an address is told.
const PROBLEM: &str = "this program was built without UCX, which addresses `ucx://`, `ucx-put://` and `ucx-worker:` need; help: build `ifunc-rt` with its feature `ucx`, which is on by default, or use `shm:NAME` for a process of this host";

pub(super) fn listen(_: &Address, _: &ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    Err(ListenError::Library {
        problem: PROBLEM.into(),
    })
}

pub(super) fn connect(_: &Address, _: &ConnectConfig, _: Instant) -> Result<Link, ConnectError> {
    Err(ConnectError::Library {
        problem: PROBLEM.into(),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Source, Target};

    #[test]
    fn addresses_of_ucx_are_refused_with_help() {
        for address in ["ucx://127.0.0.1:0", "ucx-put://127.0.0.1:0", "ucx-worker:"] {
            let error = Target::builder().listen(address).map(drop).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("help: build `ifunc-rt` with its feature `ucx`"),
                "{error}"
            );
        }
        let error = Source::connect("ucx://127.0.0.1:1").map(drop).unwrap_err();
        assert!(error.to_string().contains("built without UCX"), "{error}");
    }
}
