//! What only an image build holds: the panic handler, the memory functions that compilers call on their own, and the
//! global allocator. The memory functions are compiled for tests too, under names that nobody links to.

#[cfg(all(ifunc_image, feature = "alloc"))]
mod alloc;
#[cfg(any(test, not(target_arch = "x86_64")))]
mod memory_portable;
#[cfg(target_arch = "x86_64")]
mod memory_x86_64;
#[cfg(ifunc_image)]
mod panic;

#[cfg(test)]
mod tests;
