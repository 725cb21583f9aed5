//! The call gate between the host and injected code: one per serving thread, with the stack that injected code runs on.

mod callback;
#[cfg(test)]
mod injected;
mod interrupt;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_faults;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence};
use std::time::Duration;

pub(crate) use ifunc::host::Side;
use ifunc::host::{CallGate, GateState, GateToken};
use ifunc_abi::context::{Context, MAIN_BAD_PAYLOAD};

pub(crate) use self::interrupt::{Interruption, Outcome};
use crate::allocations::Allocations;
use crate::answer::{AnswerMemory, LongAnswers};
use crate::arch::{self, FloatControl};
use crate::exports::Exports;
use crate::held::{self, HeldObjects};
use crate::image_executor::Shared;
use crate::runner::Lent;
use crate::services::Services;
use crate::stack::Stack;
use crate::threads::Passages;

/// Stack that a host function must find below it, so that it does not run into the injected stack's guard.
pub(crate) const HOST_STACK_ROOM: usize = 256 * 1024;
/// Stack that a panic, or a request for memory, must find below it. Functions of the runtime and the allocator run there.
const RUNTIME_STACK_ROOM: usize = 64 * 1024;
/// Longest message and file name kept of a panic, in bytes.
const MAX_DETAIL: usize = 4096;

unsafe extern "C" {
    /// Calls `main(payload, size, target, ctx)` on the injected stack. Returns its result, and 1 after an escape.
    pub(crate) fn ifunc_exec_enter(
        payload: *const u8,
        size: usize,
        target: *mut c_void,
        ctx: *mut Context,
        main: *const c_void,
        gate: *const c_void,
    ) -> u32;
    pub(crate) fn ifunc_exec_escape(gate: *const c_void) -> !;
}

/// Why an invocation ended other than by return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// It panicked.
    Panic {
        message: String,
        file: String,
        line: u32,
        column: u32,
        /// Where on the stack `__ifunc_panic` found its return address; 0 if something else ended the invocation.
        stack: usize,
        /// The words from there on, if it was a callback that panicked: the host's function ran on over them.
        trail: Vec<usize>,
    },
    /// A host function would have had too little stack.
    StackLow,
    /// A host function panicked, with this message.
    HostPanic(String),
    /// A signal ended it: a fault, or its deadline.
    Interrupted {
        at: Interruption,
        /// The words of the stack from there on, if it was a callback.
        trail: Vec<usize>,
    },
    /// It was over its deadline when a host function returned to it.
    Overdue,
}

/// What [`Gate::escape`] holds instead of an address, for reasons that are noted where no memory can be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
enum Noted {
    /// [`Escape::StackLow`].
    StackLow = 1,
    /// [`Escape::Interrupted`]: `Gate::interruption` has the rest.
    Interrupted = 2,
    /// [`Escape::Overdue`].
    Overdue = 3,
}

impl Noted {
    const ALL: [Self; 3] = [Self::StackLow, Self::Interrupted, Self::Overdue];

    /// The word that stands for it. No box lies there.
    fn word(self) -> *mut Escape {
        ptr::without_provenance_mut(self as usize)
    }
}

/// What the entry shim and the imports share. The assembly knows the first four fields.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Gate {
    /// Of the invocation that runs, or of the last one. First, so that the gate is found by its address.
    state: GateState,
    pub(crate) saved_sp: UnsafeCell<usize>,
    pub(crate) stack_top: usize,
    /// Of the last invocation; null: none, or one without.
    pub(crate) context: UnsafeCell<*const Context>,
    stack_low: usize,
    /// What other threads know of this one.
    pub(crate) passages: Passages,
    /// The last invocation did not begin: its entry was closed.
    was_turned_away: Cell<bool>,
    /// The gate of the invocation of this thread that called the one of this gate, through a host function.
    outer: Cell<*const GateState>,
    /// Why the invocation ends: null, a [`Noted`] word, or a box. Set only if the shim returns another code than
    /// [`MAIN_OK`](ifunc_abi::context::MAIN_OK).
    escape: AtomicPtr<Escape>,
    /// What the handler of a signal left for [`Noted::Interrupted`].
    interruption: UnsafeCell<Interruption>,
    containment: Containment,
    /// Of the node that the thread serves.
    services: Option<Arc<dyn Services>>,
    /// Of the target whose invocations pass the gate.
    exports: Option<Exports>,
    /// How long answers may be; `None`: no longer than the memory that invocations are lent.
    pub(crate) answers: Option<Arc<dyn AnswerMemory>>,
    pub(crate) long_answers: RefCell<LongAnswers>,
    pub(crate) held: RefCell<HeldObjects>,
    pub(crate) allocations: RefCell<Allocations>,
    /// What the target arguments of the next invocation are to a runner process.
    pub(crate) lent: Cell<Lent>,
    /// The last invocation runs in a runner process.
    pub(crate) is_for_runner: Cell<bool>,
}

