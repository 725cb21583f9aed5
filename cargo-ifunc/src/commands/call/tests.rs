//! JSON → bytes → JSON, against what serde_json, postcard and the SDK's codecs write.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ifunc::Shape;
use ifunc::codec::{Borrowed, Copied, Fixed, InPlace, Parts, Zerocopy};
use ifunc::payload::Payload;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Callee;
use super::decode::{NotOfType, decode};
use super::encode::encode;
use super::example::example;
use super::types::Codec;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, Shape)]
struct Record {
    name: String,
    id: u64,
    small: (i8, u8, i16, bool),
    ratio: f64,
    single: f32,
    far: i64,
    letter: char,
    tags: BTreeSet<u32>,
    by_name: BTreeMap<String, Vec<i32>>,
    by_number: BTreeMap<u16, Kind>,
    by_pair: BTreeMap<(u8, bool), ()>,
    kinds: Vec<Kind>,
    nested: Option<Newtype>,
    done: Result<Pair, Marker>,
    lasts: Duration,
    from: IpAddr,
    to: SocketAddr,
    #[shape(by_name)]
    children: Vec<Record>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, Shape)]
enum Kind {
    None,
    Named(String),
    Range(i32, i32),
    Full { id: u64, note: Option<String> },
    Both(Box<Kind>, Box<Kind>),
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, Shape)]
struct Newtype([u16; 3]);

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, Shape)]
struct Pair(u128, String);

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, Shape)]
struct Marker;

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

#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Meters(u32);

fn kind() -> impl Strategy<Value = Kind> {
    let leaf = prop_oneof![
        Just(Kind::None),
        any::<String>().prop_map(Kind::Named),
        any::<(i32, i32)>().prop_map(|(a, b)| Kind::Range(a, b)),
        any::<(u64, Option<String>)>().prop_map(|(id, note)| Kind::Full { id, note }),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        (inner.clone(), inner).prop_map(|(a, b)| Kind::Both(Box::new(a), Box::new(b)))
    })
}

fn record() -> impl Strategy<Value = Record> {
    let few = 0..3_usize;
    let scalars = (
        any::<String>(),
        any::<u64>(),
        any::<(i8, u8, i16, bool)>(),
        any::<f64>(),
        any::<f32>(),
        any::<i64>(),
        any::<char>(),
    );
    let lists = (
        prop::collection::btree_set(any::<u32>(), few.clone()),
        prop::collection::btree_map(
            any::<String>(),
            prop::collection::vec(any::<i32>(), 0..3),
            few.clone(),
        ),
        // Below ten, in the order of the numbers and of their texts.
        prop::collection::btree_map(0..10_u16, kind(), few.clone()),
        prop::collection::btree_map(any::<(u8, bool)>(), Just(()), few.clone()),
        prop::collection::vec(kind(), few),
    );
    let others = (
        any::<Option<[u16; 3]>>(),
        any::<Result<(u64, String), ()>>(),
        any::<(u64, u32)>(),
        any::<([u8; 16], bool, u16)>(),
    );
    let leaf = (scalars, lists, others).prop_map(|(scalars, lists, others)| {
        let (name, id, small, ratio, single, far, letter) = scalars;
        let (tags, by_name, by_number, by_pair, kinds) = lists;
        let (nested, done, (secs, nanos), (ip, is_v6, port)) = others;
        let from = match is_v6 {
            true => IpAddr::from(ip),
            false => IpAddr::V4(Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3])),
        };
        Record {
            name,
            id,
            small,
            ratio,
            single,
            far,
            letter,
            tags,
            by_name,
            by_number,
            by_pair,
            kinds,
            nested: nested.map(Newtype),
            done: done.map(|(n, text)| Pair(n.into(), text)).map_err(|()| Marker),
            lasts: Duration::new(secs, nanos % 1_000_000_000),
            from,
            to: SocketAddr::new(from, port),
            children: Vec::new(),
        }
    });
    leaf.prop_recursive(2, 3, 1, |inner| {
        (inner.clone(), inner).prop_map(|(mut outer, inner)| {
            outer.children.push(inner);
            outer
        })
    })
}

