//! The SDK for authors of injected functions.
//!
//! An *ifunc* (injected function) is a function that a *source* process sends, as machine code with a
//! payload, to a *target* process that was not linked with it. The target runs it on its own data. Authors of
//! ifuncs write them against this crate; `cargo ifunc build` turns them into images, and `ifunc-rt` sends and
//! runs those.
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
//! // The attribute leaves the function as it is ...
//! let mut counter = 40;
//! assert_eq!(add(2, &mut counter), 42);
//!
//! // ... and adds a type of the same name, the handle by which a source sends it.
//! assert_eq!(<add as Ifunc>::NAME, "add");
//! assert_eq!(add::decode_answer(&[42, 0, 0, 0, 0, 0, 0, 0]), Ok(42));
//! # }
//! ```
//!
//! An ifunc crate is a package of its own, `#![no_std]`, whose manifest needs nothing but this dependency: no
//! crate type, no profile, no cfg. The attributes emit `::ifunc` paths. If the manifest renames the
//! dependency (`sdk = { package = "ifunc", .. }`), write `extern crate sdk as ifunc;` at the root of the
//! crate.
//!
//! | topic | item |
//! |---|---|
//! | the attribute and its arguments | [`#[ifunc]`](macro@ifunc) |
//! | payload types, and hand-written payloads | [`codec`], [`Payload`] |
//! | types of the target's data | [`Layout`](macro@Layout), [`Opaque`](macro@Opaque), [`Foreign`] |
//! | answering, logging, the sender's connection | [`Context`] |
//! | sending others, travelling on, answering in parts | [`travel`] |
//! | replacing what the target exports | [`Context::replace_export`] |
//! | calling the host | [`#[ifunc::interface]`](macro@interface), [`#[ifunc::export]`](macro@export), [`#[ifunc::import]`](macro@import), [`ffi`] |
//! | objects of the host that an ifunc holds and drops | [`Owned`] |
//! | types shared by source and target | [`#[ifunc::layout]`](macro@layout), [`Shape`](macro@Shape) |
//! | random bytes, the time of day | [`system`], and the feature `getrandom` for crates that draw random numbers |
//! | `String`, `Vec`, `Box` | the feature `alloc` |
//!
//! In image builds (`cfg(ifunc_image)`, set by the builder), this crate also provides what code without a C
//! library lacks: the panic handler, `memcpy` and its family, and, with `alloc`, a global allocator that
//! calls the target's. A panic ends its invocation, not the target. The package chooses what a panic reports
//! by `panic` in `[package.metadata.ifunc]`: `message` (the default), `location` or `minimal`. There, too, `cfg =
//! ['getrandom_backend="custom"']` and `rustflags` add to the compiler's flags for the package's images and what they link.

#![no_std]

// The attributes emit paths to `::ifunc`; this makes them resolve in this crate's own tests.
extern crate self as ifunc;

#[cfg(feature = "alloc")]
extern crate alloc;
// Images do not contain the host's part, which catches panics.
#[cfg(not(ifunc_image))]
extern crate std;

mod answer;
pub mod codec;
mod context;
pub mod ffi;
#[cfg(not(ifunc_image))]
pub mod host;
#[cfg(any(ifunc_image, test))]
mod image;
mod layout;
mod opaque;
mod owned;
pub mod payload;
pub mod prelude;
mod remote_exports;
mod shape;
pub mod system;
mod system_time;
pub mod travel;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use answer::{AnswerFull, AnswerWriter};
pub use context::{Context, Level};
pub use ifunc_abi as abi;
pub use layout::{Layout, Portable};
pub use opaque::Foreign;
pub use owned::Owned;
pub use payload::{Answer, DecodeError, EncodeError, Ifunc, Payload, TargetArgs};
pub use remote_exports::ReplaceError;
pub use shape::Shape;
pub use travel::{Onward, TravelError};
pub use {serde, zerocopy};

