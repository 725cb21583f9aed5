//! Host functions.

use alloc::vec::Vec;

use corpus_case::{Put, World, words};
use ifunc::prelude::*;

#[ifunc::import]
unsafe extern "C" {
    /// Mixes two numbers.
    safe fn host_mix(a: u64, b: u64) -> u64;
    /// Another function of the same type.
    safe fn host_spread(a: u64, b: u64) -> u64;
    /// Sum of a slice.
    safe fn host_sum(values: &[u64]) -> u64;
    /// Writes into a slice.
    safe fn host_fill(values: &mut [u8], with: u8);
    /// Returns the length of a text; an error if it is empty.
    safe fn host_measure(text: &str) -> Result<u64, i32>;
    /// Finds the index of a byte.
    safe fn host_find(bytes: &[u8], byte: u8) -> Option<u64>;
    /// Halves a float.
    safe fn host_halve(value: f64) -> f64;
    /// Returns the value, or seven for `None`.
    safe fn host_or_seven(value: Option<&u64>) -> u64;
    /// Changes the target's data.
    safe fn host_count(world: &mut World);
    /// Calls the function at this address, an `extern "C" fn(u64) -> u64`.
    fn host_call_back(function: usize, value: u64) -> u64;
}

/// Calls with every type that crosses.
#[ifunc]
pub fn import_calls(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let values: Vec<u64> = words(input).collect();
    out.put(host_sum(&values));
    let mut bytes = Vec::from(&input[..input.len().min(100)]);
    host_fill(&mut bytes, input.len() as u8);
    out.put(bytes);
    out.put(
        host_measure(&corpus_case::text(input))
            .map_err(i64::from)
            .map_or_else(|e| e, |n| n as i64),
    );
    out.put(host_find(input, b'e'));
    out.put(host_halve(values.len() as f64));
    out.put(host_or_seven(values.first()));
    out.put(host_or_seven(None));
    host_count(world);
    for value in values.iter().take(16) {
        out.put(host_mix(*value, world.seed));
    }
    out
}

type Mix = fn(u64, u64) -> u64;
static MIXES: [Mix; 3] = [host_mix, host_spread, u64::wrapping_add];

fn folded(values: impl Iterator<Item = u64>, by: Mix) -> u64 {
    values.fold(1, by)
}

/// Imports whose address is taken: passed on, and stored in a static table.
#[ifunc]
pub fn import_addresses(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let chosen: Mix = if input.len() % 2 == 0 {
        host_mix
    } else {
        host_spread
    };
    out.put(folded(words(input), chosen));
    for word in words(input).take(200) {
        out.put(MIXES[(word % 3) as usize](word, world.seed));
    }
    out
}

extern "C" fn called_back(value: u64) -> u64 {
    host_mix(value, value).wrapping_mul(3)
}

/// A function of the ifunc that the host calls, and that calls the host.
#[ifunc]
pub fn callbacks(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).take(64).chain([9]) {
        // SAFETY: `called_back` has this type and lives while the host calls it.
        out.put(unsafe { host_call_back(called_back as *const () as usize, word) });
    }
    out
}

/// An import in tail position: a tail call.
#[ifunc]
pub fn import_tail_calls(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).take(300) {
        out.put(ends(word, world.seed));
    }
    out
}

#[inline(never)]
fn ends(a: u64, b: u64) -> u64 {
    if a % 2 == 0 {
        host_mix(a, b)
    } else {
        host_spread(b, a)
    }
}

corpus_case::cases! {
    import_calls: "imports: called", "imports: slices, &str, Option<&T>, Result, Option, floats, target";
    import_addresses: "imports: address taken", "imports: in a static table";
    callbacks: "callback from the host into the ifunc";
    import_tail_calls: "imports: tail calls";
}
