//! What a peer with a valid key sends inside of its records.

use ifunc_rt::fuzzing::{greeting, stream};

/// An odd first byte: the first message of the stream; an even one: its frames and credits.
pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((first, rest)) if first % 2 == 1 => greeting(rest),
        Some((_, rest)) => stream(rest),
        None => {}
    }
}
