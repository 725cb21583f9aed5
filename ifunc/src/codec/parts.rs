//! Several borrowed parts in one payload: `(&str, &[T])`, in place.
//!
//! The length in bytes of each part (u64) is followed by the parts, each at a multiple of its alignment.

use ifunc_abi::text::Text;

use super::InPlace;
use crate::layout::{Layout, Portable};
use crate::payload::{DecodeError, EncodeError, Payload};

/// What may be borrowed from a payload beside other parts: `str`, and fixed layouts and slices of them.
#[diagnostic::on_unimplemented(
    message = "`&{Self}` cannot be a part of a payload",
    label = "not a `str`, a fixed layout or a slice of one",
    note = "help: a fixed layout: `#[ifunc::layout]` on the type"
)]
pub trait Part {
    /// Canonical text.
    const TEXT: Text;
    /// Alignment in bytes.
    const ALIGN: usize;

    /// The part's bytes.
    fn bytes(&self) -> &[u8];

    /// The part of these bytes, which begin at a multiple of [`ALIGN`](Self::ALIGN).
    ///
    /// # Errors
    /// They are no value.
    fn of_bytes(bytes: &[u8]) -> Result<&Self, DecodeError>;
}

impl Part for str {
    const TEXT: Text = Text::new().str("str");
    const ALIGN: usize = 1;

    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn of_bytes(bytes: &[u8]) -> Result<&Self, DecodeError> {
        core::str::from_utf8(bytes).map_err(|_| DecodeError::Invalid)
    }
}

impl<T: Portable + ?Sized> Part for T {
    const TEXT: Text = <T as Layout>::TEXT;
    const ALIGN: usize = <T as Layout>::ALIGN;

    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn of_bytes(bytes: &[u8]) -> Result<&Self, DecodeError> {
        T::try_ref_from_bytes(bytes).map_err(|why| match why {
            ::zerocopy::ConvertError::Validity(_) => DecodeError::Invalid,
            _ => DecodeError::Length,
        })
    }
}

/// Where the parts of these lengths and alignments lie, and the length of the whole.
fn places<const N: usize>(parts: [(usize, usize); N]) -> Option<([usize; N], usize)> {
    let mut at = N * size_of::<u64>();
    let mut places = [0; N];
    for (place, (len, align)) in places.iter_mut().zip(parts) {
        *place = at.checked_next_multiple_of(align)?;
        at = place.checked_add(len)?;
    }
    Some((places, at))
}

/// Writes parts, each with its alignment.
fn write<const N: usize>(parts: [(&[u8], usize); N], out: &mut [u8]) -> Result<usize, EncodeError> {
    let lens = parts.map(|(part, align)| (part.len(), align));
    let (places, len) = places(lens).ok_or(EncodeError::TooLarge)?;
    let out = out.get_mut(..len).ok_or(EncodeError::TooLarge)?;
    let mut end = 0;
    for (index, ((part, _), place)) in parts.into_iter().zip(places).enumerate() {
        let head = index * size_of::<u64>();
        if index == 0 {
            end = N * size_of::<u64>();
        }
        let (front, back) = out.split_at_mut(place);
        front[head..][..size_of::<u64>()].copy_from_slice(&(part.len() as u64).to_le_bytes());
        front[end..].fill(0);
        back[..part.len()].copy_from_slice(part);
        end = place + part.len();
    }
    Ok(len)
}

/// Reads the bytes of parts of these alignments.
fn read<const N: usize>(aligns: [usize; N], payload: &[u8]) -> Result<[&[u8]; N], DecodeError> {
    let mut parts = [(0, 0); N];
    for (index, (part, align)) in parts.iter_mut().zip(aligns).enumerate() {
        let len = payload
            .get(index * size_of::<u64>()..)
            .and_then(<[u8]>::first_chunk)
            .ok_or(DecodeError::Length)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| DecodeError::Length)?;
        *part = (len, align);
    }
    let (places, whole) = places(parts).ok_or(DecodeError::Length)?;
    if whole != payload.len() {
        return Err(DecodeError::Length);
    }
    let mut read: [&[u8]; N] = [&[]; N];
    for ((read, place), (len, _)) in read.iter_mut().zip(places).zip(parts) {
        *read = payload
            .get(place..)
            .and_then(|rest| rest.get(..len))
            .ok_or(DecodeError::Length)?;
    }
    Ok(read)
}

