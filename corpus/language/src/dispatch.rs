//! Dynamic dispatch.

use alloc::boxed::Box;
use alloc::vec::Vec;

use corpus_case::{Put, World, words};
use ifunc::prelude::*;

trait Shape {
    fn area(&self) -> u64;
    fn name(&self) -> &'static str {
        "some shape"
    }
}

struct Square(u64);
struct Rectangle {
    width: u64,
    height: u64,
}
struct Nothing;

impl Shape for Square {
    fn area(&self) -> u64 {
        self.0.wrapping_mul(self.0)
    }
}

impl Shape for Rectangle {
    fn area(&self) -> u64 {
        self.width.wrapping_mul(self.height)
    }
    fn name(&self) -> &'static str {
        "rectangle"
    }
}

impl Shape for Nothing {
    fn area(&self) -> u64 {
        0
    }
}

impl Drop for Rectangle {
    fn drop(&mut self) {
        DROPPED.fetch_add(self.width, core::sync::atomic::Ordering::Relaxed);
    }
}

static DROPPED: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

fn shape(number: u64, next: u64) -> Box<dyn Shape> {
    match number % 3 {
        0 => Box::new(Square(next)),
        1 => Box::new(Rectangle {
            width: number,
            height: next,
        }),
        _ => Box::new(Nothing),
    }
}

/// Trait objects on the heap, default methods, and drops through the vtable.
#[ifunc]
pub fn dyn_trait(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    DROPPED.store(0, core::sync::atomic::Ordering::Relaxed);
    let shapes: Vec<Box<dyn Shape>> = words(input).map(|word| shape(word, world.seed)).collect();
    for shape in &shapes {
        out.put(shape.area());
        out.put(shape.name());
    }
    drop(shapes);
    out.put(DROPPED.load(core::sync::atomic::Ordering::Relaxed));
    out.truncate(60_000);
    out
}

trait Step: Sync {
    fn step(&self, value: u64) -> u64;
}

struct Add(u64);
struct Xor(u64);
struct Turn;

impl Step for Add {
    fn step(&self, value: u64) -> u64 {
        value.wrapping_add(self.0)
    }
}
impl Step for Xor {
    fn step(&self, value: u64) -> u64 {
        value ^ self.0
    }
}
impl Step for Turn {
    fn step(&self, value: u64) -> u64 {
        value.rotate_left(13)
    }
}

static PROGRAM: [&dyn Step; 5] = [&Add(7), &Turn, &Xor(0x5555_5555), &Turn, &Add(u64::MAX / 3)];

/// Vtables referenced from static data.
#[ifunc]
pub fn static_vtables(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut value = world.seed;
    for word in words(input) {
        value = PROGRAM[(word % 5) as usize].step(value ^ word);
        world.calls += 1;
        out.put(value);
    }
    for step in PROGRAM {
        value = step.step(value);
    }
    out.put(value);
    out
}

type Operation = fn(u64, u64) -> u64;

fn add(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}
fn sub(a: u64, b: u64) -> u64 {
    a.wrapping_sub(b)
}
fn mul(a: u64, b: u64) -> u64 {
    a.wrapping_mul(b)
}
fn div(a: u64, b: u64) -> u64 {
    a / (b | 1)
}

static OPERATIONS: [(&str, Operation); 6] = [
    ("add", add),
    ("sub", sub),
    ("mul", mul),
    ("div", div),
    ("min", core::cmp::min::<u64>),
    ("max", core::cmp::max::<u64>),
];

/// Function pointers in a static table, compared and called.
#[ifunc]
pub fn function_pointers(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut value = world.seed;
    for word in words(input) {
        let (name, operation) = OPERATIONS[(word % 6) as usize];
        value = operation(value, word);
        out.put(name);
        out.put(value);
    }
    let same = OPERATIONS
        .iter()
        .filter(|(_, operation)| *operation as usize == OPERATIONS[0].1 as usize)
        .count();
    out.put(same);
    out.truncate(60_000);
    out
}

fn adder(by: u64) -> impl Fn(u64) -> u64 {
    move |value| value.wrapping_add(by)
}

fn boxed(kind: u64, by: u64) -> Box<dyn Fn(u64) -> u64> {
    match kind % 3 {
        0 => Box::new(adder(by)),
        1 => Box::new(move |value| value ^ by),
        _ => Box::new(|value| value.count_ones().into()),
    }
}

fn twice(mut f: impl FnMut(u64)) {
    f(1);
    f(2);
}

fn consume(f: Box<dyn FnOnce() -> Vec<u64>>) -> Vec<u64> {
    f()
}

/// Closures that capture, mutate, are returned, boxed and consumed.
#[ifunc]
pub fn closures(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let functions: Vec<_> = words(input)
        .take(500)
        .map(|word| boxed(word, word.rotate_right(7)))
        .collect();
    let mut value = functions.iter().fold(world.seed, |value, f| f(value));
    out.put(value);
    let calls = &mut world.calls;
    twice(|by| {
        value = value.wrapping_add(by);
        *calls += by;
    });
    let owned: Vec<u64> = words(input).filter(|word| word % 2 == value % 2).collect();
    let reversed = consume(Box::new(move || owned.into_iter().rev().collect()));
    out.put(value);
    out.put(reversed);
    out
}

corpus_case::cases! {
    dyn_trait: "dyn Trait", "drop through a vtable";
    static_vtables: "vtables in statics";
    function_pointers: "function pointers in static tables";
    closures: "closures", "boxed closures";
}
