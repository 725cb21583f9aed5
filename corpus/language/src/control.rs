//! Control flow.

use alloc::vec::Vec;

use corpus_case::{Put, World, words};
use ifunc::prelude::*;

/// A dense `match`: a jump table.
#[ifunc]
pub fn jump_table(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut state = world.seed;
    let mut out = Vec::new();
    for &byte in input {
        state = match byte & 31 {
            0 => state.wrapping_add(1),
            1 => state.wrapping_mul(3),
            2 => state ^ 0xff00_ff00,
            3 => state.rotate_left(5),
            4 => !state,
            5 => state.wrapping_sub(u64::from(byte)),
            6 => state.swap_bytes(),
            7 => state / 7,
            8 => state.reverse_bits(),
            9 => state >> 3,
            10 => state << 2,
            11 => {
                world.calls += 1;
                state
            }
            12 => state | 0x0f0f,
            13 => state & 0xffff_ffff_0fff,
            14 => state.wrapping_mul(state),
            15 => u64::from(state.count_ones()),
            16 => state.wrapping_add(0x1234_5678_9abc),
            17 => state % 1_000_003,
            18 => {
                out.put(state);
                state ^ 1
            }
            19 => state.leading_zeros().into(),
            _ => state.wrapping_mul(31).wrapping_add(byte.into()),
        };
    }
    out.truncate(50_000);
    out.put(state);
    out
}

/// A `match` over strings, many of equal length.
#[ifunc]
pub fn match_strings(input: &[u8], _world: &mut World) -> Vec<u8> {
    let text = corpus_case::text(input);
    let fixed = "north east south west up down left right in out begin end if else while for loop match break \
                 continue return yes no maybe nothing something else-where Привет 世界";
    let mut out = Vec::new();
    for word in fixed.split(' ').chain(text.split(' ').take(2000)) {
        out.put(match word {
            "north" | "up" => 1_u8,
            "south" | "down" => 2,
            "east" => 3,
            "west" => 4,
            "left" => 5,
            "right" => 6,
            "in" => 7,
            "out" => 8,
            "begin" => 9,
            "end" => 10,
            "if" | "while" | "for" | "loop" | "match" => 11,
            "break" | "continue" | "return" => 12,
            "yes" => 13,
            "no" => 14,
            "Привет" => 15,
            "世界" => 16,
            word if word.starts_with("else") => 17,
            "" => 18,
            _ => 0,
        });
    }
    out
}

fn ackermann(m: u64, n: u64) -> u64 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

fn is_even(n: u64) -> bool {
    n == 0 || is_odd(n - 1)
}

fn is_odd(n: u64) -> bool {
    n != 0 && is_even(n - 1)
}

fn permutations(items: &mut [u8], from: usize, out: &mut Vec<u8>) {
    if from + 1 >= items.len() {
        out.extend_from_slice(items);
        return;
    }
    for i in from..items.len() {
        items.swap(from, i);
        permutations(items, from + 1, out);
        items.swap(from, i);
    }
}

/// Functions that call themselves and each other.
#[ifunc]
pub fn recursion(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let n = input.len() as u64 + world.seed % 2;
    out.put(ackermann(2, n % 40));
    out.put(ackermann(3, n % 5));
    out.put(is_even(n % 5000));
    let mut items = Vec::from(&input[..input.len().min(6)]);
    permutations(&mut items, 0, &mut out);
    out
}

fn collatz(n: u64, steps: u64) -> u64 {
    match n {
        0 | 1 => steps,
        n if n % 2 == 0 => collatz(n / 2, steps + 1),
        n => collatz(n.wrapping_mul(3).wrapping_add(1) >> 1, steps + 2),
    }
}

#[inline(never)]
fn first(n: u64, sum: u64) -> u64 {
    if n == 0 { sum } else { second(n - 1, sum ^ n) }
}

#[inline(never)]
fn second(n: u64, sum: u64) -> u64 {
    if n == 0 {
        sum.rotate_left(1)
    } else {
        first(n - 1, sum.wrapping_add(n))
    }
}

/// Calls in tail position.
#[ifunc]
pub fn tail_calls(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).take(100) {
        out.put(collatz(word & 0xff_ffff, 0));
        out.put(first(word % 500, world.seed));
    }
    out
}

/// A frame of 72 KiB, every byte of it used.
#[ifunc]
pub fn big_frame(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut frame = [0_u8; 72 << 10];
    let mut at = world.seed as usize;
    for (index, byte) in input
        .iter()
        .cycle()
        .take(frame.len() * usize::from(!input.is_empty()))
        .enumerate()
    {
        at = (at * 31 + index) % frame.len();
        frame[at] = frame[at].wrapping_add(*byte).wrapping_add(1);
    }
    let mut out = Vec::new();
    for part in core::hint::black_box(&frame).chunks(512) {
        out.put(part.iter().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(257).wrapping_add((*byte).into())
        }));
    }
    out
}

/// Loops with labels, `let else`, early exits, `?`.
#[ifunc]
pub fn loops(input: &[u8], world: &mut World) -> Vec<u8> {
    fn digit(byte: u8) -> Option<u64> {
        let value = (byte as char).to_digit(10)?;
        Some(value.into())
    }
    let mut out = Vec::new();
    let mut primes = 0_u64;
    'candidates: for candidate in 2..input.len().min(2000) as u64 + 2 {
        for divisor in 2..candidate {
            if divisor * divisor > candidate {
                break;
            }
            if candidate % divisor == 0 {
                continue 'candidates;
            }
        }
        primes = primes.wrapping_mul(31).wrapping_add(candidate);
    }
    out.put(primes);
    for &byte in input {
        let Some(digit) = digit(byte) else { continue };
        world.calls = world.calls.wrapping_mul(10).wrapping_add(digit);
    }
    let mut rest = input;
    let found = loop {
        match rest {
            [] => break None,
            [b'\\' | b'"', next, ..] => break Some(*next),
            [_, tail @ ..] => rest = tail,
        }
    };
    out.put(found);
    out
}

corpus_case::cases! {
    jump_table: "match: jump table";
    match_strings: "match: strings";
    recursion: "recursion", "mutual recursion";
    tail_calls: "tail calls";
    big_frame: "a frame of 72 KiB";
    loops: "labels, let else, slice patterns";
}