/// Makes a function an ifunc.
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
/// The signature is `fn name(payload: P, target: &mut T)`, optionally with `ctx: &mut Context` as a third
/// parameter and with an answer as the return value.
///
/// * `payload`: a value, a reference, or a type that borrows from the message; see [`codec`].
/// * `target`: with `&mut T`, the target runs one invocation at a time. With `&T`, several serving threads
///   may run the ifunc at the same time if `T` is `Sync`, or opaque and `Sync` in the host; a target that
///   serves on several threads refuses `&mut T`. Those threads share the ifunc's `static`s, as in any
///   multi-threaded program: safe code stays sound, a `static mut` needs a lock of its own. `T` is a
///   [`Layout`](macro@crate::Layout) or an [`Opaque`](macro@crate::Opaque).
/// * the answer: an owned value of the same kinds as the payload, or bytes passed to [`Context::answer`].
///
/// | argument | meaning |
/// |---|---|
/// | `name = "add_v2"` | the ifunc's name, if it differs from the function's |
/// | `codec = zerocopy`, `postcard`, `raw`, `custom` | the payload's encoding |
/// | `idempotent` | a source may send an invocation again when it does not know whether the first attempt ran |
/// | `pinned` | the function's address outlives the invocation (a callback that the host keeps), or that of memory which it allocates (as a number): the target never evicts the code, and frees no memory of an invocation that panics |
///
/// The attribute leaves the function as it is and adds a type of the same name that implements [`Ifunc`].
/// Image builds add the C symbols `NAME_main`, `NAME_payload_bound` and `NAME_payload_init`.
pub use ifunc_macros::ifunc;

/// Makes a host function, a variable or an interface usable from ifuncs: registers it for every target of the process.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::atomic::AtomicU64;
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
///
/// #[ifunc::export]
/// static HITS: AtomicU64 = AtomicU64::new(0);
/// # fn main() {}
/// ```
///
/// * On a function: [`ffi`] lists the types that cross and their form in C. A function that takes raw or function
///   pointers is `unsafe`; what it calls by a pointer must not panic. A function that takes `&mut dyn FnMut(..)` may
///   be called with a callback that panics: see [`ffi`].
/// * On a `static` of a [fixed layout](macro@Layout): ifuncs use the variable itself. `static mut` is `unsafe` to use.
/// * On `impl Kv for Store`, where `Kv` is an [`#[ifunc::interface]`](macro@interface): ifuncs that take `&mut dyn Kv`
///   run on a target that serves a `Store`. An `impl` for a generic type, or a choice among several types of one process,
///   is registered per target: `Target::builder().export_interface::<dyn Kv, Store<u64>>()`.
///
/// `name = ".."` gives a function's or a variable's symbol a name other than its own. `import = my_ifuncs::insert` names the import that it
/// provides: where a host depends on the crate of the ifuncs, the compiler then compares both signatures, which otherwise the target
/// does when it installs an ifunc. A program whose exports lie in a
/// library crate must mention that crate (`use the_crate as _;`); otherwise the linker drops them.
pub use ifunc_macros::export;

/// Declares host functions and variables that an ifunc uses.
///
/// ```
/// use ifunc::prelude::*;
///
/// /// A type of the host.
/// #[derive(Opaque)]
/// #[opaque("store/1")]
/// pub struct Store(ifunc::Foreign);
///
/// #[ifunc::import]
/// unsafe extern {
///     safe fn insert(store: &mut Store, key: &[u8], value: &[u8]) -> Result<(), i32>;
/// }
///
/// /// Stores the payload's length under the payload as the key.
/// #[ifunc]
/// pub fn remember(key: &[u8], store: &mut Store) -> i32 {
///     match insert(store, key, &key.len().to_le_bytes()) {
///         Ok(()) => 0,
///         Err(code) => code,
///     }
/// }
/// ```
///
/// `safe fn` declares a safe function, `fn` an unsafe one; the export must match. An unsafe one may take what C takes: raw
/// pointers, `extern "C" fn(..)`, and `...`. `safe static NAME: T` is a [`ffi::HostStatic`], which dereferences to the
/// variable; `static NAME: T` and `static mut NAME: T` are [`ffi::HostVariable`]s.
/// `#[link_name = ".."]` names
/// another symbol. In an image, the call goes to the target, which compared the signatures when it installed
/// the image. Outside an image, the call goes to an [`export`](macro@crate::export) of this process, so that
/// an ifunc can be unit-tested; it panics if there is none.
pub use ifunc_macros::import;

