//! Types that an ifunc names but never sees.

use core::cell::UnsafeCell;
use core::marker::PhantomData;

/// Stands, in an ifunc's crate, for what only the host can see.
///
/// Nobody can make one, so nobody can make the type that holds it: the only references to it come from the target.
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
/// Nothing is known of what it stands for, so it is neither [`Send`] nor [`Sync`]: the host's type may hold a
/// [`Cell`](core::cell::Cell), or change behind a `&Store`. An ifunc that takes `&Store` may run on several threads of its target
/// at once all the same: it can only hand it to functions of the host, and the target serves on several threads only what
/// is `Sync` there.
#[derive(Debug)]
#[repr(C)]
pub struct Foreign {
    _nothing: UnsafeCell<[u8; 0]>,
    _unknown: PhantomData<*mut ()>,
}
