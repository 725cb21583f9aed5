//! What running injected code needs of each architecture: the entry shim, floating-point control, CPU features, the cache of
//! instructions, what a signal interrupts, and what debuggers know of machine code.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
compile_error!(
    "ifunc-exec runs on x86-64 and AArch64 Linux; other architectures need `arch/ARCH.rs` and `ifunc-link`'s `arch/ARCH`"
);
#[cfg(all(target_arch = "aarch64", target_endian = "big"))]
compile_error!("images and frames are little-endian");

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "aarch64")]
pub use aarch64::{ARCH, cpu_features};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{ARCH, cpu_features};
