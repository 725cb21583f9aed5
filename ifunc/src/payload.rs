//! What an ifunc declares of itself: the typed handle, the payload it takes, the answer it gives, and the errors of
//! encoding and decoding.

use ifunc_abi::text::Text;

use crate::codec::Custom;

/// Why a value did not encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The buffer is too small for the value.
    TooLarge,
    /// The value cannot be encoded (serde said no, or a hand-written payload did).
    Refused,
}

/// Why bytes did not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not as many bytes as the type needs.
    Length,
    /// Bytes that are no value of the type.
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
            Self::Length => "not as many bytes as the type needs",
            Self::Invalid => "bytes that are no value of the type",
        })
    }
}

impl core::error::Error for EncodeError {}
impl core::error::Error for DecodeError {}

/// The typed handle that `#[ifunc]` makes beside the function, under the function's name: what a source needs to know
/// of an ifunc to send it. Implemented by the attribute only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the handle of an ifunc",
    label = "not an ifunc",
    note = "`#[ifunc]` on `pub fn add(..)` makes a type `add` beside the function: name it as the function is named"
)]
pub trait Ifunc: 'static {
    /// What `call(&payload)` takes: `P` for `payload: P` and `payload: &P`, `str`, `[u8]`, `Record<'a>`.
    type Payload<'a>: ?Sized;
    /// `T` of `&mut T` or `&T`.
    type Target: TargetArgs;
    /// The return type; `()` for none.
    type Answer;
    /// Name of the ifunc.
    const NAME: &'static str;
    /// Text of the payload type, codec included.
    const PAYLOAD: &'static Text;
    /// Text of the target type.
    const TARGET: &'static Text;
    /// Text of the answer type.
    const ANSWER: &'static Text;
    /// Alignment of the payload.
    const ALIGN: usize;
    /// May be run again when nobody knows whether it ran.
    const IDEMPOTENT: bool;

    /// How many bytes the payload takes at most.
    fn bound(payload: &Self::Payload<'_>) -> usize;

    /// Writes the payload and returns its length.
    ///
    /// # Errors
    /// A buffer smaller than [`bound`](Self::bound), or a value that cannot be encoded.
    fn encode(payload: &Self::Payload<'_>, out: &mut [u8]) -> Result<usize, EncodeError>;

    /// Reads an answer.
    ///
    /// # Errors
    /// Bytes that are no answer.
    fn decode_answer(bytes: &[u8]) -> Result<Self::Answer, DecodeError>;
}

/// A type that target and ifunc agree on: a fixed layout that both compile alike, or an opaque one that an ifunc only
/// hands to host functions.
///
/// Derived: by [`Layout`](macro@crate::Layout) for fixed layouts, by [`Opaque`](macro@crate::Opaque) for the others.
///
/// # Safety
/// Two types with equal [`TEXT`](Self::TEXT) must be the same bytes in memory, whoever compiled them; or, for opaque
/// types, the ifunc's side must never look inside.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be shared between an ifunc and its target",
    label = "the target was compiled apart from the ifunc: nothing says that both see the same `{Self}`",
    note = "help: give it a fixed layout: `#[repr(C)]` and `#[derive(Layout)]` on the type that both sides use",
    note = "help: or keep it opaque, reached only through host functions: `#[derive(Opaque)] #[opaque(\"name/1\")]`"
)]
pub unsafe trait TargetArgs {
    /// Canonical text.
    const TEXT: Text;
}

/// How a payload travels: how large it gets at most, how it is written into the frame, how it is read in place.
///
/// The codecs implement it for every type they can carry ([`codec`](crate::codec)); an ifunc says which one by
/// `#[ifunc(codec = ...)]`. Implement it by hand, as `Payload<'a>`, where writing a payload is work of its own, and say
/// `codec = custom`:
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
///     // A C source hands in what a Rust one does: the run itself.
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
    /// What a source hands in: often the type itself.
    type Source: ?Sized;
    /// Canonical text of what is in the payload. For a payload by hand: a name that changes with the format.
    const TEXT: Text;
    /// Alignment that [`decode`](Self::decode) needs; a power of two, at most 64.
    const ALIGN: usize = 1;

    /// How many bytes the payload takes at most.
    fn bound(source: &Self::Source) -> usize;

    /// Writes the payload and returns its length.
    ///
    /// # Errors
    /// A buffer smaller than [`bound`](Self::bound), or a value that cannot be encoded.
    fn encode(source: &Self::Source, out: &mut [u8]) -> Result<usize, EncodeError>;

    /// Reads a payload in place. It comes from another process: every byte of it may be anything.
    ///
    /// # Errors
    /// Bytes that are no payload.
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError>;

    /// [`bound`](Self::bound) for sources that call by name, with bytes as arguments (`X_payload_bound` in C). By
    /// default the arguments are the payload itself.
    fn bound_from_args(args: &'a [u8]) -> usize {
        args.len()
    }

    /// [`encode`](Self::encode) for sources that call by name (`X_payload_init` in C). What it writes is decoded once
    /// before it is sent.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    fn encode_from_args(args: &'a [u8], out: &mut [u8]) -> Result<usize, EncodeError> {
        copy(args, out)
    }
}

/// How the value that an ifunc returns travels back. The codecs implement it; an ifunc that returns nothing may answer
/// bytes by [`Context::answer`](crate::Context::answer).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel as an answer of codec `{C}`",
    label = "not an answer of codec `{C}`",
    note = "help: a fixed layout: `#[ifunc::layout]` on the type",
    note = "help: a serde type: `#[derive(Serialize, Deserialize, Shape)]` on the type and `#[ifunc(codec = postcard)]`",
    note = "help: bytes: return nothing and call `ctx.answer(..)`, or return `Vec<u8>` or `String` with the feature `alloc` of `ifunc`"
)]
pub trait Answer<C>: Sized {
    /// Canonical text, codec included.
    const TEXT: Text;

    /// Writes the answer and returns its length.
    ///
    /// # Errors
    /// A buffer that is too small, or a value that cannot be encoded.
    fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError>;

    /// Reads an answer.
    ///
    /// # Errors
    /// Bytes that are no answer.
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
