//! The traits that describe an ifunc: its typed handle, its payload and its answer, and the errors of
//! encoding and decoding.

use ifunc_abi::text::Text;

use crate::codec::Custom;
use crate::opaque::NamedType;

/// Why encoding a value failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The buffer is too small for the value.
    TooLarge,
    /// The value cannot be encoded: serde or a hand-written payload refused it.
    Refused,
}

/// Why decoding bytes failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The type needs another number of bytes.
    Length,
    /// The bytes are not a value of the type.
    Invalid,
}

impl core::fmt::Display for EncodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the value does not fit the buffer",
            Self::Refused => "the value cannot be encoded",
        })
    }
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Length => "the type needs another number of bytes",
            Self::Invalid => "the bytes are not a value of the type",
        })
    }
}

impl core::error::Error for EncodeError {}
impl core::error::Error for DecodeError {}

/// The typed handle that `#[ifunc]` generates under the function's name: everything that a source needs to
/// send the ifunc. Only the attribute implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the handle of an ifunc",
    label = "not an ifunc",
    note = "`#[ifunc]` on `pub fn add(..)` generates a type `add`: use the function's name"
)]
pub trait Ifunc: 'static {
    /// The type that `call(&payload)` takes: `P` for `payload: P` and `payload: &P`, `str`, `[u8]`,
    /// `Record<'a>`.
    type Payload<'a>: ?Sized;
    /// `T` of `&mut T` or `&T`.
    type Target: TargetArgs + ?Sized;
    /// The return type; `()` for none.
    type Answer;
    /// The ifunc's name.
    const NAME: &'static str;
    /// Canonical text of the payload type, codec included.
    const PAYLOAD: &'static Text;
    /// Canonical text of the target type.
    const TARGET: &'static Text;
    /// Canonical text of the answer type.
    const ANSWER: &'static Text;
    /// Alignment of the payload in bytes.
    const ALIGN: usize;
    /// Whether a source may send an invocation again when it does not know whether the first attempt ran.
    const IDEMPOTENT: bool;

    /// Upper bound of the payload's length in bytes.
    fn bound(payload: &Self::Payload<'_>) -> usize;

    /// Writes the payload and returns its length.
    ///
    /// # Errors
    /// A buffer smaller than [`bound`](Self::bound), or a value that cannot be encoded.
    fn encode(payload: &Self::Payload<'_>, out: &mut [u8]) -> Result<usize, EncodeError>;

    /// Reads an answer.
    ///
    /// # Errors
    /// Bytes that are not a valid answer.
    fn decode_answer(bytes: &[u8]) -> Result<Self::Answer, DecodeError>;

    /// The address of `X_main` in the image that this code is a part of; `None` outside of images. By it
    /// [`Context::send`](crate::Context::send) names the ifunc, and the builder makes it an entry of the same image.
    #[must_use]
    fn entry() -> Option<*const ()> {
        None
    }
}

/// A type that target and ifunc share: a fixed layout that both compile alike, or an opaque type that an
/// ifunc only passes to host functions.
///
/// [`derive(Layout)`](macro@crate::Layout) implements it for fixed layouts,
/// [`derive(Opaque)`](macro@crate::Opaque) for opaque types.
///
/// # Safety
/// Two types with equal [`TEXT`](Self::TEXT) have the same bytes in memory in every build. For opaque types,
/// the ifunc's side never accesses the contents, and the derive tells the target which type of the host has the name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be shared between an ifunc and its target",
    label = "the target and the ifunc are compiled separately: nothing ensures that both have the same `{Self}`",
    note = "help: give it a fixed layout: `#[repr(C)]` and `#[derive(Layout)]` on the type that both sides use",
    note = "help: or make it opaque and access it through host functions: `#[derive(Opaque)] #[opaque(\"name/1\")]`",
    note = "help: or take an interface that the target's type exports: `&mut dyn Kv` of a trait with `#[ifunc::interface]`"
)]
pub unsafe trait TargetArgs {
    /// Canonical text of the type.
    const TEXT: Text;

    /// The texts of earlier versions of the type, as which an ifunc may access a value: those of a struct with
    /// [`#[layout(grows)]`](macro@crate::Layout) that has only its first fields. Empty strings are no versions.
    #[doc(hidden)]
    const EARLIER: &'static [&'static str] = &[];

    /// The type, if its text is a name alone, which another type of this process may have, too. A target compares it before
    /// it lets host functions and ifuncs use values of one another's by that name.
    #[doc(hidden)]
    #[must_use]
    fn named_type() -> Option<NamedType> {
        None
    }
}