/// Offset in a gate of the byte that holds the side and [`GateState::SETS_FLOAT_CONTROL`].
pub(crate) const SIDE_OFFSET: usize = GateState::SIDE_OFFSET;
const _: () = assert!(std::mem::offset_of!(Gate, state) == 0);

/// The gate of the innermost session of this thread; null: there is none.
#[inline(always)]
pub(crate) fn current() -> *const Gate {
    GateState::current_ptr().cast()
}

impl Gate {
    /// The gate to a stack.
    pub(crate) fn new(stack: &Stack, containment: Containment) -> Self {
        let lowest = stack.low() + HOST_STACK_ROOM;
        Self {
            state: GateState::new(lowest..stack.top().max(lowest)),
            saved_sp: UnsafeCell::new(0),
            stack_top: stack.top() - arch::BELOW_TOP,
            context: UnsafeCell::new(ptr::null()),
            stack_low: stack.low(),
            passages: Passages::default(),
            was_turned_away: Cell::new(false),
            outer: Cell::new(ptr::null()),
            escape: AtomicPtr::new(ptr::null_mut()),
            interruption: UnsafeCell::new(Interruption::default()),
            containment,
            services: None,
            exports: None,
            answers: None,
            long_answers: RefCell::default(),
            held: RefCell::default(),
            allocations: RefCell::default(),
            lent: Cell::default(),
            is_for_runner: Cell::new(false),
        }
    }

    /// What the invocations that enter by this gate may use of a node.
    pub(crate) fn set_exports(&mut self, exports: Exports) {
        self.exports = Some(exports);
    }

    /// What the target of these invocations exports.
    pub(crate) fn host(&self) -> Option<Arc<Shared>> {
        self.exports.as_ref()?.shared().ok()
    }

    pub(crate) fn set_services(&mut self, services: Option<Arc<dyn Services>>) {
        self.services = services;
    }

    /// Why the last invocation ended other than by return.
    ///
    /// # Safety
    /// No invocation may be running.
    pub(crate) unsafe fn take_escape(&self) -> Option<Box<Escape>> {
        let reason = self.escape.swap(ptr::null_mut(), Ordering::Relaxed);
        if reason.is_null() {
            return None;
        }
        let noted = Noted::ALL.into_iter().find(|noted| noted.word() == reason);
        Some(match noted {
            Some(Noted::StackLow) => Box::new(Escape::StackLow),
            Some(Noted::Overdue) => Box::new(Escape::Overdue),
            Some(Noted::Interrupted) => Box::new(Escape::Interrupted {
                // SAFETY: the handler wrote it before it noted the reason, on this thread, and does so in invocations only.
                at: unsafe { *self.interruption.get() },
                trail: Vec::new(),
            }),
            // SAFETY: every other word came from `Box::into_raw`, and is taken once.
            None => unsafe { Box::from_raw(reason) },
        })
    }

