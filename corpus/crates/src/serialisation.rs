//! Serialisation of values.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use corpus_case::{Put, World, text, words};
use ifunc::prelude::*;
use serde::{Deserialize, Serialize};
use zerocopy::byteorder::{BigEndian, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Serialize, Deserialize, Debug, PartialEq)]
enum Event<'a> {
    Opened,
    Read { name: &'a str, bytes: u64 },
    Ratio(f64, Option<i32>),
    Many(Vec<(u16, String)>),
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Log<'a> {
    id: u128,
    #[serde(borrow)]
    events: Vec<Event<'a>>,
    counts: BTreeMap<String, i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<char>,
}

fn log<'a>(input: &[u8], text: &'a str, seed: u64) -> Log<'a> {
    let words: Vec<u64> = words(input).take(40).collect();
    let events = words.iter().map(|word| match word % 4 {
        0 => Event::Opened,
        1 => Event::Read {
            name: text.split(' ').nth(*word as usize % 5).unwrap_or(""),
            bytes: *word,
        },
        2 => Event::Ratio(*word as f64 / 7.0, (word % 3 == 0).then_some(*word as i32)),
        _ => Event::Many(alloc::vec![(*word as u16, word.to_string()); 2]),
    });
    Log {
        id: u128::from(seed) << 40 | input.len() as u128,
        events: events.collect(),
        counts: words
            .iter()
            .map(|word| ((word % 10).to_string(), *word as i64))
            .collect(),
        note: text.chars().next().filter(|c| *c != ' '),
    }
}

/// serde with postcard: encoding, decoding, and rejection of malformed input.
#[ifunc]
pub fn serde_postcard(input: &[u8], world: &mut World) -> Vec<u8> {
    let text = text(input);
    let log = log(input, &text, world.seed);
    let mut out = postcard::to_allocvec(&log).unwrap();
    let back: Result<Log<'_>, _> = postcard::from_bytes(&out);
    let same = back.is_ok_and(|back| back.counts == log.counts && back.events.len() == log.events.len());
    out.put(same);
    match postcard::from_bytes::<Log<'_>>(input) {
        Ok(log) => out.put(alloc::format!("{log:?}")),
        Err(error) => out.put(error.to_string()),
    }
    out
}

/// serde with JSON: typed and untyped.
#[ifunc]
pub fn serde_json_values(input: &[u8], world: &mut World) -> Vec<u8> {
    let text = text(input);
    let mut out = serde_json::to_vec(&log(input, &text, world.seed)).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    out.put(serde_json::to_string_pretty(&value["events"]).unwrap());
    out.put(value["counts"].as_object().map(|counts| counts.len()));
    match serde_json::from_slice::<serde_json::Value>(input) {
        Ok(value) => out.put(value.to_string()),
        Err(error) => out.put(error.to_string()),
    }
    out.truncate(60_000);
    out
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: [u8; 2],
    length: U16<BigEndian>,
    number: U32<BigEndian>,
}

/// zerocopy: headers read in place and written back.
#[ifunc]
pub fn zerocopy_headers(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = input;
    while let Ok((header, after)) = Header::ref_from_prefix(rest) {
        let mut changed = *header;
        changed
            .number
            .set(header.number.get().wrapping_mul(world.seed as u32 | 1));
        changed.length = U16::new(header.length.get().rotate_left(3));
        out.extend_from_slice(changed.as_bytes());
        rest = after;
    }
    out.put(rest.len());
    out.put(<[U16<BigEndian>]>::ref_from_bytes(input).is_ok());
    out
}

#[derive(bytemuck::Pod, bytemuck::Zeroable, Clone, Copy)]
#[repr(C)]
struct Pixel {
    red: u16,
    green: u16,
    blue: u16,
    alpha: u16,
}

/// bytemuck: checked casts.
#[ifunc]
pub fn bytemuck_casts(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut pixels: Vec<Pixel> = bytemuck::pod_collect_to_vec(&input[..input.len() / 8 * 8]);
    for pixel in &mut pixels {
        core::mem::swap(&mut pixel.red, &mut pixel.blue);
        pixel.green = pixel.green.wrapping_add(pixel.alpha);
    }
    let mut out = bytemuck::cast_slice::<Pixel, u8>(&pixels).to_vec();
    // Their alignment varies, but one of two neighbours is unaligned.
    let cast =
        |from: usize| bytemuck::try_cast_slice::<u8, u16>(input.get(from..from + 4).unwrap_or(&[])).is_ok();
    out.put(input.len() > 5 && cast(0) && cast(1));
    out
}

corpus_case::cases! {
    serde_postcard: "serde", "postcard";
    serde_json_values: "serde_json";
    zerocopy_headers: "zerocopy";
    bytemuck_casts: "bytemuck";
}
