//! serde types, encoded by postcard. Decoded values borrow from the payload.

use ::postcard::ser_flavors::Size;
use ifunc_abi::text::Text;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned};

use super::Postcard;
use crate::payload::{Answer, DecodeError, EncodeError, Payload};
use crate::shape::Shape;

impl<'a, T: Shape + Serialize + Deserialize<'a>> Payload<'a, Postcard> for T {
    type Source = T;
    const TEXT: Text = Text::new().str("postcard ").text(&<T as Shape>::TEXT);

    fn bound(source: &T) -> usize {
        // A value that does not serialise fails in `encode`.
        ::postcard::serialize_with_flavor(source, Size::default()).unwrap_or(0)
    }

    fn encode(source: &T, out: &mut [u8]) -> Result<usize, EncodeError> {
        write(source, out)
    }

    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        read(payload)
    }
}

impl<T: Shape + Serialize + DeserializeOwned> Answer<Postcard> for T {
    const TEXT: Text = Text::new().str("postcard ").text(&<T as Shape>::TEXT);

    fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        write(self, out)
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        read(bytes)
    }
}

#[inline]
fn write<T: Serialize>(value: &T, out: &mut [u8]) -> Result<usize, EncodeError> {
    match ::postcard::to_slice(value, out) {
        Ok(written) => Ok(written.len()),
        Err(::postcard::Error::SerializeBufferFull) => Err(EncodeError::TooLarge),
        Err(_) => Err(EncodeError::Refused),
    }
}

#[inline]
fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    match ::postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(::postcard::Error::DeserializeUnexpectedEnd) => Err(DecodeError::Length),
        Err(_) => Err(DecodeError::Invalid),
    }
}
