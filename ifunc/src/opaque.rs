//! Types that an ifunc passes on without access to their contents.

use core::cell::UnsafeCell;
use core::marker::PhantomData;

/// The placeholder, in an ifunc's crate, for a type of the host.
///
/// It cannot be constructed, and so neither can the struct that holds it: every reference to that struct
/// comes from the target.
///
/// ```
/// use ifunc::prelude::*;
///
/// /// The target's store.
/// #[derive(Opaque)]
/// #[opaque("store/1")]
/// pub struct Store(ifunc::Foreign);
/// ```
///
/// It is neither [`Send`] nor [`Sync`]: the host's type may hold a [`Cell`](core::cell::Cell), or change
/// while an ifunc holds a `&Store`. An ifunc that takes `&Store` may nevertheless run on several threads of
/// its target at the same time: it can only pass the reference to host functions, and a target serves on
/// several threads only if its type is `Sync`.
#[derive(Debug)]
#[repr(C)]
pub struct Foreign {
    _nothing: UnsafeCell<[u8; 0]>,
    _unknown: PhantomData<*mut ()>,
}