/// Makes a trait an interface: a host type exports it, and an ifunc takes it as its target.
///
/// The trait lies in a `no_std` crate that host and ifunc share:
///
/// ```
/// # mod kv {
/// use core::ops::ControlFlow;
/// use ifunc::prelude::*;
///
/// #[derive(Layout, Debug, Clone, Copy, PartialEq)]
/// #[repr(i32)]
/// pub enum KvError {
///     EmptyKey = -22,
/// }
///
/// #[ifunc::interface]
/// pub trait Kv {
///     /// Stores a value; returns the number of keys.
///     fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError>;
///     /// Calls `each` with every key that begins with `prefix` and its value, until it breaks.
///     fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>);
/// }
/// # }
/// # mod host {
/// # use super::kv::*;
/// # use std::collections::BTreeMap;
/// # use std::ops::ControlFlow;
/// // In the target's program:
/// #[derive(ifunc::Opaque, Default)]
/// #[opaque(interfaces)]
/// pub struct Store(BTreeMap<Vec<u8>, Vec<u8>>);
///
/// #[ifunc::export]
/// impl Kv for Store {
///     fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError> {
///         if key.is_empty() {
///             return Err(KvError::EmptyKey);
///         }
///         self.0.insert(key.into(), value.into());
///         Ok(self.0.len() as u64)
///     }
///
///     fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) {
///         for (key, value) in self.0.iter().filter(|(key, _)| key.starts_with(prefix)) {
///             if each(key, value).is_break() {
///                 break;
///             }
///         }
///     }
/// }
/// # }
/// # mod ifuncs {
/// # use super::kv::*;
/// # use core::ops::ControlFlow;
/// # use ifunc::prelude::*;
/// // In the ifunc's crate:
/// /// Stores a value, and counts the bytes under its prefix.
/// #[ifunc]
/// pub fn remember(key: &[u8], kv: &mut dyn Kv) -> u64 {
///     if kv.put(key, b"!").is_err() {
///         return 0;
///     }
///     let mut bytes = 0;
///     kv.scan(&key[..1], &mut |key, value| {
///         bytes += (key.len() + value.len()) as u64;
///         ControlFlow::Continue(())
///     });
///     bytes
/// }
/// # }
/// # fn main() {
/// // A unit test passes any implementation, such as the host's own.
/// let mut store = host::Store::default();
/// assert_eq!(ifuncs::remember(b"key", &mut store), 4);
/// # }
/// ```
///
/// Methods take `&self` or `&mut self`, and what [`ffi`] lists. Each is one C function, named `TRAIT_METHOD`
/// (`Kv_put`), whose first argument is the target arguments: `int32_t Kv_put(void *self, const uint8_t *key, size_t
/// key_len, ..)`. `cargo ifunc inspect` prints the prototypes that an image uses. `#[ifunc::interface(name = "kv_v2")]`
/// gives the interface a name other than the trait's, in the symbols too.
///
/// In an image, a call is one indirect call through the image's table of imports. The image names the interface (its
/// target text is `interface Kv`) and imports the methods that it calls. So a method that is added breaks no image; an
/// image that calls a method that was removed or changed is refused when it is installed, with both signatures.
///
/// A target runs such an image if it serves a type that exports the interface: by [`#[ifunc::export]`
/// impl](macro@export), or, for a generic type or another choice per target, by
/// `Target::builder().export_interface::<dyn Kv, Store<u64>>()`.
pub use ifunc_macros::interface;

/// Makes a type one that can travel by its bytes: adds `#[repr(C)]` unless the type has a `repr`,
/// [`derive(Layout)`](macro@crate::Layout), zerocopy's `TryFromBytes`, `IntoBytes`, `Immutable` and
/// `KnownLayout`, and [`Portable`].
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
/// `#[ifunc::layout(name = "..")]` chooses the name of the type in texts: see [`Layout`](macro@Layout). Padding is an error:
/// declare it as a field. An enum needs an integer representation, such as
/// `#[repr(u8)]`.
pub use ifunc_macros::layout;

