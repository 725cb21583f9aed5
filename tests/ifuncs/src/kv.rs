//! Ifuncs that the host calls back: scans of a store behind an interface, in which a callback ends in every way.

#![allow(
    clippy::type_complexity,
    reason = "a callback's type is what an author writes"
)]

use core::arch::asm;
use core::ops::ControlFlow;

use ifunc::Owned;
use ifunc::prelude::*;

/// A store of the host's.
#[ifunc::interface]
pub trait Kv {
    /// Sets a value, and returns how many keys there are.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, i32>;
    /// The length of a value.
    fn len_of(&self, key: &[u8]) -> Option<u64>;
    /// Calls with each key of a prefix and its value, until it breaks.
    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>);
    /// The greatest that is found of the keys of a prefix.
    fn best(&self, prefix: &[u8], of: &dyn Fn(&str, f64, &mut [u64; 2]) -> Option<u64>) -> u64;
}

/// Numbers of the host's that an ifunc holds.
#[derive(Opaque)]
#[opaque("counting/1")]
pub struct Counting(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// Counts from a number on.
    safe fn counting_from(number: u64) -> Owned<Counting>;
    /// Calls with each number until it breaks.
    safe fn counting_each(counting: &mut Counting, each: &mut dyn FnMut(u64) -> ControlFlow<()>);
    /// Lends a counting, and gives another one.
    safe fn counting_pair(number: u64, with: &mut dyn FnMut(&mut Counting, Owned<Counting>));
    /// Ends it. Returns the next number.
    safe fn counting_end(counting: Owned<Counting>) -> u64;
}

/// Puts a value.
#[ifunc]
pub fn k_put(key: &[u8], kv: &mut dyn Kv) -> u64 {
    kv.put(key, &key.len().to_le_bytes()).unwrap_or(u64::MAX)
}

/// Answers the keys of a prefix and the lengths of their values, at most six bytes of keys.
#[ifunc]
pub fn k_scan(prefix: &[u8], kv: &dyn Kv, ctx: &mut Context) {
    let (mut answer, mut used) = ([0; 64], 0);
    kv.scan(prefix, &mut |key, value| {
        for byte in key.iter().chain([&(value.len() as u8)]) {
            answer[used] = *byte;
            used += 1;
        }
        if used < 6 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    ctx.answer(&answer[..used]);
}

/// The callback calls a method of the host's, whose callback calls another one.
#[ifunc]
pub fn k_nested(prefix: &[u8], kv: &dyn Kv) -> u64 {
    let mut total = 0;
    kv.scan(prefix, &mut |outer, _| {
        kv.scan(prefix, &mut |inner, value| {
            if kv.len_of(inner) == Some(value.len() as u64) && inner <= outer {
                total += 1;
            }
            ControlFlow::Continue(())
        });
        ControlFlow::Continue(())
    });
    total
}

/// The callback has texts, floats and numbers to change, and returns a value.
#[ifunc]
pub fn k_best(prefix: &[u8], kv: &dyn Kv) -> u64 {
    let least = prefix.len() as u64;
    kv.best(prefix, &|key, weight, notes| {
        notes[1] += notes[0] + 1;
        (key.len() as u64 > least).then_some((weight * 10.0) as u64)
    })
}

/// Ways in which a callback of `k_ends` ends.
pub const ENDS: [&str; 7] = [
    "panics",
    "panics below two scans",
    "reads a wild pointer",
    "does not end",
    "makes a system call that is denied",
    "breaks",
    "recurses through the host until its stack is used up",
];

/// Ends in the callback's second call, in the chosen way, while it holds two objects of the host.
#[ifunc]
pub fn k_ends(way: u64, kv: &dyn Kv) -> u64 {
    let held = [counting_from(1), counting_from(10)];
    let mut seen = 0;
    kv.scan(b"", &mut |_, _| {
        seen += 1;
        if seen < 2 {
            return ControlFlow::Continue(());
        }
        match way {
            0 => panic!("the callback saw {seen} keys"),
            1 => kv.scan(b"", &mut |_, _| panic!("below two scans")),
            // SAFETY: none: the faults are what is tested.
            2 => unsafe { asm!("mov {0}, [{0}]", inout(reg) 24usize => _) },
            3 => loop {
                core::hint::spin_loop();
            },
            // SAFETY: as above: `fork`.
            4 => unsafe { asm!("syscall", inout("rax") 57u64 => _, out("rcx") _, out("r11") _) },
            6 => deeper(kv),
            _ => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    });
    let [first, mut second] = held;
    counting_each(&mut second, &mut |number| {
        seen += number;
        if number < 12 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    // The other one is dropped.
    drop(first);
    seen * 100 + counting_end(second)
}

fn deeper(kv: &dyn Kv) {
    kv.scan(b"", &mut |_, _| {
        deeper(kv);
        ControlFlow::Continue(())
    });
}

/// A callback that is lent an object, and given another one, which it ends, drops, or still holds when it panics.
#[ifunc]
pub fn k_pair(number: u64, _: &dyn Kv) -> u64 {
    let mut sum = 0;
    counting_pair(number, &mut |lent, given| {
        counting_each(lent, &mut |n| {
            sum += n;
            if n < 12 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        match number {
            10 => sum = sum * 100 + counting_end(given),
            11 => drop(given),
            _ => panic!("nothing to count"),
        }
    });
    sum
}

/// Forgets an object of the host's.
#[ifunc]
pub fn k_forgets(number: u64, _: &dyn Kv) -> u64 {
    core::mem::forget(counting_from(number));
    number
}
