//! Sources and targets inside the application's own UCX: its context, its worker, its endpoints.
//!
//! A program that uses UCX already (by itself, under MPI or OpenSHMEM) has workers that it makes progress on and endpoints
//! to its peers. [`Worker::from_raw`] lends ifunc such a worker, and one id of active messages of it. A target then
//! [listens on the worker](crate::TargetBuilder::listen_on), and a source goes [over an endpoint](crate::Source::over). Both
//! may be on one worker, several sources over one endpoint, and the application's own messages beside them.
//!
//! ```no_run
//! # fn application() -> (ifunc_rt::ucx::ucp_context_h, ifunc_rt::ucx::ucp_worker_h, ifunc_rt::ucx::ucp_ep_h) { todo!() }
//! # mod hello { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
//! use ifunc_rt::ucx::{Worker, WorkerOptions};
//! let (context, worker, ep) = application();
//! // SAFETY: both are of this process's UCX, with the feature AM, and outlive `lent`; this thread alone uses them.
//! let lent = unsafe { Worker::from_raw(context, worker, WorkerOptions::new(17))? };
//! // SAFETY: an endpoint of that worker; it is closed behind the source.
//! let source = unsafe { ifunc_rt::Source::over(&lent, ep, Default::default())? };
//! println!("{}", source.register::<hello::add>()?.call(&5)?.wait()?);
//! drop(source);
//! lent.close()?;
//! // From here on the worker is the application's alone, and may be destroyed.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the application must have set
//!
//! * `UCP_FEATURE_AM` in the context. `UCP_FEATURE_WAKEUP` is needed only to sleep: with it, say
//!   [`wakeup(true)`](WorkerOptions::wakeup). Without it, a thread that sleeps polls 16 µs after
//!   the last event, then at intervals that double up to 1 ms.
//! * The same id of active messages on both sides. UCX 1.13 replaces a handler without a word: **that an id is used twice
//!   cannot be found out.** Choose one that the application, and libraries that share the worker, do not use. UCX keeps a table as long as the largest.
//! * Nothing else. An `am_alignment` of 64 is worth having where payloads are longer than 4 KiB (over TCP, longer than 64 KiB): they stay in
//!   UCX's buffer, and are copied where that is not aligned. Endpoints may have any mode of error handling, but see below.
//!
//! `from_raw` asks UCX for the worker's thread mode and its largest header of active messages, and registers the message,
//! which fails without `UCP_FEATURE_AM` if UCX was built to check parameters (Debian's is). Neither UCX 1.13 nor newer versions
//! say which features a context has, so the rest is the caller's word.
//!
//! # Threads
//!
//! A worker of `UCS_THREAD_MODE_SINGLE` is used by the thread that lent it alone: a source or target of it that is used on
//! another one panics, and says so; what is dropped there is left for the next use on the right one. Futures then need
//! [`Source::driver`](crate::Source::driver), since there is no other thread that could receive for them. With
//! `UCS_THREAD_MODE_SERIALIZED` the application ensures that no other thread uses the worker during a call of ifunc. With
//! `UCS_THREAD_MODE_MULTI` there is nothing to see to.
//!
//! # Progress
//!
//! Our callbacks run in whichever call of `ucp_worker_progress` finds something, the application's included. They copy, or keep UCX's buffer, and
//! write down what happened; what follows is done by the next call of ifunc ([`Target::poll`](crate::Target::poll),
//! [`Call::try_wait`](crate::Call::try_wait), …, [`Worker::poll`]). So an application that makes progress itself calls one
//! of those afterwards.
//!
//! By default calls of ifunc make progress, too, and then the application's callbacks run inside of them, while locks are
//! held: **a callback of the application's must not call ifunc**, neither there, where the call would wait for itself and
//! panics instead, nor in the application's own progress, during which UCX allows no other progress. Where an
//! application cannot promise that, or has a lock around its progress, it says
//! [`progress(false)`](WorkerOptions::progress): only it calls `ucp_worker_progress`. Its callbacks may then call what does not
//! wait, unless several threads use the worker: two of them would take UCX's lock and ifunc's in opposite orders. Blocking calls (`wait`, `flush`, a `send` without room, [`Source::over`](crate::Source::over))
//! then end when *another* thread makes progress, and otherwise at their deadline; on a single thread use
//! [`Worker::call`], [`Call::try_wait`](crate::Call::try_wait) and [`Target::poll`](crate::Target::poll).
//!
//! # Ownership
//!
//! Context, worker and endpoints stay the application's. An endpoint that was passed in is never closed by ifunc, nor is its error
//! handler replaced; it must live as long as the source that goes over it, or until [`Worker::peer_gone`]. Endpoints that
//! ifunc makes itself, to sources that connected to [`Target::address`](crate::Target::address), it closes. A target answers a source
//! that came in over an application's endpoint by the endpoint that UCX names with its message: the application's own to that peer, if it
//! has made one. Before it closes an endpoint to a peer that may be a source, it says [`Worker::peer_gone`], too.
//!
//! Before the application destroys the worker: drop sources, targets and calls, then [`Worker::close`]. `close` alone is enough
//! for safety: it says goodbye (1 s at most), takes the callback back, and from then on nothing touches the worker; what is
//! left of sources and targets finds its peer gone. What UCX has not sent by then keeps its memory, for good if the worker is destroyed before it is sent.
//!
//! # A peer's death
//!
//! An endpoint's error handler is the application's. ifunc learns of a death from a send of its own that fails, or when the
//! application says so: call [`Worker::peer_gone`] from where the handler's news is dealt with (not in the handler). An endpoint
//! of `UCP_ERR_HANDLING_MODE_NONE` reports nothing; waits then end at their deadlines.

