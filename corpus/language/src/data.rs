//! Data of all kinds: constant, zeroed, mutable, aligned, zero-sized.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicBool, AtomicI8, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use alloc::vec::Vec;

use corpus_case::{Disorder, Put, World, words};
use ifunc::prelude::*;

static FLAG: AtomicBool = AtomicBool::new(true);
static SMALL: AtomicI8 = AtomicI8::new(-3);
static SHORT: AtomicU16 = AtomicU16::new(0);
static WORD: AtomicU32 = AtomicU32::new(0x1234);
static LONG: AtomicU64 = AtomicU64::new(u64::MAX - 5);
static MAXIMUM: AtomicUsize = AtomicUsize::new(0);
static WHERE: AtomicPtr<u64> = AtomicPtr::new(core::ptr::null_mut());
static CELLS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Every atomic operation, on statics in initialised and in zeroed memory.
#[ifunc]
pub fn atomics(input: &[u8], world: &mut World) -> Vec<u8> {
    FLAG.store(true, Ordering::SeqCst);
    SMALL.store(-3, Ordering::Release);
    SHORT.store(0, Ordering::Relaxed);
    WORD.store(0x1234, Ordering::Relaxed);
    LONG.store(u64::MAX - 5, Ordering::Relaxed);
    MAXIMUM.store(0, Ordering::Relaxed);
    CELLS.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    let mut out = Vec::new();
    for word in words(input).take(500) {
        out.put(FLAG.fetch_xor(word % 2 == 0, Ordering::AcqRel));
        out.put(SMALL.fetch_add(word as i8, Ordering::SeqCst));
        out.put(SHORT.fetch_sub(word as u16, Ordering::Relaxed));
        out.put(WORD.fetch_and(!(word as u32) | 0xff, Ordering::Relaxed));
        out.put(WORD.fetch_or(1 << (word % 32), Ordering::Acquire));
        out.put(LONG.swap(word, Ordering::AcqRel));
        out.put(
            LONG.compare_exchange(word, !word, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok(),
        );
        out.put(MAXIMUM.fetch_max(word as usize, Ordering::Relaxed));
        CELLS[(word % 64) as usize].fetch_add(word, Ordering::Relaxed);
        let updated = LONG.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            (old % 3 != 0).then_some(old / 3)
        });
        out.put(updated.ok());
    }
    WHERE.store(&raw mut world.calls, Ordering::SeqCst);
    // SAFETY: the world outlives this function, which has exclusive access to it.
    unsafe { *WHERE.load(Ordering::SeqCst) += 5 };
    out.put(
        CELLS
            .iter()
            .map(|cell| cell.load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add),
    );
    out
}

/// The present form of a `static mut`.
struct Memory(UnsafeCell<[u64; 16]>);

// SAFETY: the target runs one invocation at a time, so accesses do not overlap.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([
    1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987,
]));

/// State that persists between invocations; an empty input resets it. The code is pinned.
#[ifunc(pinned)]
pub fn remembers(input: &[u8], world: &mut World) -> Vec<u8> {
    // SAFETY: see `Memory`; this is the only place that uses it.
    let memory = unsafe { &mut *MEMORY.0.get() };
    if input.is_empty() {
        *memory = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987];
    }
    for word in words(input) {
        let place = (word % 16) as usize;
        memory[place] = memory[place].wrapping_mul(31).wrapping_add(word ^ world.seed);
    }
    let mut out = Vec::new();
    out.put(*memory);
    out
}

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

#[repr(C, align(32))]
struct Mixed {
    tag: u8,
    value: u64,
}

static LINES: [Line; 4] = [Line([1; 64]), Line([2; 64]), Line([3; 64]), Line([0; 64])];
static MIXED: Mixed = Mixed { tag: 5, value: 77 };
static ZEROED: AlignedCells = AlignedCells([const { AtomicU64::new(0) }; 8]);

#[repr(align(64))]
struct AlignedCells([AtomicU64; 8]);

