//! Panics of every kind. The driver also compares messages and locations.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;

use corpus_case::{Put, World, text, words};
use ifunc::prelude::*;

/// An index beyond the end, for inputs of most lengths.
#[ifunc]
pub fn panics_by_index(input: &[u8], world: &mut World) -> Vec<u8> {
    let table = [world.seed, 2, 3, 4];
    world.calls = 1;
    let chosen = table[input.len() % 9];
    let mut out = Vec::new();
    out.put(chosen);
    out.put(&input[3..(input.len() / 2).max(2)][..2]);
    out
}

/// Arithmetic checks in every profile: division by zero, and its overflow.
#[ifunc]
pub fn panics_by_arithmetic(input: &[u8], _world: &mut World) -> Vec<u8> {
    let by = input.len() as i64 % 3 - 1;
    let mut out = Vec::new();
    let from = if input.len() > 1000 { i64::MIN } else { 1000 };
    out.put(from / by);
    out.put(from % by);
    out
}

/// `unwrap`, `expect`, `unreachable!`, `assert_eq!`, and formatted messages.
#[ifunc]
pub fn panics_with_messages(input: &[u8], world: &mut World) -> Vec<u8> {
    let text: String = text(input).chars().take(12).collect();
    let out = words(input).map(|word| word as u8).collect();
    match input.len() % 8 {
        0 => assert_eq!(
            world.seed,
            input.len() as u64,
            "after {} words",
            words(input).count()
        ),
        1 => panic!("the input is `{text}`, of {} bytes", input.len()),
        2 => drop(text.parse::<i32>().unwrap()),
        3 => drop(input.iter().find(|byte| **byte == 1).expect("there is a 1")),
        4 => unreachable!("length {}", input.len()),
        5 => drop(
            RefCell::new(text)
                .try_borrow_mut()
                .map(|mut text| text.insert(usize::MAX, 'x')),
        ),
        6 => panic!("a message without arguments"),
        _ => {}
    }
    out
}

/// Strings split inside a character, invalid UTF-8, cells borrowed twice, capacity overflow.
#[ifunc]
pub fn panics_of_the_library(input: &[u8], _world: &mut World) -> Vec<u8> {
    let cell = RefCell::new(Vec::from(&input[..input.len().min(4)]));
    let mut out = Vec::new();
    match input.len() % 5 {
        0 => out.put(&"é"[..1 + input.len() / 1000]),
        1 => {
            let _first = cell.borrow_mut();
            cell.borrow_mut().push(1);
        }
        2 => out = Vec::with_capacity(usize::MAX - input.len()),
        3 => out.put(
            core::str::from_utf8(&[0xff, input[0]])
                .map_err(|e| e.to_string())
                .unwrap(),
        ),
        _ => out.copy_from_slice(input),
    }
    out.put(cell.into_inner());
    out
}

/// A panic in a deep call, through closures and trait objects, with values that an unwind would drop.
#[ifunc]
pub fn panics_from_below(input: &[u8], world: &mut World) -> Vec<u8> {
    fn down(depth: usize, leaf: &dyn Fn(usize) -> u64) -> u64 {
        let held = alloc::vec![depth; 3];
        if depth == 0 {
            leaf(held.len())
        } else {
            down(depth - 1, leaf) + held[1] as u64
        }
    }
    let limit = world.seed % 100;
    let mut out = Vec::new();
    out.put(down(input.len() % 50, &|held| {
        assert!((input.len() as u64) < limit, "{held} held, {limit} allowed");
        limit
    }));
    out
}

corpus_case::cases! {
    panics_by_index: "panic: index out of bounds", "panic: slice range";
    panics_by_arithmetic: "panic: division by zero and overflow";
    panics_with_messages: "panic: unwrap, expect, assert_eq!, formatted messages";
    panics_of_the_library: "panic: RefCell, str boundary, capacity";
    panics_from_below: "panic: through closures and trait objects";
}
