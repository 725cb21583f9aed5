//! What the C library does with the buffers that UCX allocates.
//!
//! UCX puts the pieces of a long message together in a buffer of `malloc`, which is freed when its body was read. glibc maps what is larger than
//! a threshold, and gives free memory beyond twice the threshold back to the kernel, so that each message takes page faults: over TCP, a
//! stream of 256 KiB took 92 µs a message instead of 69. The threshold is the size of the largest mapped buffer that was freed.

use std::alloc::{GlobalAlloc as _, Layout, System};
use std::sync::Once;

/// A buffer that is mapped, and larger than bodies are over connections of the default size. glibc then keeps twice as much free memory.
const LARGEST: usize = 4 << 20;

/// Makes `malloc` keep the memory of long messages for the next ones.
pub(super) fn keep_freed_buffers() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let layout = Layout::new::<[u8; LARGEST]>();
        // SAFETY: the layout has a size.
        let buffer = unsafe { System.alloc(layout) };
        if !buffer.is_null() {
            // SAFETY: allocated above, with this layout.
            unsafe { System.dealloc(std::hint::black_box(buffer), layout) };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Page faults of this thread.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Behind the name, which may have spaces, minor faults are the eighth.
        let behind = stat.rsplit_once(')').unwrap().1;
        behind.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn the_memory_of_long_messages_is_used_again() {
        const LEN: usize = 256 << 10;
        const ROUNDS: u64 = 20;
        keep_freed_buffers();
        let layout = Layout::new::<[u8; LEN]>();
        // As many as a source has credits for.
        let round = || {
            let buffers = [(); 8].map(|()| {
                // SAFETY: the layout has a size.
                let buffer = unsafe { System.alloc(layout) };
                assert!(!buffer.is_null());
                // SAFETY: it has this many bytes.
                unsafe { buffer.write_bytes(1, LEN) };
                buffer
            });
            for buffer in buffers {
                // SAFETY: allocated above, with this layout.
                unsafe { System.dealloc(std::hint::black_box(buffer), layout) };
            }
        };
        round();
        let before = faults();
        (0..ROUNDS).for_each(|_| round());
        // Each page of each buffer, if the kernel had had them back.
        let each = 8 * LEN as u64 / 4096;
        let taken = faults() - before;
        assert!(
            taken < each * ROUNDS / 4,
            "{taken} page faults in {ROUNDS} rounds of {each} pages"
        );
    }
}
