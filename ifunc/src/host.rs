//! The host's side of the SDK: host functions, registered by `#[ifunc::export]`. Not part of the code that travels.

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
    /// What `#[ifunc::export]` registers.
    ///
    /// # Safety
    /// `address` is that of a function with this `prototype`, which is how `signature` crosses.
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

    /// Symbol, as named by the function.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Text of its signature.
    #[must_use]
    pub const fn signature(&self) -> &'static str {
        self.signature
    }

    /// The C prototype of the shim, for people.
    #[must_use]
    pub const fn prototype(&self) -> &'static str {
        self.prototype
    }

    /// Address of the generated shim.
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

/// What a runtime does where a thread goes from injected code to a host function, and back. Generated shims do it around each
/// call, so that arguments and result stay in registers.
#[derive(Debug)]
pub struct CallGate {
    /// Goes to the host. Ends the invocation instead if there is too little stack for a host function: it does not return
    /// then, and the frames of the shim own nothing.
    pub enter: fn() -> GateToken,
    /// Goes back, by what `enter` said.
    ///
    /// # Safety
    /// To be called behind `enter`, on its thread, unless that said [`GateToken::NONE`].
    pub leave: unsafe fn(token: GateToken),
    /// The host function panicked: ends the invocation.
    ///
    /// # Safety
    /// To be called behind `enter`, by a shim that owns nothing but the payload.
    pub panicked: unsafe fn(payload: Box<dyn Any + Send>) -> !,
}

/// How a thread went to a host function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateToken(u64);

impl GateToken {
    /// It did not: no injected code has called, the host has.
    pub const NONE: Self = Self(u64::MAX);

    /// With something of the runtime's to remember, which is not `u64::MAX`.
    #[must_use]
    pub const fn new(word: u64) -> Self {
        Self(word)
    }

    /// What is remembered.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }
}

static CALL_GATE: AtomicPtr<CallGate> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the runtime's line, once per process.
pub fn set_call_gate(gate: &'static CallGate) {
    CALL_GATE.store((&raw const *gate).cast_mut(), Ordering::Release);
}

/// What the shims of exports do: runs `call` on the host's side of the line, or as it is where no runtime is installed or no
/// injected code has called.
#[inline]
pub fn through_gate<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: null, or of the `&'static CallGate` that `set_call_gate` was given.
    let gate = unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() };
    let entered = gate.map(|gate| (gate, (gate.enter)()));
    let Some((gate, token)) = entered.filter(|(_, token)| *token != GateToken::NONE) else {
        return call();
    };
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => {
            // SAFETY: `enter` was called above, and crossed.
            unsafe { (gate.leave)(token) };
            result
        }
        // SAFETY: `enter` was called above; the call has unwound, and what it owned is dropped.
        Err(payload) => unsafe { (gate.panicked)(payload) },
    }
}
