//! Tuples, `Option` and `Vec` of fixed layouts: their values one after the other, without a serialiser.
//!
//! | type | bytes |
//! |---|---|
//! | a fixed layout | the value's own |
//! | a tuple | its fields, without padding |
//! | `Option<T>` | a byte, 1 for `Some`, then the value |
//! | `Vec<T>` of a fixed layout | the number of elements (u64), then the elements |

#[cfg(feature = "alloc")]
use ::zerocopy::IntoBytes as _;
use ifunc_abi::text::Text;

use super::Fixed;
use crate::layout::{Layout, Portable};
use crate::payload::{Answer, DecodeError, EncodeError, Payload};

/// A value that is written without a serialiser: a fixed layout, or tuples, `Option` and `Vec` of those.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no fixed layout",
    label = "not a fixed layout, nor a tuple, an `Option` or a `Vec` of fixed layouts",
    note = "help: a fixed layout: `#[ifunc::layout]` on the type",
    note = "help: or let it travel by serde: `#[derive(Serialize, Deserialize, Shape)]` and `#[ifunc(codec = postcard)]`"
)]
pub trait FixedValue: Sized {
    /// Canonical text.
    const TEXT: Text;
    /// The length of every value, if all have the same.
    const LEN: Option<usize>;
    /// Alignment where the value is a part of a payload beside borrowed parts.
    const ALIGN: usize = 1;

    /// Length in bytes.
    fn value_len(&self) -> usize;

    /// Writes the value to the begin of `out` and returns the rest.
    ///
    /// # Errors
    /// `out` is too short.
    fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o mut [u8], EncodeError>;

    /// Reads a value from the begin of `bytes`, and returns the rest.
    ///
    /// # Errors
    /// There are too few bytes, or they are no value.
    fn read(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError>;
}

impl<T: Portable> FixedValue for T {
    const TEXT: Text = <T as Layout>::TEXT;
    const LEN: Option<usize> = Some(size_of::<T>());
    const ALIGN: usize = <T as Layout>::ALIGN;

    #[inline]
    fn value_len(&self) -> usize {
        size_of::<T>()
    }

    #[inline]
    fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o mut [u8], EncodeError> {
        let (to, rest) = out
            .split_at_mut_checked(size_of::<T>())
            .ok_or(EncodeError::TooLarge)?;
        to.copy_from_slice(self.as_bytes());
        Ok(rest)
    }

    #[inline]
    fn read(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let (value, rest) = bytes
            .split_at_checked(size_of::<T>())
            .ok_or(DecodeError::Length)?;
        let value = T::try_read_from_bytes(value).map_err(|_| DecodeError::Invalid)?;
        Ok((value, rest))
    }
}

impl<T: FixedValue> FixedValue for Option<T> {
    const TEXT: Text = Text::new().str("Option<").text(&T::TEXT).str(">");
    const LEN: Option<usize> = None;

    fn value_len(&self) -> usize {
        1 + self.as_ref().map_or(0, T::value_len)
    }

    fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o mut [u8], EncodeError> {
        let rest = u8::from(self.is_some()).write(out)?;
        match self {
            Some(value) => value.write(rest),
            None => Ok(rest),
        }
    }

    fn read(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let (is_some, rest) = bool::read(bytes)?;
        if !is_some {
            return Ok((None, rest));
        }
        let (value, rest) = T::read(rest)?;
        Ok((Some(value), rest))
    }
}

#[cfg(feature = "alloc")]
impl<T: Portable> FixedValue for alloc::vec::Vec<T> {
    // Not `[T]`, which is a slice in place: its elements follow no number.
    const TEXT: Text = Text::new().str("Vec<").text(&<T as Layout>::TEXT).str(">");
    const LEN: Option<usize> = None;

    fn value_len(&self) -> usize {
        size_of::<u64>() + size_of_val(&self[..])
    }

    fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o mut [u8], EncodeError> {
        // Two targets of different widths read it alike.
        let out = (self.len() as u64).write(out)?;
        let bytes = self[..].as_bytes();
        let (to, rest) = out
            .split_at_mut_checked(bytes.len())
            .ok_or(EncodeError::TooLarge)?;
        to.copy_from_slice(bytes);
        Ok(rest)
    }

