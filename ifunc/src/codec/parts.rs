//! Several parts in one payload, some of them borrowed: `(&str, &[T], f64)`.
//!
//! The length in bytes of each part (u64) is followed by the parts, each at a multiple of its alignment. A value of fixed layout has the
//! same bytes whether it is borrowed or copied; what [`Fixed`](super::Fixed) writes of other values is aligned to 1.

use ifunc_abi::text::Text;

use super::{Borrowed, Copied, FixedValue, Parts};
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

/// A part of a tuple that travels: a [`Part`] by reference (`K` is [`Borrowed`]), or a [`FixedValue`] (`K` is [`Copied`]).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a payload",
    label = "neither a reference to a part nor a fixed layout",
    note = "help: a fixed layout: `#[ifunc::layout]` on the type",
    note = "help: or let the tuple travel by serde: `#[ifunc(codec = postcard)]`"
)]
pub trait TuplePart<'a, K>: Sized {
    /// Canonical text.
    const TEXT: Text;
    /// Alignment in bytes.
    const ALIGN: usize;

    /// Length in bytes.
    fn part_len(&self) -> usize;

    /// Writes the part to `out`, which has the part's length.
    ///
    /// # Errors
    /// `out` has another length.
    fn write_part(&self, out: &mut [u8]) -> Result<(), EncodeError>;

    /// The part of these bytes, which begin at a multiple of [`ALIGN`](Self::ALIGN).
    ///
    /// # Errors
    /// They are no value.
    fn read_part(bytes: &'a [u8]) -> Result<Self, DecodeError>;
}

impl<'a, T: Part + ?Sized> TuplePart<'a, Borrowed> for &'a T {
    const TEXT: Text = <T as Part>::TEXT;
    const ALIGN: usize = <T as Part>::ALIGN;

    fn part_len(&self) -> usize {
        self.bytes().len()
    }

    fn write_part(&self, out: &mut [u8]) -> Result<(), EncodeError> {
        let bytes = self.bytes();
        if out.len() != bytes.len() {
            return Err(EncodeError::TooLarge);
        }
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn read_part(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        T::of_bytes(bytes)
    }
}

impl<T: FixedValue> TuplePart<'_, Copied> for T {
    const TEXT: Text = <T as FixedValue>::TEXT;
    const ALIGN: usize = <T as FixedValue>::ALIGN;

    fn part_len(&self) -> usize {
        self.value_len()
    }

    fn write_part(&self, out: &mut [u8]) -> Result<(), EncodeError> {
        match self.write(out)? {
            [] => Ok(()),
            _ => Err(EncodeError::TooLarge),
        }
    }

    fn read_part(bytes: &[u8]) -> Result<Self, DecodeError> {
        match T::read(bytes)? {
            (value, []) => Ok(value),
            _ => Err(DecodeError::Length),
        }
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

/// Prepares `out` for parts of these lengths and alignments: writes the lengths, and zeros between the parts. Returns where the parts go.
fn layout<const N: usize>(
    parts: [(usize, usize); N],
    out: &mut [u8],
) -> Result<([usize; N], usize), EncodeError> {
    let (places, whole) = places(parts).ok_or(EncodeError::TooLarge)?;
    let out = out.get_mut(..whole).ok_or(EncodeError::TooLarge)?;
    let (heads, _) = out
        .split_at_mut_checked(N * size_of::<u64>())
        .ok_or(EncodeError::TooLarge)?;
    for (head, (len, _)) in heads.chunks_exact_mut(size_of::<u64>()).zip(parts) {
        head.copy_from_slice(&(len as u64).to_le_bytes());
    }
    let mut end = N * size_of::<u64>();
    for (place, (len, _)) in places.into_iter().zip(parts) {
        out.get_mut(end..place).ok_or(EncodeError::TooLarge)?.fill(0);
        end = place + len;
    }
    Ok((places, whole))
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

/// Texts with commas between them.
const fn listed(texts: &[&Text]) -> Text {
    let (mut all, mut at) = (Text::new(), 0);
    while at < texts.len() {
        if at > 0 {
            all = all.str(",");
        }
        all = all.text(texts[at]);
        at += 1;
    }
    all
}

macro_rules! tuples {
    ($($($part:ident $kind:ident $place:ident)*;)*) => {$(
        impl<'a, $($kind, $part: TuplePart<'a, $kind>),*> Payload<'a, Parts<($($kind,)*)>> for ($($part,)*) {
            type Source = Self;
            const TEXT: Text = Text::new().str("parts(").text(&listed(&[$(&$part::TEXT),*])).str(")");
            const ALIGN: usize = largest(&[$($part::ALIGN),*]);

            #[allow(non_snake_case, reason = "a part is named as its type")]
            fn bound(source: &Self) -> usize {
                let ($($part,)*) = source;
                places([$(($part.part_len(), $part::ALIGN)),*]).map_or(usize::MAX, |(_, len)| len)
            }

            #[allow(non_snake_case, reason = "a part is named as its type")]
            fn encode(source: &Self, out: &mut [u8]) -> Result<usize, EncodeError> {
                let ($($part,)*) = source;
                let ([$($place),*], whole) = layout([$(($part.part_len(), $part::ALIGN)),*], out)?;
                $(
                    let out_of_part = out.get_mut($place..).and_then(|out| out.get_mut(..$part.part_len()));
                    $part.write_part(out_of_part.ok_or(EncodeError::TooLarge)?)?;
                )*
                Ok(whole)
            }

            #[allow(non_snake_case, reason = "a part is named as its type")]
            fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
                let [$($part),*] = read([$($part::ALIGN),*], payload)?;
                Ok(($($part::read_part($part)?,)*))
            }
        }
    )*};
}

