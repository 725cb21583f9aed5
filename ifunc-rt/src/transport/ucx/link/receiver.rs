//! The receiving side of a connection whose frames are messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::ucx::Operations as _;

use super::{CLOSED, Handle, connection};
use crate::driver::biased::this_thread;
use crate::transport::ucx::engine::{Core, Locked};
use crate::transport::ucx::events::EventQueue;
use crate::transport::ucx::frame::Frame;
use crate::transport::ucx::receive_queue::with_queue;
use crate::transport::ucx::table::ConnectionId;
use crate::transport::{self, Body, Inbound, LinkError, Park};

/// Frames in.
pub(super) struct Receiver {
    handle: Arc<Handle>,
    /// The frame that `peek` found. Once it is released its packet stays here until the lock is taken anyway; if credits are due, until
    /// the poll ends.
    frame: Option<Frame>,
    is_released: bool,
    /// Credits are due as soon as the frame is released.
    is_due: bool,
    /// [`polls`](crate::transport::ucx::engine::Engine::polls) of the engine at the last poll that found nothing.
    polled: u64,
    /// Polls in succession that did not progress UCX, because a frame was sent just before.
    passed: u32,
}

impl Receiver {
    pub(super) fn new(handle: &Arc<Handle>) -> Self {
        Self {
            polled: handle.engine.polls(),
            handle: Arc::clone(handle),
            frame: None,
            is_released: false,
            is_due: false,
            passed: 0,
        }
    }

    /// Gets the next frame, if there is one. Progresses UCX if no thread did since the last poll, unless a poll of the target has. Nor where
    /// the last thing that happened is that a frame was sent: a sender polls in passing, for what cannot be there yet, and a waiting thread
    /// polls again.
    fn next(&mut self) -> Result<(), LinkError> {
        if self.passes() {
            return Ok(());
        }
        let engine = &self.handle.engine;
        let mut locked = engine.lock();
        if self.owes() {
            spend(&mut locked, self.handle.id, self.frame.take());
            self.is_released = false;
        }
        let may_progress = self.polled == engine.polls() && !engine.polling.is_here();
        if may_progress && is_empty(&mut locked, self.handle.id) {
            locked.progress();
            self.polled = engine.polls();
        }
        if !locked.worker.handler().is_empty() {
            // What came before the frame, in a call of the application's, is seen to before it.
            locked.dispatch();
        }
        let Core { worker, state } = &mut *locked;
        let mut handler = worker.handler();
        let EventQueue {
            receive_queues, pool, ..
        } = &mut *handler;
        let queue = receive_queues.get_mut(self.handle.id).ok_or(CLOSED)?;
        // The credits of what was released are not due: they go with another message to the peer once they are many.
        if std::mem::take(&mut self.is_released)
            && let Some(frame) = self.frame.take()
        {
            queue.release(frame.len());
            let (packet, _) = frame.into_memory();
            pool.give(packet);
        }
        match queue.take() {
            Some((frame, is_due)) => {
                if frame.is_kept() {
                    state.being_read += 1;
                    state.reader = this_thread();
                }
                (self.frame, self.is_due) = (Some(frame), is_due);
            }
            None => self.polled = engine.polls(),
        }
        drop(handler);
        if self.frame.is_some() {
            return Ok(());
        }
        let connection = state.connections.get(&self.handle.id).ok_or(CLOSED)?;
        connection.gone.clone().map_or(Ok(()), Err)
    }

    /// Whether a poll finds nothing, and has nothing else to do.
    fn passes(&mut self) -> bool {
        let signs = &self.handle.signs;
        if signs.arrived.load(Ordering::Acquire) || signs.is_gone() || self.owes() {
            return false;
        }
        let engine = &self.handle.engine;
        let polls = engine.polls();
        if polls != self.polled || engine.polling.is_here() {
            self.polled = polls;
            return true;
        }
        if signs.sent.load(Ordering::Relaxed) && self.passed < PASSED {
            signs.sent.store(false, Ordering::Relaxed);
            self.passed += 1;
            return true;
        }
        self.passed = 0;
        // The next call answers the same.
        signs.sent.store(false, Ordering::Relaxed);
        false
    }

    /// Whether there is something to be given back that does not wait for another reason to take the lock.
    fn owes(&self) -> bool {
        self.is_released && self.is_due
    }

    /// Whether there is a frame that was not released.
    fn has_frame(&self) -> bool {
        self.frame.is_some() && !self.is_released
    }

