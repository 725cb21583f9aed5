//! The parts of the SDK that exist in image builds only: the panic handler, the memory functions that
//! compilers emit calls to, and the global allocator. Tests compile the memory functions too, under mangled
//! names.

#[cfg(all(ifunc_image, feature = "alloc"))]
mod alloc;
#[cfg(target_arch = "aarch64")]
mod memory_aarch64;
#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod memory_portable;
#[cfg(target_arch = "x86_64")]
mod memory_x86_64;
#[cfg(ifunc_image)]
mod panic;

#[cfg(test)]
mod tests;
