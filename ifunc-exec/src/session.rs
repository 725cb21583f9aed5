//! How a thread enters injected code: its stack, its gate, and the session in which it runs invocations.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use ifunc_abi::context::Context;

use crate::answer::Made;
use crate::arch;
#[cfg(test)]
use crate::contain::install;
use crate::contain::prepare_thread;
use crate::entrance::Entrance;
#[cfg(test)]
use crate::gate::CALL_GATE;
use crate::gate::{
    Containment, Escape, Gate, HOST_STACK_ROOM, enter_session, ifunc_exec_enter, leave_session,
};
use crate::runner::Lent;
use crate::services::Services;
use crate::stack::{Listing, Stack};
use crate::threads::{ThreadNumber, Threads};

/// The way into injected code and out of it: a stack, and the state that the shims share. One per serving thread.
#[derive(Debug)]
pub struct ExecThread {
    /// Withdrawn before the gate goes.
    _registered: Registered,
    /// Boxed: the imports find it by address while an invocation runs.
    pub(crate) gate: Box<Gate>,
    // Debuggers know of the stack as long as it is mapped.
    _listing: Listing,
    _stack: Stack,
}

// SAFETY: between sessions nothing points to the gate (`Session` makes the one before it current again), so it may move between threads.
unsafe impl Send for ExecThread {}

impl ExecThread {
    /// Maps a stack of `stack_size` bytes.
    pub(crate) fn new(
        stack_size: usize,
        threads: Arc<Threads>,
        containment: Containment,
    ) -> rustix::io::Result<Self> {
        let stack = Stack::new(stack_size.max(2 * HOST_STACK_ROOM))?;
        let gate = Box::new(Gate::new(&stack, containment));
        gate.passages.set_thread(prepare_thread());
        // SAFETY: in a box, which lives until this is withdrawn.
        let number = unsafe { threads.add(&raw const gate.passages) };
        Ok(Self {
            _registered: Registered { threads, number },
            _listing: Listing::new(gate.stack()),
            gate,
            _stack: stack,
        })
    }

    /// A thread that takes all code of the process for injected code, and contains its faults.
    #[cfg(test)]
    pub(crate) fn for_tests(stack_size: usize) -> Self {
        Self::for_tests_of(stack_size, Arc::new(Threads::new()))
    }

    /// The same, registered with `threads`.
    #[cfg(test)]
    pub(crate) fn for_tests_of(stack_size: usize, threads: Arc<Threads>) -> Self {
        install(true).unwrap();
        // As an executor does: a test may be the first of its process.
        // SAFETY: the functions of this gate do what its fields say.
        unsafe { ifunc::host::set_call_gate(&CALL_GATE) };
        let containment = Containment {
            code: 0..usize::MAX,
            contains: true,
            has_unguarded: Arc::default(),
            limit: None,
        };
        Self::new(stack_size, threads, containment).unwrap()
    }

    /// Offers the services of a node to the invocations that run on this thread, or none.
    pub fn set_services(&mut self, services: Option<Arc<dyn Services>>) {
        self.gate.set_services(services);
    }

    /// Makes this the gate of the current thread for several invocations.
    #[inline]
    #[must_use]
    pub fn session(&mut self) -> OpenSession<'_> {
        let gate = &*self.gate;
        arch::enter_session();
        enter_session(gate);
        OpenSession(Session { gate })
    }
}

/// A thread that changes of exports may wait for.
#[derive(Debug)]
struct Registered {
    threads: Arc<Threads>,
    number: ThreadNumber,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.threads.remove(self.number);
    }
}

/// A [`Session`] of the current thread. It ends when this is dropped.
#[derive(Debug)]
pub struct OpenSession<'a>(Session<'a>);

impl<'a> Deref for OpenSession<'a> {
    type Target = Session<'a>;

    #[inline]
    fn deref(&self) -> &Session<'a> {
        &self.0
    }
}

impl<'a> DerefMut for OpenSession<'a> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Session<'a> {
        &mut self.0
    }
}

impl Drop for OpenSession<'_> {
    #[inline]
    fn drop(&mut self) {
        leave_session(self.gate);
    }
}

/// While it is [open](OpenSession), host functions that injected code calls on this thread find the gate.
#[derive(Debug)]
pub struct Session<'a> {
    /// Of an [`ExecThread`] that is borrowed mutably.
    pub(crate) gate: &'a Gate,
}