    /// On an application's worker, which may be left between two polls: puts a frame in a buffer of UCX's that was not released back into its queue.
    fn put_back(&mut self) {
        if !self.has_frame() || self.handle.engine.attached().is_none() {
            return;
        }
        let Some(frame) = self.frame.take_if(|frame| frame.is_kept()) else {
            return;
        };
        let mut locked = self.handle.engine.lock();
        locked.state.being_read -= 1;
        let mut handler = locked.worker.handler();
        match handler.receive_queues.get_mut(self.handle.id) {
            Some(queue) => queue.put_back(frame),
            None => {
                drop(handler);
                locked.release(frame);
            }
        }
    }

    /// Gives back what was released.
    fn settle_up(&mut self) {
        if std::mem::take(&mut self.is_released) {
            spend(&mut self.handle.engine.lock(), self.handle.id, self.frame.take());
        }
    }
}

/// Polls in passing, in succession, that do not progress UCX.
const PASSED: u32 = 64;

/// Whether no frame is here, and the connection goes on.
fn is_empty(locked: &mut Locked<'_>, id: ConnectionId) -> bool {
    let is_open = connection(locked, id).is_ok_and(|connection| connection.gone.is_none());
    is_open && with_queue(&mut locked.worker, id, |queue| queue.is_empty()).unwrap_or(false)
}

/// Gives the buffer of UCX's back that a body was read from.
#[cold]
fn free_body(locked: &mut Locked<'_>, frame: &mut Frame) {
    if let Some(kept) = frame.take_kept() {
        locked.worker.release(kept);
        locked.state.being_read -= 1;
    }
}

/// Gives the memory of a frame back, and credits to the peer if they are due.
fn spend(locked: &mut Locked<'_>, id: ConnectionId, frame: Option<Frame>) {
    let Some(frame) = frame else { return };
    let len = frame.len();
    locked.release(frame);
    let is_due = with_queue(&mut locked.worker, id, |queue| queue.release(len)).unwrap_or(false);
    if is_due && connection(locked, id).is_ok_and(|connection| connection.gone.is_none()) {
        locked.credit(id);
    }
}

impl Inbound for Receiver {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<transport::Frame<Body<'_>>>, LinkError> {
        if !self.has_frame() {
            self.next()?;
        }
        let frame = self.frame.as_ref().filter(|_| !self.is_released);
        Ok(frame.map(|frame| transport::Frame {
            sequence: frame.sequence(),
            words: frame.words(),
            // SAFETY: the memory is the frame's until `release`, which needs `self` mutably. A buffer of UCX's stays: a worker is not left while
            // `being_read` counts it, and the end of the poll puts the frame back.
            body: unsafe { Body::new(frame.body(), frame.len()) },
        }))
    }

    fn is_empty(&mut self) -> bool {
        !self.has_frame() && self.passes()
    }

    fn release(&mut self) {
        let Some(frame) = &mut self.frame else { return };
        self.is_released = true;
        if frame.is_kept() {
            free_body(&mut self.handle.engine.lock(), frame);
        }
    }

    fn is_drained(&self) -> bool {
        let (signs, polling) = (&self.handle.signs, &self.handle.engine.polling);
        // Outside of a poll, another look sends what is gathered.
        let ends = polling.is_here() || !polling.is_gathered();
        ends && !signs.arrived.load(Ordering::Acquire) && !signs.is_gone() && !self.owes()
    }

    fn end_poll(&mut self, _found: bool, settles: bool) {
        self.put_back();
        if settles {
            self.settle();
        }
    }

    fn has_arrived(&mut self) -> Result<bool, LinkError> {
        let has_arrived = self.peek()?.is_some();
        self.put_back();
        Ok(has_arrived)
    }

    fn settle(&mut self) {
        // Credits that are not due do not keep the peer from sending.
        if self.owes() {
            self.settle_up();
        }
    }
}

impl Park for Receiver {
    fn arm(&mut self) -> bool {
        self.settle_up();
        self.handle.signs.armed.store(true, Ordering::Relaxed);
        // Also on a worker that listens: this thread may be another one than its target's, or the target's between two polls.
        self.handle.engine.lock().arm();
        self.is_idle()
    }

    fn disarm(&mut self) {
        self.handle.signs.armed.store(false, Ordering::Relaxed);
        self.handle.set_parked(false);
    }

    fn park(&mut self) {
        self.settle_up();
        self.handle.set_parked(true);
    }

    fn is_idle(&mut self) -> bool {
        !self.has_frame() && self.handle.signs.is_idle()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Where the worker cannot be used it is the application's, and no poll is under way: nothing of UCX's is here, unless one panicked.
        if let Some(mut frame) = self.frame.take()
            && let Some(mut locked) = self.handle.engine.lock_here()
        {
            free_body(&mut locked, &mut frame);
            locked.release(frame);
        }
    }
}
