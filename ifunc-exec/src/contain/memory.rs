//! The functions of the C library that every image may import, `memcpy` and the like: they own nothing, so an invocation may be left in
//! them. Their machine code is found by its unwind information.

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use crate::imports::memory_functions;

/// Number of functions that fit.
const MOST: usize = 8;

static CODE: OnceLock<[Range<usize>; MOST]> = OnceLock::new();

/// Finds their machine code. Called before a handler is installed that calls [`contains`].
pub(super) fn find() {
    CODE.get_or_init(|| {
        let mut found = [const { 0..0 }; MOST];
        for (found, address) in found.iter_mut().zip(memory_functions()) {
            *found = extent(address).unwrap_or(0..0);
        }
        found
    });
}

/// Whether an address is in one of them. For handlers of signals.
pub(crate) fn contains(pc: usize) -> bool {
    CODE.get()
        .is_some_and(|code| code.iter().any(|range| range.contains(&pc)))
}

/// What libgcc's `_Unwind_Find_FDE` writes about a function.
#[repr(C)]
struct Bases {
    text: *const c_void,
    data: *const c_void,
    function: *const c_void,
}

type FindFde = unsafe extern "C" fn(*const c_void, *mut Bases) -> *const u8;

/// Where the function at `address` lies; `None`: it has no unwind information, or none in the usual form.
fn extent(address: usize) -> Option<Range<usize>> {
    const NAME: &CStr = c"_Unwind_Find_FDE";
    // SAFETY: a name that ends in a zero byte.
    let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()) };
    if find.is_null() {
        return None;
    }
    let mut bases = Bases {
        text: std::ptr::null(),
        data: std::ptr::null(),
        function: std::ptr::null(),
    };
    // SAFETY: the function of this name has had this type since GCC 3.
    let entry = unsafe {
        let find: FindFde = std::mem::transmute::<*mut c_void, FindFde>(find);
        find(std::ptr::with_exposed_provenance(address), &raw mut bases)
    };
    if entry.is_null() || bases.function.addr() != address {
        return None;
    }
    // An entry: length, distance to its common entry, begin, size. The common entry: length, 0, version, augmentation "zR",
    // code alignment, data alignment, return register, length of the augmentation, encoding of addresses.
    // SAFETY: loaded unwind information, which its own lengths describe.
    unsafe {
        let word = |at: *const u8| at.cast::<u32>().read_unaligned();
        let common = entry.add(4).sub(word(entry.add(4)) as usize);
        let augmentation = std::slice::from_raw_parts(common.add(8), 9);
        // Version 1, "zR", alignments 1 and -8, register 16, one byte: relative to its place, signed, of 32 bits.
        let is_usual = augmentation[..4] == *b"\x01zR\0" && augmentation[4..9] == [1, 0x78, 16, 1, 0x1b];
        let size = word(entry.add(12)) as usize;
        (is_usual && size < 1 << 20).then_some(address..address + size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_memory_are_found() {
        find();
        let all = CODE.get().unwrap();
        // Of this C library, all of them have unwind information.
        for (range, address) in all.iter().zip(memory_functions()) {
            assert_eq!(range.start, address);
            assert!(contains(range.start) && contains(range.end - 1), "{range:x?}");
            assert!(range.len() < 1 << 16, "{range:x?}");
        }
        assert!(!contains(the_functions_of_memory_are_found as *const () as usize));
    }
}
