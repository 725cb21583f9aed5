//! The call gate between injected code and the host, as the host's functions see it.

use core::any::Any;
use core::cell::Cell;
use core::ffi::c_void;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering, compiler_fence};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// On which side of its call gate the thread of an invocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Side {
    /// Injected code runs, or a function that it was allowed to call without a guard (`allow`, `allow_set`,
    /// `allow_library`). To end an invocation from outside, compare the program counter with the code of images first.
    Ifunc = 1,
    /// A host function runs that injected code called through a guard.
    Host = 2,
    /// The same, and the invocation ends when the function returns: a callback ended early, or the time is over.
    HostAborted = 3,
}

/// What the shims of exports read and write of the call gate of their thread. A host function that is called in the usual way
/// takes two comparisons and two stores here, and nothing else of the runtime.
///
/// Only the thread of the gate uses it, and the handlers of that thread's signals.
#[derive(Debug)]
#[repr(C)]
pub struct GateState {
    /// The [`Side`], and [`SETS_FLOAT_CONTROL`](Self::SETS_FLOAT_CONTROL).
    side: AtomicU8,
    /// A host function finds enough stack if the stack pointer is at least this, and less than `room` bytes above.
    lowest: usize,
    room: usize,
}

std::thread_local! {
    /// Of the innermost gate of the thread.
    static STATE: Cell<*const GateState> = const { Cell::new(&raw const OUTSIDE) };
}

/// The state of a thread without a gate: no stack is within it.
static OUTSIDE: GateState = GateState::new(0..0);

impl GateState {
    /// Bit of the side: the code of the invocation may change how floats are computed, and the host's way is restored
    /// before a function of the host runs.
    pub const SETS_FLOAT_CONTROL: u8 = 1 << 2;
    /// Offset of the side and its bit.
    pub const SIDE_OFFSET: usize = core::mem::offset_of!(Self, side);

    /// Of a gate to a stack: `stack` are the addresses at which a host function has enough of it.
    #[must_use]
    pub const fn new(stack: Range<usize>) -> Self {
        Self {
            side: AtomicU8::new(Side::Ifunc as u8),
            lowest: stack.start,
            room: stack.end - stack.start,
        }
    }

    /// The state of the innermost gate of this thread, or that of none.
    #[inline(always)]
    fn current<'a>() -> &'a Self {
        // SAFETY: `OUTSIDE`, or what `set_current` was promised.
        unsafe { &*STATE.get() }
    }

    /// The state of the innermost gate of this thread; null: it has none.
    #[inline(always)]
    #[must_use]
    pub fn current_ptr() -> *const Self {
        Self::of_gate(STATE.get())
    }

    /// Null in place of the state of no gate.
    #[inline(always)]
    #[must_use]
    pub fn of_gate(state: *const Self) -> *const Self {
        if core::ptr::eq(state, &raw const OUTSIDE) {
            core::ptr::null()
        } else {
            state
        }
    }

    /// As [`current_ptr`](Self::current_ptr), for [`set_current`](Self::set_current): that of no gate is not null.
    #[inline(always)]
    #[must_use]
    pub fn current_raw() -> *const Self {
        STATE.get()
    }

    /// Makes a state that of the innermost gate of this thread.
    ///
    /// # Safety
    /// It is what [`current_raw`](Self::current_raw) returned and still that of a living gate, or of none; or it lives until this is called with another one, and its stack is used by its gate alone: while the
    /// stack pointer of this thread is in it, an invocation of the gate runs.
    #[inline(always)]
    pub unsafe fn set_current(state: *const Self) {
        STATE.set(state);
    }

    /// What [`begin`](Self::begin) takes. `sets_float_control`: the code of the invocation may change how floats are computed.
    #[must_use]
    pub const fn first_side(sets_float_control: bool) -> u8 {
        Side::Ifunc as u8
            | if sets_float_control {
                Self::SETS_FLOAT_CONTROL
            } else {
                0
            }
    }

