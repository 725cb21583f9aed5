//! Answers of any size.

use alloc::string::String;
use alloc::vec::Vec;

use ifunc::Onward;
use ifunc::prelude::*;

use crate::State;

/// A kibibyte of a long answer: the number of the kibibyte in every word.
fn kibibyte(number: usize) -> [u8; 1024] {
    let mut bytes = [0; 1024];
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&(number as u64).to_le_bytes());
    }
    bytes
}

/// Writes so many bytes as it makes them, or as many as it may; then no byte more.
#[ifunc]
pub fn t_write(len: u64, _state: &State, ctx: &mut Context) {
    let mut answer = ctx.answer_writer();
    let mut left = (len as usize).min(answer.remaining());
    let mut number = 0;
    while left > 0 {
        let part = left.min(1024);
        answer.write(&kibibyte(number)[..part]).expect("it fits");
        left -= part;
        number += 1;
    }
    if len as usize > answer.len() {
        assert!(answer.write(b"x").is_err(), "it is full");
    }
}

/// The same, whose size is known before it is made.
#[ifunc(codec = raw)]
pub fn t_fill(len: &[u8], _state: &State) -> Vec<u8> {
    let len = usize::try_from(u64::from_le_bytes(len.try_into().unwrap_or_default())).unwrap_or(0);
    let mut bytes = Vec::with_capacity(len + 1024);
    for number in 0..len.div_ceil(1024) {
        bytes.extend_from_slice(&kibibyte(number));
    }
    bytes.truncate(len);
    bytes
}

/// Lets another node answer: the payload is its number, and what `t_fill` takes.
#[ifunc(codec = raw)]
pub fn t_fill_there(payload: &[u8], _state: &State, ctx: &mut Context) -> Onward<Vec<u8>> {
    let (node, len) = payload.split_at(8);
    let node = u64::from_le_bytes(node.try_into().unwrap_or_default()) as u32;
    match ctx.forward::<t_fill>(node, len) {
        Ok(()) => Onward::Forwarded,
        Err(why) => panic!("to node {node}: {why}"),
    }
}

/// Answers a list by postcard, which finds out how long it is while it writes.
#[ifunc(codec = postcard)]
pub fn t_words(count: u32, _state: &State) -> Vec<String> {
    (0..count).map(|n| alloc::format!("word {n}")).collect()
}

/// Several parts, borrowed and copied from the payload, and an answer by another codec.
#[ifunc(answer = postcard)]
pub fn t_above(
    (limit, name, values, least): (f64, &str, &[f64], Option<f64>),
    _state: &State,
) -> Option<(String, u32)> {
    let limit = least.map_or(limit, |least| least.max(limit));
    let count = values.iter().filter(|value| **value > limit).count();
    (count > 0).then(|| (name.into(), count as u32))
}

/// Tuples, options and lists without a serialiser.
#[ifunc]
pub fn t_between((low, high, step): (f64, f64, Option<u16>), _state: &State) -> Vec<f64> {
    let step = f64::from(step.unwrap_or(1));
    let count = ((high - low) / step) as u32;
    (0..count).map(|n| low + step * f64::from(n)).collect()
}

/// Two random numbers, and the seconds since 1970, of the target's.
#[ifunc]
pub fn t_system(_: (), _state: &State) -> (u64, u64, u64) {
    let random = || {
        let mut bytes = [0; 8];
        ifunc::system::random(&mut bytes).expect("the system has started");
        u64::from_le_bytes(bytes)
    };
    (random(), random(), ifunc::system::unix_time().as_secs())
}
