//! A request to a runner process that is under way, from the target's side: what the runner asks meanwhile.
//!
//! An ifunc calls a function of the host, which may call a function of the ifunc, which may call another function of the host, and so on.
//! So each wait for the runner serves what the runner asks, on the stack of the thread that waits. The runner is not trusted: it answers in
//! turn, in time and not too deep, or its process is ended; then no callback returns a value any more, the host's functions return one after
//! the other, and the request fails for the first reason.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use ifunc_abi::status::Status;

use super::buffer::{Buffer, CallError};
use super::callback::{Callback, Ifunc, NotReturned};
use super::process::{GRACE, Lost, Process};
use super::registers::Passed;
use super::segment::{Area, Kind, Message};
use crate::ended::LogMessage;

/// Most functions of the host that run at a time for one invocation, each within a callback of the one before. All are on the stack of
/// the thread that serves.
const MAX_DEPTH: usize = 8;

/// What a runner may ask while it does what the target asked for.
pub(super) trait Host {
    /// A message of an ifunc.
    fn log(&self, message: &LogMessage<'_>);

    /// Calls a function of the host with the arguments in a buffer. Its callbacks are functions of `ifunc`.
    ///
    /// # Errors
    /// It panicked, or the runner may not call it so.
    fn call(&self, number: u64, buffer: &mut Buffer, ifunc: &dyn Ifunc) -> Result<(), CallError>;
}

/// Outside of invocations.
pub(super) struct Nothing;

impl Host for Nothing {
    fn log(&self, _: &LogMessage<'_>) {}

    fn call(&self, _: u64, _: &mut Buffer, _: &dyn Ifunc) -> Result<(), CallError> {
        Err(CallError::Breach("a call outside of an invocation"))
    }
}

/// A request that is under way.
pub(super) struct Conversation<'a> {
    /// Not borrowed while a function of the host runs.
    process: RefCell<&'a mut Process>,
    host: &'a dyn Host,
    /// Until when the runner may go on.
    deadline: Cell<Option<Instant>>,
    /// The time was over when a function of the host returned, which is not interrupted: the runner has a moment to end the invocation.
    is_over: Cell<bool>,
    /// A callback was not called because the time was over.
    is_cut_short: Cell<bool>,
    /// Functions of the host that run.
    depth: Cell<usize>,
    /// Why the process ended during a callback: the request fails when the functions of the host have returned.
    lost: RefCell<Option<Lost>>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(process: &'a mut Process, deadline: Option<Instant>, host: &'a dyn Host) -> Self {
        Self {
            process: RefCell::new(process),
            host,
            deadline: Cell::new(deadline),
            is_over: Cell::new(false),
            is_cut_short: Cell::new(false),
            depth: Cell::new(0),
            lost: RefCell::default(),
        }
    }

    /// Sends the request and returns the words of its [`Kind::Done`].
    ///
    /// # Errors
    /// The process has ended, or was ended.
    pub(super) fn request(&self, request: &Message) -> Result<[u64; 6], Lost> {
        let words = self.exchange(request, Kind::Done)?;
        // A runner that has not found out that the time is over takes the host's function for one that ended by itself.
        if self.is_cut_short.get() && words[0] == Status::Executed.code().into() {
            return Err(self.process.borrow_mut().end_overdue());
        }
        Ok(words)
    }

    /// Sends a message and serves the runner until it answers with one of this kind, whose words are returned.
    fn exchange(&self, message: &Message, answer: Kind) -> Result<[u64; 6], Lost> {
        self.send(message);
        loop {
            let Message { kind, words } = self.process.borrow_mut().receive(self.deadline.get())?;
            match kind {
                _ if kind == answer => return Ok(words),
                // A runner that always has something to say is late, too.
                Kind::Log if self.is_late() => return Err(self.process.borrow_mut().end_overdue()),
                Kind::Call if self.is_over.get() || self.is_late() => {
                    return Err(self.process.borrow_mut().end_overdue());
                }
                Kind::Log => {
                    let text = self.process.borrow().segment().note_text(words[1]);
                    let message = LogMessage {
                        level: words[0] as u32,
                        text: &text,
                    };
                    // A subscriber's panic is not logged, which would panic again. The conversation goes on, with the runner in step.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.host.log(&message)));
                    self.send(&Message::new(Kind::Continue, []));
                }
                Kind::Call => self.call(words[0], words[1])?,
                _ => return Err(self.end_for_breach("a message out of turn")),
            }
        }
    }

    fn send(&self, message: &Message) {
        self.process.borrow_mut().send(message);
    }

    fn end_for_breach(&self, what: &str) -> Lost {
        self.process.borrow_mut().end_for_breach(what)
    }

    /// Calls a function of the host with the buffer in the call area, of so many bytes.
    fn call(&self, number: u64, len: u64) -> Result<(), Lost> {
        let segment = self.process.borrow().segment();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > segment.len_of(Area::Call) {
            return Err(self.end_for_breach("a call that is too long"));
        }
        let panicked = |why: &str| Err(CallError::Panicked(why.to_owned()));
        let depth = self.depth.get();
        let called = match Buffer::new(len) {
            _ if depth == MAX_DEPTH => {
                panicked("functions of the host and their callbacks are nested too deep")
            }
            None => panicked("the target has no memory for the arguments"),
            Some(mut buffer) => {
                segment.read(Area::Call, &mut buffer.bytes()[..len]);
                self.depth.set(depth + 1);
                let called = self.host.call(number, &mut buffer, self);
                self.depth.set(depth);
                if self.is_late() && !self.is_over.replace(true) {
                    self.deadline.set(Some(Instant::now() + GRACE));
                }
                called.map(|()| buffer)
            }
        };
        if let Some(lost) = self.lost.take() {
            return Err(lost);
        }
        let returned = match called {
            Ok(mut buffer) => {
                segment.write(Area::Call, 0, &buffer.bytes()[..len]);
                [0, 0]
            }
            Err(CallError::Panicked(message)) => {
                let len = segment.write_note(message.as_bytes());
                [1, len as u64]
            }
            Err(CallError::Breach(what)) => return Err(self.end_for_breach(what)),
        };
        self.send(&Message::new(Kind::Returned, returned));
        Ok(())
    }

    /// Whether the runner should have ended the invocation.
    fn is_late(&self) -> bool {
        self.deadline
            .get()
            .is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl Ifunc for Conversation<'_> {
    unsafe fn call_back(&self, callback: &Callback<'_>, passed: &Passed<'_>) -> Result<u64, NotReturned> {
        // The process ended in a callback of a function that this one called.
        if self.lost.borrow().is_some() {
            return Err(NotReturned::Ended);
        }
        if self.is_over.get() || self.is_late() {
            self.is_cut_short.set(true);
            return Err(NotReturned::Ended);
        }
        let segment = self.process.borrow().segment();
        // SAFETY: the caller's promise.
        let len = unsafe { passed.write(&segment) }.map_err(NotReturned::NotCalled)?;
        let Callback {
            function,
            param,
            words: [address, data],
            ..
        } = *callback;
        let message = Message::new(
            Kind::CallBack,
            [function, param as u64, address, data, len as u64],
        );
        match self.exchange(&message, Kind::CalledBack) {
            // SAFETY: as above; what a callback may change is of plain types.
            Ok([0, ..]) => Ok(unsafe { passed.read(&segment) }),
            Ok(_) => Err(NotReturned::Ended),
            Err(lost) => {
                *self.lost.borrow_mut() = Some(lost);
                Err(NotReturned::Ended)
            }
        }
    }
}

#[cfg(test)]
mod tests;
