//! How payloads are encoded and answers decoded: by the type of an ifunc, or by its library.

use ifunc::payload::{DecodeError, Ifunc};

use super::error::Error;
use super::library::Library;

/// Writes a payload into memory that may be longer than it asked for.
pub trait Writer: FnMut(&mut [u8]) -> Result<usize, Error> {}

impl<W: FnMut(&mut [u8]) -> Result<usize, Error>> Writer for W {}

/// The encoding of a [`Handle`](super::Handle)'s payloads and answers. Every [`Ifunc`], the type that `#[ifunc]` makes, is one;
/// [`ByName`] is the other.
pub trait Encoding: 'static {
    /// The type that a call takes by reference.
    type Payload<'a>: ?Sized;
    /// The type that a call returns.
    type Answer;

    /// Upper bound of the payload's length, its alignment, and what writes it and returns its length.
    #[doc(hidden)]
    fn encode(library: &Library, payload: &Self::Payload<'_>) -> ((usize, usize), impl Writer);

    /// Reads an answer.
    #[doc(hidden)]
    fn decode(bytes: &[u8]) -> Result<Self::Answer, DecodeError>;
}

impl<F: Ifunc> Encoding for F {
    type Payload<'a> = <F as Ifunc>::Payload<'a>;
    type Answer = <F as Ifunc>::Answer;

    #[inline(always)]
    fn encode(_: &Library, payload: &<F as Ifunc>::Payload<'_>) -> ((usize, usize), impl Writer) {
        let write = move |room: &mut [u8]| {
            F::encode(payload, room).map_err(|error| Error::Payload {
                ifunc: F::NAME.into(),
                error,
            })
        };
        ((F::bound(payload), F::ALIGN), write)
    }

    #[inline(always)]
    fn decode(bytes: &[u8]) -> Result<<F as Ifunc>::Answer, DecodeError> {
        F::decode_answer(bytes)
    }
}

/// The encoding of an ifunc by name, written in Rust or C: the `payload_init` of its library makes a payload of the source
/// arguments that a call takes. Where only an image was loaded ([`Source::load_bytes`](super::Source::load_bytes)), a call
/// takes the payload itself. The answer is bytes.
#[derive(Clone, Copy, Debug)]
pub enum ByName {}

impl Encoding for ByName {
    type Payload<'a> = [u8];
    type Answer = Vec<u8>;

    fn encode(library: &Library, source_args: &Self::Payload<'_>) -> ((usize, usize), impl Writer) {
        let entries = library.entries.as_ref();
        let bound = entries.map_or(source_args.len(), |entries| entries.bound(source_args));
        let write = move |room: &mut [u8]| {
            // The library sees the length that it asked for.
            let len = bound.min(room.len());
            let room = &mut room[..len];
            let Some(entries) = entries else {
                room.copy_from_slice(source_args);
                return Ok(len);
            };
            entries.init(source_args, room)
        };
        ((bound, library.payload_align), write)
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(bytes.to_vec())
    }
}
