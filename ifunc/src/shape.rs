//! Shapes: descriptions of what serde types put on the wire, which two programs can compare.

use ifunc_abi::text::Text;

/// The shape of a serde type: its fields and variants in order, by name and type.
///
/// Implemented for types of `core` and `alloc`; [`derive(Shape)`](macro@crate::Shape) implements it for
/// structs and enums, beside serde's own derives. Where a serde attribute changes what serde writes,
/// implement it by hand and choose a text that changes with the format.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no described shape",
    label = "source and target cannot compare their versions of `{Self}`",
    note = "help: `#[derive(Shape)]` beside `#[derive(Serialize, Deserialize)]`"
)]
pub trait Shape {
    /// Canonical text of the type.
    const TEXT: Text;
}

macro_rules! plain {
    ($($(#[$meta:meta])* $ty:ty = $text:literal)*) => {$(
        $(#[$meta])*
        impl Shape for $ty {
            const TEXT: Text = Text::new().str($text);
        }
    )*};
}

plain! {
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
    str = "str"
    &str = "str"
    &[u8] = "bytes"
    core::time::Duration = "Duration"
    core::net::Ipv4Addr = "Ipv4Addr"
    core::net::Ipv6Addr = "Ipv6Addr"
    core::net::IpAddr = "IpAddr"
    core::net::SocketAddrV4 = "SocketAddrV4"
    core::net::SocketAddrV6 = "SocketAddrV6"
    core::net::SocketAddr = "SocketAddr"
    #[cfg(feature = "alloc")]
    alloc::string::String = "str"
}

macro_rules! wrapped {
    ($($(#[$meta:meta])* [$($generics:tt)*] $ty:ty = $open:literal $inner:ty, $close:literal;)*) => {$(
        $(#[$meta])*
        impl<$($generics)*> Shape for $ty {
            const TEXT: Text = Text::new().str($open).text(&<$inner as Shape>::TEXT).str($close);
        }
    )*};
}

wrapped! {
    [T: Shape] Option<T> = "Option<" T, ">";
    #[cfg(feature = "alloc")]
    [T: Shape] alloc::vec::Vec<T> = "[" T, "]";
    #[cfg(feature = "alloc")]
    [T: Shape] alloc::collections::BTreeSet<T> = "[" T, "]";
    #[cfg(feature = "alloc")]
    [T: Shape] alloc::collections::VecDeque<T> = "[" T, "]";
    #[cfg(feature = "alloc")]
    [T: Shape + ?Sized] alloc::boxed::Box<T> = "" T, "";
    #[cfg(feature = "alloc")]
    [T: Shape + alloc::borrow::ToOwned + ?Sized] alloc::borrow::Cow<'_, T> = "" T, "";
}

impl<T: Shape, const N: usize> Shape for [T; N] {
    const TEXT: Text = Text::new().str("[").text(&T::TEXT).str(";").number(N).str("]");
}

impl<T: Shape, E: Shape> Shape for Result<T, E> {
    const TEXT: Text = Text::new()
        .str("Result<")
        .text(&T::TEXT)
        .str(",")
        .text(&E::TEXT)
        .str(">");
}

#[cfg(feature = "alloc")]
impl<K: Shape, V: Shape> Shape for alloc::collections::BTreeMap<K, V> {
    const TEXT: Text = Text::new()
        .str("{")
        .text(&K::TEXT)
        .str(":")
        .text(&V::TEXT)
        .str("}");
}

macro_rules! tuples {
    ($($first:ident $($rest:ident)*;)*) => {$(
        impl<$first: Shape $(, $rest: Shape)*> Shape for ($first, $($rest,)*) {
            const TEXT: Text = Text::new().str("(").text(&$first::TEXT)$(.str(",").text(&$rest::TEXT))*.str(")");
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}
