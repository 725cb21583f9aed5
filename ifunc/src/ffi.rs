//! Types that cross between an ifunc and a host function, and their form in C.
//!
//! | Rust | C |
//! |---|---|
//! | integers, `f32`, `f64`; `bool` | the same; `uint8_t` |
//! | `&T`, `&mut T`; `Option<&T>` of a shared layout or an opaque type | a pointer; a nullable pointer |
//! | `&[T]`, `&mut [T]`, `&str` | a pointer and a `size_t` |
//! | `-> Result<T, E>` (`E`: `i32` or a C-like enum) | `int32_t`, 0 for `Ok`, and an out pointer as the last parameter unless `T` is `()` |
//! | `-> Option<T>` | `uint8_t`, 1 for `Some`, and an out pointer |

use ifunc_abi::text::Text;

use crate::layout::Layout;

/// A value that crosses in a register: an integer, a float or a `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross between an ifunc and its host by value",
    label = "not an integer, a float or a `bool`",
    note = "help: pass `&{Self}`; the type needs `#[derive(Layout)]` or `#[derive(Opaque)]`"
)]
pub trait Scalar: Copy + sealed::Sealed {
    /// Canonical text of the type.
    const TEXT: Text;
    /// The type in C.
    #[doc(hidden)]
    type C: Copy;
    /// The type's name in C.
    #[doc(hidden)]
    const C_NAME: &'static str;
    #[doc(hidden)]
    fn into_c(self) -> Self::C;
    #[doc(hidden)]
    fn from_c(c: Self::C) -> Self;
}

/// The `E` of a `Result` that a host function returns: `i32`, or an enum of an integer representation with
/// [`derive(Layout)`](macro@crate::Layout) and without a variant of value 0.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a host function",
    label = "C receives the error as an `int32_t`",
    note = "help: use `i32`, or an enum with `#[repr(i32)]` and `#[derive(Layout)]` whose values are not 0"
)]
pub trait ErrorCode: Sized {
    /// Canonical text of the type.
    const TEXT: Text;
    /// Whether no value is 0 and all fit an `i32`.
    #[doc(hidden)]
    const VALID: bool;
    #[doc(hidden)]
    fn into_code(self) -> i32;
    #[doc(hidden)]
    fn from_code(code: i32) -> Self;
}

impl ErrorCode for i32 {
    const TEXT: Text = <i32 as Layout>::TEXT;
    const VALID: bool = true;

    /// 0 means `Ok` in C: `Err(0)` crosses as `Err(i32::MIN)`.
    #[inline]
    fn into_code(self) -> i32 {
        if self == 0 { i32::MIN } else { self }
    }

    #[inline]
    fn from_code(code: i32) -> Self {
        code
    }
}

mod sealed {
    #[diagnostic::on_unimplemented(message = "only integers, floats and `bool` cross by value")]
    pub trait Sealed {}
}

macro_rules! scalars {
    ($($ty:ty = $c:ty, $name:literal;)*) => {$(
        impl sealed::Sealed for $ty {}
        impl Scalar for $ty {
            const TEXT: Text = <$ty as Layout>::TEXT;
            type C = $c;
            const C_NAME: &'static str = $name;
            #[inline]
            fn into_c(self) -> $c {
                <$c>::from(self)
            }
            #[inline]
            fn from_c(c: $c) -> Self {
                c
            }
        }
    )*};
}

scalars! {
    u8 = u8, "uint8_t";
    u16 = u16, "uint16_t";
    u32 = u32, "uint32_t";
    u64 = u64, "uint64_t";
    usize = usize, "size_t";
    i8 = i8, "int8_t";
    i16 = i16, "int16_t";
    i32 = i32, "int32_t";
    i64 = i64, "int64_t";
    isize = isize, "ptrdiff_t";
    f32 = f32, "float";
    f64 = f64, "double";
}

impl sealed::Sealed for bool {}
impl Scalar for bool {
    const TEXT: Text = <bool as Layout>::TEXT;
    type C = u8;
    const C_NAME: &'static str = "uint8_t";
    #[inline]
    fn into_c(self) -> u8 {
        u8::from(self)
    }
    #[inline]
    fn from_c(c: u8) -> Self {
        c != 0
    }
}
