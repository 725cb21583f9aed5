//! Which threads poll a target's connections.
//!
//! One thread polls all that are active in turn, or the threads of a [`Pool`](pool::Pool) take one each. An idle target sleeps
//! on its [`TargetDoorbell`](doorbell::TargetDoorbell).

pub(crate) mod doorbell;
#[cfg(all(test, loom))]
mod model;
pub(crate) mod pool;

/// How long a target polls for work before it sleeps, unless its builder says so: longer than a wake-up takes.
pub(crate) const SPIN: std::time::Duration = std::time::Duration::from_micros(100);