/// Describes a fixed layout, so that a target and a separately compiled ifunc can compare it: implements
/// [`Layout`](trait@crate::Layout), and with it [`TargetArgs`].
///
/// Accepts structs with `#[repr(C)]` or `#[repr(transparent)]`, and enums of an integer representation
/// without fields. Every field must be of fixed layout too. An enum without a value 0 may also be the error
/// of a [host function](ffi).
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
///
/// **Which types are the same.** Both sides may share one definition, or have one each. The target compares the texts: the name of the
/// type, its generic parameters, and the name, offset and type of each field. A text has no path, so a type may move between
/// modules and crates. `#[layout(name = "..")]` chooses the name in the text: a renamed type keeps the old one, and types of two
/// modules that have one name and the same fields, and mean different things, get two. Private fields
/// are not private to types of the same text, which have the same bytes. So no unsafe code may rely on what private fields hold, if an
/// ifunc can reach the value.
///
/// ```
/// # use ifunc::prelude::*;
/// # use core::marker::PhantomData;
/// #[derive(Layout)]
/// #[layout(name = "geometry.Point")]
/// #[repr(C)]
/// pub struct Position {
///     x: f64,
/// }
/// assert_eq!(<Position as Layout>::TEXT.as_str(), "struct geometry.Point{0:x:f64}[8,8]");
///
/// // Only the parameter tells an `Id<Position>` from an `Id<u8>`.
/// #[derive(Layout)]
/// #[repr(C)]
/// pub struct Id<T> {
///     number: u64,
///     of: PhantomData<T>,
/// }
/// assert_eq!(<Id<u8> as Layout>::TEXT.as_str(), "struct Id<u8>{0:number:u64,8:of:()}[8,8]");
/// ```
///
/// **Types that later builds add to.** A host is built anew; ifuncs of clients that were built before go on to run:
///
/// * *An error enum grows* if it is `#[non_exhaustive]`. Where it crosses as an integer (the `E` of a `Result`, a parameter or a result by
///   value), its text names no variants. A value that a build does not know is the variant `#[layout(other)]` there. Each variant states
///   its value, and keeps it. Inside of structs and payloads, all variants are compared as ever.
/// * *A struct grows at its end* if the host says `#[layout(grows)]`. A target then also runs ifuncs that know only its first fields, where the
///   host lends it: as target arguments, as the `&T` or `&mut T` that a host function returns, and as a variable. An ifunc that
///   knows more fields than the host is refused, and so is one that gives a host function a shorter struct than it takes. A
///   field in what was the padding at the end begins a new type: an earlier ifunc may write there.
/// * *A renamed type* keeps its name in texts, `#[layout(name = "..")]`.
///
/// ```
/// # use ifunc::prelude::*;
/// #[derive(Layout)]
/// #[repr(i32)]
/// #[non_exhaustive]
/// pub enum KvError {
///     Empty = 1,
///     /// Added later: earlier ifuncs receive `Other`.
///     Busy = 2,
///     #[layout(other)]
///     Other = -1,
/// }
///
/// #[derive(Layout)]
/// #[layout(grows)]
/// #[repr(C)]
/// pub struct Counters {
///     count: u64,
///     /// Added later.
///     failed: u64,
/// }
/// ```
///
/// The types of a payload and of an answer belong to the source and its ifunc, which are built from one crate.
pub use ifunc_macros::Layout;

/// Names a type whose contents only the host can access: implements [`TargetArgs`] under the name in
/// `#[opaque("..")]`.
///
/// A host type that ifuncs reach through [interfaces](macro@interface) alone needs no name, and may be generic:
/// `#[opaque(interfaces)]`.
///
/// A target knows one type of its process by a name: where exports and the value that it serves use two, [`listen`] or
/// [`serve`] fails with both.
///
/// [`listen`]: https://docs.rs/ifunc-rt/latest/ifunc_rt/struct.TargetBuilder.html#method.listen
/// [`serve`]: https://docs.rs/ifunc-rt/latest/ifunc_rt/struct.Target.html#method.serve
///
/// The host derives it for the real type; the ifunc's crate derives it for a struct that holds a [`Foreign`]
/// and nothing else. An image build refuses any other struct: through fields of its own, an ifunc would
/// access the host's memory, and safe code could construct a value and pass it to a host function.
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

/// Describes what serde writes for a type: implements [`Shape`](trait@crate::Shape).
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
/// A type may hold itself (`Box<Expr>`, `Vec<Expr>` in the fields of `Expr`, by its name or `Self`). Of types that hold each other, one says
/// `#[shape(by_name)]` on a field: the text then has the name of the field's type alone. Say it where the way back to the payload's own
/// type begins, so that the payload's text describes each type once:
///
/// ```
/// # #[cfg(feature = "alloc")] mod shapes {
/// use ifunc::Shape;
///
/// #[derive(Shape)]
/// pub struct Query { table: u32, filter: Expr }
///
/// #[derive(Shape)]
/// pub enum Expr { Column(u32), And(Vec<Expr>), Exists(#[shape(by_name)] Box<Query>) }
///
/// # pub fn check() {
/// assert_eq!(
///     <Query as Shape>::TEXT.as_str(),
///     "struct Query{table:u32,filter:enum Expr{Column(u32),And([^Expr]),Exists(^Box<Query>)}}"
/// );
/// # }}
/// # #[cfg(feature = "alloc")] shapes::check();
/// ```
///
/// A field of a foreign type, such as `Uuid`, states what serde writes for it: `#[shape(with = &[u8])]` (`uuid` writes bytes). The types of
/// `core::time` and `core::net` have shapes; for `std::time::SystemTime`, which an ifunc does not have, take
/// [`system::SystemTime`].
///
/// The derive refuses serde attributes that change what serde writes (`with`, `flatten`, `tag` ...): say what is written
/// for a field by `#[shape(with = TYPE)]`, or implement the trait by hand.
pub use ifunc_macros::Shape;