    fn read(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let (count, rest) = u64::read(bytes)?;
        let count = usize::try_from(count).map_err(|_| DecodeError::Length)?;
        if size_of::<T>() == 0 {
            // The number of such elements is not bounded by the bytes that arrived.
            return Err(DecodeError::Invalid);
        }
        let len = count.checked_mul(size_of::<T>()).ok_or(DecodeError::Length)?;
        let (elements, rest) = rest.split_at_checked(len).ok_or(DecodeError::Length)?;
        let elements = elements.chunks_exact(size_of::<T>());
        let read = |element| T::try_read_from_bytes(element).map_err(|_| DecodeError::Invalid);
        Ok((elements.map(read).collect::<Result<_, _>>()?, rest))
    }
}

macro_rules! tuples {
    ($($first:ident $($rest:ident)*;)*) => {$(
        impl<$first: FixedValue $(, $rest: FixedValue)*> FixedValue for ($first, $($rest,)*) {
            const TEXT: Text = Text::new().str("(").text(&$first::TEXT)$(.str(",").text(&$rest::TEXT))*.str(")");
            const LEN: Option<usize> = match sum(&[$first::LEN $(, $rest::LEN)*]) {
                Some(len) => Some(len),
                None => None,
            };

            #[allow(non_snake_case, reason = "a field is named as its type")]
            fn value_len(&self) -> usize {
                let ($first, $($rest,)*) = self;
                $first.value_len() $(+ $rest.value_len())*
            }

            #[allow(non_snake_case, reason = "a field is named as its type")]
            fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o mut [u8], EncodeError> {
                let ($first, $($rest,)*) = self;
                let out = $first.write(out)?;
                $(let out = $rest.write(out)?;)*
                Ok(out)
            }

            #[allow(non_snake_case, reason = "a field is named as its type")]
            fn read(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
                let ($first, bytes) = $first::read(bytes)?;
                $(let ($rest, bytes) = $rest::read(bytes)?;)*
                Ok((($first, $($rest,)*), bytes))
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}

/// The sum, if all are known.
const fn sum(lens: &[Option<usize>]) -> Option<usize> {
    let (mut all, mut at) = (0, 0);
    while at < lens.len() {
        match lens[at] {
            Some(len) => all += len,
            None => return None,
        }
        at += 1;
    }
    Some(all)
}

impl<T: FixedValue> Payload<'_, Fixed> for T {
    type Source = T;
    const TEXT: Text = <T as FixedValue>::TEXT;

    #[inline]
    fn bound(source: &T) -> usize {
        source.value_len()
    }

    #[inline]
    fn encode(source: &T, out: &mut [u8]) -> Result<usize, EncodeError> {
        encode(source, out)
    }

    #[inline]
    fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        decode(payload)
    }
}

impl<T: FixedValue> Answer<Fixed> for T {
    const TEXT: Text = <T as FixedValue>::TEXT;
    const IS_SHORT: bool = matches!(T::LEN, Some(0..=1024));

    #[inline]
    fn encoded_len(&self) -> Option<usize> {
        Some(self.value_len())
    }

    #[inline]
    fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        encode(self, out)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        decode(bytes)
    }
}

#[inline]
fn encode<T: FixedValue>(value: &T, out: &mut [u8]) -> Result<usize, EncodeError> {
    let before = out.len();
    let rest = value.write(out)?;
    Ok(before - rest.len())
}

#[inline]
fn decode<T: FixedValue>(bytes: &[u8]) -> Result<T, DecodeError> {
    match T::read(bytes)? {
        (value, []) => Ok(value),
        _ => Err(DecodeError::Length),
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec;
    #[cfg(feature = "alloc")]
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn there_and_back<T: FixedValue + PartialEq + core::fmt::Debug>(value: &T) -> usize {
        let mut bytes = vec![0; value.value_len()];
        assert_eq!(encode(value, &mut bytes), Ok(bytes.len()));
        assert_eq!(&decode::<T>(&bytes).unwrap(), value);
        if let Some((_, shorter)) = bytes.split_last_mut() {
            assert_eq!(encode(value, shorter), Err(EncodeError::TooLarge));
            assert!(decode::<T>(shorter).is_err());
        }
        bytes.push(0);
        assert_eq!(decode::<T>(&bytes), Err(DecodeError::Length));
        bytes.len() - 1
    }

    #[test]
    fn values_have_no_bytes_but_their_own() {
        assert_eq!(there_and_back(&(7_u8, 1.5_f64)), 9);
        assert_eq!(there_and_back(&(Some(3_u32), None::<u64>, true)), 7);
        assert_eq!(there_and_back(&Some((1_u16, [2_u8; 3]))), 6);
        assert_eq!(<(u8, f64) as FixedValue>::LEN, Some(9));
        assert_eq!(<(u8, Option<f64>) as FixedValue>::LEN, None);
        assert_eq!(
            <(u8, Option<f64>) as FixedValue>::TEXT.as_str(),
            "(u8,Option<f64>)"
        );
        const { assert!(<(u8, f64) as Answer<Fixed>>::IS_SHORT) };
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn lists_are_their_elements() {
        assert_eq!(there_and_back(&vec![1.0_f64, 2.0]), 24);
        assert_eq!(there_and_back(&(vec![1_u8, 2, 3], 4_u64)), 19);
        let count = u64::MAX.to_le_bytes();
        assert_eq!(decode::<Vec<u64>>(&count), Err(DecodeError::Length));
        assert_eq!(decode::<Vec<()>>(&count), Err(DecodeError::Invalid));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_decode_or_not(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode::<(u8, Option<bool>, char)>(&bytes);
            #[cfg(feature = "alloc")]
            let _ = decode::<(Vec<u16>, Option<Option<u8>>)>(&bytes);
        }
    }
}
