//! What all tests begin with.

use ucx::Library;

/// UCX; `None` where the machine has none, and nothing is tested. `IFUNC_REQUIRE_UCX` says that it must have it.
pub(crate) fn library() -> Option<Library> {
    match Library::load() {
        Ok(ucx) => Some(ucx),
        Err(error) => {
            let required = std::env::var_os("IFUNC_REQUIRE_UCX").is_some();
            assert!(!required, "UCX is required here: {error}");
            eprintln!("not tested: {error}");
            None
        }
    }
}
