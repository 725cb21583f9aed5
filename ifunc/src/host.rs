//! The host's side of the SDK: host functions, registered by `#[ifunc::export]`. Not part of the code that travels.

use core::sync::atomic::{AtomicPtr, Ordering};

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

/// Runs a host function on the host's side of the line: catches its panics, checks the stack.
pub type Guard = fn(call: &mut dyn FnMut());

static GUARD: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the runtime's guard, once per process.
pub fn set_guard(guard: Guard) {
    GUARD.store(guard as *mut (), Ordering::Release);
}

/// What the shims of exports call: runs `call` under the guard, or as it is where no runtime is installed.
pub fn guarded<R>(mut call: impl FnMut() -> R) -> R {
    let guard = GUARD.load(Ordering::Acquire);
    if guard.is_null() {
        return call();
    }
    // SAFETY: only `set_guard` stores here, and it stores a `Guard`.
    let guard: Guard = unsafe { core::mem::transmute(guard) };
    let mut result = None;
    guard(&mut || result = Some(call()));
    match result {
        Some(result) => result,
        // A guard either runs the call or never returns here.
        None => unreachable!(),
    }
}
