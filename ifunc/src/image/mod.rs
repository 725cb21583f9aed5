//! What only an image build holds: the panic handler, the memory functions that compilers call on their own, and the
//! global allocator.

#[cfg(feature = "alloc")]
mod alloc;
#[cfg(not(target_arch = "x86_64"))]
mod memory;
#[cfg(target_arch = "x86_64")]
#[path = "memory_x86_64.rs"]
mod memory;
mod panic;
