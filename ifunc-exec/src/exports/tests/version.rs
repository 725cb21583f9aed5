//! A function and a variable that are replaced together, and an image that uses both. The tests of `ifunc-rt` use them, too.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ifunc_abi::image::{ARCH_X86_64, EntryFlags, EntryPart, ImageParts, ImportFlags, ImportPart};

use crate::{Symbol, fingerprint};

pub(crate) const VERSION: &str = "fn version()->u64";
pub(crate) const LEVEL: &str = "static level:u64";

/// Answers what the import `version` returns and, after it, what the import `level` holds.
pub(crate) fn reads_versions() -> ImageParts {
    let mut rx = vec![
        0x53, // push rbx
        0x48, 0x89, 0xcb, // mov rbx, rcx
        0x48, 0x8b, 0x05, 0x35, 0, 0, 0, // mov rax, [rip+0x35] → 0x40
        0xff, 0x10, // call [rax]
        0x48, 0x8b, 0x15, 0x2c, 0, 0, 0, // mov rdx, [rip+0x2c] → 0x40
        0x48, 0x8b, 0x52, 0x08, // mov rdx, [rdx+8]
        0x48, 0x8b, 0x12, // mov rdx, [rdx]
        0x48, 0x8b, 0x7b, 0x10, // mov rdi, [rbx+16]
        0x48, 0x89, 0x07, // mov [rdi], rax
        0x48, 0x89, 0x57, 0x08, // mov [rdi+8], rdx
        0x48, 0xc7, 0x43, 0x20, 16, 0, 0, 0, // mov qword [rbx+32], 16
        0x31, 0xc0, // xor eax, eax
        0x5b, 0xc3, // pop rbx ; ret
    ];
    rx.resize(0x48, 0xcc);
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
        arch: ARCH_X86_64,
        rx_align_log2: 4,
        slot: Some(0x40),
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
        // Waits a little: `mov ecx, 50 ; 1: pause ; dec ecx ; jnz 1b ; mov eax, number ; ret`.
        let mut code = vec![0xb9, 50, 0, 0, 0, 0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa, 0xb8];
        code.extend_from_slice(&number.to_le_bytes());
        code.push(0xc3);
        // SAFETY: a fresh mapping, which is written before it becomes executable.
        let code = unsafe {
            let memory = mmap_anonymous(
                std::ptr::null_mut(),
                4096,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .unwrap();
            memory
                .cast::<u8>()
                .copy_from_nonoverlapping(code.as_ptr(), code.len());
            mprotect(memory, 4096, MprotectFlags::READ | MprotectFlags::EXEC).unwrap();
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
            rustix::mm::munmap(self.code, 4096).unwrap();
        }
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}
