//! The host's part of the SDK: host functions, registered by `#[ifunc::export]`. Images do not contain it.

use core::any::Any;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A host function that ifuncs may import.
#[derive(Debug)]
pub struct Export {
    name: &'static str,
    signature: &'static str,
    prototype: &'static str,
    address: *const (),
}

impl Export {
    /// Describes a host function. `#[ifunc::export]` calls it.
    ///
    /// # Safety
    /// `address` is the address of a function with this `prototype`, which is the C form of `signature`.
    #[must_use]
    pub const unsafe fn new(
        name: &'static str,
        signature: &'static str,
        prototype: &'static str,
        address: *const (),
    ) -> Self {
        Self {
            name,
            signature,
            prototype,
            address,
        }
    }

    /// The symbol that images import.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Canonical text of its signature.
    #[must_use]
    pub const fn signature(&self) -> &'static str {
        self.signature
    }

    /// The C prototype of the shim, for display.
    #[must_use]
    pub const fn prototype(&self) -> &'static str {
        self.prototype
    }

    /// Address of the generated C shim.
    #[must_use]
    pub const fn address(&self) -> *const () {
        self.address
    }
}

// SAFETY: an `Export` is immutable and its address is that of a function.
unsafe impl Sync for Export {}
// SAFETY: as above.
unsafe impl Send for Export {}

/// Every `#[ifunc::export]` linked into this process.
#[linkme::distributed_slice]
#[linkme(crate = linkme)]
pub static EXPORTS: [Export];

/// The runtime's hooks at the boundary between injected code and host functions. The generated shims call
/// them around each host function, so that arguments and results stay in registers.
#[derive(Debug)]
pub struct CallGate {
    /// Switches to the host's stack. With too little stack left for a host function, it ends the invocation
    /// instead and does not return; the frames of the shim own nothing at that point.
    pub enter: fn() -> GateToken,
    /// Switches back to the injected code.
    ///
    /// # Safety
    /// Called after `enter`, on the same thread, with the token that `enter` returned, unless that is
    /// [`GateToken::NONE`].
    pub leave: unsafe fn(token: GateToken),
    /// Ends the invocation after the host function panicked.
    ///
    /// # Safety
    /// Called after `enter`, by a shim that owns nothing but the payload.
    pub panicked: unsafe fn(payload: Box<dyn Any + Send>) -> !,
}

/// The state that [`CallGate::enter`] saves for [`CallGate::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateToken(u64);

impl GateToken {
    /// The gate was not passed: the caller is the host, not injected code.
    pub const NONE: Self = Self(u64::MAX);

    /// Wraps a word of the runtime, which must not be `u64::MAX`.
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
pub fn set_call_gate(gate: &'static CallGate) {
    CALL_GATE.store((&raw const *gate).cast_mut(), Ordering::Release);
}

/// Runs `call` on the host's side of the call gate. Without a runtime or an injected caller, it runs `call`
/// directly. The shims of exports call it.
#[inline]
pub fn through_gate<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: the pointer is null or comes from the `&'static CallGate` of `set_call_gate`.
    let gate = unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() };
    let entered = gate.map(|gate| (gate, (gate.enter)()));
    let Some((gate, token)) = entered.filter(|(_, token)| *token != GateToken::NONE) else {
        return call();
    };
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => {
            // SAFETY: `enter` above returned this token, which is not `NONE`.
            unsafe { (gate.leave)(token) };
            result
        }
        // SAFETY: `enter` was called above; the call has unwound and dropped everything it owned.
        Err(payload) => unsafe { (gate.panicked)(payload) },
    }
}
