//! What an ifunc declares of itself, and the errors of encoding and decoding.

use ifunc_abi::text::Text;

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
/// # Safety
/// Two types with equal [`TEXT`](Self::TEXT) must be the same bytes in memory, whoever compiled them; or, for opaque
/// types, the ifunc's side must never look inside.
pub unsafe trait TargetArgs {
    /// Canonical text.
    const TEXT: Text;
}