use std::sync::Arc;
use std::time::Instant;

pub use ::ucx::raw::{ucp_context_h, ucp_ep_h, ucp_worker_h};

use crate::source::{Source, SourceError, SourceOptions};
use crate::transport::ucx::{Calling, Engine, Over};
pub use crate::transport::ucx::{WorkerError, WorkerOptions};
use crate::transport::{ConnectError, Route};

/// A worker of the application's that was lent to ifunc. Clones share it; the last one that goes, of sources and targets too,
/// lets go of the worker.
#[derive(Clone)]
pub struct Worker {
    engine: Arc<Engine>,
}

impl Worker {
    /// Lends a worker. No messages of the application's are touched.
    ///
    /// # Errors
    /// A worker that does not fit, and why.
    ///
    /// # Safety
    /// Context and worker must be alive, belong together and to the `libucp.so.0` of this process, and stay alive until
    /// [`close`](Self::close) has returned `Ok`, or, of a worker of `UCS_THREAD_MODE_SINGLE`, until everything that was made of them is
    /// dropped: of another one, a thread of ifunc's that sleeps may let go last. The context must have `UCP_FEATURE_AM`, and
    /// `UCP_FEATURE_WAKEUP` if [`WorkerOptions::wakeup`] says so. No other part of the program may use the id of active messages. The
    /// threads that use the worker must keep to its thread mode, calls of ifunc included, each for as long as it lasts. A worker may be
    /// lent once at a time with one id.
    pub unsafe fn from_raw(
        context: ucp_context_h,
        worker: ucp_worker_h,
        options: WorkerOptions,
    ) -> Result<Self, WorkerError> {
        // SAFETY: the caller's promise.
        let engine = unsafe { Engine::attach(::ucx::Library::load()?, context, worker, options)? };
        Ok(Self { engine })
    }

    /// Takes in what has happened, for all sources and targets of the worker; makes progress first, unless that is the
    /// application's business. Whether anything had happened.
    pub fn poll(&self) -> bool {
        self.engine.poll()
    }

    /// Sends a hello to the target at the other end of an endpoint, and does not wait: see [`Connecting::poll`]. What
    /// [`Source::over`] does, for a thread that makes progress itself.
    ///
    /// # Errors
    /// The worker is closed, or UCX does not send.
    ///
    /// # Safety
    /// As for [`Source::over`].
    pub unsafe fn call(&self, ep: ucp_ep_h, options: SourceOptions) -> Result<Connecting, SourceError> {
        // SAFETY: the caller's promise.
        let over = unsafe { self.over(ep, &options) };
        Ok(Connecting {
            calling: Some(over.call()?),
            over,
            until: Instant::now().checked_add(options.connect_timeout),
            options,
        })
    }

    /// The peer of an endpoint is gone, as the application has found out, or the application is about to close the endpoint: the
    /// connections over it are over, of sources here and of sources that came in by it. The endpoint is not used again, and may
    /// be closed.
    pub fn peer_gone(&self, ep: ucp_ep_h) {
        self.engine.peer_gone(ep);
    }

    /// Ends all connections, and lets go of the worker: the application may destroy it.
    ///
    /// # Errors
    /// [`WorkerError::OtherThread`]; [`WorkerError::InUse`] in the middle of a poll that is reading from a buffer of the worker's. Polls on other
    /// threads are waited for, for 1 s at most. Nothing was done.
    pub fn close(&self) -> Result<(), WorkerError> {
        self.engine.detach()
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// # Safety
    /// As for [`Source::over`].
    pub(crate) unsafe fn over(&self, ep: ucp_ep_h, options: &SourceOptions) -> Over {
        // SAFETY: the caller's promise.
        unsafe { self.engine.over(ep, options.hello()) }
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

/// A source that has sent its hello over an endpoint of the application's, and waits for the answer.
pub struct Connecting {
    over: Over,
    calling: Option<Calling>,
    until: Option<Instant>,
    options: SourceOptions,
}

impl Connecting {
    /// The source, when the target has taken it; `None`: ask again, after progress was made.
    ///
    /// # Errors
    /// The target refuses; no target listens there, or none answers, until [`SourceOptions::connect_timeout`] has passed.
    ///
    /// # Panics
    /// When the result was returned already.
    pub fn poll(&mut self) -> Result<Option<Source>, SourceError> {
        let calling = self.calling.as_mut().expect("the result was returned already");
        let is_late = self.until.is_some_and(|until| Instant::now() >= until);
        match calling.poll() {
            Some(Ok(link)) => {
                self.calling = None;
                Source::of_link(Route::Endpoint(self.over.clone()), link, self.options.clone()).map(Some)
            }
            // No target listens there yet.
            Some(Err(error)) if error.may_pass() && !is_late => {
                self.calling = Some(self.over.call()?);
                Ok(None)
            }
            Some(Err(error)) => {
                self.calling = None;
                Err(error.into())
            }
            None if is_late => {
                self.calling = None;
                Err(SourceError::Connect(ConnectError::Timeout {
                    address: format!("{:?}", self.over),
                    waiting_for: "it has not said that it takes the connection",
                }))
            }
            None => Ok(None),
        }
    }
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connecting").finish_non_exhaustive()
    }
}