/// The encoding of a payload: the upper bound of its length, writing it into a frame, and reading it in
/// place.
///
/// The codecs implement it for every type they support ([`codec`](crate::codec)); `#[ifunc(codec = ...)]`
/// selects one. To write a payload without an intermediate value, implement it by hand as `Payload<'a>` and
/// say `codec = custom`:
///
/// ```
/// use ifunc::prelude::*;
///
/// /// A run of one byte, stored as its length.
/// pub struct Run<'a> { byte: u8, len: &'a [u8; 4] }
///
/// impl<'a> Payload<'a> for Run<'a> {
///     type Source = [u8];
///     const TEXT: Text = Text::new().str("run/1");
///     fn bound(_: &[u8]) -> usize { 5 }
///     fn encode(source: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> {
///         let byte = *source.first().ok_or(EncodeError::Refused)?;
///         let out = out.get_mut(..5).ok_or(EncodeError::TooLarge)?;
///         out[0] = byte;
///         out[1..].copy_from_slice(&(source.len() as u32).to_le_bytes());
///         Ok(5)
///     }
///     fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
///         let (&byte, len) = payload.split_first().ok_or(DecodeError::Length)?;
///         Ok(Run { byte, len: len.try_into().map_err(|_| DecodeError::Length)? })
///     }
///     // A source that calls by name passes the run itself, as a typed one does.
///     fn bound_from_args(_: &[u8]) -> usize { 5 }
///     fn encode_from_args(args: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> { Self::encode(args, out) }
/// }
///
/// #[ifunc(codec = custom)]
/// pub fn count(run: Run<'_>, total: &mut u64) {
///     *total += u64::from(u32::from_le_bytes(*run.len)) * u64::from(run.byte != 0);
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel as a payload of codec `{C}`",
    label = "not a payload of codec `{C}`",
    note = "help: a fixed layout: `#[ifunc::layout]` on the type",
    note = "help: a serde type: `#[derive(Serialize, Deserialize, Shape)]` on the type and `#[ifunc(codec = postcard)]`",
    note = "help: bytes: take `&[u8]` or `&str`",
    note = "help: by hand: `impl<'a> Payload<'a> for {Self}` and `#[ifunc(codec = custom)]`"
)]
pub trait Payload<'a, C = Custom>: Sized {
    /// The type that a source passes; often `Self`.
    type Source: ?Sized;
    /// Canonical text of the payload's format. A hand-written payload chooses a name that changes with the
    /// format.
    const TEXT: Text;
    /// Alignment that [`decode`](Self::decode) needs; a power of two, at most 64.
    const ALIGN: usize = 1;

    /// Upper bound of the payload's length in bytes.
    fn bound(source: &Self::Source) -> usize;

    /// Writes the payload and returns its length.
    ///
    /// # Errors
    /// A buffer smaller than [`bound`](Self::bound), or a value that cannot be encoded.
    fn encode(source: &Self::Source, out: &mut [u8]) -> Result<usize, EncodeError>;

    /// Reads a payload in place. Another process wrote it: any byte may have any value.
    ///
    /// # Errors
    /// Bytes that are not a valid payload.
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError>;

    /// [`bound`](Self::bound) for sources that call by name and pass bytes (`X_payload_bound` in C). By
    /// default these bytes are the payload itself.
    fn bound_from_args(args: &'a [u8]) -> usize {
        args.len()
    }

    /// [`encode`](Self::encode) for sources that call by name (`X_payload_init` in C). Its result is decoded
    /// once before the source sends it.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    fn encode_from_args(args: &'a [u8], out: &mut [u8]) -> Result<usize, EncodeError> {
        copy(args, out)
    }
}

/// The encoding of an ifunc's return value. The codecs implement it. An ifunc that returns nothing may answer
/// bytes by [`Context::answer`](crate::Context::answer).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel as an answer of codec `{C}`",
    label = "not an answer of codec `{C}`",
    note = "help: a fixed layout: `#[ifunc::layout]` on the type",
    note = "help: a serde type: `#[derive(Serialize, Deserialize, Shape)]` on the type and `#[ifunc(answer = postcard)]`",
    note = "help: bytes: return nothing and call `ctx.answer(..)`, or return `Vec<u8>` or `String` with the feature `alloc` of `ifunc`"
)]
pub trait Answer<C>: Sized {
    /// Canonical text, codec included.
    const TEXT: Text;
    /// No answer has more than 1024 bytes. Such answers need no memory but that which every invocation is lent.
    const IS_SHORT: bool = false;

    /// The length of the answer, if it is known without encoding it.
    fn encoded_len(&self) -> Option<usize> {
        None
    }

    /// Writes the answer and returns its length.
    ///
    /// # Errors
    /// A buffer that is too small, or a value that cannot be encoded.
    fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError>;

    /// Reads an answer.
    ///
    /// # Errors
    /// Bytes that are not a valid answer.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Copies all of `bytes` to the front of `out`.
#[inline]
pub(crate) fn copy(bytes: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> {
    out.get_mut(..bytes.len())
        .ok_or(EncodeError::TooLarge)?
        .copy_from_slice(bytes);
    Ok(bytes.len())
}
