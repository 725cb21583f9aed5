//! Which images keep no memory, and what becomes of memory that their invocations hold.

use std::ffi::c_void;
use std::ptr;

use ifunc_abi::image::{EntryFlags, ImageFlags, ImageParts, ImportFlags, ImportPart};
use ifunc_abi::status::{Failure, Status};

use super::{executor_with, image, install, options};
use crate::allocations::PLAIN;
use crate::arch::testing::code;
use crate::page::page_size;
use crate::{
    ContainOptions, DebugInfo, Executor as _, HostSymbols, ImageExecutor, Invocation, Symbol, fingerprint,
};

fn import(symbol: &str, signature: &str) -> ImportPart {
    ImportPart {
        symbol: symbol.into(),
        flags: ImportFlags::NONE,
        fingerprint: match signature {
            "" => 0,
            signature => fingerprint::of(signature),
        },
    }
}

/// An image that imports the allocator, and more.
fn importing(imports: impl IntoIterator<Item = ImportPart>) -> ImageParts {
    let mut parts = image("allocates", vec![0xc3; 16]);
    parts.entries[0].payload = 1;
    parts.imports = vec![import("__ifunc_alloc", "")];
    parts.imports.extend(imports);
    parts
}

#[test]
fn an_image_keeps_memory_if_it_may_hold_a_pointer_after_its_invocations() {
    const BORROWS: &str = "fn borrows(&[u8])";
    const TAKES: &str = "unsafe fn takes(*mut u8)";
    const COUNT: &str = "static COUNT:atomic u64";
    const LAST: &str = "static mut LAST:*mut u8";
    let symbol = |name, text| {
        // SAFETY: nothing runs in this test.
        unsafe { Symbol::typed(name, text, ptr::dangling()) }
    };
    let mut symbols = HostSymbols::with([
        symbol("borrows", BORROWS),
        symbol("takes", TAKES),
        symbol("COUNT", COUNT),
        symbol("LAST", LAST),
    ])
    .unwrap();
    // SAFETY: as above.
    symbols
        .allow(unsafe { Symbol::untyped("qsort", ptr::dangling()) })
        .unwrap();
    let executor = ImageExecutor::new(options(), symbols, std::sync::Arc::new(())).unwrap();
    let data = |text: &str, name| ImportPart {
        flags: ImportFlags::DATA,
        ..import(name, text)
    };
    let plain = PLAIN[0]().addr();
    let keeps = |parts: &ImageParts| {
        let image = install(&executor, parts).unwrap();
        image.got.iter().next().unwrap() == plain
    };
    assert!(!keeps(&importing([])));
    assert!(!keeps(&importing([import("borrows", BORROWS)])));
    assert!(!keeps(&importing([data(COUNT, "COUNT")])));
    assert!(!keeps(&importing([import("memcpy", "")])));
    // What the host does with a pointer.
    assert!(keeps(&importing([import("takes", TAKES)])));
    assert!(keeps(&importing([data(LAST, "LAST")])));
    assert!(keeps(&importing([import("qsort", "")])));
    assert!(keeps(&importing([import("borrows", "")])));
    // What the image does with it.
    let mut in_c = importing([]);
    in_c.entries[0].payload = 0;
    assert!(keeps(&in_c));
    assert!(keeps(&ImageParts {
        flags: ImageFlags::PINNED,
        ..importing([])
    }));
    assert!(keeps(&ImageParts {
        rw_at: page_size() as u32,
        rw_mem: 8,
        ..importing([])
    }));
}

/// Allocates 64 bytes twice, resizes the first to the payload's number, frees the second, and writes what is left to the target
/// argument. It then ends by an instruction that is none if the number is odd, and returns otherwise.
fn holds_one() -> ImageParts {
    let (rx, slot) = code::holds_one();
    let mut parts = image("holds_one", rx);
    parts.entries[0].payload = 1;
    // It ends early all the same.
    parts.entries[0].flags = EntryFlags::IGNORE_RESULT;
    parts.slot = Some(slot);
    parts.imports = ["__ifunc_alloc", "__ifunc_dealloc", "__ifunc_realloc"]
        .map(|symbol| import(symbol, ""))
        .into();
    parts
}

#[test]
fn what_an_invocation_holds_is_freed_if_it_ends_early_and_stays_if_it_returns() {
    let contain = ContainOptions {
        faults: true,
        deadline: None,
    };
    let (executor, _) = executor_with(1 << 16, 4, DebugInfo::default(), contain);
    let installed = install(&executor, &holds_one()).unwrap();
    let entry = ImageExecutor::entries(&installed).next().unwrap();
    let mut thread = executor.thread().unwrap();
    // Larger than any block of memory that is kept for reuse: freed, it is not mapped.
    const EVEN: u64 = 64 << 20;
    let mut run = |size: u64| {
        let mut left = 0usize;
        // SAFETY: the payload is a number, and the target argument takes an address.
        let invocation = unsafe {
            Invocation::new(
                &*entry,
                (&raw const size).cast(),
                8,
                (&raw mut left).cast::<c_void>(),
                1,
            )
        };
        let ended = ImageExecutor::run(&mut thread.session(), || invocation, None);
        (left, ended.map_err(|failed| failed.status))
    };
    let is_mapped = |address: usize| {
        let page: *mut c_void = ptr::with_exposed_provenance_mut(address & !(page_size() - 1));
        // SAFETY: asks the kernel; nothing is read.
        unsafe { libc::msync(page, page_size(), libc::MS_ASYNC) == 0 }
    };
    let (returned, ended) = run(EVEN);
    assert_eq!(ended, Ok(0));
    let (escaped, ended) = run(EVEN + 1);
    assert_eq!(ended, Err(Status::Failed(Failure::Fault)));
    assert!(returned != 0 && escaped != 0 && returned != escaped);
    assert!(is_mapped(returned) && !is_mapped(escaped));
    let layout = std::alloc::Layout::from_size_align(EVEN as usize, 16).unwrap();
    // SAFETY: allocated by the image with this layout, and not freed.
    unsafe { std::alloc::dealloc(ptr::with_exposed_provenance_mut(returned), layout) };
}
