//! Memory that code runs in, the stack it runs on, and the way in and out.

pub(crate) mod arena;
pub(crate) mod entry;
pub(crate) mod host;
mod stack;
pub(crate) mod stacks;

#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "ifunc-rt runs on x86-64 Linux; other architectures need `exec/ARCH.rs` and `ifunc-link`'s `arch/ARCH`"
);

pub(crate) use arch::{ARCH, cpu_features, explain_lacking_cpu};
