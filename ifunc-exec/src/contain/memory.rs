//! The functions of the C library that every image may import, `memcpy` and the like: they own nothing, so an invocation may be left in
//! them. Their machine code is found by its unwind information.

use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use crate::arch::USUAL_CIE;
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
    // SAFETY: loaded unwind information, which its own lengths describe.
    let size = unsafe { size_in(entry) }?;
    Some(address..address + size)
}

/// No function is as long.
const LONGEST: u32 = 1 << 20;

/// The length of a function, of its frame description entry. `None`: it is not in the usual form.
///
/// # Safety
/// The entry is the loaded unwind information of a function, of at least 16 bytes; its common entry lies before it.
unsafe fn size_in(entry: *const u8) -> Option<usize> {
    // An entry: length, distance to its common entry, begin, size. The common entry: length, 0, version, augmentation "zR",
    // code alignment, data alignment, return register, length of the augmentation, encoding of addresses.
    // SAFETY: the caller's promise.
    let (common, size) = unsafe {
        let word = |at: *const u8| at.cast::<u32>().read_unaligned();
        let common = entry.add(4).sub(word(entry.add(4)) as usize);
        (common.add(8).cast::<[u8; 9]>().read(), word(entry.add(12)))
    };
    (common == USUAL_CIE && size < LONGEST).then_some(size as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_function_has_no_extent() {
        let address = memory_functions().next().unwrap();
        assert_eq!(extent(address).map(|range| range.start), Some(address));
        assert_eq!(extent(address + 1), None, "an address within one");
        assert_eq!(extent(0), None);
    }

    #[test]
    fn unwind_information_in_another_form_is_not_read() {
        let size = |form: [u8; 9], size: u32| {
            let mut bytes = [&[0xee; 8][..], &form, &[0; 7]].concat();
            // The common entry lies 24 bytes before its entry, whose second word is the distance to it.
            for word in [16, 24 + 4, 0x1234, size] {
                bytes.extend_from_slice(&u32::to_le_bytes(word));
            }
            // SAFETY: both entries are whole.
            unsafe { size_in(bytes[24..].as_ptr()) }
        };
        assert_eq!(size(USUAL_CIE, 4711), Some(4711));
        assert_eq!(size(USUAL_CIE, (1 << 20) - 1), Some((1 << 20) - 1));
        assert_eq!(size(USUAL_CIE, 1 << 20), None);
        assert_eq!(size(*b"\x01zPLR\0\x01\x78\x10", 4711), None);
        assert_eq!(size(*b"\x03zR\0\x01\x78\x10\x01\x1b", 4711), None);
    }

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
