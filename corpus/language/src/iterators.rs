//! Iterators and generics.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Add, ControlFlow, Mul};

use corpus_case::{Disorder, Put, World, words};
use ifunc::prelude::*;

/// Chains of adapters.
#[ifunc]
pub fn adapters(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let base = || words(input).chain(Disorder::new(world.seed).take(32));
    out.put(
        base()
            .map(|w| w >> 3)
            .filter(|w| w % 3 == 1)
            .fold(0, u64::wrapping_add),
    );
    out.put(
        base()
            .zip(input.iter().rev())
            .map(|(w, b)| w ^ u64::from(*b))
            .max(),
    );
    out.put(
        base()
            .enumerate()
            .step_by(3)
            .map(|(i, w)| w.wrapping_mul(i as u64))
            .min(),
    );
    out.put(
        base()
            .skip_while(|w| w % 2 == 0)
            .take_while(|w| w % 7 != 0)
            .count(),
    );
    out.put(
        base()
            .scan(1_u64, |state, w| Some(core::mem::replace(state, *state ^ w)))
            .last(),
    );
    out.put(
        base()
            .flat_map(u64::to_le_bytes)
            .filter(u8::is_ascii_alphabetic)
            .take(300)
            .collect::<Vec<u8>>(),
    );
    out.put(base().map(|w| w as u8).partition::<Vec<u8>, _>(|b| b % 2 == 0));
    out.put(
        base()
            .map(|w| (w % 1000).checked_sub(500))
            .collect::<Option<Vec<_>>>(),
    );
    out.put(base().try_fold(0_u64, |sum, w| sum.checked_add(w)));
    let broke = base().try_for_each(|w| {
        if w % 11 == 0 {
            ControlFlow::Break(w)
        } else {
            ControlFlow::Continue(())
        }
    });
    out.put(broke.break_value());
    out.put(base().map(|w| w as u32).is_sorted_by_key(|w| w.count_ones()));
    let mut peeking = input.iter().peekable();
    let mut runs = Vec::new();
    while let Some(first) = peeking.next() {
        let mut run = 1_u32;
        while peeking.next_if_eq(&first).is_some() {
            run += 1;
        }
        runs.push(run);
    }
    out.put(runs.iter().copied().max());
    out.put(
        core::iter::successors(Some(input.len()), |n| {
            (*n > 1).then(|| if n % 2 == 0 { n / 2 } else { n * 3 + 1 })
        })
        .count(),
    );
    let boxed: Box<dyn Iterator<Item = u64>> = if input.len() % 2 == 0 {
        Box::new(base())
    } else {
        Box::new(base().skip(1))
    };
    out.put(boxed.fold(0, u64::wrapping_add).min(boxed_len(input)));
    out
}

fn boxed_len(input: &[u8]) -> u64 {
    input.len() as u64 + 1
}

trait Ring: Copy + Add<Output = Self> + Mul<Output = Self> {
    const ONE: Self;
    fn from_word(word: u64) -> Self;
}

#[derive(Clone, Copy)]
struct Modulo<const M: u64>(u64);

impl<const M: u64> Add for Modulo<M> {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self((self.0 + other.0) % M)
    }
}

impl<const M: u64> Mul for Modulo<M> {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self((u128::from(self.0) * u128::from(other.0) % u128::from(M)) as u64)
    }
}

impl<const M: u64> Ring for Modulo<M> {
    const ONE: Self = Self(1);
    fn from_word(word: u64) -> Self {
        Self(word % M)
    }
}

#[derive(Clone, Copy)]
struct Pair<T>(T, T);

impl<T: Ring> Add for Pair<T> {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0, self.1 + other.1)
    }
}

impl<T: Ring> Mul for Pair<T> {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self(self.0 * other.0, self.0 * other.1 + self.1 * other.0)
    }
}

impl<T: Ring> Ring for Pair<T> {
    const ONE: Self = Self(T::ONE, T::ONE);
    fn from_word(word: u64) -> Self {
        Self(T::from_word(word), T::from_word(word.swap_bytes()))
    }
}

fn power<T: Ring>(base: T, mut exponent: u64) -> T {
    let (mut result, mut square) = (T::ONE, base);
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = result * square;
        }
        square = square * square;
        exponent /= 2;
    }
    result
}

/// One generic function, instantiated for many types.
#[ifunc]
pub fn generics(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for word in words(input).chain([world.seed]).take(100) {
        out.put(power(Modulo::<1_000_000_007>::from_word(word), word).0);
        out.put(power(Modulo::<0xffff_fffb>::from_word(word), !word).0);
        let pair = power(Pair::<Modulo<97>>::from_word(word), word >> 5);
        out.put((pair.0.0, pair.1.0));
        let deep = power(Pair::<Pair<Modulo<65_537>>>::from_word(word), word);
        out.put((deep.0.1.0, deep.1.0.0));
    }
    out
}

corpus_case::cases! {
    adapters: "iterators";
    generics: "generics, monomorphised";
}