/// The largest of these and of the alignment of a length.
const fn largest(aligns: &[usize]) -> usize {
    let (mut largest, mut at) = (align_of::<u64>(), 0);
    while at < aligns.len() {
        if aligns[at] > largest {
            largest = aligns[at];
        }
        at += 1;
    }
    largest
}

macro_rules! tuples {
    ($($first:ident $($rest:ident)*;)*) => {$(
        impl<'a, $first: Part + ?Sized $(, $rest: Part + ?Sized)*> Payload<'a, InPlace> for (&'a $first, $(&'a $rest,)*) {
            type Source = (&'a $first, $(&'a $rest,)*);
            const TEXT: Text = Text::new().str("parts(").text(&$first::TEXT)$(.str(",").text(&$rest::TEXT))*.str(")");
            const ALIGN: usize = largest(&[$first::ALIGN $(, $rest::ALIGN)*]);

            #[allow(non_snake_case, reason = "a part is named as its type")]
            fn bound(source: &Self::Source) -> usize {
                let ($first, $($rest,)*) = source;
                let lens = [($first.bytes().len(), $first::ALIGN) $(, ($rest.bytes().len(), $rest::ALIGN))*];
                places(lens).map_or(usize::MAX, |(_, len)| len)
            }

            #[allow(non_snake_case, reason = "a part is named as its type")]
            fn encode(source: &Self::Source, out: &mut [u8]) -> Result<usize, EncodeError> {
                let ($first, $($rest,)*) = source;
                write([($first.bytes(), $first::ALIGN) $(, ($rest.bytes(), $rest::ALIGN))*], out)
            }

            #[allow(non_snake_case, reason = "a part is named as its type")]
            fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
                let [$first, $($rest),*] = read([$first::ALIGN $(, $rest::ALIGN)*], payload)?;
                Ok(($first::of_bytes($first)?, $($rest::of_bytes($rest)?,)*))
            }
        }
    )*};
}

tuples! {
    A B;
    A B C;
    A B C D;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec;

    use super::*;

    type Row<'a> = (&'a str, &'a [f64], &'a u8);

    #[repr(align(64))]
    struct Aligned([u8; 256]);

    #[test]
    fn parts_lie_where_they_are_read() {
        let values = [1.5, -2.0, 0.25];
        for name in ["", "a", "eight ch", "nine char"] {
            let row: Row<'_> = (name, &values, &9);
            let mut memory = Aligned([0xee; 256]);
            let len = <Row<'_> as Payload<'_, InPlace>>::bound(&row);
            let written = <Row<'_> as Payload<'_, InPlace>>::encode(&row, &mut memory.0);
            assert_eq!(written, Ok(len));
            let back = <Row<'_> as Payload<'_, InPlace>>::decode(&memory.0[..len]).unwrap();
            assert_eq!(back, row);
            // Nothing is copied.
            assert!(memory.0.as_ptr_range().contains(&back.1.as_ptr().cast()));
            assert!(<Row<'_> as Payload<'_, InPlace>>::decode(&memory.0[..len - 1]).is_err());
            assert!(<Row<'_> as Payload<'_, InPlace>>::encode(&row, &mut vec![0; len - 1]).is_err());
        }
        assert_eq!(<Row<'_> as Payload<'_, InPlace>>::ALIGN, 8);
        assert_eq!(
            <Row<'_> as Payload<'_, InPlace>>::TEXT.as_str(),
            "parts(str,[f64],u8)"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_decode_or_not(bytes in prop::collection::vec(any::<u8>(), 0..64), lens in prop::array::uniform3(0_u64..9)) {
            let mut memory = Aligned([0; 256]);
            let len = 24 + bytes.len();
            for (index, len) in lens.iter().enumerate() {
                memory.0[8 * index..][..8].copy_from_slice(&len.to_le_bytes());
            }
            memory.0[24..len].copy_from_slice(&bytes);
            let _ = <Row<'_> as Payload<'_, InPlace>>::decode(&memory.0[..len]);
        }
    }
}