impl Session<'_> {
    /// The same session, borrowed.
    #[inline]
    #[must_use]
    pub fn reborrow(&mut self) -> Session<'_> {
        Session { gate: self.gate }
    }

    /// States what the target arguments of the next invocation are to a [runner process](crate::runner), if its image is in one.
    /// Without this they are [`Lent::Opaque`].
    ///
    /// # Safety
    /// If they are [`Lent::Copied`], they have so many bytes, every content of these is valid, and the invocation alone uses them
    /// until it has ended. If they are [`Lent::Opaque`], they are of the type that this text names, whose interfaces' methods the image may
    /// import, and unless several threads share them, the invocation alone uses them.
    pub unsafe fn lend(&mut self, lent: Lent) {
        self.gate.lent.set(lent);
    }

    /// Calls an entry on the gate's stack. Returns its result, or 1 after an escape: see [`take_escape`](Self::take_escape).
    ///
    /// # Safety
    /// The entrance is that of code that stays mapped during the call. During the call, `payload` is readable for `size` bytes,
    /// `target` is what the entry takes, and `ctx` is null or valid for reads and writes. This session is the innermost of its
    /// thread.
    #[inline(always)]
    pub(crate) unsafe fn enter(
        &mut self,
        entrance: &Entrance,
        payload: *const u8,
        size: usize,
        target: *mut c_void,
        ctx: *mut Context,
    ) -> u32 {
        let gate = self.gate;
        gate.begin(entrance.first_side());
        gate.passages.pass();
        // After the invocation counts as one that runs: what closes the image first waits for those.
        compiler_fence(Ordering::SeqCst);
        let main = entrance.address();
        // SAFETY: the gate is alive and describes a mapped stack that nothing else runs on (`&mut self`); the rest is the
        // caller's promise.
        let code = unsafe { ifunc_exec_enter(payload, size, target, ctx, main, (&raw const *gate).cast()) };
        gate.passages.pass();
        code
    }

    /// Prepares the current thread for what ends invocations early: it gets a stack for handlers of signals, and the watchdog may
    /// signal it. An [`ExecThread`] prepares the thread that makes it; without this, invocations that it runs on another thread have
    /// no deadline.
    pub fn prepare_thread(&self) {
        self.gate.passages.set_thread(prepare_thread());
    }

    /// Why the last invocation ended other than by return.
    pub(crate) fn take_escape(&mut self) -> Option<Box<Escape>> {
        // SAFETY: `&mut self` excludes an invocation.
        unsafe { self.gate.take_escape() }
    }

    /// What the last invocation made of a long answer; it left `len` in its context.
    pub(crate) fn take_long_answer(&mut self, len: usize) -> Made {
        let passage = self.gate.passages.count();
        self.gate.long_answers.borrow_mut().take(passage, len)
    }

    /// Drops the objects of the host that the last invocation held.
    pub(crate) fn drop_held(&mut self) {
        // The count includes its end.
        self.drop_held_of(self.gate.passages.count().wrapping_sub(1));
    }

    /// Drops the objects of the host that the invocation of this passage held.
    fn drop_held_of(&mut self, passage: u64) {
        crate::held::drop_of(self.gate, passage);
    }

    /// Frees what the last invocation allocated, if its image keeps no memory.
    ///
    /// # Safety
    /// It ended early.
    pub(crate) unsafe fn free_allocations(&mut self) {
        let passage = self.gate.passages.count();
        // SAFETY: the caller's promise; the objects of the host that the invocation held were dropped, and nothing else can use it: the
        // image keeps no memory.
        unsafe { self.gate.allocations.borrow_mut().free_of_last(passage) };
    }

    /// How long the last invocation might run.
    pub(crate) fn limit(&self) -> Option<std::time::Duration> {
        self.gate.limit()
    }

    /// The words that the last invocation left on its stack, from address `from` on; none if that is not on it.
    pub(crate) fn left_behind(&mut self, from: usize) -> impl Iterator<Item = usize> {
        let stack = self.gate.stack();
        let from = Some(from).filter(|from| stack.contains(from) && from.is_multiple_of(align_of::<usize>()));
        (from.unwrap_or(stack.end)..stack.end)
            .step_by(size_of::<usize>())
            // SAFETY: aligned and within the usable part of a mapped stack, on which nothing runs (`&mut self`).
            .map(|at| unsafe { std::ptr::with_exposed_provenance::<usize>(at).read() })
    }
}
