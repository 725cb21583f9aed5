//! Types that an ifunc names but never sees.

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
#[derive(Debug)]
#[repr(C)]
pub struct Foreign {
    _nothing: [u8; 0],
}
