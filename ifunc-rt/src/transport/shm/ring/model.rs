//! The protocol of the rings, checked by loom in every order that the memory model allows: publication,
//! credits, the sleep and the wake-up, the end of a peer.
//!
//! `cargo xtask loom` runs it. The memory orders are those of the mapping: both are in `words`.
//!
//! The barriers are fences on both sides here, as where the kernel refuses `membarrier`, which is equivalent
//! to a fence at whatever place the other thread is just then.

use std::cell::UnsafeCell as Bytes;

use ifunc_abi::frame::{Header, INLINE, Kind};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use loom::sync::{Arc, Notify};
use loom::thread;

use super::super::barrier::Barriers;
use super::shared::{Shared, SideState};
use super::{Consumer, Producer, words};
use crate::transport::{Inbound, LinkError, Outbound, Park, RingSize};

const SIZE: RingSize = RingSize { slots: 2, data: 256 };
/// More slots than bodies fit into the data ring: there are two.
const LITTLE_DATA: RingSize = RingSize { slots: 4, data: 128 };
const MOST_SLOTS: usize = 4;
const PRODUCER: usize = 0;
const CONSUMER: usize = 1;

/// A slot; `body` stands for the bytes that are not atomic: loom sees races on it.
struct Slot {
    commit: AtomicU64,
    words: [AtomicU64; 2],
    body: UnsafeCell<u64>,
}

struct Memory {
    size: RingSize,
    slots: [Slot; MOST_SLOTS],
    /// Stand for the halves of the data ring.
    data: [UnsafeCell<u64>; 2],
    credits: [AtomicU64; 2],
    asleep: [AtomicU32; 2],
    wakeups: [Notify; 2],
    closed: [AtomicU32; 2],
    /// The consumer's.
    gone: AtomicBool,
    /// Somewhere to point to.
    bytes: Bytes<[u8; 2 * SIZE.data as usize]>,
}

/// The memory as one side sees it.
#[derive(Clone)]
struct View {
    memory: Arc<Memory>,
    me: usize,
    barriers: Barriers,
}

// SAFETY: `bytes` is never read or written in the model.
unsafe impl Send for View {}

// SAFETY: `bytes` is as long as two data rings, and an inline body is shorter.
unsafe impl Shared for View {
    type Slot<'a> = &'a Slot;

    const INLINE_STRIDE: usize = 0;

    fn slot(&self, frame: u64) -> &Slot {
        &self.memory.slots[frame as usize % self.memory.size.slots as usize]
    }

    fn load_commit(slot: &Slot) -> u64 {
        words::load_commit(&slot.commit)
    }

    fn load_words(slot: &Slot) -> [u64; 2] {
        // SAFETY: what loom checks: the producer does not write it now.
        let body = slot.body.with(|body| unsafe { *body });
        let words = words::load_words(&slot.words);
        assert_eq!(words[1], body >> 32);
        words
    }

    fn consumer_takes(&self) -> bool {
        true
    }

    fn take_slot(slot: &Slot, word: u64) {
        words::store_second_word(&slot.words, word);
    }

    fn take_body(&self, at: usize, _: usize) {
        let half = &self.memory.data[at / (self.memory.size.data as usize / 2)];
        // SAFETY: what loom checks: the producer does not write it now.
        half.with_mut(|body| unsafe { *body = 0 });
    }

    fn publish(&self, frame: u64, words: [u64; 2], commit: u64) {
        let slot = self.slot(frame);
        words::store_words(&slot.words, words);
        // SAFETY: what loom checks: the consumer does not read it now.
        slot.body.with_mut(|body| unsafe { *body = commit });
        words::store_commit(&slot.commit, commit);
    }

    fn inline(&self, _: &Slot) -> *mut u8 {
        const { assert!(INLINE < LITTLE_DATA.data as usize) };
        self.memory.bytes.get().cast()
    }

    fn inline_run(&self, frame: u64) -> *const u8 {
        self.inline(self.slot(frame))
    }

    /// The producer asks for memory that it writes next, the consumer for a body that it reads next.
    fn data(&self, at: usize) -> *mut u8 {
        let half = &self.memory.data[at / (self.memory.size.data as usize / 2)];
        match self.me {
            // SAFETY: what loom checks: the consumer does not read it now.
            PRODUCER => half.with_mut(|body| unsafe { *body += 1 }),
            // SAFETY: what loom checks: the producer does not write it now.
            _ => assert_ne!(half.with(|body| unsafe { *body }), 0),
        }
        self.memory.bytes.get().cast()
    }

    fn load_credits(&self) -> [u64; 2] {
        words::load_credits(&self.memory.credits)
    }

    fn store_credits(&self, credits: [u64; 2]) {
        words::store_credits(&self.memory.credits, credits);
    }

    fn is_peer_asleep(&self) -> bool {
        words::is_peer_asleep(self.barriers, &self.memory.asleep[1 - self.me])
    }

    fn wake_peer(&self) {
        let asleep = &self.memory.asleep[1 - self.me];
        if self.is_peer_asleep() && words::take_announcement(asleep) != 0 {
            self.memory.wakeups[1 - self.me].notify();
        }
    }

