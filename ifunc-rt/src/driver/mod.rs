//! How threads, futures and event loops wait for a connection, and how a target's worker pool waits for work.
//!
//! Any number of threads and futures share a connection, under one lock ([`BiasedMutex`](biased::BiasedMutex)). A thread that
//! has to wait for something polls for all that wait.
//!
//! * **Polling** is the task of the [`Leader`](leader::Leader). One thread spins or sleeps on the link's doorbell; the others
//!   follow.
//! * **Parked** is a follower, or a future, whose waker lies in a [`WaitQueue`](queue::WaitQueue). Waiters for credit also
//!   have a place in the [`CreditQueue`](credit::CreditQueue), which is first come, first served, with a bound on how many frames
//!   of others overtake.
//! * **Waking** follows the connection's report of which tokens completed, that there is credit, and that the link was lost
//!   ([`Signals`](driven::Signals)). Wakers are collected under the lock and called after it is released, by the one
//!   [guard](wake::WakeGuard) there is.
//! * **How long a waiter polls** before it parks: [`Backoff`](backoff::Backoff).
//!
//! A [thread](wait) waits by itself, a [future] through the thread that polls for futures ([`background`]) or through
//! the application's event loop ([`Driver`](crate::Driver)). Another thread sends open batches in [time](timer).

pub(crate) mod background;
pub(crate) mod backoff;
pub(crate) mod biased;
mod credit;
pub(crate) mod driven;
pub(crate) mod future;
pub(crate) mod leader;
#[cfg(all(test, loom))]
mod model;
pub(crate) mod parker;
pub(crate) mod queue;
pub(crate) mod state;
mod timer;
pub(crate) mod wait;
pub(crate) mod wake;