    /// An invocation is about to begin, on the ifunc's side: see [`first_side`](Self::first_side).
    #[inline(always)]
    pub fn begin(&self, first_side: u8) {
        self.side.store(first_side, Ordering::Relaxed);
    }

    /// Changes the side.
    #[inline(always)]
    pub fn set(&self, side: Side) {
        self.store(side as u8 | self.side.load(Ordering::Relaxed) & Self::SETS_FLOAT_CONTROL);
    }

    /// What the host does before and after this in the program, the compiler leaves before and after it: to the handler of a
    /// signal, work of the host is never on the ifunc's side. These fences are no instructions.
    #[inline(always)]
    fn store(&self, side: u8) {
        compiler_fence(Ordering::SeqCst);
        self.side.store(side, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Whether it is on that side.
    #[inline(always)]
    #[must_use]
    pub fn is(&self, side: Side) -> bool {
        self.side.load(Ordering::Relaxed) & !Self::SETS_FLOAT_CONTROL == side as u8
    }

    /// Whether the code of the invocation may change how floats are computed.
    #[inline]
    #[must_use]
    pub fn sets_float_control(&self) -> bool {
        self.side.load(Ordering::Relaxed) & Self::SETS_FLOAT_CONTROL != 0
    }

    /// Enters the host from injected code. `false`: the side is as before, and it takes more than that, because the caller is the
    /// host itself, there is little stack, or the invocation sets the control of floats.
    #[inline(always)]
    #[must_use]
    pub fn enter_host(&self) -> bool {
        self.has_room() && self.cross(Side::Ifunc, Side::Host)
    }

    /// Returns to injected code after [`enter_host`](Self::enter_host). `false`: the invocation ends.
    #[inline(always)]
    #[must_use]
    pub fn leave_host(&self) -> bool {
        self.cross(Side::Host, Side::Ifunc)
    }

    /// Enters injected code from a function of the host, for a callback. `false`: nothing has changed, because of too little stack, of an
    /// invocation that sets the control of floats, or of one that ends, or because none runs; then it takes more than this.
    #[inline(always)]
    #[must_use]
    pub fn enter_callback(&self) -> bool {
        self.has_room() && self.cross(Side::Host, Side::Ifunc)
    }

    /// Whether the stack is the gate's, with enough of it left: so an invocation of the gate runs.
    #[inline(always)]
    fn has_room(&self) -> bool {
        let here = 0_u8;
        (&raw const here).addr().wrapping_sub(self.lowest) < self.room
    }

    /// Changes the side. `false`: it is another one than `from`, or the invocation sets the control of floats, and nothing has changed.
    #[inline(always)]
    fn cross(&self, from: Side, to: Side) -> bool {
        let is_there = self.side.load(Ordering::Relaxed) == from as u8;
        if is_there {
            self.store(to as u8);
        }
        is_there
    }

    /// Returns to the host from a callback that returned, after [`enter_callback`](Self::enter_callback). It reads nothing: each callback of
    /// a scan would wait for the stores of the one before.
    #[inline(always)]
    pub fn leave_callback(&self) {
        self.store(Side::Host as u8);
    }
}

/// The runtime's hooks at the boundary between injected code and host functions. The generated shims call
/// them around each host function, so that arguments and results stay in registers.
#[derive(Debug)]
pub struct CallGate {
    /// Switches to the host's stack. With too little stack left for a host function, it ends the invocation
    /// instead and does not return; the frames of the shim own nothing at that point.
    pub enter: fn() -> GateToken,
    /// Switches back to the injected code, or ends the invocation if a callback panicked: then it does not return.
    ///
    /// # Safety
    /// Called after `enter`, on the same thread, with the token that `enter` returned, unless that is
    /// [`GateToken::NONE`]; or with [`GateToken::QUICK`] after [`GateState::enter_host`].
    pub leave: unsafe fn(token: GateToken),
    /// Ends the invocation after the host function panicked.
    ///
    /// # Safety
    /// Called after `enter`, by a shim that owns nothing but the payload.
    pub panicked: unsafe fn(payload: Box<dyn Any + Send>) -> !,
    /// Calls `call(data)` on the ifunc's side: a host function calls injected code back. The result says whether it
    /// returned: [`CallBack::Returned`] that it was called once and returned, [`CallBack::NoInvocation`] that it was not called.
    ///
    /// # Safety
    /// `call` may be called with `data`. Injected code that it calls may leave it by a jump: it owns nothing.
    pub call_back: unsafe fn(call: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> CallBack,
    /// Keeps an object for the invocation of this thread that waits for a host function, until the invocation gives it up or ends early.
    /// Without one, returns the object.
    pub hold: fn(HeldObject) -> Result<(), HeldObject>,
    /// Gives up an object that such an invocation holds.
    pub take_held: fn(NonNull<c_void>) -> Option<HeldObject>,
}

/// An object of the host that an invocation holds: see [`Owned`](crate::Owned). Dropped, it drops the object.
#[derive(Debug)]
pub struct HeldObject {
    pointer: NonNull<c_void>,
    drop: unsafe fn(*mut c_void),
}

// SAFETY: `HeldObject::new` was promised that it is dropped on a thread on which that is allowed.
unsafe impl Send for HeldObject {}

impl HeldObject {
    /// The object that `drop(pointer)` drops.
    ///
    /// # Safety
    /// That may be called once, on the thread of the caller; what receives the result keeps it on that thread.
    #[must_use]
    pub unsafe fn new(pointer: NonNull<c_void>, drop: unsafe fn(*mut c_void)) -> Self {
        Self { pointer, drop }
    }

    /// Whether this is the object at `pointer`.
    #[must_use]
    pub fn is(&self, pointer: NonNull<c_void>) -> bool {
        self.pointer == pointer
    }

    /// Does not drop the object: it has another owner.
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for HeldObject {
    fn drop(&mut self) {
        // SAFETY: `new` was promised that it may be called once.
        unsafe { (self.drop)(self.pointer.as_ptr()) }
    }
}

/// Keeps an object for the invocation that waits for a host function: see [`CallGate::hold`].
///
/// # Errors
/// There is no such invocation.
pub fn hold(object: HeldObject) -> Result<(), HeldObject> {
    // SAFETY: the pointer is null or comes from the `&'static CallGate` of `set_call_gate`.
    match unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() } {
        Some(gate) => (gate.hold)(object),
        None => Err(object),
    }
}

/// Gives up an object that the invocation holds: see [`CallGate::take_held`].
#[must_use]
pub fn take_held(pointer: NonNull<c_void>) -> Option<HeldObject> {
    // SAFETY: as above.
    let gate = unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() }?;
    (gate.take_held)(pointer)
}

/// What became of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBack {
    /// It returned.
    Returned,
    /// It panicked, or one of this invocation did before: the invocation ends when the host function has returned.
    Aborted,
    /// It was not called: no invocation of this thread waits for a host function.
    NoInvocation,
}

/// The state that [`CallGate::enter`] saves for [`CallGate::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateToken(u64);

impl GateToken {
    /// The gate was not passed: the caller is the host, not injected code.
    pub const NONE: Self = Self(u64::MAX);
    /// The [state](GateState) of the gate was all that changed.
    pub const QUICK: Self = Self(0);

