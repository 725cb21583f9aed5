//! The payload codecs of the SDK, on types of each kind.

use std::collections::BTreeMap;
use std::fmt::Debug;

use ifunc::Shape;
use ifunc::codec::{Borrowed, Copied, Fixed, InPlace, Parts, Postcard, Raw, Zerocopy};
use ifunc::payload::{Answer, Payload};
use serde::{Deserialize, Serialize};

#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Side {
    Left = 1,
    Right = 200,
}

#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f64,
    at: [i32; 4],
    tag: [u8; 3],
    side: Side,
    end: u32,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, Shape)]
struct Record {
    name: String,
    id: u64,
    small: (i8, u8, i16, bool),
    ratio: f64,
    letter: char,
    by_name: BTreeMap<String, Vec<i32>>,
    kinds: Vec<Kind>,
    done: Result<u128, ()>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, Shape)]
enum Kind {
    None,
    Named(String),
    Range(i32, i32),
    Both(Box<Kind>, Box<Kind>),
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, Shape)]
struct Borrowing<'a> {
    name: &'a str,
    bytes: &'a [u8],
    last: Option<u16>,
}

/// Memory at the alignment of a body.
#[repr(align(64))]
struct Aligned([u8; 2048]);

/// The first byte chooses the type, the others are the payload.
pub fn run(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else {
        return;
    };
    if bytes.len() > 2048 {
        return;
    }
    let mut memory = Aligned([0; 2048]);
    memory.0[..bytes.len()].copy_from_slice(bytes);
    let bytes = &memory.0[..bytes.len()];
    match first % 16 {
        0 => exact::<Zerocopy, Point>(bytes),
        1 => exact::<Zerocopy, [u16; 5]>(bytes),
        2 => owned::<Fixed, (u8, Option<(i64, char)>, bool)>(bytes),
        3 => owned::<Fixed, (Vec<u16>, Option<f32>)>(bytes),
        4 => owned::<Fixed, Vec<Point>>(bytes),
        5 => in_place(bytes),
        6 => parts(bytes),
        7 => owned::<Postcard, Record>(bytes),
        8 => owned::<Postcard, Kind>(bytes),
        9 => owned::<Postcard, Vec<(u8, Option<String>)>>(bytes),
        10 => borrowing(bytes),
        11 => raw(bytes),
        12 => answer::<Postcard, Record>(bytes),
        13 => answer::<Fixed, (Vec<u32>, Option<u8>)>(bytes),
        14 => answer::<Zerocopy, Point>(bytes),
        _ => answer::<Raw, String>(bytes),
    }
}

fn encoded<'a, C, T: Payload<'a, C>>(value: &T::Source) -> Vec<u8> {
    let mut bytes = vec![0; T::bound(value)];
    let len = T::encode(value, &mut bytes).expect("what was decoded can be encoded");
    bytes.truncate(len);
    bytes
}

/// What is decoded is encoded as bytes that decode to what encodes so: values may hold numbers that are not equal to themselves.
fn owned<C, T: for<'a> Payload<'a, C, Source = T> + Debug>(bytes: &[u8]) {
    let decoded = T::decode(bytes);
    seen_by_the_command::<C, T>(bytes, decoded.is_ok());
    let Ok(value) = decoded else { return };
    let first = encoded::<C, T>(&value);
    let mut memory = Aligned([0; 2048]);
    let Some(place) = memory.0.get_mut(..first.len()) else {
        return;
    };
    place.copy_from_slice(&first);
    let again = T::decode(place).expect("it was encoded");
    assert_eq!(encoded::<C, T>(&again), first);
}

/// Of a layout without padding: the bytes themselves.
fn exact<C, T: for<'a> Payload<'a, C, Source = T> + Debug>(bytes: &[u8]) {
    owned::<C, T>(bytes);
    if let Ok(value) = T::decode(bytes) {
        assert_eq!(encoded::<C, T>(&value), bytes);
    }
}

/// `cargo ifunc call` prints what the SDK decodes, and nothing else.
fn seen_by_the_command<'a, C, T: Payload<'a, C>>(bytes: &[u8], is_value: bool) {
    let text = T::TEXT;
    if let Some(seen) = crate::call::is_value(text.as_str(), bytes) {
        assert!(!is_value || seen, "{}: {bytes:?}", text.as_str());
    }
}

fn in_place(bytes: &[u8]) {
    if let Ok(points) = <&[Point] as Payload<'_, InPlace>>::decode(bytes) {
        assert_eq!(size_of_val(points), bytes.len());
        assert_eq!(encoded::<InPlace, &[Point]>(points), bytes);
    }
    if let Ok(numbers) = <&[u64] as Payload<'_, InPlace>>::decode(bytes) {
        assert_eq!(numbers.len() * 8, bytes.len());
    }
}

type Row<'a> = (u8, &'a str, &'a [f64], (u16, Option<u32>), &'a u128, f64);
type OfRow = Parts<(Copied, Borrowed, Borrowed, Copied, Borrowed, Copied)>;

fn parts(bytes: &[u8]) {
    if let Ok(row) = <Row<'_> as Payload<'_, OfRow>>::decode(bytes) {
        let inside = |start: *const u8, len: usize| {
            let range = bytes.as_ptr_range();
            len == 0 || range.contains(&start) && len <= range.end.addr() - start.addr()
        };
        assert!(inside(row.1.as_ptr(), row.1.len()) && inside(row.2.as_ptr().cast(), size_of_val(row.2)));
        assert!(inside(std::ptr::from_ref(row.4).cast(), 16));
    }
}

fn borrowing(bytes: &[u8]) {
    if let Ok(value) = <Borrowing<'_> as Payload<'_, Postcard>>::decode(bytes) {
        assert!(value.name.len() + value.bytes.len() <= bytes.len());
    }
}

fn raw(bytes: &[u8]) {
    assert_eq!(<&[u8] as Payload<'_, Raw>>::decode(bytes).ok(), Some(bytes));
    let text = <&str as Payload<'_, Raw>>::decode(bytes).ok();
    assert_eq!(text, std::str::from_utf8(bytes).ok());
}

fn answer<C, T: Answer<C> + Debug>(bytes: &[u8]) {
    let Ok(value) = T::decode(bytes) else { return };
    let mut out = vec![0; 8192];
    let Ok(len) = value.encode(&mut out) else { return };
    assert!(value.encoded_len().is_none_or(|stated| stated == len));
    let mut memory = Aligned([0; 2048]);
    let Some(place) = memory.0.get_mut(..len) else {
        return;
    };
    place.copy_from_slice(&out[..len]);
    let again = T::decode(place).expect("it was encoded");
    let mut second = vec![0; 8192];
    let len_again = again.encode(&mut second).expect("it fitted");
    assert_eq!(out[..len], second[..len_again]);
}