/// JSON as serde_json has it, with the one difference: keys that are no strings are a list of pairs.
fn json_of(record: &Record) -> Value {
    let mut pairs = Vec::new();
    for ((number, is), ()) in &record.by_pair {
        pairs.push(json!([[number, is], null]));
    }
    let children = record.children.iter().map(json_of).collect();
    let plain = Record {
        by_pair: BTreeMap::new(),
        children: Vec::new(),
        ..record.clone()
    };
    // Through text: a value would hold an `f32` as the nearest `f64`.
    let mut json: Value = serde_json::from_str(&serde_json::to_string(&plain).unwrap()).unwrap();
    json["by_pair"] = Value::Array(pairs);
    json["children"] = Value::Array(children);
    json
}

fn there_and_back(text: &str, json: &Value, bytes: &[u8]) {
    let codec = Codec::parse(text).unwrap_or_else(|bad| panic!("{bad:?} of {text}"));
    assert_eq!(
        encode(&codec, json).unwrap_or_else(|why| panic!("{why} of {json}")),
        bytes,
        "{json}"
    );
    let back = decode(&codec, bytes).unwrap().unwrap_or("null".into());
    assert_eq!(&serde_json::from_str::<Value>(&back).unwrap(), json);
    // What there is too little or too much of is no value.
    if let Some((_, shorter)) = bytes.split_last() {
        let _ = decode(&codec, shorter);
    }
    if !text.starts_with('[') && !text.starts_with("raw") {
        assert_eq!(decode(&codec, &[bytes, &[0]].concat()), Err(NotOfType));
    }
}

fn fixed<C, T: for<'a> Payload<'a, C, Source = T> + Serialize>(value: &T) {
    let mut bytes = vec![0; T::bound(value)];
    let len = T::encode(value, &mut bytes).unwrap();
    bytes.truncate(len);
    let json = serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap();
    there_and_back(T::TEXT.as_str(), &json, &bytes);
}

fn bytes_of<T: for<'a> Payload<'a, Zerocopy, Source = T>>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::bound(value)];
    T::encode(value, &mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_is_what_serde_and_postcard_write(record in record()) {
        let text = format!("postcard {}", <Record as Shape>::TEXT.as_str());
        there_and_back(&text, &json_of(&record), &postcard::to_allocvec(&record).unwrap());
    }

    #[test]
    fn json_is_what_fixed_layouts_are(
        (x, at, tag, is_left) in (any::<f64>(), any::<[i32; 4]>(), any::<[u8; 3]>(), any::<bool>()),
        tuple in any::<(u8, Option<(i64, char)>, bool)>(),
        list in prop::collection::vec(any::<u16>(), 0..5),
    ) {
        let side = if is_left { Side::Left } else { Side::Right };
        let point = Point { x, at, tag, side, end: 7 };
        let json = json!({"x": x, "at": at, "tag": tag, "side": format!("{side:?}"), "end": 7});
        let text = <Point as Payload<'_, Zerocopy>>::TEXT;
        there_and_back(text.as_str(), &json, &bytes_of(&point));
        fixed::<Fixed, _>(&tuple);
        fixed::<Fixed, _>(&list);
        fixed::<Fixed, _>(&(list.clone(), Some(tuple.2)));
        let in_place = list.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
        there_and_back(<&[u16] as Payload<'_, InPlace>>::TEXT.as_str(), &json!(list), &in_place);
    }

    #[test]
    fn any_answer_is_a_value_or_not(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let types = [<Record as Shape>::TEXT, <Kind as Shape>::TEXT, <Vec<()> as Shape>::TEXT];
        for text in types {
            let codec = Codec::parse(&format!("postcard {}", text.as_str())).unwrap();
            let _ = decode(&codec, &bytes);
        }
        for text in ["[struct P{0:a:u8,2:b:u16}[4,2]]", "Vec<u64>", "(Option<char>,enum E:i16{A=-1}[2,2])", "raw str"] {
            let _ = decode(&Codec::parse(text).unwrap(), &bytes);
        }
    }

    #[test]
    fn any_text_is_a_type_or_not(text in "[\\[\\](){}<>^,;:=0-9a-z ]{0,40}") {
        for prefix in ["", "postcard ", "parts(", "struct A{", "enum A:u8{"] {
            if let Ok(codec) = Codec::parse(&format!("{prefix}{text}")) {
                let _ = example(&codec);
                let _ = decode(&codec, b"\x01\x02\x03");
            }
        }
    }
}

#[test]
fn parts_lie_at_their_alignments() {
    type Row<'a> = (u8, &'a str, &'a [f64], (u16, Option<u32>), &'a u128, f64);
    type OfRow = Parts<(Copied, Borrowed, Borrowed, Copied, Borrowed, Copied)>;
    let row: Row<'_> = (7, "abc", &[1.5, -2.0], (3, Some(4)), &9, 0.5);
    let mut bytes = vec![0; <Row<'_> as Payload<'_, OfRow>>::bound(&row)];
    <Row<'_> as Payload<'_, OfRow>>::encode(&row, &mut bytes).unwrap();
    let codec = Codec::parse(<Row<'_> as Payload<'_, OfRow>>::TEXT.as_str()).unwrap();
    assert_eq!(
        encode(&codec, &json!([7, "abc", [1.5, -2.0], [3, 4], 9, 0.5])),
        Ok(bytes)
    );
}