    /// Wraps a word of the runtime, which must be neither `u64::MAX` nor 0.
    #[must_use]
    pub const fn new(word: u64) -> Self {
        Self(word)
    }

    /// The runtime's word.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }
}

static CALL_GATE: AtomicPtr<CallGate> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the runtime's call gate, once per process.
///
/// # Safety
/// Its functions do what its fields say.
pub unsafe fn set_call_gate(gate: &'static CallGate) {
    CALL_GATE.store((&raw const *gate).cast_mut(), Ordering::Release);
}

/// Runs `call` on the host's side of the call gate. Without a runtime or an injected caller, it runs `call`
/// directly. The shims of exports call it.
#[inline]
pub fn through_gate<R>(call: impl FnOnce() -> R) -> R {
    let state = GateState::current();
    let token = if state.enter_host() {
        GateToken::QUICK
    } else {
        enter()
    };
    // The unwinder's tables lead to the other arm: a call that returns writes nothing for it.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => {
            if token != GateToken::QUICK || !state.leave_host() {
                // SAFETY: of this call.
                unsafe { leave(token) };
            }
            result
        }
        // SAFETY: of this call, which has unwound and dropped everything it owned.
        Err(payload) => unsafe { panicked(token, payload) },
    }
}

/// Enters the host where that takes more than two stores.
#[cold]
#[inline(never)]
fn enter() -> GateToken {
    // SAFETY: the pointer is null or comes from the `&'static CallGate` of `set_call_gate`.
    let gate = unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() };
    gate.map_or(GateToken::NONE, |gate| (gate.enter)())
}

