//! Fixed layouts: the bytes of the value, validated and used in place.

use ::zerocopy::TryFromBytes;
use ifunc_abi::text::Text;

use super::{InPlace, Zerocopy};
use crate::layout::{Layout, Portable};
use crate::payload::{Answer, DecodeError, EncodeError, Payload, copy};

impl<'a, T: Portable> Payload<'a, Zerocopy> for T {
    type Source = T;
    const TEXT: Text = <T as Layout>::TEXT;
    const ALIGN: usize = align_of::<T>();

    #[inline]
    fn bound(_: &T) -> usize {
        size_of::<T>()
    }

    #[inline]
    fn encode(source: &T, out: &mut [u8]) -> Result<usize, EncodeError> {
        copy(source.as_bytes(), out)
    }

    #[inline]
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        read(payload)
    }
}

impl<'a, T: Portable + ?Sized> Payload<'a, InPlace> for &'a T {
    type Source = T;
    const TEXT: Text = <T as Layout>::TEXT;
    const ALIGN: usize = <T as Layout>::ALIGN;

    #[inline]
    fn bound(source: &T) -> usize {
        size_of_val(source)
    }

    #[inline]
    fn encode(source: &T, out: &mut [u8]) -> Result<usize, EncodeError> {
        copy(source.as_bytes(), out)
    }

    #[inline]
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        T::try_ref_from_bytes(payload).map_err(|why| match why {
            ::zerocopy::ConvertError::Validity(_) => DecodeError::Invalid,
            _ => DecodeError::Length,
        })
    }
}

impl<T: Portable> Answer<Zerocopy> for T {
    const TEXT: Text = <T as Layout>::TEXT;
    const IS_SHORT: bool = size_of::<T>() <= 1024;

    fn encoded_len(&self) -> Option<usize> {
        Some(size_of::<T>())
    }

    #[inline]
    fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        copy(self.as_bytes(), out)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        read(bytes)
    }
}

#[inline]
fn read<T: TryFromBytes>(bytes: &[u8]) -> Result<T, DecodeError> {
    T::try_read_from_bytes(bytes).map_err(|why| match why {
        ::zerocopy::ConvertError::Validity(_) => DecodeError::Invalid,
        _ => DecodeError::Length,
    })
}
