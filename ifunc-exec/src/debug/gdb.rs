//! The interface by which a just-in-time compiler registers code with gdb (and lldb): a list of symbol files in memory, and
//! a function that is called after every change of the list. A debugger sets a breakpoint there. See "JIT Compilation
//! Interface" in gdb's manual.
//!
//! List and function are weak symbols, so that a process that also holds LLVM or another such compiler has one list.

use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::symfile;

/// `jit_actions_t`
const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;
/// `version` of the descriptor that is laid out here.
const VERSION: u32 = 1;

/// `jit_code_entry`
#[repr(C)]
#[derive(Debug)]
struct Entry {
    next: *mut Entry,
    previous: *mut Entry,
    symfile: *const u8,
    size: u64,
}

/// `jit_descriptor`
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut Entry,
    first: *mut Entry,
}

core::arch::global_asm!(
    ".pushsection .text.__jit_debug_register_code,\"ax\",@progbits",
    ".weak __jit_debug_register_code",
    ".type __jit_debug_register_code,@function",
    "__jit_debug_register_code:",
    ".cfi_startproc",
    "ret",
    ".cfi_endproc",
    ".size __jit_debug_register_code, . - __jit_debug_register_code",
    ".popsection",
    ".pushsection .data.__jit_debug_descriptor,\"aw\",@progbits",
    ".p2align 3",
    ".weak __jit_debug_descriptor",
    ".type __jit_debug_descriptor,@object",
    "__jit_debug_descriptor:",
    ".long {version}",
    ".zero 20",
    ".size __jit_debug_descriptor, . - __jit_debug_descriptor",
    ".popsection",
    version = const VERSION,
);

unsafe extern "C" {
    fn __jit_debug_register_code();
    static mut __jit_debug_descriptor: Descriptor;
}

/// Held to change the list. Other compilers in this process have locks of their own: the interface defines none.
static LIST: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A symbol file that debuggers know of.
#[derive(Debug)]
pub(super) struct Registration {
    entry: *mut Entry,
    /// What the entry points to.
    _symfile: Box<[u8]>,
}

// SAFETY: the entry is a heap allocation of this value's own; it is touched under the lock of the list only.
unsafe impl Send for Registration {}
// SAFETY: as above; nothing is done through a shared reference.
unsafe impl Sync for Registration {}

impl Entry {
    fn new(symfile: &[u8]) -> Self {
        Self {
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            symfile: symfile.as_ptr(),
            size: symfile.len() as u64,
        }
    }
}

impl Registration {
    pub(super) fn new(symfile: Box<[u8]>) -> Self {
        let entry = Box::into_raw(Box::new(Entry::new(&symfile)));
        let list = lock();
        // SAFETY: the lock is held; the entry is alive until `drop` takes it out of the list.
        unsafe { enter(entry) };
        drop(list);
        Self {
            entry,
            _symfile: symfile,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // At UNREGISTER gdb forgets the file, but updates its breakpoints only at the next REGISTER: then it restores the
        // code under a breakpoint. That must happen while this code is still mapped, before another image lies at its
        // address. So a file without contents is registered now.
        let mut last = Entry::new(symfile::empty());
        let list = lock();
        // SAFETY: the lock is held and the entry is in the list; the other one is alive while it is there.
        unsafe {
            leave(self.entry);
            drop(Box::from_raw(self.entry));
            enter(&raw mut last);
            leave(&raw mut last);
        }
        drop(list);
    }
}

/// Puts an entry at the front of the list and notifies a debugger.
///
/// # Safety
/// The lock must be held; the entry must stay alive until it [`leave`]s, as every other in the list does.
unsafe fn enter(entry: *mut Entry) {
    // SAFETY: the caller's promise.
    unsafe {
        let descriptor = &raw mut __jit_debug_descriptor;
        let first = (*descriptor).first;
        (*entry).next = first;
        if !first.is_null() {
            (*first).previous = entry;
        }
        (*descriptor).first = entry;
        notify(descriptor, entry, REGISTER);
    }
}

/// Takes an entry out of the list and notifies a debugger.
///
/// # Safety
/// The lock must be held and the entry be in the list.
unsafe fn leave(entry: *mut Entry) {
    // SAFETY: the caller's promise; the neighbours are in the list, so they are alive.
    unsafe {
        let descriptor = &raw mut __jit_debug_descriptor;
        let Entry { next, previous, .. } = *entry;
        match previous.is_null() {
            true => (*descriptor).first = next,
            false => (*previous).next = next,
        }
        if !next.is_null() {
            (*next).previous = previous;
        }
        notify(descriptor, entry, UNREGISTER);
    }
}

/// Notifies a debugger.
///
/// # Safety
/// The lock must be held.
unsafe fn notify(descriptor: *mut Descriptor, entry: *mut Entry, action: u32) {
    // SAFETY: the lock is held. The fields are written before the call, because the compiler does not know what the function
    // reads.
    unsafe {
        (*descriptor).relevant = entry;
        (*descriptor).action = action;
        __jit_debug_register_code();
        (*descriptor).action = 0;
        (*descriptor).relevant = ptr::null_mut();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these entries are in the list, in its order.
    fn listed(entries: [*mut Entry; 3]) -> Vec<usize> {
        let _list = lock();
        let mut found = Vec::new();
        // SAFETY: the lock is held, so every entry and its file are alive.
        unsafe {
            let mut entry = __jit_debug_descriptor.first;
            let mut before = ptr::null_mut();
            while let Some(this) = entry.as_ref() {
                assert_eq!(this.previous, before);
                found.extend(entries.iter().position(|known| *known == entry));
                (before, entry) = (entry, this.next);
            }
        }
        found
    }

    #[test]
    fn the_list_holds_what_is_registered() {
        let [zero, one, two] = [0, 1, 2].map(|n| Registration::new(Box::new([0xa5, n])));
        let entries = [zero.entry, one.entry, two.entry];
        // SAFETY: the list holds the entry, whose file lives as long.
        let file = unsafe { std::slice::from_raw_parts((*one.entry).symfile, (*one.entry).size as usize) };
        assert_eq!(file, [0xa5, 1]);
        assert_eq!(listed(entries), [2, 1, 0]);
        drop(one);
        assert_eq!(listed(entries), [2, 0]);
        drop(two);
        assert_eq!(listed(entries), [0]);
        drop(zero);
        assert!(listed(entries).is_empty());
    }
}