/// # Safety
/// The host was entered with this token.
#[cold]
#[inline(never)]
unsafe fn leave(token: GateToken) {
    // SAFETY: as in `enter`.
    let gate = unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() };
    if let Some(gate) = gate.filter(|_| token != GateToken::NONE) {
        // SAFETY: the caller's promise.
        unsafe { (gate.leave)(token) }
    }
}

/// # Safety
/// The host was entered with this token, by a shim that owns nothing but the payload.
#[cold]
#[inline(never)]
unsafe fn panicked(token: GateToken, payload: Box<dyn Any + Send>) -> ! {
    // SAFETY: as in `enter`.
    match unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() } {
        // SAFETY: the caller's promise.
        Some(gate) if token != GateToken::NONE => unsafe { (gate.panicked)(payload) },
        // The host called its own function.
        _ => resume_unwind(payload),
    }
}

/// Runs `call`, which calls a function of the ifunc, on the ifunc's side of the call gate. `None`: it panicked, or a
/// callback of this invocation did before. Without a runtime or an invocation, it runs `call` directly. The shims of
/// exports call it.
#[inline]
pub fn call_back<R>(call: impl FnOnce() -> R) -> Option<R> {
    struct Frame<F, R> {
        call: ManuallyDrop<F>,
        result: MaybeUninit<R>,
    }
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(frame: *mut c_void) {
        // SAFETY: `call_back` passes its frame, once.
        let frame = unsafe { &mut *frame.cast::<Frame<F, R>>() };
        // SAFETY: nothing has taken it.
        let call = unsafe { ManuallyDrop::take(&mut frame.call) };
        frame.result.write(call());
    }
    fn runner<F: FnOnce() -> R, R>(_: &Frame<F, R>) -> unsafe extern "C" fn(*mut c_void) {
        run::<F, R>
    }

    // SAFETY: the pointer is null or comes from the `&'static CallGate` of `set_call_gate`.
    let Some(gate) = (unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() }) else {
        return Some(call());
    };
    let mut frame = Frame {
        call: ManuallyDrop::new(call),
        result: MaybeUninit::uninit(),
    };
    let runner = runner(&frame);
    // SAFETY: `runner` takes this frame. The closures of the shims own nothing: they hold borrows and C values.
    match unsafe { (gate.call_back)(runner, (&raw mut frame).cast()) } {
        // SAFETY: `run` was called and has returned, as the gate's installer promised: it wrote the result.
        CallBack::Returned => Some(unsafe { frame.result.assume_init() }),
        // It may have been taken.
        CallBack::Aborted => None,
        // SAFETY: `run` was not called, so nothing has taken it.
        CallBack::NoInvocation => Some(unsafe { ManuallyDrop::take(&mut frame.call) }()),
    }
}
