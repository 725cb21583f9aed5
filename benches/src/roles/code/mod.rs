//! Code that arrives, code that calls its host, and their peers.

pub(super) mod arrivals;
#[cfg(target_arch = "x86_64")]
pub(super) mod bare;
pub(super) mod dlopen;
pub(super) mod host_call;
pub(super) mod kernel;
pub(super) mod level;
pub(super) mod target;
#[cfg(feature = "wasm")]
pub(super) mod wasm;
