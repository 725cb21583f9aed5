//! How payloads and answers are encoded: by the type that `#[ifunc]` makes, or by functions of the library that is named.

use ifunc::payload::{DecodeError, Ifunc};

use super::error::Error;
use super::library::Library;

/// The encoding of a [`Handle`](super::Handle)'s payloads and answers. Every [`Ifunc`], the type that `#[ifunc]` makes, is one;
/// [`ByName`] is the other.
pub trait Encoding: 'static {
    /// The type that a call takes by reference.
    type Payload<'a>: ?Sized;
    /// The type that a call returns.
    type Answer;

    /// Upper bound of the payload's length, and its alignment.
    #[doc(hidden)]
    fn layout(library: &Library, payload: &Self::Payload<'_>) -> (usize, usize);

    /// Writes the payload, and returns its length. The memory may be longer than its `bound`.
    #[doc(hidden)]
    fn encode(
        library: &Library,
        payload: &Self::Payload<'_>,
        bound: usize,
        room: &mut [u8],
    ) -> Result<usize, Error>;

    /// Reads an answer.
    #[doc(hidden)]
    fn decode(bytes: &[u8]) -> Result<Self::Answer, DecodeError>;
}

impl<F: Ifunc> Encoding for F {
    type Payload<'a> = <F as Ifunc>::Payload<'a>;
    type Answer = <F as Ifunc>::Answer;

    #[inline(always)]
    fn layout(_: &Library, payload: &<F as Ifunc>::Payload<'_>) -> (usize, usize) {
        (F::bound(payload), F::ALIGN)
    }

    #[inline(always)]
    fn encode(
        _: &Library,
        payload: &<F as Ifunc>::Payload<'_>,
        _: usize,
        room: &mut [u8],
    ) -> Result<usize, Error> {
        F::encode(payload, room).map_err(|error| Error::Payload {
            ifunc: F::NAME.into(),
            error,
        })
    }

    #[inline(always)]
    fn decode(bytes: &[u8]) -> Result<<F as Ifunc>::Answer, DecodeError> {
        F::decode_answer(bytes)
    }
}

/// The encoding of an ifunc by name, written in Rust or C: the `payload_init` of its library makes a payload of the source
/// arguments that a call takes. Where only an image was loaded ([`Source::load_bytes`](super::Source::load_bytes)), a call takes
/// the payload itself. The answer is bytes.
#[derive(Clone, Copy, Debug)]
pub enum ByName {}

impl Encoding for ByName {
    type Payload<'a> = [u8];
    type Answer = Vec<u8>;

    #[inline]
    fn layout(library: &Library, source_args: &[u8]) -> (usize, usize) {
        let functions = library.source_functions.as_ref();
        let bound = functions.map_or(source_args.len(), |functions| functions.bound(source_args));
        (bound, library.payload_align)
    }

    #[inline]
    fn encode(library: &Library, source_args: &[u8], bound: usize, room: &mut [u8]) -> Result<usize, Error> {
        // The library sees the length that it asked for.
        let len = bound.min(room.len());
        let room = &mut room[..len];
        let Some(functions) = &library.source_functions else {
            room.copy_from_slice(source_args);
            return Ok(len);
        };
        functions.init(source_args, room)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(bytes.to_vec())
    }
}