#[test]
fn values_without_a_twin_in_json() {
    let there = |text: &str, json: Value| encode(&Codec::parse(text).unwrap(), &json).unwrap();
    assert_eq!(there("raw bytes", json!("text")), b"text");
    assert_eq!(there("raw bytes", json!({"hex": "00Ff"})), [0, 255]);
    assert_eq!(there("raw bytes", json!([0, 255])), [0, 255]);
    assert_eq!(there("postcard bytes", json!("ab")), b"\x02ab");
    assert_eq!(there("postcard [u8]", json!({"hex": "0102"})), [2, 1, 2]);
    assert_eq!(there("Vec<u8>", json!("a")), [1, 0, 0, 0, 0, 0, 0, 0, b'a']);
    assert_eq!(there("[u8;2]", json!("ab")), b"ab");
    assert_eq!(there("f64", json!("NaN"))[6..], [0xf8, 0x7f]);
    assert_eq!(
        there("u128", json!("340282366920938463463374607431768211455")),
        [255; 16]
    );
    assert_eq!(
        there("postcard struct A{a:Option<u8>,b:u8}", json!({"b": 7})),
        [0, 7]
    );
    assert_eq!(there("struct M{0:0:u32}[4,4]", json!(3)), bytes_of(&Meters(3)));

    let back = |text: &str, bytes: &[u8]| decode(&Codec::parse(text).unwrap(), bytes).unwrap();
    assert_eq!(back("raw bytes", b"a\n").as_deref(), Some(r#""a\n""#));
    assert_eq!(back("raw bytes", &[0, 255]).as_deref(), Some("[0,255]"));
    assert_eq!(back("raw bytes", b""), None);
    assert_eq!(back("()", b""), None);
    assert_eq!(
        back("f32", &f32::NEG_INFINITY.to_le_bytes()).as_deref(),
        Some("\"-inf\"")
    );
    assert_eq!(
        back("i128", &i128::MIN.to_le_bytes()).as_deref(),
        Some("\"-170141183460469231731687303715884105728\"")
    );
}

#[test]
fn errors_say_where_and_what() {
    let text = format!("postcard {}", <Kind as Shape>::TEXT.as_str());
    let wrong = |text: &str, json: Value| {
        encode(&Codec::parse(text).unwrap(), &json)
            .unwrap_err()
            .to_string()
    };
    let nested = "postcard struct Query{limit:u8,parts:[struct Part{name:str,ids:{str:[u16]}}]}";
    assert_eq!(
        wrong(
            nested,
            json!({"limit": 1, "parts": [{"name": "a", "ids": {"x y": [1, 70_000]}}]})
        ),
        "at `.parts[0].ids[\"x y\"][1]`: expected an integer from 0 to 65535 (u16), found 70000"
    );
    for (json, expected) in [
        (
            json!({"limit": "x", "parts": []}),
            "at `.limit`: expected an integer from 0 to 255 (u8), found the string \"x\"",
        ),
        (
            json!({"limit": 1}),
            "at `.`: expected an object with `limit`, `parts` (struct Query), found an object without `parts`",
        ),
        (
            json!({"limit": 1, "parts": [], "x": 1}),
            "at `.`: expected an object with `limit`, `parts` (struct Query), found an object with `x`",
        ),
        (
            json!({"limit": 1, "parts": {}}),
            "at `.parts`: expected a list, each an object with `name`, `ids` (struct Part), found an object",
        ),
    ] {
        assert_eq!(wrong(nested, json), expected);
    }
    assert!(wrong(&text, json!("Other")).contains("expected one of `None`, `Named`"));
    assert!(wrong(&text, json!("Range")).contains("{\"Range\": ..}"));
    assert_eq!(
        wrong(&text, json!({"Range": [1, "a"]})),
        "at `.Range[1]`: expected an integer from -2147483648 to 2147483647 (i32), found the string \"a\""
    );
    assert!(wrong("postcard record/1", json!(1)).contains("`record/1`, which states no more than its name"));
    assert!(wrong("enum Side:u8{Left=1}[1,1]", json!("Up")).contains("one of `Left`, found `Up`"));
}

/// An image states any type, and its answer any count.
#[test]
fn sizes_of_a_text_allocate_no_more_than_a_payload_may_have() {
    const HUGE: u64 = 99_999_999_994;
    let text = |size| format!("[struct P{{0:a:u8,2:b:u16}}[{size},2]]");
    let codec = Codec::parse(&text(HUGE)).unwrap();
    let json = json!([{"a": 1, "b": 2}]);
    let error = encode(&codec, &json).unwrap_err().to_string();
    assert!(
        error.contains("at `[0]`: expected at most 67108864 bytes, found 99999999994 with"),
        "{error}"
    );
    assert_eq!(example(&codec), None);
    let largest = Codec::parse(&text(64 << 20)).unwrap();
    assert_eq!(encode(&largest, &json).unwrap().len(), 64 << 20);
    // Each is small enough, but not all of them.
    let many = encode(&largest, &json!([{"a": 1, "b": 2}, {"a": 1, "b": 2}]));
    assert!(many.unwrap_err().to_string().starts_with("at `[1]`"));
    let side = Codec::parse(&format!("enum Side:u8{{Left=1}}[{HUGE},1]")).unwrap();
    assert!(encode(&side, &json!("Left")).is_err());

    // Elements without bytes.
    for (text, answer) in [
        ("postcard [();100000]", &[][..]),
        ("postcard [[[();50000];50000];50000]", &[]),
        ("[();100000]", &[]),
        ("postcard [[()]]", &[2, 0xff, 0xff, 3, 0xff, 0xff, 3]),
        ("postcard {():()}", &[0xff, 0xff, 0xff, 1]),
    ] {
        let codec = Codec::parse(text).unwrap_or_else(|bad| panic!("{text}: {bad:?}"));
        assert_eq!(decode(&codec, answer), Err(NotOfType), "{text}");
    }
    let some = Codec::parse("postcard [();3]").unwrap();
    assert_eq!(decode(&some, &[]), Ok(Some("[null,null,null]".to_owned())));
}

/// What errors propose is a value.
#[test]
fn examples_are_values() {
    fn check(text: &str) {
        let codec = Codec::parse(text).unwrap();
        let example = example(&codec).unwrap_or_else(|| panic!("no example of {text}"));
        let json = serde_json::from_str(&example).unwrap();
        assert!(encode(&codec, &json).is_ok(), "{example} of {text}");
    }
    check(&format!("postcard {}", <Record as Shape>::TEXT.as_str()));
    check(&format!("postcard {}", <Kind as Shape>::TEXT.as_str()));
    check(<Point as Payload<'_, Zerocopy>>::TEXT.as_str());
    for text in [
        "u64",
        "raw bytes",
        "parts(str,[f64])",
        "(u8,Option<f64>,Vec<u16>)",
        "postcard SocketAddr",
        "()",
    ] {
        check(text);
    }
    assert_eq!(
        example(&Codec::parse("struct es").unwrap()),
        None,
        "it has no layout"
    );
}

/// Two codecs have one text only if they have the same bytes.
#[test]
fn a_slice_in_place_is_not_a_vec() {
    fn text<'a, C, T: Payload<'a, C>>() -> String {
        T::TEXT.as_str().to_owned()
    }
    assert_ne!(text::<InPlace, &[u64]>(), text::<Fixed, Vec<u64>>());
}

/// An ifunc in Rust has no `payload_init` that its author knows.
#[test]
fn raw_bytes_that_are_no_payload_are_said_to_be_none() {
    let refused = |payload: Option<&str>| {
        let callee = Callee {
            name: "filter".into(),
            path: "filter.so".into(),
            payload: payload.map(Into::into),
            answer: None,
            replies: false,
        };
        let error = ifunc_rt::Error::PayloadInit {
            ifunc: "filter".into(),
            code: 1,
        };
        callee.failed(&error).to_string()
    };
    assert_eq!(
        refused(Some("postcard u64")),
        "the bytes are no payload of `filter`; nothing was sent\n\
         help: its type is `postcard u64`; without `--raw`, a payload is JSON"
    );
    assert!(refused(None).contains("`filter_payload_init` refused"), "in C");
}
