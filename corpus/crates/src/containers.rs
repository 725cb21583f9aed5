//! Collections that `alloc` does not have.

use alloc::vec::Vec;

use corpus_case::{Disorder, Put, World, text, words};
use ifunc::prelude::*;

type Fixed = foldhash::fast::FixedState;

/// Swiss tables: SSE2 lookup, growth and shrinking.
#[ifunc]
pub fn hash_maps(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let text = text(input);
    let mut counts = hashbrown::HashMap::<&str, u64, Fixed>::with_hasher(Fixed::with_seed(world.seed));
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        *counts.entry(word).or_insert(0) += 1;
    }
    let mut sorted: Vec<_> = counts.iter().map(|(word, count)| (*word, *count)).collect();
    sorted.sort_unstable();
    sorted.truncate(500);
    out.put(sorted);
    let mut numbers: hashbrown::HashSet<u64, Fixed> = words(input)
        .chain(Disorder::new(3).take(300))
        .map(|w| w % 500)
        .collect();
    numbers.retain(|n| n % 3 != 0);
    numbers.remove(&1);
    numbers.shrink_to_fit();
    out.put(numbers.len());
    out.put(
        (0..500)
            .filter(|n| numbers.contains(n))
            .fold(0, |sum: u64, n| sum.wrapping_mul(3).wrapping_add(n)),
    );
    out.truncate(60_000);
    out
}

/// Maps with insertion order.
#[ifunc]
pub fn index_maps(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut map = indexmap::IndexMap::<u8, usize, Fixed>::with_hasher(Fixed::with_seed(world.seed));
    for (index, byte) in input.iter().enumerate() {
        *map.entry(*byte).or_insert(index) += 1;
    }
    map.swap_remove(&b'e');
    map.shift_remove(&b'a');
    for (key, value) in &map {
        out.put((*key, *value));
    }
    map.sort_unstable_by(|a, b, c, d| b.cmp(d).then(a.cmp(c)));
    out.put(map.get_index(0).map(|(key, value)| (*key, *value)));
    out.put(map.get_index_of(&0));
    out
}

/// Collections of fixed capacity, without an allocator: vectors, strings, queues, maps.
#[ifunc]
pub fn heapless_collections(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut vec = heapless::Vec::<u64, 20>::new();
    let mut queue = heapless::spsc::Queue::<u64, 8>::new();
    let mut map = heapless::index_map::FnvIndexMap::<u64, u64, 32>::new();
    let mut heap = heapless::BinaryHeap::<u64, heapless::binary_heap::Min, 16>::new();
    for word in words(input) {
        let full = vec.push(word).is_err();
        let old = map.insert(word % 64, word).ok().flatten();
        if queue.enqueue(word).is_err() {
            out.put(queue.dequeue());
        }
        if heap.push(word).is_err() {
            out.put(heap.pop());
        }
        if full {
            vec.swap_remove(word as usize % 20);
        }
        out.put(old);
    }
    let mut name = heapless::String::<40>::new();
    for c in text(input).chars() {
        if name.push(c).is_err() {
            break;
        }
    }
    out.put(name.as_str());
    out.put(vec.as_slice());
    out.truncate(60_000);
    out
}

/// Vectors with inline storage.
#[ifunc]
pub fn small_vectors(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut small = smallvec::SmallVec::<[u64; 4]>::new();
    let mut tiny = tinyvec::TinyVec::<[u64; 4]>::new();
    let mut array = arrayvec::ArrayVec::<u64, 12>::new();
    let mut name = arrayvec::ArrayString::<24>::new();
    for word in words(input).take(400) {
        small.insert(small.len() / 2, word);
        tiny.push(word ^ world.seed);
        if array.try_push(word).is_err() {
            array.remove(word as usize % 12);
        }
    }
    for c in text(input).chars() {
        if name.try_push(c).is_err() {
            break;
        }
    }
    small.dedup();
    out.put(small.spilled());
    out.put(small.as_slice());
    tiny.retain(|word| word % 2 == 0);
    out.put(tiny.as_slice());
    out.put(array.as_slice());
    out.put(name.as_str());
    out
}

/// Arenas, slabs and bit sets.
#[ifunc]
pub fn arenas(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let arena = bumpalo::Bump::new();
    let text = text(input);
    let mut kept = bumpalo::collections::Vec::new_in(&arena);
    for word in text.split(' ').take(300) {
        kept.push(arena.alloc_str(word));
    }
    kept.sort_unstable();
    out.put(kept.iter().take(30).map(|word| word.len()).collect::<Vec<_>>());
    let mut slab = slab::Slab::new();
    let mut bits = fixedbitset::FixedBitSet::with_capacity(1000);
    for word in words(input) {
        let key = slab.insert(word);
        if word % 3 == 0 {
            out.put(slab.try_remove(key / 2));
        }
        bits.toggle((word % 1000) as usize);
    }
    out.put(slab.len());
    out.put(slab.iter().fold(0_u64, |sum, (key, word)| {
        sum.wrapping_mul(31).wrapping_add(key as u64 ^ word)
    }));
    out.put(bits.ones().map(|bit| bit as u16).collect::<Vec<_>>());
    bits.insert_range(10..90);
    out.put(bits.count_ones(5..500));
    out.truncate(60_000);
    out
}

corpus_case::cases! {
    hash_maps: "hashbrown";
    index_maps: "indexmap";
    heapless_collections: "heapless";
    small_vectors: "smallvec", "tinyvec", "arrayvec";
    arenas: "bumpalo", "slab", "fixedbitset";
}
