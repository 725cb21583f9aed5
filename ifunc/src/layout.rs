//! Fixed layouts: types whose bytes are the same in separately compiled programs.

use core::marker::PhantomData;
use core::sync::atomic;

use ifunc_abi::text::Text;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::payload::TargetArgs;

/// A type of fixed layout, identified by its text.
///
/// Implemented for integers, floats, `bool`, `char`, `()`, the atomic integers, and arrays and slices of such types;
/// [`derive(Layout)`](macro@crate::Layout) implements it for `#[repr(C)]` and `#[repr(transparent)]` structs and enums
/// of an integer representation.
///
/// # Safety
/// Two types with equal [`TEXT`](Self::TEXT) have the same bytes for the same value in every build, and hold
/// no address.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no fixed layout",
    label = "source and target are compiled separately: nothing ensures that both have the same `{Self}`",
    note = "help: put `#[ifunc::layout]` on the type, or `#[repr(C)]` and `#[derive(Layout)]` if it never travels"
)]
pub unsafe trait Layout {
    /// Canonical text.
    const TEXT: Text;
    /// Alignment in bytes.
    const ALIGN: usize;
    /// See [`TargetArgs::EARLIER`].
    #[doc(hidden)]
    const EARLIER: &'static [&'static str] = &[];
}

/// A [`Layout`] whose bytes can travel: it has no padding, and `zerocopy` validates received bytes.
///
/// [`#[ifunc::layout]`](macro@crate::layout) implements it. To implement it by hand, beside `derive(Layout)`
/// and zerocopy's derives: `impl ifunc::Portable for Point {}`.
#[diagnostic::on_unimplemented(
    message = "the bytes of `{Self}` cannot travel",
    label = "source and target are compiled separately: nothing ensures that both have the same `{Self}`",
    note = "help: put `#[ifunc::layout]` on the type",
    note = "help: or let it travel by serde: `#[derive(Serialize, Deserialize, Shape)]` and `#[ifunc(codec = postcard)]`"
)]
pub trait Portable: Layout + TryFromBytes + IntoBytes + Immutable + KnownLayout {}

// SAFETY: a fixed layout has the same bytes on both sides.
unsafe impl<T: Layout> TargetArgs for T {
    const TEXT: Text = <T as Layout>::TEXT;
    const EARLIER: &'static [&'static str] = <T as Layout>::EARLIER;
}

macro_rules! primitives {
    ($($ty:ty = $text:literal)*) => {$(
        // SAFETY: each architecture has one layout, and an image runs on its own architecture only.
        unsafe impl Layout for $ty {
            const TEXT: Text = Text::new().str($text);
            const ALIGN: usize = align_of::<$ty>();
        }
    )*};
}

primitives! {
    () = "()"
    bool = "bool"
    char = "char"
    u8 = "u8"
    u16 = "u16"
    u32 = "u32"
    u64 = "u64"
    u128 = "u128"
    usize = "usize"
    i8 = "i8"
    i16 = "i16"
    i32 = "i32"
    i64 = "i64"
    i128 = "i128"
    isize = "isize"
    f32 = "f32"
    f64 = "f64"
    atomic::AtomicBool = "atomic bool"
    atomic::AtomicU8 = "atomic u8"
    atomic::AtomicU16 = "atomic u16"
    atomic::AtomicU32 = "atomic u32"
    atomic::AtomicU64 = "atomic u64"
    atomic::AtomicUsize = "atomic usize"
    atomic::AtomicI8 = "atomic i8"
    atomic::AtomicI16 = "atomic i16"
    atomic::AtomicI32 = "atomic i32"
    atomic::AtomicI64 = "atomic i64"
    atomic::AtomicIsize = "atomic isize"
}

// SAFETY: elements follow each other without gaps.
unsafe impl<T: Layout, const N: usize> Layout for [T; N] {
    const TEXT: Text = Text::new()
        .str("[")
        .text(&<T as Layout>::TEXT)
        .str(";")
        .number(N)
        .str("]");
    const ALIGN: usize = align_of::<T>();
}

// SAFETY: as for arrays.
unsafe impl<T: Layout> Layout for [T] {
    const TEXT: Text = Text::new().str("[").text(&<T as Layout>::TEXT).str("]");
    const ALIGN: usize = align_of::<T>();
}

// SAFETY: the type has no bytes.
unsafe impl<T: ?Sized> Layout for PhantomData<T> {
    const TEXT: Text = Text::new().str("()");
    const ALIGN: usize = 1;
}

macro_rules! portable {
    ($($ty:ty)*) => {$(impl Portable for $ty {})*};
}

portable! { () bool char u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }

impl<T: Portable, const N: usize> Portable for [T; N] {}
impl<T: Portable> Portable for [T] {}