    fn announce(&self, state: SideState) {
        let asleep = &self.memory.asleep[self.me];
        let word = match state {
            SideState::Polls => 0,
            SideState::Sleeps => 1,
            SideState::Parked => unreachable!("a target's: `ready::model`"),
        };
        words::announce(self.barriers, asleep, word, state == SideState::Sleeps);
    }

    fn is_gone(&self) -> bool {
        words::is_gone(&self.memory.closed[1 - self.me], &self.memory.gone)
    }
}

fn views(size: RingSize, barriers: Barriers) -> [View; 2] {
    let slot = || Slot {
        commit: AtomicU64::new(0),
        words: [AtomicU64::new(0), AtomicU64::new(0)],
        body: UnsafeCell::new(0),
    };
    let memory = Arc::new(Memory {
        size,
        slots: [slot(), slot(), slot(), slot()],
        data: [UnsafeCell::new(0), UnsafeCell::new(0)],
        credits: [AtomicU64::new(0), AtomicU64::new(0)],
        asleep: [AtomicU32::new(0), AtomicU32::new(0)],
        wakeups: [Notify::new(), Notify::new()],
        closed: [AtomicU32::new(0), AtomicU32::new(0)],
        gone: AtomicBool::new(false),
        bytes: Bytes::new([0; _]),
    });
    [PRODUCER, CONSUMER].map(|me| View {
        memory: Arc::clone(&memory),
        me,
        barriers,
    })
}

/// Sends the frames `1..=count` with bodies of `len` bytes, sleeping for credits.
fn produce(view: View, count: u64, len: usize) {
    let mut producer = Producer::new(view.clone(), view.memory.size);
    for token in 1..=count {
        let header = Header::new(Kind::Exec, 0, token);
        // As an invocation is sent: in this way if there is credit.
        if let Some(reserved) = producer.try_reserve(len, 8).map(|(reserved, _)| reserved) {
            let sequence = producer.commit_reserved(reserved, header, len);
            assert_eq!(u64::from(sequence), token);
            if producer.must_wake() {
                producer.wake();
            }
            continue;
        }
        while producer.reserve(len, 8).unwrap().is_none() {
            view.announce(SideState::Sleeps);
            // As `Inbound::arm` says: once more between the announcement and the sleep.
            if producer.reserve(len, 8).unwrap().is_none() {
                view.memory.wakeups[PRODUCER].wait();
            }
            view.announce(SideState::Polls);
        }
        assert_eq!(u64::from(producer.commit(header, len)), token);
    }
}

/// The token of the next frame, if it is there.
fn consume(consumer: &mut Consumer<View>) -> Result<Option<u64>, LinkError> {
    // As a poll does: what has not arrived at the first attempt may have at the second.
    let arrived = match consumer.peek_plain(Kind::Exec) {
        Some((_, frame)) => frame,
        None => match consumer.peek()? {
            Some(frame) => frame,
            None => return Ok(None),
        },
    };
    let token = arrived.words[1];
    assert_eq!(u64::from(arrived.sequence), token);
    consumer.release();
    Ok(Some(token))
}

/// A lost wake-up would be a deadlock, which loom reports; a body that is read before it is whole, or overwritten before it is read, a
/// race.
fn crosses(size: RingSize, count: u64, len: usize) {
    loom::model(move || {
        let [mine, theirs] = views(size, Barriers::Fences);
        let sender = thread::spawn(move || produce(mine, count, len));
        let mut consumer = Consumer::new(theirs.clone(), size);
        let mut next = 1;
        while next <= count {
            match consume(&mut consumer).unwrap() {
                Some(token) => {
                    assert_eq!(token, next);
                    next += 1;
                }
                None => {
                    consumer.settle();
                    if consumer.arm() {
                        theirs.memory.wakeups[CONSUMER].wait();
                        consumer.disarm();
                    }
                }
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn frames_and_credits_cross_and_nobody_sleeps_for_ever() {
    crosses(SIZE, 3, 8);
}

/// The third body takes the place of the first, whose slot is not used again.
#[test]
fn bytes_of_the_data_ring_are_used_again_after_their_last_use() {
    crosses(LITTLE_DATA, 3, 48);
}

/// A peer that sends and ends at once was heard.
#[test]
fn the_end_comes_after_the_last_frame() {
    ends(true);
    ends(false);
}

/// The peer states its end itself, or the kernel does.
fn ends(stated: bool) {
    loom::model(move || {
        // The producer passes no fence, which would order its last words.
        let [mine, theirs] = views(SIZE, Barriers::Sleeper);
        let watcher = mine.clone();
        let sender = thread::spawn(move || {
            produce(mine, 1, 8);
            match stated {
                true => words::store_closed(&watcher.memory.closed[PRODUCER]),
                // The kernel tells the watcher, which tells the consumer.
                false => words::set_gone(&watcher.memory.gone),
            }
        });
        let mut consumer = Consumer::new(theirs, SIZE);
        let mut heard = 0;
        loop {
            match consume(&mut consumer) {
                Ok(Some(_)) => heard += 1,
                Ok(None) => thread::yield_now(),
                Err(LinkError::Closed) => break,
                Err(gone) => panic!("{gone}"),
            }
        }
        assert_eq!(heard, 1);
        sender.join().unwrap();
    });
}