tuples! {
    A KA a;
    A KA a B KB b;
    A KA a B KB b C KC c;
    A KA a B KB b C KC c D KD d;
    A KA a B KB b C KC c D KD d E KE e;
    A KA a B KB b C KC c D KD d E KE e F KF f;
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::string::String;
    #[cfg(feature = "alloc")]
    use alloc::vec::Vec;
    use core::fmt::Debug;

    use proptest::prelude::*;
    use std::vec;

    use super::*;

    type Row<'a> = (&'a str, &'a [f64], &'a u8);
    type OfRow = Parts<(Borrowed, Borrowed, Borrowed)>;
    /// Each kind of part, at both ends and between.
    type Mixed<'a> = (f64, &'a str, u64, &'a [u16], (bool, Option<u32>), &'a u128);
    type OfMixed = Parts<(Copied, Borrowed, Copied, Borrowed, Copied, Borrowed)>;

    #[repr(align(64))]
    struct Aligned([u8; 512]);

    /// Encodes into memory that is not zero, and decodes; returns what was written.
    fn there_and_back<'m, P, K>(value: &P, memory: &'m mut Aligned) -> (P, &'m [u8])
    where
        P: Payload<'m, K, Source = P> + PartialEq + Debug,
    {
        memory.0.fill(0xee);
        let len = P::bound(value);
        assert_eq!(P::encode(value, &mut memory.0), Ok(len));
        assert_eq!(
            P::encode(value, &mut vec![0; len - 1]),
            Err(EncodeError::TooLarge)
        );
        let bytes = &memory.0[..len];
        let back = P::decode(bytes).unwrap();
        assert_eq!(&back, value);
        assert!(P::decode(&memory.0[..len - 1]).is_err());
        assert!(P::decode(&memory.0[..=len]).is_err());
        (back, bytes)
    }

    #[test]
    fn parts_lie_where_they_are_read() {
        let values = [1.5, -2.0, 0.25];
        for name in ["", "a", "eight ch", "nine char"] {
            let mut memory = Aligned([0; 512]);
            let row: Row<'_> = (name, &values, &9);
            let (back, bytes) = there_and_back::<Row<'_>, OfRow>(&row, &mut memory);
            // Nothing is copied.
            assert!(bytes.as_ptr_range().contains(&back.1.as_ptr().cast()));
        }
        assert_eq!(<Row<'_> as Payload<'_, OfRow>>::ALIGN, 8);
        assert_eq!(<Mixed<'_> as Payload<'_, OfMixed>>::ALIGN, 16);
        let text = <Row<'_> as Payload<'_, OfRow>>::TEXT;
        assert_eq!(text.as_str(), "parts(str,[f64],u8)");
        let text = <Mixed<'_> as Payload<'_, OfMixed>>::TEXT;
        assert_eq!(text.as_str(), "parts(f64,str,u64,[u16],(bool,Option<u32>),u128)");
    }

    #[test]
    fn a_value_has_the_same_bytes_borrowed_and_copied() {
        type Refs<'a> = (&'a str, &'a f64);
        type OfRefs = Parts<(Borrowed, Borrowed)>;
        type OfCopy = Parts<(Borrowed, Copied)>;
        let [mut first, mut second] = [Aligned([0; 512]), Aligned([0; 512])];
        let (_, borrowed) = there_and_back::<Refs<'_>, OfRefs>(&("abc", &1.5), &mut first);
        let (_, copied) = there_and_back::<(&str, f64), OfCopy>(&("abc", 1.5), &mut second);
        assert_eq!(borrowed, copied);
        // Two lengths, the text, five bytes up to the number.
        assert_eq!(copied.len(), 16 + 3 + 5 + 8);
        assert_eq!(copied[19..24], [0; 5]);
        let texts = [
            <Refs<'_> as Payload<'_, OfRefs>>::TEXT,
            <(&str, f64) as Payload<'_, OfCopy>>::TEXT,
        ];
        assert_eq!(texts[0].as_str(), texts[1].as_str());
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn lists_are_copied_beside_borrowed_parts() {
        let mut memory = Aligned([0; 512]);
        let value = (vec![1_u16, 2, 3], "abc");
        there_and_back::<(Vec<u16>, &str), Parts<(Copied, Borrowed)>>(&value, &mut memory);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn all_values_come_back(
            text in "\\PC{0,12}",
            list in prop::collection::vec(any::<u16>(), 0..9),
            (float, number, big) in (-1e9..1e9_f64, any::<u64>(), any::<u128>()),
            pair in any::<(bool, Option<u32>)>(),
        ) {
            let mut memory = Aligned([0; 512]);
            let text: String = text;
            let value: Mixed<'_> = (float, &text, number, &list, pair, &big);
            there_and_back::<Mixed<'_>, OfMixed>(&value, &mut memory);
        }

        #[test]
        fn any_bytes_decode_or_not(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            lens in prop::array::uniform6(prop_oneof![0_u64..24, any::<u64>()]),
        ) {
            let mut memory = Aligned([0; 512]);
            for (index, len) in lens.iter().enumerate() {
                memory.0[8 * index..][..8].copy_from_slice(&len.to_le_bytes());
            }
            for heads in [24, 48] {
                let len = heads + bytes.len();
                memory.0[heads..len].copy_from_slice(&bytes);
                for cut in [0, 1, bytes.len(), len] {
                    let bytes = &memory.0[..len - cut];
                    let _ = <Row<'_> as Payload<'_, OfRow>>::decode(bytes);
                    let _ = <Mixed<'_> as Payload<'_, OfMixed>>::decode(bytes);
                }
            }
        }

        /// As above, with lengths of which nearly all are right: what is behind them is looked at, too.
        #[test]
        fn any_bytes_of_the_right_lengths_decode_or_not(
            bytes in prop::collection::vec(any::<u8>(), 200),
            (text, list, pair) in (0_u64..9, 0_u64..9, 0_u64..8),
        ) {
            let lens = [8, text, 8, 2 * list, pair, 16];
            let aligns = [8, 1, 8, 2, 1, 16];
            let parts = core::array::from_fn::<_, 6, _>(|index| (lens[index] as usize, aligns[index]));
            let (_, whole) = places(parts).unwrap();
            let mut memory = Aligned([0; 512]);
            memory.0[48..248].copy_from_slice(&bytes);
            for (index, len) in lens.iter().enumerate() {
                memory.0[8 * index..][..8].copy_from_slice(&len.to_le_bytes());
            }
            if let Ok(value) = <Mixed<'_> as Payload<'_, OfMixed>>::decode(&memory.0[..whole]) {
                // What was read is what these bytes say, but for the padding.
                let mut again = Aligned([0; 512]);
                prop_assert_eq!(<Mixed<'_> as Payload<'_, OfMixed>>::encode(&value, &mut again.0), Ok(whole));
                prop_assert_eq!(&again.0[..48], &memory.0[..48]);
            }
        }
    }
}