/// Data aligned to cache lines: constant, zeroed, on the stack, on the heap.
#[ifunc]
pub fn aligned_data(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut line = Line([0; 64]);
    for (index, byte) in input.iter().enumerate() {
        line.0[index % 64] ^= byte;
        out.truncate(4096);
        out.put(LINES[usize::from(*byte) % 4].0[index % 64]);
        ZEROED.0[index % 8].store(u64::from(*byte), Ordering::Relaxed);
    }
    let boxed = alloc::boxed::Box::new(line);
    for address in [
        (&raw const LINES).addr(),
        (&raw const MIXED).addr() * 2,
        (&raw const ZEROED).addr(),
        (&raw const line).addr(),
        (&raw const *boxed).addr(),
    ] {
        out.put(address % 64);
    }
    out.put(boxed.0);
    out.put(u64::from(MIXED.tag) + MIXED.value);
    out.put(
        ZEROED
            .0
            .iter()
            .map(|cell| cell.swap(0, Ordering::Relaxed))
            .sum::<u64>(),
    );
    out
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Unit;

struct Tagged<T>(u64, PhantomData<T>);

trait Constant {
    const VALUE: u64;
}

impl Constant for Unit {
    const VALUE: u64 = 11;
}

impl<T> Constant for PhantomData<T> {
    const VALUE: u64 = size_of::<T>() as u64;
}

fn constant<T: Constant>(_: T, by: u64) -> u64 {
    T::VALUE.wrapping_mul(by)
}

/// Zero-sized values: in vectors, as arguments, as keys.
#[ifunc]
pub fn zero_sized(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let units: Vec<Unit> = input.iter().filter(|byte| **byte > 9).map(|_| Unit).collect();
    out.put(units.len());
    out.put(units.iter().all(|unit| *unit == Unit));
    out.put(constant(Unit, input.len() as u64));
    out.put(constant(PhantomData::<[u32; 9]>, input.len() as u64));
    let tagged = Tagged::<Unit>(input.len() as u64, PhantomData);
    out.put(tagged.0 + size_of_val(&tagged.1) as u64);
    let set: alloc::collections::BTreeSet<()> = input.iter().map(|_| ()).collect();
    out.put(set.len());
    out.put(alloc::format!("{:?}", units.first()));
    out
}

const fn sieve<const N: usize>() -> [bool; N] {
    let mut composite = [false; N];
    let mut n = 2;
    while n < N {
        let mut multiple = n * 2;
        while multiple < N {
            composite[multiple] = true;
            multiple += n;
        }
        n += 1;
    }
    composite
}

static COMPOSITE: [bool; 1024] = sieve();
const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 {
                value >> 1 ^ 0xedb8_8320
            } else {
                value >> 1
            };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// Tables computed at compile time.
#[ifunc]
pub fn computed_tables(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let crc = input.iter().fold(u32::MAX, |crc, byte| {
        crc >> 8 ^ CRC[usize::from(crc as u8 ^ byte)]
    });
    out.put(!crc);
    out.put(
        words(input)
            .filter(|word| !COMPOSITE[(word % 1024) as usize])
            .count(),
    );
    out
}

struct Matrix<const R: usize, const C: usize>([[u64; C]; R]);

impl<const R: usize, const C: usize> Matrix<R, C> {
    fn from(numbers: &mut impl Iterator<Item = u64>) -> Self {
        let mut matrix = Self([[0; C]; R]);
        for row in &mut matrix.0 {
            row.fill_with(|| numbers.next().unwrap_or(1));
        }
        matrix
    }

    fn times<const D: usize>(&self, other: &Matrix<C, D>) -> Matrix<R, D> {
        let mut product = Matrix([[0; D]; R]);
        for (r, row) in product.0.iter_mut().enumerate() {
            for (d, cell) in row.iter_mut().enumerate() {
                for (c, left) in self.0[r].iter().enumerate() {
                    *cell = left.wrapping_mul(other.0[c][d]).wrapping_add(*cell);
                }
            }
        }
        product
    }
}

/// Const generics in types and functions.
#[ifunc]
pub fn const_generics(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut numbers = words(input).chain(Disorder::new(world.seed));
    let (a, b) = (
        Matrix::<3, 7>::from(&mut numbers),
        Matrix::<7, 5>::from(&mut numbers),
    );
    let product = a.times(&b).times(&Matrix::<5, 2>::from(&mut numbers));
    for row in product.0 {
        out.put(row);
    }
    out
}

/// An enum with data, recursion and niches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Tree {
    Leaf,
    Value(u32),
    Pair {
        left: alloc::boxed::Box<Tree>,
        right: alloc::boxed::Box<Tree>,
    },
}

#[repr(C)]
union Bits {
    word: u64,
    bytes: [u8; 8],
    float: f64,
}

fn grow(numbers: &mut impl Iterator<Item = u64>, depth: u32) -> Tree {
    match numbers.next() {
        None => Tree::Leaf,
        Some(number) if depth == 0 || number % 4 == 0 => Tree::Value(number as u32),
        Some(_) => Tree::Pair {
            left: grow(numbers, depth - 1).into(),
            right: grow(numbers, depth - 1).into(),
        },
    }
}

fn depth(tree: &Tree) -> u32 {
    match tree {
        Tree::Leaf => 0,
        Tree::Value(_) => 1,
        Tree::Pair { left, right } => 1 + depth(left).max(depth(right)),
    }
}

/// Enums with data, derived comparisons, unions.
#[ifunc]
pub fn enums_and_unions(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut numbers = words(input).chain(Disorder::new(world.seed).take(50));
    let (a, b) = (grow(&mut numbers, 8), grow(&mut numbers, 8));
    out.put(a.cmp(&b) as i8);
    out.put(depth(&a) * 100 + depth(&b));
    out.put(a.clone() == a);
    out.put(alloc::format!("{a:?}"));
    for word in words(input).take(50) {
        let bits = Bits { word };
        // SAFETY: every field takes every bit pattern.
        let (bytes, float) = unsafe { (bits.bytes, bits.float) };
        out.put(bytes);
        out.put(float);
    }
    out.put(size_of::<Option<alloc::boxed::Box<u8>>>() + size_of::<Tree>());
    out
}

corpus_case::cases! {
    atomics: "atomics", "statics in zeroed memory";
    remembers: "state that lasts", "pinned", "statics that are written";
    aligned_data: "data aligned to 64 bytes";
    zero_sized: "types of no size";
    computed_tables: "tables computed at compile time";
    const_generics: "const generics";
    enums_and_unions: "enums with data", "unions", "derived traits";
}
