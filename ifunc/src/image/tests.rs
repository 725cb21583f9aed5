//! The memory functions compared with the slice methods of `core`.

use core::ffi::c_int;
use std::vec::Vec;

use proptest::prelude::*;

type Move = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;
type Set = unsafe extern "C" fn(*mut u8, c_int, usize) -> *mut u8;
type Compare = unsafe extern "C" fn(*const u8, *const u8, usize) -> c_int;
type Length = unsafe extern "C" fn(*const core::ffi::c_char) -> usize;

struct Functions {
    memcpy: Move,
    memmove: Move,
    memset: Set,
    memcmp: Compare,
    bcmp: Compare,
    strlen: Length,
}

macro_rules! functions {
    ($module:ident) => {
        Functions {
            memcpy: super::$module::memcpy,
            memmove: super::$module::memmove,
            memset: super::$module::memset,
            memcmp: super::$module::memcmp,
            bcmp: super::$module::bcmp,
            strlen: super::$module::strlen,
        }
    };
}

const ALL: &[Functions] = &[
    functions!(memory_portable),
    #[cfg(target_arch = "x86_64")]
    functions!(memory_x86_64),
    #[cfg(target_arch = "aarch64")]
    functions!(memory_aarch64),
];

/// Moves within a buffer between all pairs of near offsets, with guard bytes around.
#[test]
fn moves_every_short_length() {
    const BUFFER_LEN: usize = 200;
    for functions in ALL {
        for len in 0..=100 {
            for (from, to) in [
                (8, 8),
                (8, 9),
                (9, 8),
                (8, 24),
                (24, 8),
                (8, 41),
                (41, 8),
                (7, 71),
                (90, 1),
            ] {
                let before: Vec<u8> = (0..BUFFER_LEN).map(|i| i as u8).collect();
                let mut expected = before.clone();
                expected.copy_within(from..from + len, to);
                let mut moved = before.clone();
                let base = moved.as_mut_ptr();
                // SAFETY: both ranges lie in the buffer.
                let returned = unsafe { (functions.memmove)(base.add(to), base.add(from), len) };
                assert_eq!(returned, moved.as_mut_ptr().wrapping_add(to));
                assert_eq!(moved, expected, "memmove of {len} from {from} to {to}");

                let mut copied = before.clone();
                // SAFETY: the ranges lie in two buffers.
                unsafe { (functions.memcpy)(copied.as_mut_ptr().add(to), before.as_ptr().add(from), len) };
                assert_eq!(copied, expected, "memcpy of {len} from {from} to {to}");

                expected[to..to + len].fill(0xa5);
                // SAFETY: as above; only the low byte counts.
                unsafe { (functions.memset)(copied.as_mut_ptr().add(to), 0x7a5, len) };
                assert_eq!(copied, expected, "memset of {len} at {to}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn moves_like_copy_within(bytes in prop::collection::vec(any::<u8>(), 1..5000), a in any::<prop::sample::Index>(),
                              b in any::<prop::sample::Index>(), c in any::<prop::sample::Index>()) {
        let (from, to) = (a.index(bytes.len()), b.index(bytes.len()));
        let len = c.index(bytes.len() - from.max(to) + 1).min(bytes.len() - from.max(to));
        let mut expected = bytes.clone();
        expected.copy_within(from..from + len, to);
        for functions in ALL {
            let mut moved = bytes.clone();
            let base = moved.as_mut_ptr();
            // SAFETY: both ranges lie in the buffer.
            unsafe { (functions.memmove)(base.add(to), base.add(from), len) };
            prop_assert_eq!(&moved, &expected);
            let mut copied = bytes.clone();
            // SAFETY: the ranges lie in two buffers.
            unsafe { (functions.memcpy)(copied.as_mut_ptr().add(to), bytes.as_ptr().add(from), len) };
            prop_assert_eq!(&copied, &expected);
        }
    }

    #[test]
    fn compares_like_slices(mut a in prop::collection::vec(0u8..3, 0..40), mut b in prop::collection::vec(0u8..3, 0..40),
                            common in prop::collection::vec(any::<u8>(), 0..40)) {
        a.splice(0..0, common.iter().copied());
        b.splice(0..0, common.iter().copied());
        let len = a.len().min(b.len());
        let expected = a[..len].cmp(&b[..len]);
        for functions in ALL {
            // SAFETY: both have `len` bytes.
            let order = unsafe { (functions.memcmp)(a.as_ptr(), b.as_ptr(), len) };
            prop_assert_eq!(order.cmp(&0), expected);
            // SAFETY: as above.
            let different = unsafe { (functions.bcmp)(a.as_ptr(), b.as_ptr(), len) };
            prop_assert_eq!(different != 0, expected.is_ne());
        }
    }

    #[test]
    fn measures_strings(mut bytes in prop::collection::vec(1u8.., 0..100)) {
        let len = bytes.len();
        bytes.extend([0, 1, 0]);
        for functions in ALL {
            // SAFETY: a NUL follows.
            prop_assert_eq!(unsafe { (functions.strlen)(bytes.as_ptr().cast()) }, len);
        }
    }
}
