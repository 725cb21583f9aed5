//! Static data with pointers to static data.

use alloc::vec::Vec;

use corpus_case::{Put, World, words};
use ifunc::prelude::*;

static NAMES: [&str; 48] = [
    "hydrogen",
    "helium",
    "lithium",
    "beryllium",
    "boron",
    "carbon",
    "nitrogen",
    "oxygen",
    "fluorine",
    "neon",
    "sodium",
    "magnesium",
    "aluminium",
    "silicon",
    "phosphorus",
    "sulfur",
    "chlorine",
    "argon",
    "potassium",
    "calcium",
    "scandium",
    "titanium",
    "vanadium",
    "chromium",
    "manganese",
    "iron",
    "cobalt",
    "nickel",
    "copper",
    "zinc",
    "gallium",
    "germanium",
    "arsenic",
    "selenium",
    "bromine",
    "krypton",
    "rubidium",
    "strontium",
    "yttrium",
    "zirconium",
    "niobium",
    "molybdenum",
    "technetium",
    "ruthenium",
    "rhodium",
    "palladium",
    "silver",
    "",
];

struct Node {
    value: u64,
    next: Option<&'static Node>,
    children: &'static [&'static Node],
}

static LEAF: Node = Node {
    value: 3,
    next: None,
    children: &[],
};
static MIDDLE: Node = Node {
    value: 5,
    next: Some(&LEAF),
    children: &[&LEAF, &LEAF],
};
static ROOT: Node = Node {
    value: 7,
    next: Some(&MIDDLE),
    children: &[&MIDDLE, &LEAF, &MIDDLE],
};

fn sum(node: &Node, depth: u64) -> u64 {
    let below = node.children.iter().map(|child| sum(child, depth + 1));
    let below = below.fold(0_u64, u64::wrapping_add);
    let next = node.next.map_or(1, |next| sum(next, depth + 2));
    node.value
        .wrapping_mul(depth)
        .wrapping_add(below.wrapping_mul(31))
        .wrapping_add(next)
}

/// A large table of strings.
#[ifunc]
pub fn string_table(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).take(1000) {
        let name = NAMES[((word ^ world.seed) % 48) as usize];
        out.put(name);
    }
    let place = NAMES
        .iter()
        .position(|name| name.as_bytes().first() == input.first());
    out.put(place);
    out.put(NAMES.iter().map(|name| name.len()).sum::<usize>());
    out
}

/// Static data with pointers into static data.
#[ifunc]
pub fn static_pointers(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).chain([world.seed]) {
        let node = match word % 3 {
            0 => &ROOT,
            1 => &MIDDLE,
            _ => &LEAF,
        };
        out.put(sum(node, word));
    }
    out.put(core::ptr::eq(ROOT.children[1], MIDDLE.children[0]));
    out
}

corpus_case::cases! {
    string_table: "tables of &str";
    static_pointers: "statics that point to statics";
}
