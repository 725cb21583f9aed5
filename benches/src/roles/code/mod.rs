//! Code that arrives, and code that calls its host; and what else does.

pub(super) mod arrivals;
pub(super) mod dlopen;
pub(super) mod host_call;
pub(super) mod target;
#[cfg(feature = "wasm")]
pub(super) mod wasm;
