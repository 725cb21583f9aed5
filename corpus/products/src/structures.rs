//! Data structures and searches.

use alloc::vec::Vec;

use aho_corasick::AhoCorasick;
use bitvec::prelude::{BitVec, Lsb0};
use corpus_case::{Disorder, Put, World, words};
use ifunc::prelude::*;
use petgraph::graph::DiGraph;
use regex::bytes::Regex;
use roaring::RoaringBitmap;
use rstar::RTree;

/// Compressed sets.
#[ifunc]
pub fn compressed_sets(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let a: RoaringBitmap = (0..3000)
        .map(|n| n * 7)
        .chain(words(input).map(|word| word as u32))
        .collect();
    let b: RoaringBitmap = Disorder::new(world.seed)
        .take(3000)
        .map(|word| word as u32 % 20_000)
        .collect();
    for set in [&a & &b, &a | &b, &a - &b] {
        out.put(set.len());
        out.put(set.rank(10_000));
        out.put(set.iter().fold(0, |hash: u32, n| hash.rotate_left(5) ^ n));
    }
    out
}

/// Graphs: shortest paths, and an order of tasks.
#[ifunc]
pub fn graphs(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut graph = DiGraph::<(), u64>::new();
    let nodes: Vec<_> = (0..20).map(|_| graph.add_node(())).collect();
    let ends = Disorder::new(world.seed ^ input.len() as u64).map(|word| (word % 20, word >> 32 & 0xff));
    for (n, (end, cost)) in ends.take(60).enumerate() {
        graph.add_edge(nodes[n % 20], nodes[end as usize], cost);
    }
    let costs = petgraph::algo::dijkstra(&graph, nodes[0], None, |edge| *edge.weight());
    for node in &nodes {
        out.put(costs.get(node).copied());
    }
    out.put(petgraph::algo::is_cyclic_directed(&graph));
    out.put(petgraph::algo::tarjan_scc(&graph).len());
    out
}

/// Single bits.
#[ifunc]
pub fn single_bits(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bits = BitVec::<u8, Lsb0>::from_slice(input);
    bits.extend((0..64).map(|n| world.seed >> n & 1 == 1));
    out.put(bits.count_ones());
    out.put(bits.iter_ones().fold(0, usize::wrapping_add));
    bits.rotate_left(3);
    bits.push(true);
    out.put(bits.into_vec());
    out
}

/// A spatial index.
#[ifunc]
pub fn spatial_index(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let point = |word: u64| [(word & 0xffff) as f64, (word >> 16 & 0xffff) as f64];
    let tree = RTree::bulk_load(Disorder::new(world.seed).take(200).map(point).collect());
    for word in words(input).take(20).chain([world.seed]) {
        if let Some([x, y]) = tree.nearest_neighbor(&point(word)) {
            out.put((*x, *y));
        }
        let within = tree.locate_within_distance(point(word), 1e8);
        out.put(within.count());
    }
    out
}

/// Many words at once, and regular expressions.
#[ifunc]
pub fn searches(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let input = &input[..input.len().min(5000)];
    if let Ok(words) = AhoCorasick::new(["the", "fox", "he", "ox", "\0"]) {
        for found in words.find_iter(input).take(50) {
            out.put(found.pattern().as_usize());
            out.put(found.start());
        }
    }
    if let Ok(regex) = Regex::new(r"(?P<name>\w+)\s*=\s*(\d+)") {
        for text in [&b"a = 1, bc=23"[..], input] {
            for captures in regex.captures_iter(text).take(50) {
                out.put(captures.name("name").map(|name| name.start()));
            }
        }
    }
    out
}

/// Events and spans, for which the target has no subscriber.
#[ifunc]
pub fn events(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let span = tracing::info_span!("case", len = input.len());
    let _entered = span.enter();
    tracing::info!(seed = world.seed, "an event");
    out.put(span.is_disabled());
    out.put(tracing::enabled!(tracing::Level::ERROR));
    out
}

corpus_case::cases! {
    compressed_sets: "roaring";
    graphs: "petgraph";
    single_bits: "bitvec";
    spatial_index: "rstar";
    searches: "aho-corasick", "regex";
    events: "tracing";
}
