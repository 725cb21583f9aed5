//! The stack on which handlers of signals run: what overflows is the stack of the code that raised the signal.

use std::ffi::c_void;
use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::page::page_size;

/// Bytes of a handler's stack: the state of every register that the processor has, our handler, and those of the host that it
/// may call afterwards.
const SIZE: usize = 128 << 10;
/// A stack of at least this size is kept.
const ENOUGH: usize = 64 << 10;

/// The stack of a thread; null: it has another one, or the kernel refused the memory.
pub(super) struct AlternateStack(*mut c_void);

impl AlternateStack {
    /// Gives the current thread an alternate stack, unless it has one that is large enough.
    pub(super) fn install() -> Self {
        let none = Self(ptr::null_mut());
        if current().is_some_and(|(_, size)| size >= ENOUGH) {
            return none;
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no other memory.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                page_size() + SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        let Ok(base) = mapped else { return none };
        // SAFETY: the lowest page of the mapping just made. Without a guard it is only less safe.
        let _ = unsafe { rustix::mm::mprotect(base, page_size(), MprotectFlags::empty()) };
        let stack = libc::stack_t {
            ss_sp: base.wrapping_byte_add(page_size()),
            ss_flags: 0,
            ss_size: SIZE,
        };
        // SAFETY: the memory is this value's own, and stays mapped until it is dropped.
        if unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) } != 0 {
            // SAFETY: the mapping just made, of which nothing knows.
            let _ = unsafe { rustix::mm::munmap(base, page_size() + SIZE) };
            return none;
        }
        Self(base)
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        if self.0.is_null() {
            return;
        }
        if current().is_some_and(|(base, _)| base == self.0.wrapping_byte_add(page_size())) {
            // Not the one before: its owner may have unmapped it, as the standard library does when a thread ends.
            let none = libc::stack_t {
                ss_sp: ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: SIZE,
            };
            // SAFETY: handlers run on the thread's own stack from here on.
            unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) };
        }
        // SAFETY: this value owns the mapping, and no handler runs: the thread runs this.
        let _ = unsafe { rustix::mm::munmap(self.0, page_size() + SIZE) };
    }
}

/// The alternate stack of the current thread.
fn current() -> Option<(*mut c_void, usize)> {
    let mut stack = libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    // SAFETY: writes the local.
    let read = unsafe { libc::sigaltstack(ptr::null(), &raw mut stack) };
    (read == 0 && stack.ss_flags & libc::SS_DISABLE == 0).then_some((stack.ss_sp, stack.ss_size))
}

#[cfg(test)]
mod tests {
    use super::super::prepare_thread;
    use super::*;

    #[test]
    fn a_thread_has_a_stack_for_handlers_until_it_ends() {
        let thread = std::thread::spawn(|| {
            prepare_thread();
            let (base, size) = current().unwrap();
            assert!(size >= 64 << 10);
            prepare_thread();
            assert_eq!(current(), Some((base, size)));
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_stack_for_handlers_is_of_the_thread_as_long_as_it_lives() {
        let thread = std::thread::spawn(|| {
            let stack = AlternateStack::install();
            let base = stack.0.wrapping_byte_add(page_size());
            assert_eq!(current(), Some((base, SIZE)));
            // It is large enough, so there is no other.
            assert!(AlternateStack::install().0.is_null());
            assert_eq!(current(), Some((base, SIZE)));
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let begin = format!("{:x}-", base.addr());
            let line = maps.lines().find_map(|line| line.strip_prefix(&begin)).unwrap();
            let (end, rest) = line.split_once(' ').unwrap();
            let len = usize::from_str_radix(end, 16).unwrap() - base.addr();
            assert!((SIZE..4 * SIZE).contains(&len), "{len:#x}");
            assert!(rest.starts_with("rw-p"), "{rest}");
            drop(stack);
            assert_eq!(current(), None);
        });
        thread.join().unwrap();
    }

    #[test]
    fn where_the_kernel_refuses_a_stack_nothing_stays_mapped() {
        let thread = std::thread::spawn(|| {
            let maps = || {
                let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
                maps.lines().count()
            };
            if !crate::tests::kernel::refuse(libc::SYS_sigaltstack) {
                return;
            }
            assert_eq!(current(), None);
            let before = maps();
            // Each would be two mappings; other tests map a few in the meantime.
            for _ in 0..500 {
                assert!(AlternateStack::install().0.is_null());
            }
            assert!(maps() < before + 500);
        });
        thread.join().unwrap();
    }
}
