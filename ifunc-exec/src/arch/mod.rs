//! What running injected code needs of each architecture: the entry shim, floating-point control, CPU features.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "ifunc-exec runs on x86-64 Linux; other architectures need `arch/ARCH.rs` and `ifunc-link`'s `arch/ARCH`"
);

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{ARCH, cpu_features};
