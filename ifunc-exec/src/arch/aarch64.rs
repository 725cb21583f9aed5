//! AArch64: the entry shim, floating-point control, CPU features, calls of any signature, the cache of instructions, and what a signal
//! interrupts.
//!
//! What is assumed of branch protection and other extensions:
//!
//! * BTI: what injected code reaches by an indirect branch begins with `bti c`, which is no operation elsewhere. Code of images lies on
//!   pages that are not guarded.
//! * PAC: the shims sign no return address. Code of the host and of images may sign its own: each frame is left as it was entered, or is
//!   dropped as a whole. Backtraces strip the signature.
//! * x18 is an ordinary register, as on Linux with glibc or musl; a host that keeps a shadow call stack there is not supported.
//! * Images use no state of SME, and the host has no guarded control stack (GCS): leaving an invocation early would have to unwind it.
//!   Of SVE, the base standard of procedure calls preserves d8 to d15 alone, which is what the shim saves.

mod call;
mod code;
mod cpu;
mod float;
mod shim;
#[cfg(test)]
pub(crate) mod testing;
mod trap;

use ifunc_abi::image::ARCH_AARCH64;

pub(crate) use self::call::{ARGUMENT_WORDS, forwarding_function, function_of_any_signature};
pub(crate) use self::code::{
    ABSOLUTE_64, CALLEE_SAVED, PROBES, RETURN_ADDRESS, RETURNS_BY_REGISTER, STACK_POINTER, USUAL_CIE,
    WRITTEN_CODE_NEEDS_BARRIER, callee, enter_session, publish_code, return_address, synchronize_at_sessions,
};
pub use self::cpu::cpu_features;
pub(crate) use self::cpu::explain_lacking_cpu;
pub(crate) use self::float::FloatControl;
pub(crate) use self::shim::{BELOW_TOP, PUSHED, panic};
pub(crate) use self::trap::{FAULTS, Trap, enter_handler};

/// ELF `e_machine` of images that run here.
pub const ARCH: u16 = ARCH_AARCH64;
