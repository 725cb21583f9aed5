//! Serialisation formats.

use alloc::string::String;
use alloc::vec::Vec;

use corpus_case::{Put, World, text, words};
use ifunc::prelude::*;
use prost::Message;
use serde::{Deserialize, Serialize};

/// A row of a table, for each format.
#[derive(Clone, PartialEq, Message)]
pub struct Reading {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(double, repeated, tag = "2")]
    values: Vec<f64>,
    #[prost(uint64, optional, tag = "3")]
    at: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct Row {
    name: String,
    values: Vec<u64>,
    ratio: Option<f64>,
}

fn row(input: &[u8], world: &World) -> Row {
    Row {
        name: text(input).chars().take(40).collect(),
        values: words(input).take(20).chain([world.seed]).collect(),
        ratio: input.first().map(|byte| f64::from(*byte) / 4.0),
    }
}

/// CBOR, by serde.
#[ifunc]
pub fn cbor_by_serde(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let row = row(input, world);
    let mut bytes = Vec::new();
    out.put(ciborium::into_writer(&row, &mut bytes).is_ok());
    let back: Result<Row, _> = ciborium::from_reader(&bytes[..]);
    out.put(back.is_ok_and(|back| back == row));
    out.put(bytes);
    let any: Result<ciborium::Value, _> = ciborium::from_reader(input);
    out.put(any.is_ok());
    out
}

/// CBOR, item by item.
#[ifunc]
pub fn cbor_by_items(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let row = row(input, world);
    let mut bytes = Vec::new();
    let mut encoder = minicbor::Encoder::new(&mut bytes);
    let written = encoder
        .array(2)
        .and_then(|encoder| encoder.str(&row.name))
        .and_then(|encoder| encoder.u64(world.seed));
    out.put(written.is_ok());
    let mut decoder = minicbor::Decoder::new(&bytes);
    out.put(decoder.array().ok().flatten().unwrap_or_default());
    out.put(decoder.str().is_ok_and(|name| name == row.name));
    out.put(decoder.u64().unwrap_or_default());
    out.put(minicbor::Decoder::new(input).skip().is_ok());
    out
}

/// Protocol buffers.
#[ifunc]
pub fn protocol_buffers(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let row = row(input, world);
    let reading = Reading {
        name: row.name,
        values: row.values.iter().map(|value| *value as f64).collect(),
        at: Some(world.seed),
    };
    let bytes = reading.encode_to_vec();
    out.put(Reading::decode(&bytes[..]).is_ok_and(|back| back == reading));
    out.put(bytes);
    out.put(Reading::decode(input).is_ok());
    out
}

/// Values that are read in place.
#[ifunc]
pub fn archives(input: &[u8], world: &mut World) -> Vec<u8> {
    use rkyv::rancor::Failure;

    let mut out = Vec::new();
    let row = row(input, world);
    let Ok(bytes) = rkyv::to_bytes::<Failure>(&row) else {
        return out;
    };
    match rkyv::access::<ArchivedRow, Failure>(&bytes) {
        Ok(back) => {
            out.put(back.name.len());
            out.put(
                back.values
                    .iter()
                    .map(|value| value.to_native())
                    .fold(0, u64::wrapping_add),
            );
        }
        Err(_) => out.put(false),
    }
    let mut aligned = rkyv::util::AlignedVec::<16>::new();
    aligned.extend_from_slice(input);
    out.put(rkyv::access::<ArchivedRow, Failure>(&aligned).is_ok());
    out.put(bytes.to_vec());
    out
}

corpus_case::cases! {
    cbor_by_serde: "ciborium";
    cbor_by_items: "minicbor";
    protocol_buffers: "prost";
    archives: "rkyv";
}
