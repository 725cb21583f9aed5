//! A function and a variable that are replaced together, and an image that uses both. The tests of `ifunc-rt` use them, too.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ifunc_abi::image::{EntryFlags, EntryPart, ImageParts, ImportFlags, ImportPart};

use super::machine::{ARCH, code, page_size};
use crate::{Symbol, fingerprint};

pub(crate) const VERSION: &str = "fn version()->u64";
pub(crate) const LEVEL: &str = "static level:u64";

/// Answers what the import `version` returns and, after it, what the import `level` holds.
pub(crate) fn reads_versions() -> ImageParts {
    let (rx, slot) = code::reads_versions();
    let import = |symbol: &str, text, flags| ImportPart {
        symbol: symbol.into(),
        flags,
        fingerprint: fingerprint::of(text),
    };
    ImageParts {
        entries: vec![EntryPart {
            flags: EntryFlags::SHARED,
            ..EntryPart::new("reads_versions")
        }],
        arch: ARCH,
        rx_align_log2: 4,
        slot: Some(slot),
        rx,
        imports: vec![
            import("version", VERSION, ImportFlags::NONE),
            import("level", LEVEL, ImportFlags::DATA),
        ],
        ..ImageParts::default()
    }
}

/// Code and data of a version, which fault or are wrong as soon as it is dropped.
pub(crate) struct Version {
    code: *mut c_void,
    level: *mut u64,
    alive: Arc<AtomicUsize>,
}

// SAFETY: memory that belongs to this value.
unsafe impl Send for Version {}
// SAFETY: it is not changed until it is dropped.
unsafe impl Sync for Version {}

impl Version {
    pub(crate) fn new(number: u32, alive: &Arc<AtomicUsize>) -> Arc<Self> {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
        let code = code::waits_and_returns(number);
        // SAFETY: a fresh mapping, which is written before it becomes executable.
        let code = unsafe {
            let memory = mmap_anonymous(
                std::ptr::null_mut(),
                page_size(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .unwrap();
            memory
                .cast::<u8>()
                .copy_from_nonoverlapping(code.as_ptr(), code.len());
            mprotect(memory, page_size(), MprotectFlags::READ | MprotectFlags::EXEC).unwrap();
            memory
        };
        alive.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            code,
            level: Box::into_raw(Box::new(u64::from(number))),
            alive: alive.clone(),
        })
    }

    pub(crate) fn symbols(self: &Arc<Self>) -> [Symbol; 2] {
        // SAFETY: the code is such a function, the box such a variable, and both are as old as their guard.
        let symbols = unsafe {
            [
                Symbol::typed("version", VERSION, self.code),
                Symbol::typed("level", LEVEL, self.level.cast()),
            ]
        };
        symbols.map(|symbol| symbol.owned_by(self.clone()))
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        // SAFETY: no invocation uses them: that is what the tests are about.
        unsafe {
            self.level.write_volatile(u64::MAX);
            drop(Box::from_raw(self.level));
            rustix::mm::munmap(self.code, page_size()).unwrap();
        }
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}
