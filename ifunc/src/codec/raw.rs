//! Bytes and strings, unencoded.

use ifunc_abi::text::Text;

use super::Raw;
use crate::payload::{DecodeError, EncodeError, Payload, copy};

const BYTES: Text = Text::new().str("raw bytes");
const STR: Text = Text::new().str("raw str");

impl<'a> Payload<'a, Raw> for &'a [u8] {
    type Source = [u8];
    const TEXT: Text = BYTES;

    #[inline]
    fn bound(source: &[u8]) -> usize {
        source.len()
    }

    #[inline]
    fn encode(source: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> {
        copy(source, out)
    }

    #[inline]
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(payload)
    }
}

impl<'a> Payload<'a, Raw> for &'a str {
    type Source = str;
    const TEXT: Text = STR;

    #[inline]
    fn bound(source: &str) -> usize {
        source.len()
    }

    #[inline]
    fn encode(source: &str, out: &mut [u8]) -> Result<usize, EncodeError> {
        copy(source.as_bytes(), out)
    }

    #[inline]
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        core::str::from_utf8(payload).map_err(|_| DecodeError::Invalid)
    }
}

#[cfg(feature = "alloc")]
mod owned {
    use ::alloc::string::String;
    use ::alloc::vec::Vec;
    use ifunc_abi::text::Text;

    use super::super::Raw;
    use crate::payload::{Answer, DecodeError, EncodeError, copy};

    impl Answer<Raw> for Vec<u8> {
        const TEXT: Text = super::BYTES;

        fn encoded_len(&self) -> Option<usize> {
            Some(self.len())
        }

        fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
            copy(self, out)
        }

        fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
            Ok(bytes.to_vec())
        }
    }

    impl Answer<Raw> for String {
        const TEXT: Text = super::STR;

        fn encoded_len(&self) -> Option<usize> {
            Some(self.len())
        }

        fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
            copy(self.as_bytes(), out)
        }

        fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
            core::str::from_utf8(bytes)
                .map(String::from)
                .map_err(|_| DecodeError::Invalid)
        }
    }
}
