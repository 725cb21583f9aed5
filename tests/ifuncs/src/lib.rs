//! The ifuncs that the end-to-end tests send.

#![no_std]

extern crate alloc;

use alloc::format;
use alloc::string::String;

use ifunc::prelude::*;
use serde::{Deserialize, Serialize};

pub mod answers;
pub mod faults;
pub mod kv;
pub mod opaque;
pub mod remote_exports;
pub mod soak;
pub mod travel;

/// What the targets of these tests own. The targets have their own definition of it: nothing is shared but the layout.
#[derive(Layout)]
#[repr(C)]
pub struct State {
    /// Changed by ifuncs.
    pub counter: u64,
    /// How many of them did.
    pub changes: u64,
}

#[ifunc::import]
unsafe extern "C" {
    /// Looks a word up in the target's table.
    safe fn lookup(word: &str) -> Option<u64>;
    /// Takes a while.
    safe fn take_a_while(milliseconds: u64);
    /// Panics, on the target.
    safe fn host_panics(why: &str);
    /// Writes down that an invocation has begun, where the target's end does not reach it.
    safe fn fault_journal(id: u64, sender: u64);
    /// Stands still, if the target is told to.
    safe fn fault_stand();
}

/// Adds.
#[ifunc]
pub fn t_add(delta: u64, state: &mut State) -> u64 {
    state.counter += delta;
    state.changes += 1;
    state.counter
}

/// The same, and it may be run twice.
#[ifunc(idempotent)]
pub fn t_slow_again(milliseconds: u64, state: &mut State) -> u64 {
    take_a_while(milliseconds);
    state.counter
}

/// Runs for a while.
#[ifunc]
pub fn t_slow(milliseconds: u64, state: &mut State) -> u64 {
    take_a_while(milliseconds);
    state.changes += 1;
    state.counter
}

/// A payload that borrows.
#[derive(Serialize, Deserialize, Shape)]
pub struct Greeting<'a> {
    /// Whom.
    pub name: &'a str,
    /// How often.
    pub times: u32,
}

/// Uses the target's allocator.
#[ifunc(codec = postcard)]
pub fn t_greet(greeting: Greeting<'_>, state: &State) -> String {
    let mut text = String::new();
    for _ in 0..greeting.times {
        text.push_str(&format!("hello {}, ", greeting.name));
    }
    format!("{text}{} it is", state.counter)
}

/// Panics if there is no such element.
#[ifunc]
pub fn t_index(index: u64, state: &State) -> u64 {
    let table = [state.counter, state.changes];
    table[index as usize]
}

/// Calls the host.
#[ifunc]
pub fn t_lookup(word: &str, _state: &State) -> u64 {
    lookup(word).unwrap_or(u64::MAX)
}

/// The host panics.
#[ifunc]
pub fn t_host_panics(why: &str, _state: &State) {
    host_panics(why);
}

/// Answers its payload backwards, and says so in the log.
#[ifunc]
pub fn t_reverse(bytes: &[u8], _state: &State, ctx: &mut Context) {
    let mut reversed = alloc::vec::Vec::from(bytes);
    reversed.reverse();
    ifunc::info!(ctx, "reversed {} bytes for {}", bytes.len(), ctx.sender());
    ctx.answer(&reversed);
}

/// Divides numbers that need a function of the compiler's.
#[ifunc]
pub fn t_divide(numbers: [u128; 2], _state: &State) -> u128 {
    numbers[0] / numbers[1]
}

/// Remembers between invocations.
#[ifunc]
pub fn t_remember(value: u64, _state: &mut State) -> u64 {
    use core::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(7);
    LAST.swap(value, Ordering::Relaxed)
}

/// What the ifuncs of the fault matrix do: its payload is a number, whether to stand still (a byte), and what makes it long.
fn fault(bytes: &[u8], ctx: &mut Context) {
    let Some((id, rest)) = bytes.split_first_chunk() else {
        return;
    };
    fault_journal(u64::from_le_bytes(*id), ctx.sender());
    if rest.first() == Some(&1) {
        fault_stand();
    }
    let mut answer = [0; 16];
    answer[..8].copy_from_slice(id);
    answer[8..].copy_from_slice(&ctx.sender().to_le_bytes());
    ctx.answer(&answer);
}

/// Is written down, and answers its number and its source's.
#[ifunc]
pub fn t_fault(bytes: &[u8], _state: &State, ctx: &mut Context) {
    fault(bytes, ctx);
}

/// The same, and it may be run twice.
#[ifunc(idempotent)]
pub fn t_fault_again(bytes: &[u8], _state: &State, ctx: &mut Context) {
    fault(bytes, ctx);
}

/// The same, as code that was not sent before.
#[ifunc]
pub fn t_fault_late(bytes: &[u8], _state: &State, ctx: &mut Context) {
    fault(bytes, ctx);
}

/// What a target keeps of one source's numbered messages.
#[derive(Layout)]
#[repr(C)]
pub struct Ledger {
    /// The number that comes next.
    pub next: u64,
    /// Messages that were run.
    pub executed: u64,
    /// Of them, those whose number had been before.
    pub repeated: u64,
    /// Numbers that were left out.
    pub skipped: u64,
    /// Messages that did not hold what follows from their number.
    pub wrong: u64,
}

/// Takes a numbered message: eight bytes of number, and bytes that follow from it. Answers a hash of all of it.
#[ifunc]
pub fn t_follow(message: &[u8], ledger: &mut Ledger) -> u64 {
    ledger.executed += 1;
    let Some((number, rest)) = message.split_first_chunk::<8>() else {
        ledger.wrong += 1;
        return 0;
    };
    let number = u64::from_le_bytes(*number);
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (scattered >> 32) as u8;
    let follows = rest
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte == first ^ at as u8);
    ledger.wrong += u64::from(!follows);
    if number < ledger.next {
        ledger.repeated += 1;
    } else {
        ledger.skipped += number - ledger.next;
        ledger.next = number + 1;
    }
    message.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Answers what was run: the numbers of the ledger, in its order.
#[ifunc]
pub fn t_ledger(_nothing: &[u8], ledger: &Ledger, ctx: &mut Context) {
    let Ledger {
        next,
        executed,
        repeated,
        skipped,
        wrong,
    } = ledger;
    let mut said = [0; 40];
    for (to, number) in said
        .chunks_exact_mut(8)
        .zip([next, executed, repeated, skipped, wrong])
    {
        to.copy_from_slice(&number.to_le_bytes());
    }
    ctx.answer(&said);
}
