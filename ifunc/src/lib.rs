//! Write functions that travel.
//!
//! An *ifunc* (injected function) is sent by a *source* process, machine code and payload, to a *target* process that
//! has never seen it, and runs there on the target's own data. This crate is what the author of an ifunc writes
//! against; `cargo ifunc build` makes images of the result and `ifunc-rt` sends and runs them.
//!
//! ```
//! #![no_std]
//! use ifunc::prelude::*;
//!
//! /// Adds `delta` to the target's counter and answers the new value.
//! #[ifunc]
//! pub fn add(delta: u64, counter: &mut u64) -> u64 {
//!     *counter += delta;
//!     *counter
//! }
//!
//! # fn main() {
//! // It stays an ordinary function ...
//! let mut counter = 40;
//! assert_eq!(add(2, &mut counter), 42);
//!
//! // ... and beside it stands a type of the same name, by which a source sends it.
//! assert_eq!(<add as Ifunc>::NAME, "add");
//! assert_eq!(add::decode_answer(&[42, 0, 0, 0, 0, 0, 0, 0]), Ok(42));
//! # }
//! ```
//!
//! An ifunc crate is a package of its own, `#![no_std]`, and needs nothing in its manifest but this dependency: no
//! crate type, no profile, no cfg. The attributes write `::ifunc` paths: where the manifest gives the dependency another
//! name (`sdk = { package = "ifunc", .. }`), say `extern crate sdk as ifunc;` at the root of the crate.
//!
//! | what | where |
//! |---|---|
//! | the attribute and its arguments | [`#[ifunc]`](macro@ifunc) |
//! | what a payload can be, and how to write one by hand | [`codec`], [`Payload`] |
//! | what a target's data can be | [`Layout`](macro@Layout), [`Opaque`](macro@Opaque), [`Foreign`] |
//! | answering, logging, who sent this | [`Context`] |
//! | calling functions of the host | [`#[ifunc::export]`](macro@export), [`#[ifunc::import]`](macro@import), [`ffi`] |
//! | types that both sides share | [`#[ifunc::layout]`](macro@layout), [`Shape`](macro@Shape) |
//! | `String`, `Vec`, `Box` | the feature `alloc` |
//!
//! In an image (`cfg(ifunc_image)`, which the builder sets) this crate also brings what code without a C library lacks:
//! the panic handler, `memcpy` and its family, and with `alloc` a global allocator that asks the target. A panic ends
//! its invocation, not the target; how much of it is told is the package's choice: `message` (the default), `location`
//! or `minimal`, as `panic` in `[package.metadata.ifunc]`.

#![no_std]

// The attributes' output names this crate; so it does in the tests within.
extern crate self as ifunc;

#[cfg(feature = "alloc")]
extern crate alloc;
// The host's side of the line, where panics are caught.
#[cfg(not(ifunc_image))]
extern crate std;

pub mod codec;
mod context;
pub mod ffi;
#[cfg(not(ifunc_image))]
pub mod host;
#[cfg(any(ifunc_image, test))]
mod image;
mod layout;
mod opaque;
pub mod payload;
pub mod prelude;
mod shape;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use context::{Context, Level};
pub use ifunc_abi as abi;
pub use layout::{Layout, Portable};
pub use opaque::Foreign;
pub use payload::{Answer, DecodeError, EncodeError, Ifunc, Payload, TargetArgs};
pub use shape::Shape;
pub use {serde, zerocopy};

/// Makes a function one that travels.
///
/// ```
/// use ifunc::prelude::*;
///
/// #[ifunc(idempotent)]
/// pub fn maximum(values: &[u32], largest: &mut u32, ctx: &mut Context) {
///     *largest = values.iter().copied().chain([*largest]).max().unwrap_or(0);
///     info!(ctx, "{} values from {}", values.len(), ctx.sender());
///     ctx.answer(&largest.to_le_bytes());
/// }
/// ```
///
/// `fn name(payload: P, target: &mut T)`, then `ctx: &mut Context` if it is needed, and an answer or none.
///
/// * `payload`: by value, by reference, or borrowing from the message: see [`codec`].
/// * `target`: `&mut T` runs one invocation at a time; `&T` lets several serving threads run it at once where `T` is
///   `Sync`, or opaque and `Sync` on the host's side (a target that serves so refuses `&mut T`). Then its `static`s are shared by
///   those threads, as in any program with threads: safe code cannot get that wrong, a `static mut` needs a lock of its own.
///   `T` is a [`Layout`](macro@crate::Layout) or an [`Opaque`](macro@crate::Opaque).
/// * the answer: an owned value of the same kinds as the payload, or bytes by [`Context::answer`].
///
/// | argument | meaning |
/// |---|---|
/// | `name = "add_v2"` | the ifunc's name, where it is not the function's |
/// | `codec = zerocopy`, `postcard`, `raw`, `custom` | how the payload travels |
/// | `idempotent` | may be run again when nobody knows whether it ran |
/// | `pinned` | its address outlives the invocation (a callback that the host keeps): its code is never evicted |
///
/// The function is left as it is. Beside it stands a type of the same name that implements [`Ifunc`]; image builds add
/// the C symbols `NAME_main`, `NAME_payload_bound` and `NAME_payload_init`.
pub use ifunc_macros::ifunc;