    /// Notes why the invocation ends, unless there is a reason already: what ended a callback also ends the invocation, whatever
    /// the host's function does about it. Allocates nothing.
    fn note(&self, why: Noted) {
        let null = ptr::null_mut();
        let _ = self
            .escape
            .compare_exchange(null, why.word(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// As [`note`](Self::note).
    fn explain(&self, why: Escape) {
        if self.escape.load(Ordering::Relaxed).is_null() {
            self.escape.store(Box::into_raw(Box::new(why)), Ordering::Relaxed);
        }
    }

    /// How long the invocation may run.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let limits = [self.containment.limit, self.passages.run_time()];
        limits.into_iter().flatten().min()
    }

    /// The lowest usable address of the stack that injected code runs on, and the end of what is pushed there before
    /// `X_main` is called: the canonical frame address of `X_main`'s frame, as call frame information names it.
    pub(crate) fn stack(&self) -> std::ops::Range<usize> {
        self.stack_low..self.stack_top - arch::PUSHED
    }

    /// Whether an invocation runs, on that side.
    fn is(&self, side: Side) -> bool {
        self.passages.is_within() && self.state.is(side)
    }

    /// Whether an invocation runs, and waits for a host function.
    fn is_in_host(&self) -> bool {
        self.passages.is_within() && !self.state.is(Side::Ifunc)
    }

    /// Whether the last invocation did not begin. Returns it once.
    pub(crate) fn take_turned_away(&self) -> bool {
        self.was_turned_away.take()
    }

    /// The gate of the session around this one; null: there is none.
    fn outer(&self) -> *const Self {
        GateState::of_gate(self.outer.get()).cast()
    }

    /// An invocation is about to begin.
    #[inline(always)]
    pub(crate) fn begin(&self, first_side: u8) {
        self.state.begin(first_side);
    }

    /// Enters the host and restores its floating-point control, if the image may change that. Returns the ifunc's, if it differs,
    /// for [`leave_host`](Self::leave_host).
    #[inline]
    fn enter_host(&self) -> Option<FloatControl> {
        self.state.set(Side::Host);
        if !self.state.sets_float_control() {
            return None;
        }
        // SAFETY: an invocation runs on this thread and gate: it called this function.
        let host = unsafe { FloatControl::saved(*self.saved_sp.get()) };
        let here = FloatControl::current();
        (!here.is_as(host)).then(|| {
            // SAFETY: the host's own.
            unsafe { host.set() };
            here
        })
    }

    /// Returns to injected code.
    #[inline]
    fn leave_host(&self, control: Option<FloatControl>) {
        if let Some(control) = control {
            // SAFETY: what follows only returns to the ifunc, which had set it.
            unsafe { control.set() };
        }
        self.state.set(Side::Ifunc);
    }

    /// Ends the invocation, for the reason that was noted.
    ///
    /// # Safety
    /// An invocation must be running on this thread and gate, and no frame between here and the shim may own anything that
    /// must be dropped.
    unsafe fn escape(&self) -> ! {
        self.state.set(Side::Ifunc);
        // SAFETY: the caller's promise.
        unsafe { ifunc_exec_escape((&raw const *self).cast()) }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: `&mut self` excludes an invocation.
        drop(unsafe { self.take_escape() });
    }
}

/// How a gate treats faults and deadlines.
#[derive(Clone, Debug)]
pub(crate) struct Containment {
    /// Where code of images lies.
    pub(crate) code: Range<usize>,
    /// Whether faults end invocations.
    pub(crate) contains: bool,
    /// Whether images may call functions of the host that have no guard.
    pub(crate) has_unguarded: Arc<AtomicBool>,
    /// How long an invocation may run, for messages.
    pub(crate) limit: Option<Duration>,
}

/// Makes `gate` the one of this thread. Handlers of signals find it from here on, and before it the one before.
#[inline(always)]
pub(crate) fn enter_session(gate: &Gate) {
    gate.outer.set(GateState::current_raw());
    // A handler follows `outer` from the gate that it finds.
    compiler_fence(Ordering::Release);
    // SAFETY: a session borrows the gate, and makes `outer` the current one when it ends; only invocations of the gate run on its
    // stack.
    unsafe { GateState::set_current((&raw const *gate).cast()) };
}

/// Makes the gate of the session around this one that of the thread.
#[inline(always)]
pub(crate) fn leave_session(gate: &Gate) {
    // SAFETY: null, or the gate of a session of this thread that has not ended, because it ends below this frame.
    unsafe { GateState::set_current(gate.outer.get()) };
}

/// The gate of the invocation that called the current import; `None` if the host itself called it.
fn caller<'a>() -> Option<&'a Gate> {
    // SAFETY: `current` is null or points to the gate of a living `Session` of this thread.
    let gate = unsafe { current().as_ref()? };
    gate.is(Side::Ifunc).then_some(gate)
}

/// The gate of the invocation that called the current import.
pub(crate) fn gate_of_invocation<'a>() -> Option<&'a Gate> {
    caller()
}

/// The gate of the invocation that waits for the host function that runs.
pub(crate) fn gate_in_host<'a>() -> Option<&'a Gate> {
    // SAFETY: `current` is null or points to the gate of a living `Session` of this thread.
    let gate = unsafe { current().as_ref()? };
    gate.is_in_host().then_some(gate)
}

/// The same, of an invocation that may be in a runner process, and the count of passages that stands for the invocation. In a runner
/// process it has passed this gate in both directions, so the count is even, and no other invocation's.
pub(crate) fn gate_that_holds<'a>() -> Option<(&'a Gate, u64)> {
    let for_runner = Gate::current().filter(|gate| gate.is_for_runner.get());
    let gate = for_runner.or_else(gate_in_host)?;
    Some((gate, gate.passages.count()))
}

/// The number of the connection whose invocation waits for the function of the host that runs on this thread: the
/// [`Context::sender`](ifunc_abi::context::Context::sender) of the invocation. `None`: no invocation called it.
///
/// Code that runs in the target's process can write what this reads, as it can write everything in that process; code in a
/// [runner process](crate::runner) cannot.
#[must_use]
pub fn invoking_connection() -> Option<u64> {
    let (gate, _) = gate_that_holds()?;
    // SAFETY: the invocation has not ended, and its context is a local of what runs it. The invocation may write to it, on this thread,
    // which is here.
    let context = unsafe { gate.context.get().read().as_ref() };
    context.map(|context| context.sender)
}

/// The services for the invocation that called the current import.
pub(crate) fn services<'a>() -> Option<&'a Arc<dyn Services>> {
    caller()?.services.as_ref()
}

/// The exports of the target whose invocation called the current import.
pub(crate) fn exports_of_invocation() -> Option<Exports> {
    // SAFETY: `current` is null or points to the gate of a living `Session` of this thread.
    unsafe { current().as_ref()? }.exports.clone()
}

/// What the entries of an image are while they are closed, and where its code is in a runner process. Its invocation ends at once, and
/// nothing of the image has run.
pub(crate) unsafe extern "C" fn turn_away() -> u32 {
    if let Some(gate) = caller() {
        gate.was_turned_away.set(true);
    }
    // Any code but that of success.
    MAIN_BAD_PAYLOAD
}

/// While it lives, the invocations of this thread that have not ended count as invocations that change exports: another
/// thread's change does not wait for them, as this one may wait for that.
#[derive(Debug)]
pub(crate) struct ChangeByThisThread {
    is_outermost: bool,
}

impl ChangeByThisThread {
    pub(crate) fn begin() -> Self {
        let mut was_changing = false;
        each_invocation_of_this_thread(|passages| was_changing |= passages.set_changing(true));
        Self {
            is_outermost: !was_changing,
        }
    }
}

impl Drop for ChangeByThisThread {
    fn drop(&mut self) {
        if self.is_outermost {
            each_invocation_of_this_thread(|passages| {
                passages.set_changing(false);
            });
        }
    }
}

/// Calls `with` for each invocation of this thread that has not ended, the innermost first.
fn each_invocation_of_this_thread(mut with: impl FnMut(&Passages)) {
    let mut next = current();
    // SAFETY: null, or the gate of a session of this thread that has not ended: it ends below this frame.
    while let Some(gate) = unsafe { next.as_ref() } {
        if gate.passages.is_within() {
            with(&gate.passages);
        }
        next = gate.outer();
    }
}

/// What the shims of exported functions call.
pub(crate) static CALL_GATE: CallGate = CallGate {
    enter,
    leave,
    panicked,
    call_back: callback::call_back,
    hold: held::hold,
    take_held: held::take_held,
};

fn enter() -> GateToken {
    let Some(gate) = caller() else {
        return GateToken::NONE;
    };
    let here = &raw const gate as usize;
    if here < gate.stack_low + HOST_STACK_ROOM {
        gate.note(Noted::StackLow);
        // SAFETY: an invocation of this thread called; this function and the shims above it (`host::through_gate` and
        // the generated `extern "C"` function) hold nothing that needs dropping.
        unsafe { gate.escape() };
    }
    gate.enter_host()
        .map_or(SAME, |control| GateToken::new(control.remember()))
}

/// # Safety
/// After `enter`, on its thread.
unsafe fn leave(entry: GateToken) {
    // SAFETY: `enter` found it, on this thread, and the invocation has not ended: it waits for the host function.
    let gate = unsafe { &*current() };
    if gate.is_aborted() {
        // SAFETY: the shim has returned from the host's function, and holds C values only.
        unsafe { gate.escape_further() }
    }
    gate.leave_host((entry != SAME).then(|| FloatControl::remembered(entry.word())));
}

/// # Safety
/// After `enter`, with no frame between here and the shim that owns anything but the payload.
unsafe fn panicked(payload: Box<dyn std::any::Any + Send>) -> ! {
    let message = panic_message(&*payload);
    // A payload whose drop panics must not unwind into injected code.
    std::mem::forget(payload);
    // SAFETY: as in `leave`.
    let gate = unsafe { &*current() };
    gate.explain(Escape::HostPanic(message));
    // SAFETY: the caller's promise.
    unsafe { gate.escape() }
}

/// The ifunc's floating-point control is the host's.
const SAME: GateToken = GateToken::QUICK;

/// Enters the host around a runtime import that cannot panic. With too little stack left it ends the invocation: `call` owns
/// nothing.
pub(crate) fn on_host_side<R>(call: impl FnOnce() -> R) -> R {
    let Some(gate) = caller() else { return call() };
    if (&raw const gate as usize) < gate.stack_low + RUNTIME_STACK_ROOM {
        gate.note(Noted::StackLow);
        // SAFETY: an invocation of this thread called an import, whose frames own nothing.
        unsafe { gate.escape() };
    }
    let control = gate.enter_host();
    let result = call();
    gate.leave_host(control);
    result
}

/// Ends the current invocation with a panic.
///
/// # Safety
/// No frame between the caller and the shim may own anything that must be dropped.
pub(crate) unsafe fn escape_with_panic(message: &[u8], file: &[u8], line: u32, column: u32) -> ! {
    // SAFETY: the caller's promise.
    unsafe { escape_with_panic_at(0, message, file, line, column) }
}

/// As [`escape_with_panic`], of code whose return address lies at `stack`.
///
/// # Safety
/// As for [`escape_with_panic`].
pub(crate) unsafe fn escape_with_panic_at(
    stack: usize,
    message: &[u8],
    file: &[u8],
    line: u32,
    column: u32,
) -> ! {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_DETAIL)]).into_owned();
    let Some(gate) = caller() else {
        // A host function called back. What its frames own is unknown, so they cannot be left; and a callback that outlived
        // its invocation has nowhere to return to.
        // SAFETY: `current` is null or points to the gate of a living `Session` of this thread.
        let within = unsafe { current().as_ref() }.is_some_and(Gate::is_in_host);
        let place = if within {
            "in a function that an exported function called by its pointer, whose frames cannot be left (help: let the export \
             take `&mut dyn FnMut(..)`)"
        } else {
            "outside of an invocation"
        };
        eprintln!(
            "ifunc: an injected function panicked {place}: {:?}",
            text(message)
        );
        std::process::abort();
    };
    if (&raw const gate as usize) < gate.stack_low + RUNTIME_STACK_ROOM {
        gate.note(Noted::StackLow);
    } else {
        gate.state.set(Side::Host);
        gate.explain(Escape::Panic {
            message: text(message),
            file: text(file),
            line,
            column,
            stack,
            trail: Vec::new(),
        });
    }
    // SAFETY: the caller's promise; everything above was moved.
    unsafe { gate.escape() }
}

pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(s), _) => s,
        (_, Some(s)) => s.as_str(),
        _ => "(no message)",
    };
    message[..message.floor_char_boundary(MAX_DETAIL)].to_owned()
}
