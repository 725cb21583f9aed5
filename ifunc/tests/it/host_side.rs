//! An ifunc crate outside an image: an ordinary library with typed handles.

#![allow(missing_docs, unreachable_pub, reason = "tests are not documented")]

use ifunc::codec::{InPlace, Postcard, Raw, Zerocopy};
use ifunc::prelude::*;
use ifunc::serde::{Deserialize, Serialize};
use proptest::prelude::*;

#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    x: f64,
    y: f64,
}

#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
pub enum Color {
    Red = 1,
    Green = 7,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Record<'a> {
    key: &'a str,
    #[serde(borrow)]
    value: &'a [u8],
    tags: [Option<u16>; 2],
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub enum Outcome {
    Stored(u32),
    Refused {
        code: i32,
    },
    #[allow(dead_code)]
    Nothing,
}

/// The target's data.
#[derive(Layout, Default)]
#[repr(C)]
pub struct Counters {
    count: u64,
    last: u8,
}

#[ifunc]
pub fn add(delta: u64, counter: &mut u64) -> u64 {
    *counter += delta;
    *counter
}

/// Borrows its payload in place.
#[ifunc(idempotent)]
pub fn norm(point: &Point, counters: &mut Counters) -> Point {
    counters.count += 1;
    Point {
        x: point.x + point.y,
        y: 0.0,
    }
}

#[ifunc]
fn paint(color: Color, counters: &mut Counters) -> Color {
    counters.last = color as u8;
    color
}

#[ifunc]
pub fn sum(values: &[u32], total: &mut u64) {
    *total += values.iter().map(|&value| u64::from(value)).sum::<u64>();
}

#[ifunc(codec = postcard, name = "insert_v2")]
pub fn insert(record: Record<'_>, count: &mut u64) -> Outcome {
    if record.value.is_empty() {
        return Outcome::Refused { code: -1 };
    }
    *count += 1;
    Outcome::Stored(record.key.len() as u32)
}

#[ifunc(codec = postcard)]
pub fn tags(record: &Record<'_>, count: &mut u64) {
    *count += record.tags.len() as u64;
}

#[ifunc]
pub fn shout(text: &str, total: &std::sync::atomic::AtomicU64, ctx: &mut Context) {
    total.fetch_add(text.len() as u64, std::sync::atomic::Ordering::Relaxed);
    ctx.answer(text.as_bytes());
    info!(ctx, "shouted {text}");
}

/// A run of one byte.
pub struct Run {
    byte: u8,
    len: u32,
}

impl<'a> Payload<'a> for Run {
    type Source = [u8];
    const TEXT: Text = Text::new().str("run/1");
    const ALIGN: usize = 4;
    fn bound(_: &[u8]) -> usize {
        5
    }
    fn encode(source: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> {
        let byte = *source.first().ok_or(EncodeError::Refused)?;
        let out = out.get_mut(..5).ok_or(EncodeError::TooLarge)?;
        out[..4].copy_from_slice(&(source.len() as u32).to_le_bytes());
        out[4] = byte;
        Ok(5)
    }
    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        match payload {
            &[a, b, c, d, byte] => Ok(Self {
                byte,
                len: u32::from_le_bytes([a, b, c, d]),
            }),
            _ => Err(DecodeError::Length),
        }
    }
}

#[ifunc(codec = custom, pinned)]
pub fn run(run: &Run, total: &mut u64) {
    *total += u64::from(run.len) * u64::from(run.byte);
}

fn encoded<F: Ifunc>(payload: &F::Payload<'_>) -> Vec<u8> {
    let mut out = vec![0; F::bound(payload)];
    let len = F::encode(payload, &mut out).unwrap();
    out.truncate(len);
    if let Some(short) = len.checked_sub(1) {
        assert_eq!(F::encode(payload, &mut out[..short]), Err(EncodeError::TooLarge));
    }
    out
}

#[test]
fn functions_are_still_functions() {
    let mut counter = 40;
    assert_eq!(add(2, &mut counter), 42);
    let mut total = 0;
    sum(&[1, 2, 3], &mut total);
    assert_eq!(total, 6);
    let total = std::sync::atomic::AtomicU64::new(0);
    shout("abc", &total, &mut Context::detached());
    assert_eq!(total.into_inner(), 3);
}

#[test]
fn payloads_are_encoded() {
    assert_eq!(encoded::<add>(&0x0102), [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encoded::<sum>(&[1, 2]), [1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(encoded::<shout>("hé"), "hé".as_bytes());
    assert_eq!(encoded::<run>(b"aaa"), [3, 0, 0, 0, b'a']);
    assert_eq!(encoded::<paint>(&Color::Green), [7]);
    assert_eq!(encoded::<norm>(&Point { x: 1.0, y: 2.0 }).len(), 16);
    let record = Record {
        key: "k",
        value: b"vv",
        tags: [None, Some(300)],
    };
    assert_eq!(
        encoded::<insert>(&record),
        [1, b'k', 2, b'v', b'v', 0, 1, 0xac, 2]
    );
    assert_eq!(encoded::<tags>(&record).len(), 9);
    assert_eq!(
        <run as Ifunc>::encode(&[], &mut [0; 8]),
        Err(EncodeError::Refused)
    );
}

#[test]
fn answers_are_decoded() {
    assert_eq!(add::decode_answer(&7u64.to_le_bytes()), Ok(7));
    assert_eq!(add::decode_answer(&[0; 7]), Err(DecodeError::Length));
    assert_eq!(paint::decode_answer(&[7]), Ok(Color::Green));
    assert_eq!(paint::decode_answer(&[2]), Err(DecodeError::Invalid));
    assert_eq!(insert::decode_answer(&[1, 1]), Ok(Outcome::Refused { code: -1 }));
    assert_eq!(insert::decode_answer(&[1, 1, 0]), Err(DecodeError::Length));
    assert_eq!(insert::decode_answer(&[9]), Err(DecodeError::Invalid));
    assert_eq!(sum::decode_answer(&[]), Ok(()));
    assert_eq!(sum::decode_answer(&[0]), Err(DecodeError::Length));
    // An answer given by `ctx.answer` is for callers that ask for bytes.
    assert_eq!(shout::decode_answer(b"anything"), Ok(()));
}

fn texts<F: Ifunc>() -> String {
    format!(
        "{} ({}) {} -> {} align {}\n",
        F::NAME,
        F::PAYLOAD,
        F::TARGET,
        F::ANSWER,
        F::ALIGN
    )
}

/// An enum whose alignment exceeds that of its integer.
#[derive(Layout)]
#[repr(u8, align(8))]
#[allow(dead_code)]
enum Wide {
    Only = 1,
}

#[test]
fn the_text_of_an_enum_states_its_size_and_alignment() {
    assert_eq!(<Wide as Layout>::TEXT.as_str(), "enum Wide:u8{Only=1}[8,8]");
    assert_eq!(size_of::<[Wide; 2]>(), 16);
}

#[test]
fn texts_do_not_change() {
    let all = [
        texts::<add>(),
        texts::<norm>(),
        texts::<paint>(),
        texts::<sum>(),
        texts::<insert>(),
        texts::<tags>(),
        texts::<shout>(),
        texts::<run>(),
    ]
    .concat();
    insta::assert_snapshot!(all, @r"
    add (u64) u64 -> u64 align 8
    norm (struct Point{0:x:f64,8:y:f64}[16,8]) struct Counters{0:count:u64,8:last:u8}[16,8] -> struct Point{0:x:f64,8:y:f64}[16,8] align 8
    paint (enum Color:u8{Red=1,Green=7}[1,1]) struct Counters{0:count:u64,8:last:u8}[16,8] -> enum Color:u8{Red=1,Green=7}[1,1] align 1
    sum ([u32]) u64 -> () align 4
    insert_v2 (postcard struct Record{key:str,value:bytes,tags:[Option<u16>;2]}) u64 -> postcard enum Outcome{Stored(u32),Refused{code:i32},Nothing} align 1
    tags (postcard struct Record{key:str,value:bytes,tags:[Option<u16>;2]}) u64 -> () align 1
    shout (raw str) atomic u64 -> raw bytes align 1
    run (run/1) u64 -> () align 4
    ");
    assert_eq!([norm::IDEMPOTENT, add::IDEMPOTENT], [true, false]);
}

/// Decodes as `X_main` does first and `X_payload_init` does last.
fn decoded<'a, P: Payload<'a, C>, C>(bytes: &'a [u8]) -> Result<P, DecodeError> {
    P::decode(bytes)
}

#[test]
fn payloads_are_used_in_place() {
    let words = [0x0403_0201_u32, 0x0807_0605];
    let bytes = ifunc::zerocopy::IntoBytes::as_bytes(&words[..]);
    assert_eq!(decoded::<&[u32], InPlace>(bytes), Ok(&words[..]));
    assert_eq!(decoded::<&[u32], InPlace>(&bytes[..7]), Err(DecodeError::Length));
    assert_eq!(
        decoded::<&[u32], InPlace>(&bytes[1..5]),
        Err(DecodeError::Length),
        "misaligned"
    );
    assert_eq!(
        decoded::<[u16; 2], Zerocopy>(&bytes[1..5]),
        Ok([0x0302, 0x0504]),
        "copied out"
    );
    assert_eq!(decoded::<&Color, InPlace>(&[7]), Ok(&Color::Green));
    assert_eq!(decoded::<&Color, InPlace>(&[8]), Err(DecodeError::Invalid));
    assert_eq!(decoded::<&str, Raw>(b"\xff"), Err(DecodeError::Invalid));
    let record = decoded::<Record<'_>, Postcard>(&[1, b'k', 1, b'v', 0, 0]).unwrap();
    assert_eq!(
        record,
        Record {
            key: "k",
            value: b"v",
            tags: [None, None]
        }
    );
}

#[test]
fn arguments_from_c_are_the_payload() {
    type Color = <paint as Ifunc>::Payload<'static>;
    let mut out = [0; 4];
    assert_eq!(<Color as Payload<'_, Zerocopy>>::bound_from_args(&[7]), 1);
    assert_eq!(
        <Color as Payload<'_, Zerocopy>>::encode_from_args(&[7], &mut out),
        Ok(1)
    );
    assert_eq!(
        (out, <&[u8] as Payload<'_, Raw>>::bound_from_args(b"ab")),
        ([7, 0, 0, 0], 2)
    );
    assert_eq!(
        <&[u8] as Payload<'_, Raw>>::encode_from_args(b"abcde", &mut out),
        Err(EncodeError::TooLarge)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_round_trip(key in ".{0,20}", value in prop::collection::vec(any::<u8>(), 0..300), tag: Option<u16>) {
        let record = Record { key: &key, value: &value, tags: [tag, None] };
        let bytes = encoded::<insert>(&record);
        prop_assert_eq!(decoded::<Record<'_>, Postcard>(&bytes), Ok(record));
        prop_assert_eq!(decoded::<Record<'_>, Postcard>(&bytes[..bytes.len() - 1]), Err(DecodeError::Length));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = decoded::<Record<'_>, Postcard>(&bytes);
        let _ = decoded::<Outcome, Postcard>(&bytes);
        let _ = decoded::<Point, Zerocopy>(&bytes);
        let _ = decoded::<&[Point], InPlace>(&bytes);
        let _ = decoded::<&str, Raw>(&bytes);
        prop_assert_eq!(decoded::<Color, Zerocopy>(&bytes).is_ok(), matches!(bytes[..], [1 | 7]));
        if let Ok(outcome) = insert::decode_answer(&bytes) {
            let mut out = [0; 64];
            let len = <Outcome as ifunc::Answer<Postcard>>::encode(&outcome, &mut out).unwrap();
            prop_assert_eq!(insert::decode_answer(&out[..len]), Ok(outcome));
        }
    }
}

/// A type that serde does not know.
#[derive(Debug, PartialEq)]
pub struct Celsius(f32);

mod millis {
    use super::Celsius;
    use ifunc::serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(it: &Celsius, to: S) -> Result<S::Ok, S::Error> {
        ((it.0 * 1000.0) as i32).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Celsius, D::Error> {
        i32::deserialize(from).map(|it| Celsius(it as f32 / 1000.0))
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub struct Reading<'a> {
    #[serde(with = "millis")]
    #[shape(with = i32)]
    warmth: Celsius,
    since: core::time::Duration,
    from: core::net::IpAddr,
    at: ifunc::system::SystemTime,
    /// A type of another crate, which writes its 16 bytes.
    #[serde(borrow)]
    #[shape(with = &[u8])]
    id: Id<'a>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(crate = "ifunc::serde", transparent)]
pub struct Id<'a>(&'a [u8]);

#[cfg(feature = "alloc")]
#[derive(Debug, PartialEq, Serialize, Deserialize, Shape)]
#[serde(crate = "ifunc::serde")]
pub enum Expr<T> {
    Number(T),
    Sum(Vec<Expr<T>>),
    Negative(Box<Self>),
}

#[test]
fn serde_types_of_other_crates_and_of_themselves_travel() {
    let reading = Reading {
        warmth: Celsius(21.5),
        since: core::time::Duration::from_millis(1_500),
        from: [127, 0, 0, 1].into(),
        at: core::time::Duration::new(1_700_000_000, 5).into(),
        id: Id(&[7; 16]),
    };
    let mut bytes = [0; 64];
    let len = <Reading as Payload<'_, Postcard>>::encode(&reading, &mut bytes).unwrap();
    assert_eq!(
        <Reading as Payload<'_, Postcard>>::decode(&bytes[..len]).unwrap(),
        reading
    );
    assert_eq!(
        <Reading as Shape>::TEXT.as_str(),
        "struct Reading{warmth:i32,since:Duration,from:IpAddr,at:SystemTime,id:bytes}"
    );
    // A time is what serde writes for that of `std`: seconds and nanoseconds since 1970.
    let mut as_std = [0; 16];
    let as_std = <(u64, u32) as Payload<'_, Postcard>>::encode(&(1_700_000_000, 5), &mut as_std)
        .map(|len| as_std[..len].to_vec())
        .unwrap();
    assert!(bytes[..len].windows(as_std.len()).any(|part| part == as_std));
    let now = std::time::SystemTime::now();
    let there = ifunc::system::SystemTime::try_from(now).unwrap();
    assert_eq!(std::time::SystemTime::try_from(there), Ok(now));
    assert!(ifunc::system::SystemTime::try_from(std::time::UNIX_EPOCH - reading.since).is_err());
    #[cfg(feature = "alloc")]
    {
        let sum = Expr::Sum(vec![Expr::Number(1), Expr::Negative(Box::new(Expr::Number(2)))]);
        let len = <Expr<i64> as Payload<'_, Postcard>>::encode(&sum, &mut bytes).unwrap();
        assert_eq!(
            <Expr<i64> as Payload<'_, Postcard>>::decode(&bytes[..len]).unwrap(),
            sum
        );
        assert_eq!(
            <Expr<i64> as Shape>::TEXT.as_str(),
            "enum Expr{Number(i64),Sum([^Expr]),Negative(^Expr)}"
        );
    }
}

/// Types that later builds add to.
mod growing {
    use ifunc::__private::earlier_text;
    use ifunc::ffi::{ErrorCode, Value};
    use ifunc::{Layout, TargetArgs};

    #[derive(Layout, Clone, Copy, Debug, PartialEq)]
    #[repr(i16)]
    #[non_exhaustive]
    enum FindError {
        Empty = 1,
        #[layout(other)]
        Other = -1,
    }

    #[test]
    fn an_enum_names_no_variants_where_it_crosses_as_an_integer() {
        const OPEN: &str = "enum FindError:i16{..}";
        assert_eq!(<FindError as ErrorCode>::TEXT.as_str(), OPEN);
        assert_eq!(<FindError as Value>::TEXT.as_str(), OPEN);
        assert_eq!(
            <FindError as Layout>::TEXT.as_str(),
            "enum FindError:i16{Empty=1,Other=-1}[2,2]"
        );
        assert_eq!(<FindError as ErrorCode>::from_code(1), FindError::Empty);
        assert_eq!(<FindError as ErrorCode>::from_code(2), FindError::Other);
        assert_eq!(<FindError as Value>::from_c(7), FindError::Other);
    }

    macro_rules! versions {
        ([$($repr:tt)*] $($fields:tt)*) => {{
            #[derive(Layout)]
            #[layout(grows, name = "S")]
            #[repr($($repr)*)]
            #[allow(dead_code)]
            struct Grown { $($fields)* }
            <Grown as TargetArgs>::EARLIER
        }};
    }

    #[test]
    fn a_struct_has_the_texts_of_its_first_fields_without_their_padding() {
        assert_eq!(
            versions! { [C] a: u32, b: u32, c: u64, d: u8, e: u8, f: u64 },
            [
                "struct S{0:a:u32}[4,4]",
                "struct S{0:a:u32,4:b:u32}[8,4]",
                "struct S{0:a:u32,4:b:u32,8:c:u64}[16,8]",
                // `e` lies where that struct has its padding.
                "",
                "struct S{0:a:u32,4:b:u32,8:c:u64,16:d:u8,17:e:u8}[24,8]"
            ]
        );
        assert_eq!(versions! { [C, align(8)] a: u32, b: u32 }, [""]);
        assert_eq!(
            versions! { [C, align(4)] a: u32, b: u32 },
            ["struct S{0:a:u32}[4,4]"]
        );
        assert_eq!(
            versions! { [C, packed(1)] a: u32, b: u64 },
            ["struct S{0:a:u32}[4,1]"]
        );
        assert!(<u64 as TargetArgs>::EARLIER.is_empty() && <super::Point as TargetArgs>::EARLIER.is_empty());
    }

    /// The text of each version is the text of a struct that is written so.
    #[test]
    fn earlier_texts_are_those_of_the_structs_themselves() {
        #[derive(Layout)]
        #[layout(name = "S")]
        #[repr(C)]
        struct First {
            a: u64,
            b: [u16; 4],
        }
        let versions = versions! { [C] a: u64, b: [u16; 4], c: u128 };
        assert!(versions.contains(&<First as TargetArgs>::TEXT.as_str()));
        let text = earlier_text(ifunc::abi::text::Text::new(), 5, &[1], &[1, 2], 2, 6);
        assert_eq!(text.as_str(), "[5,1]");
    }

    #[derive(Layout)]
    #[layout(grows)]
    #[repr(C)]
    struct Settings {
        step: u64,
        limit: u64,
    }

    mod ifuncs {
        use super::Settings;

        #[ifunc::import]
        unsafe extern "C" {
            pub safe fn growing_settings(of: &u64) -> Option<&Settings>;
            pub safe static GROWING: u64;
        }
    }

    /// The compiler compares it with its import.
    #[ifunc::export(import = ifuncs::growing_settings)]
    fn growing_settings(_: &u64) -> Option<&Settings> {
        static SETTINGS: Settings = Settings { step: 1, limit: 2 };
        Some(&SETTINGS)
    }

    #[ifunc::export(import = ifuncs::GROWING)]
    static GROWING: u64 = 5;

    #[test]
    fn an_export_that_lends_a_struct_has_the_signatures_of_its_first_fields() {
        let export = |name: &str| {
            ifunc::host::EXPORTS
                .iter()
                .find(|export| export.name() == name)
                .unwrap()
        };
        assert_eq!(
            export("growing_settings").earlier_signatures(),
            ["fn growing_settings(&u64)->Option<&struct Settings{0:step:u64}[8,8]>"]
        );
        assert!(export("GROWING").earlier_signatures().is_empty());
        let settings = ifuncs::growing_settings(&0).unwrap();
        assert_eq!((settings.step, settings.limit, *ifuncs::GROWING), (1, 2, 5));
    }
}
