//! What `cargo xtask soak` sends: ifuncs that keep a ledger of every connection, in the target's own memory.

use ifunc::prelude::*;

mod hash;

/// Connections have numbers that are not used again: as many can have been made since one that is still open.
const SLOTS: usize = 4096;
/// How many sources there can be.
const SOURCES: usize = 64;

/// A connection that has said hello and not yet goodbye.
#[derive(Layout)]
#[repr(C)]
pub struct Slot {
    sender: u64,
    source: u64,
    count: u64,
    hash: u64,
}

/// What a source has sent over all connections that it closed in order.
#[derive(Layout)]
#[repr(C)]
pub struct Total {
    messages: u64,
    connections: u64,
    hash: u64,
}

/// What the targets of the soak own.
#[derive(Layout)]
#[repr(C)]
pub struct Ledger {
    slots: [Slot; SLOTS],
    totals: [Total; SOURCES],
    /// What was not as it must be: how often, and the first of it: kind, sender, what was expected, what came.
    faults: u64,
    first: [u64; 4],
    /// Connections that ended without a goodbye, as far as others needed their slots.
    abandoned: u64,
    rounds: u64,
}

/// A message that is not the next one of its connection.
const MISPLACED: u64 = 1;
/// A message of a connection that has not said hello.
const UNKNOWN_SENDER: u64 = 2;
/// A goodbye that names another number of messages than came.
const COUNT: u64 = 3;
/// A goodbye that names another hash than that of what came.
const HASH: u64 = 4;
/// An operation or a source that there is not.
const NONSENSE: u64 = 5;

impl Ledger {
    fn fault(&mut self, kind: u64, sender: u64, expected: u64, came: u64) {
        if self.faults == 0 {
            self.first = [kind, sender, expected, came];
        }
        self.faults += 1;
    }

    fn slot(&mut self, sender: u64) -> &mut Slot {
        &mut self.slots[sender as usize % SLOTS]
    }
}

/// What tells one build of the same ifunc from another: the soak writes other numbers behind the mark, and has new code.
#[repr(C)]
struct Variant {
    mark: [u64; 2],
    number: u64,
}

static VARIANT: Variant = Variant {
    mark: [0x5eed_c0de_0dd5_0a4b, 0x1f0c_5a1e_7a57_e9d3],
    number: 0,
};

fn variant() -> u64 {
    // SAFETY: a reference is valid to read from. Volatile: what the compiler sees there is not what will be there.
    unsafe { core::ptr::read_volatile(&raw const VARIANT.number) }
}

/// Takes a message: it begins with as many bytes of its number as it has room for. Answers number, hash and variant.
#[ifunc]
pub fn t_soak(bytes: &[u8], ledger: &mut Ledger, ctx: &mut Context) {
    let sender = ctx.sender();
    let slot = ledger.slot(sender);
    if slot.sender != sender {
        ledger.fault(UNKNOWN_SENDER, sender, 0, 0);
        return;
    }
    let number = slot.count;
    let mut came = number.to_le_bytes();
    let head = bytes.len().min(8);
    came[..head].copy_from_slice(&bytes[..head]);
    slot.count += 1;
    slot.hash = hash::mix(slot.hash, hash::bytes(bytes));
    let hash = slot.hash;
    let came = u64::from_le_bytes(came);
    if came != number {
        ledger.fault(MISPLACED, sender, number, came);
    }
    ctx.answer_with(|out| {
        for (out, word) in out.chunks_exact_mut(8).zip([number, hash, variant()]) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        24
    });
}

/// Opens, closes and reads the ledger: `[operation, a, b, 0]`.
///
/// 0: hello, this is source `a`. 1: goodbye, I sent `a` messages whose hash is `b`. 2: what source `a` sent: messages,
/// connections, hash. 3: faults: how many, the first, connections abandoned, connections open.
#[ifunc]
pub fn t_soak_turn(turn: [u64; 4], ledger: &mut Ledger, ctx: &mut Context) -> [u64; 8] {
    let sender = ctx.sender();
    let [operation, a, b, _] = turn;
    let mut answer = [0; 8];
    match operation {
        0 if a < SOURCES as u64 => {
            let slot = ledger.slot(sender);
            let taken = slot.sender != 0;
            *slot = Slot {
                sender,
                source: a,
                count: 0,
                hash: 0,
            };
            ledger.abandoned += u64::from(taken);
        }
        1 => {
            let slot = ledger.slot(sender);
            let (there, source, count, hash) = (slot.sender == sender, slot.source, slot.count, slot.hash);
            if !there {
                ledger.fault(UNKNOWN_SENDER, sender, 0, 1);
                return answer;
            }
            slot.sender = 0;
            if let Some(total) = ledger.totals.get_mut(source as usize) {
                total.messages += count;
                total.connections += 1;
                // In whatever order connections end.
                total.hash = total.hash.wrapping_add(hash::mix(count, hash));
            }
            if count != a {
                ledger.fault(COUNT, sender, a, count);
            }
            if hash != b {
                ledger.fault(HASH, sender, b, hash);
            }
        }
        2 if a < SOURCES as u64 => {
            let total = &ledger.totals[a as usize];
            answer[..3].copy_from_slice(&[total.messages, total.connections, total.hash]);
        }
        3 => {
            answer[0] = ledger.faults;
            answer[1..5].copy_from_slice(&ledger.first);
            answer[5] = ledger.abandoned;
            answer[6] = ledger.slots.iter().filter(|slot| slot.sender != 0).count() as u64;
        }
        _ => ledger.fault(NONSENSE, sender, operation, a),
    }
    answer
}

/// Keeps the target busy for a while; answers how often it was called.
#[ifunc]
pub fn t_soak_spin(turns: u64, ledger: &mut Ledger) -> u64 {
    for _ in 0..turns {
        core::hint::spin_loop();
    }
    ledger.rounds += 1;
    ledger.rounds
}
