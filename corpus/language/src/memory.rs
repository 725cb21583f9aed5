//! Memory: copying, moving, filling, comparing, sorting.

use alloc::vec;
use alloc::vec::Vec;

use corpus_case::{Disorder, Put, World, words};
use ifunc::prelude::*;

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Copies of all small sizes and some large ones, unaligned, overlapping in both directions.
#[ifunc]
pub fn copies(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut buffer = vec![0_u8; 1 << 18];
    for (place, byte) in buffer.iter_mut().zip(input.iter().cycle()) {
        *place = *byte;
    }
    let shift = input.len() % 7;
    for len in (0..70).chain([127, 128, 1000, 4097, 65_535, 100_000]) {
        let from = 100 + shift;
        buffer.copy_within(from..from + len, from + 3);
        buffer.copy_within(from + 5..from + 5 + len, from);
        let (left, right) = buffer.split_at_mut(1 << 17);
        right[shift..shift + len].copy_from_slice(&left[9..9 + len]);
        if len < 80 || len % 2 == 1 {
            out.put(digest(&buffer[..from + len + 64]));
        }
    }
    out.put(digest(&buffer));
    world.notes[..input.len().min(300)].copy_from_slice(&input[..input.len().min(300)]);
    world.written = input.len().min(300) as u64;
    out
}

/// Fills and comparisons of all small sizes and some large ones.
#[ifunc]
pub fn fills_and_compares(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut buffer = vec![world.seed as u8; 70_000];
    for (index, len) in (0..70).chain([255, 256, 4096, 65_537]).enumerate() {
        let with = input.get(index).copied().unwrap_or(0xa5);
        buffer[index..index + len].fill(with);
        let other = vec![with; len];
        out.put(buffer[index..index + len] == other[..]);
        out.put(buffer[..len].cmp(&other) as i8);
        out.put(other.as_slice() < input);
        if len > 0 {
            buffer[index + len / 2] ^= 1;
            out.put(buffer[index..index + len] == other[..]);
            out.put(buffer[index..index + len].cmp(&other) as i8);
        }
    }
    out.put(digest(&buffer));
    out
}

/// Sorting, searching, selection and rotation.
#[ifunc]
pub fn sorting(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let numbers: Vec<u64> = words(input).chain(Disorder::new(world.seed).take(300)).collect();
    let mut sorted = numbers.clone();
    sorted.sort();
    out.put(digest(
        &sorted.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>(),
    ));
    let mut by_key = numbers.clone();
    by_key.sort_by_key(|number| core::cmp::Reverse(number % 100));
    out.put(&by_key[..40.min(by_key.len())]);
    let mut unstable = numbers.clone();
    unstable.sort_unstable_by(|a, b| b.cmp(a));
    out.put(unstable.iter().rev().eq(&sorted));
    for wanted in [numbers[0], 1, u64::MAX] {
        let (Ok(place) | Err(place)) = sorted.binary_search(&wanted);
        out.put(place);
    }
    out.put(sorted.partition_point(|number| *number < 1 << 63));
    let (_, median, _) = unstable.select_nth_unstable(numbers.len() / 2);
    out.put(*median);
    sorted.dedup_by_key(|number| *number >> 60);
    sorted.rotate_left(1);
    sorted.retain(|number| number % 3 != 0);
    out.put(sorted);
    let mut strings: Vec<_> = corpus_case::text(input)
        .split(' ')
        .map(alloc::string::String::from)
        .collect();
    strings.sort();
    strings.dedup();
    out.put(strings.len());
    out.put(&strings[..strings.len().min(50)]);
    out.truncate(60_000);
    out
}

/// Slices: splitting, joining, windows, swaps.
#[ifunc]
pub fn slices(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let short = &input[..input.len().min(2000)];
    out.put(
        short
            .chunks_exact(3)
            .map(|c| u32::from(c[0]) * u32::from(c[2]))
            .sum::<u32>(),
    );
    out.put(short.rchunks(5).map(digest).fold(0, u64::wrapping_add));
    out.put(short.windows(4).filter(|w| w[0] < w[3]).count());
    out.put(
        short
            .split(|byte| *byte == b' ')
            .map(<[u8]>::len)
            .collect::<Vec<_>>(),
    );
    out.put(short.iter().rposition(|byte| byte.is_ascii_digit()));
    out.put(short.first_chunk::<4>().map(|c| u32::from_le_bytes(*c)));
    out.put(short.strip_prefix(b"a").map(<[u8]>::len));
    out.put([short, b"-", short].concat().len());
    let mut reversed = short.to_vec();
    reversed.reverse();
    let half = reversed.len() / 2;
    let (left, right) = reversed.split_at_mut(half);
    left.swap_with_slice(&mut right[..half]);
    out.put(digest(&reversed));
    out.put(short.iter().copied().min());
    out.put(short.is_sorted());
    // SAFETY: every four bytes are a number.
    let (before, middle, after) = unsafe { short.align_to::<u32>() };
    out.put(before.len() + middle.len() * 4 + after.len());
    out.put(short.escape_ascii().collect::<Vec<u8>>());
    out
}

corpus_case::cases! {
    copies: "memcpy and memmove, small and large";
    fills_and_compares: "memset and memcmp, small and large";
    sorting: "sorting and searching", "strings sorted";
    slices: "slices";
}