/// Lets ifuncs call a function of the host: registers it in [`host::EXPORTS`] with the text of its signature.
///
/// ```
/// use std::collections::BTreeMap;
///
/// #[derive(ifunc::Opaque)]
/// #[opaque("store/1")]
/// pub struct Store(BTreeMap<Vec<u8>, Vec<u8>>);
///
/// #[ifunc::export]
/// fn insert(store: &mut Store, key: &[u8], value: &[u8]) -> Result<(), i32> {
///     store.0.insert(key.into(), value.into());
///     Ok(())
/// }
/// # fn main() {}
/// ```
///
/// What crosses, and what C sees of it: [`ffi`]. `name = ".."` gives the symbol another name than the
/// function's. A program whose exports lie in a library crate must mention that crate (`use the_crate as _;`), or the
/// linker leaves them out.
pub use ifunc_macros::export;

/// Declares functions of the host that an ifunc calls.
///
/// ```
/// use ifunc::prelude::*;
///
/// /// What only the host can see.
/// #[derive(Opaque)]
/// #[opaque("store/1")]
/// pub struct Store(ifunc::Foreign);
///
/// #[ifunc::import]
/// unsafe extern {
///     safe fn insert(store: &mut Store, key: &[u8], value: &[u8]) -> Result<(), i32>;
/// }
///
/// /// The payload is the key, its length the value.
/// #[ifunc]
/// pub fn remember(key: &[u8], store: &mut Store) -> i32 {
///     match insert(store, key, &key.len().to_le_bytes()) {
///         Ok(()) => 0,
///         Err(code) => code,
///     }
/// }
/// ```
///
/// `safe fn` gives a safe function, `fn` an unsafe one; the export must say the same. `#[link_name = ".."]` names
/// another symbol. In an image the call goes to the target, which compared the signatures when the image was installed;
/// anywhere else it goes to an [`export`](macro@crate::export) of this process, so that an ifunc can be unit-tested, and
/// panics where there is none.
pub use ifunc_macros::import;

/// Gives a type a fixed layout and all it takes to travel: `#[repr(C)]` unless another is written,
/// [`derive(Layout)`](macro@crate::Layout), zerocopy's `TryFromBytes`, `IntoBytes`, `Immutable` and `KnownLayout`, and
/// [`Portable`].
///
/// ```
/// use ifunc::prelude::*;
///
/// #[ifunc::layout]
/// #[derive(Clone, Copy)]
/// pub struct Point {
///     x: f64,
///     y: f64,
/// }
///
/// #[ifunc]
/// pub fn shift(by: &Point, at: &mut Point) -> Point {
///     at.x += by.x;
///     at.y += by.y;
///     *at
/// }
/// ```
///
/// Padding is an error: make it a field. An enum needs an integer representation: `#[repr(u8)]`.
pub use ifunc_macros::layout;

/// Describes a fixed layout, so that a target and an ifunc that were compiled apart can tell whether they mean the same
/// bytes: implements [`Layout`](trait@crate::Layout), and with it [`TargetArgs`].
///
/// For structs with `#[repr(C)]` or `#[repr(transparent)]` and enums of an integer representation without fields; every
/// field must be of fixed layout too. Such an enum whose values are not 0 may also be the error of a
/// [host function](ffi).
///
/// ```
/// use ifunc::prelude::*;
///
/// #[derive(Layout, Default)]
/// #[repr(C)]
/// pub struct Counters {
///     count: u64,
///     last: u8,
/// }
/// assert_eq!(<Counters as Layout>::TEXT.as_str(), "struct Counters{0:count:u64,8:last:u8}[16,8]");
/// ```
pub use ifunc_macros::Layout;

/// Names a type that only the host can see: implements [`TargetArgs`] under the name in `#[opaque("..")]`.
///
/// On the host, for the real type; in the ifunc's crate, for one that holds a [`Foreign`] and nothing else. An image
/// build refuses any other: a type with fields of its own would have an ifunc look for them in the host's memory, and
/// one that safe code can make could be handed to a host function in place of the host's.
///
/// ```
/// # mod host {
/// #[derive(ifunc::Opaque)]
/// #[opaque("store/1")]
/// pub struct Store(std::collections::HashMap<u64, String>);
/// # }
/// # mod ifuncs {
/// #[derive(ifunc::Opaque)]
/// #[opaque("store/1")]
/// pub struct Store(ifunc::Foreign);
/// # }
/// ```
pub use ifunc_macros::Opaque;

/// Describes what a serde type writes: implements [`Shape`](trait@crate::Shape).
///
/// ```
/// use ifunc::prelude::*;
/// use ifunc::serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Shape)]
/// #[serde(crate = "ifunc::serde")]
/// pub struct Record<'a> {
///     key: &'a str,
///     value: &'a [u8],
/// }
/// assert_eq!(<Record<'_> as Shape>::TEXT.as_str(), "struct Record{key:str,value:bytes}");
///
/// #[ifunc(codec = postcard)]
/// pub fn measure(record: Record<'_>, bytes: &mut u64) {
///     *bytes += (record.key.len() + record.value.len()) as u64;
/// }
/// ```
///
/// serde attributes that change what is written (`with`, `flatten`, `tag` ...) are refused: implement the trait by hand.
pub use ifunc_macros::Shape;
