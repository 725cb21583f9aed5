//! The rings over memory of the test's own, which may be changed behind their back.

use ifunc_proto::link::Body as _;
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::OnceLock;

use ifunc_abi::frame::{FrameFlags, Header, INLINE, Kind, commit_word};
use ifunc_proto::buffer::AlignedBuffer;
use proptest::prelude::*;

use super::shared::{Shared, SideState};
use super::{Consumer, Producer};
use crate::transport::{FrameRun, Inbound, LinkError, Outbound, Park, RingSize};

mod edges;

/// Bytes in front of and behind what the rings may use, which must stay as they are.
const GUARD: usize = 64;
const PAINT: u8 = 0xA5;

struct Memory {
    commits: Vec<Cell<u64>>,
    words: Vec<Cell<[u64; 2]>>,
    inline: Vec<UnsafeCell<[u8; INLINE + 2 * GUARD]>>,
    /// Twice the ring's length: the second half stands for the second mapping.
    data: UnsafeCell<AlignedBuffer>,
    credits: Cell<[u64; 2]>,
    gone: Cell<bool>,
    asleep: Cell<bool>,
    rings: Cell<u32>,
    len: usize,
}

#[derive(Clone)]
struct View(Rc<Memory>);

// SAFETY: the tests use one thread.
unsafe impl Send for View {}

// SAFETY: `inline` has its bytes between guards, `data` twice the ring's length; neither moves while a view
// lives.
unsafe impl Shared for View {
    type Slot<'a> = (&'a Memory, usize);

    const INLINE_STRIDE: usize = INLINE + 2 * GUARD;

    fn slot(&self, frame: u64) -> (&Memory, usize) {
        (&self.0, frame as usize % self.0.commits.len())
    }

    fn load_commit((memory, slot): (&Memory, usize)) -> u64 {
        memory.commits[slot].get()
    }

    fn load_words((memory, slot): (&Memory, usize)) -> [u64; 2] {
        memory.words[slot].get()
    }

    fn consumer_takes(&self) -> bool {
        true
    }

    fn take_slot((memory, slot): (&Memory, usize), word: u64) {
        let [one, _] = memory.words[slot].get();
        memory.words[slot].set([one, word]);
    }

    fn take_body(&self, at: usize, len: usize) {
        // SAFETY: as in `data`: the bodies of one run are not longer than the ring.
        unsafe { std::ptr::write_bytes(self.data(at), 0xAA, len) };
    }

    fn publish(&self, frame: u64, words: [u64; 2], commit: u64) {
        let (memory, slot) = self.slot(frame);
        memory.words[slot].set(words);
        memory.commits[slot].set(commit);
    }

    fn inline(&self, (memory, slot): (&Memory, usize)) -> *mut u8 {
        memory.inline[slot].get().cast::<u8>().wrapping_add(GUARD)
    }

    fn inline_run(&self, frame: u64) -> *const u8 {
        let slot = frame as usize % self.0.inline.len();
        let at = slot * Self::INLINE_STRIDE + GUARD;
        self.0.inline.as_ptr().cast::<u8>().wrapping_add(at)
    }

    fn data(&self, at: usize) -> *mut u8 {
        assert!(at < self.0.len);
        // SAFETY: the buffer has `GUARD + 2 * len + GUARD` bytes.
        unsafe { (*self.0.data.get()).as_mut_slice().as_mut_ptr().add(GUARD + at) }
    }

    fn load_credits(&self) -> [u64; 2] {
        self.0.credits.get()
    }

    fn store_credits(&self, credits: [u64; 2]) {
        self.0.credits.set(credits);
    }

    fn is_peer_asleep(&self) -> bool {
        self.0.asleep.get()
    }

    fn wake_peer(&self) {
        if self.0.asleep.take() {
            self.0.rings.set(self.0.rings.get() + 1);
        }
    }

    fn announce(&self, state: SideState) {
        self.0.asleep.set(state != SideState::Polls);
    }

    fn is_gone(&self) -> bool {
        self.0.gone.get()
    }
}

impl Memory {
    /// The bytes that no ring may touch are as they were.
    fn assert_guards(&self) {
        let painted = |bytes: &[u8]| bytes.iter().all(|byte| *byte == PAINT);
        for inline in &self.inline {
            // SAFETY: one thread, and no slice of a ring is alive here.
            let bytes = unsafe { &*inline.get() };
            assert!(painted(&bytes[..GUARD]) && painted(&bytes[GUARD + INLINE..]));
        }
        // SAFETY: as above.
        let bytes = unsafe { &*self.data.get() }.as_slice();
        assert!(painted(&bytes[..GUARD]) && painted(&bytes[GUARD + 2 * self.len..]));
    }
}

fn rings(size: RingSize) -> (Rc<Memory>, Producer<View>, Consumer<View>) {
    let (slots, len) = (size.slots as usize, size.data as usize);
    let mut data = AlignedBuffer::default();
    data.resize(2 * len + 2 * GUARD);
    data.as_mut_slice().fill(PAINT);
    let memory = Rc::new(Memory {
        commits: vec![Cell::new(0); slots],
        words: vec![Cell::new([0; 2]); slots],
        inline: (0..slots).map(|_| UnsafeCell::new([PAINT; _])).collect(),
        data: UnsafeCell::new(data),
        credits: Cell::new([0; 2]),
        gone: Cell::new(false),
        asleep: Cell::new(false),
        rings: Cell::new(0),
        len,
    });
    let view = View(Rc::clone(&memory));
    (
        memory,
        Producer::new(view.clone(), size),
        Consumer::new(view, size),
    )
}

fn sizes() -> impl Strategy<Value = RingSize> {
    (1..6u32, 8..15u32).prop_map(|(slots, data)| RingSize {
        slots: 1 << slots,
        data: 1 << data,
    })
}

#[derive(Clone, Debug)]
enum Step {
    Send {
        len: usize,
        align: usize,
        shorter: usize,
    },
    Receive,
    Settle,
    Arm,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let send = (0..1usize << 13, 0..7u32, 0..100usize).prop_map(|(len, align, shorter)| {
        // Half of them small.
        let len = if len & 1 == 0 { len % 80 } else { len };
        Step::Send {
            len,
            align: 1 << align,
            shorter,
        }
    });
    let step =
        prop_oneof![4 => send, 4 => Just(Step::Receive), 1 => Just(Step::Settle), 1 => Just(Step::Arm)];
    proptest::collection::vec(step, 1..400)
}

/// What was sent: its sequence, header, body.
type Sent = (u32, Header, Vec<u8>);

/// What arrived: its sequence, words, body.
type Taken = (u32, [u64; 2], Vec<u8>);

/// Receives the next frame as a poll does, or by `peek` alone.
fn receive(consumer: &mut Consumer<View>, as_polled: bool) -> Result<Option<Taken>, LinkError> {
    let plain = as_polled.then(|| consumer.peek_plain(Kind::Exec)).flatten();
    let arrived = match plain {
        Some((_, frame)) => frame,
        None => match consumer.peek()? {
            Some(frame) => frame,
            None => return Ok(None),
        },
    };
    let mut body = Vec::new();
    arrived.body.append_to(&mut body);
    let found = (arrived.sequence, arrived.words, body);
    consumer.release();
    Ok(Some(found))
}

/// Bytes from which the bodies are cut.
fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        (0..1u32 << 14)
            .map(|at| (at.wrapping_mul(0x9E37_79B1) >> 24) as u8)
            .collect()
    })
}

/// Whatever is sent arrives, once, in order and whole; the credits are those that the layout says.
fn all_arrives(size: RingSize, stages: bool, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (memory, mut producer, mut consumer) = rings(size);
    if stages {
        producer.staging.stage_all();
    }
    let mut under_way: VecDeque<Sent> = VecDeque::new();
    let mut count = 0u32;
    for step in steps {
        match step {
            Step::Send { len, align, shorter } => {
                let len = len.min(producer.max_body());
                if producer.reserve(len, align).unwrap().is_none() {
                    prop_assert!(!under_way.is_empty() || memory.credits.get()[0] != u64::from(count));
                    prop_assert!(producer.try_reserve(len, align).is_none());
                    continue;
                }
                // Both ways to send take turns.
                let (reserved, room) = match count % 2 {
                    0 => (None, producer.reserve(len, align).unwrap().unwrap()),
                    _ => {
                        let (reserved, room) = producer.try_reserve(len, align).unwrap();
                        (Some(reserved), room)
                    }
                };
                prop_assert_eq!(room.len(), len);
                room.copy_from_slice(&pattern()[count as usize % 4096..][..len]);
                let body = room[..len - shorter.min(len)].to_vec();
                count += 1;
                let header = Header::new(Kind::Exec, count, u64::from(count) << 40);
                let sequence = match reserved {
                    Some(reserved) => {
                        let sequence = producer.commit_reserved(reserved, header, body.len());
                        producer.wake();
                        sequence
                    }
                    None => producer.commit(header, body.len()),
                };
                prop_assert_eq!(sequence, count);
                under_way.push_back((count, header, body));
                prop_assert!(under_way.len() <= size.slots as usize);
            }
            Step::Receive => match (
                receive(&mut consumer, under_way.len().is_multiple_of(2)).unwrap(),
                under_way.pop_front(),
            ) {
                (Some((sequence, words, body)), Some((sent, header, sent_body))) => {
                    prop_assert_eq!(sequence, sent);
                    let mut arrived = Header::parse(words).unwrap();
                    arrived.flags = FrameFlags::NONE;
                    prop_assert_eq!(arrived, header);
                    prop_assert!(body == sent_body);
                }
                (found, sent) => prop_assert!(found.is_none() && sent.is_none()),
            },
            Step::Settle => {
                consumer.settle();
                if under_way.is_empty() {
                    // Everything was given back: the largest frame has room.
                    prop_assert!(producer.reserve(producer.max_body(), 64).unwrap().is_some());
                }
            }
            Step::Arm => {
                prop_assert_eq!(consumer.arm(), under_way.is_empty());
                prop_assert!(memory.asleep.get());
                consumer.disarm();
                prop_assert!(!memory.asleep.get());
            }
        }
    }
    memory.assert_guards();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_sent_arrives(size in sizes(), stages in any::<bool>(), steps in steps()) {
        all_arrives(size, stages, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    #[ignore = "nightly: ten times as many cases"]
    fn what_is_sent_arrives_in_many_cases(size in sizes(), stages in any::<bool>(), steps in steps()) {
        all_arrives(size, stages, steps)?;
    }

    /// Whatever a peer writes, the rings stay within their memory and do not panic; a frame that is delivered
    /// has a body within bounds.
    #[test]
    fn a_hostile_peer_is_harmless(
        size in sizes(),
        attacks in proptest::collection::vec((0..7u8, any::<u64>(), any::<u64>(), 0..3u32), 1..200),
    ) {
        let (memory, mut producer, mut consumer) = rings(size);
        let mut taken = 0u32;
        for (what, one, two, near) in attacks {
            let slot = taken as usize % size.slots as usize;
            match what {
                // The next sequence, or one near it, with any length.
                0 => memory.commits[slot].set(commit_word(taken.wrapping_add(near), one as u32)),
                1 => memory.commits[slot].set(commit_word(taken + 1, one as u32 % (2 * size.data))),
                2 => memory.words[slot].set([one, two]),
                3 => memory.credits.set([one, two]),
                4 => memory.credits.set([one % 4, two % 256]),
                5 => {
                    let len = (one as usize) % producer.max_body();
                    if let Ok(Some(room)) = producer.reserve(len, 1 << (two % 7)) {
                        room.fill(1);
                        producer.commit(Header::new(Kind::Exec, 0, 0), len);
                    }
                }
                _ => memory.commits[one as usize % size.slots as usize].set(two),
            }
            consumer.prefetch_frame();
            consumer.prefetch_body();
            match receive(&mut consumer, near % 2 == 0) {
                Ok(Some((_, words, body))) => {
                    let inline = words[0] >> 8 & 1 == 1;
                    let most = if inline { INLINE } else { size.max_body() };
                    prop_assert!(body.len() <= most);
                    taken += 1;
                }
                Ok(None) => {}
                Err(LinkError::Malformed(_)) => {
                    // For good.
                    prop_assert!(consumer.peek_plain(Kind::Exec).is_none());
                    prop_assert!(matches!(consumer.peek(), Err(LinkError::Malformed(_))) && !consumer.arm());
                }
                Err(LinkError::Closed) => prop_assert!(false, "the peer is there"),
            }
        }
        memory.assert_guards();
    }
}

#[test]
fn a_body_lies_where_its_alignment_wants_it() {
    let (_memory, mut producer, mut consumer) = rings(RingSize { slots: 8, data: 4096 });
    let base = producer.reserve(100, 64).unwrap().unwrap().as_ptr().addr();
    for (n, (len, align)) in [(1, 64), (40, 8), (40, 16), (41, 1), (65, 32)]
        .into_iter()
        .enumerate()
    {
        let at = producer.reserve(len, align).unwrap().unwrap().as_ptr().addr();
        producer.commit(Header::new(Kind::Exec, 0, 0), len);
        let inline = len <= INLINE && align <= 8;
        assert!(inline || (at - base) % 64 == 0);
        let arrived = consumer.peek().unwrap().unwrap();
        assert_eq!(
            (arrived.body.as_ptr().addr(), arrived.sequence),
            (at, n as u32 + 1)
        );
        assert_eq!(
            Header::parse(arrived.words)
                .unwrap()
                .flags
                .contains(FrameFlags::INLINE),
            inline
        );
        consumer.release();
    }
}

/// Those of an image stay with the producer, unless it is the last part of one.
#[test]
fn a_consumer_stores_into_the_bodies_that_it_reads() {
    let (memory, mut producer, mut consumer) = rings(RingSize {
        slots: 8,
        data: 8 << 10,
    });
    let assembled = Header {
        flags: FrameFlags::ASSEMBLED,
        ..Header::new(Kind::Install, 1, 0)
    };
    for (header, is_taken) in [
        (Header::new(Kind::Exec, 1, 0), true),
        (Header::new(Kind::Install, 1, 0), false),
        (assembled, true),
    ] {
        let at = producer.window.sent().data as usize;
        producer.reserve(200, 8).unwrap().unwrap().fill(1);
        producer.commit(header, 200);
        assert!(receive(&mut consumer, false).unwrap().is_some());
        let (view, expected) = (View(Rc::clone(&memory)), if is_taken { 0xAA } else { 1 });
        // SAFETY: the ring is longer than the three bodies; nothing else uses its memory now.
        let body = unsafe { std::slice::from_raw_parts(view.data(at), 200) };
        assert!(body.iter().all(|&byte| byte == expected), "{header:?}");
    }
}

#[test]
fn lies_about_credits_and_lengths_end_the_connection() {
    let size = RingSize { slots: 2, data: 4096 };
    let (memory, mut producer, _) = rings(size);
    for _ in 0..2 {
        producer.reserve(8, 8).unwrap().unwrap();
        producer.commit(Header::new(Kind::Exec, 0, 0), 8);
    }
    memory.credits.set([3, 0]);
    assert!(matches!(producer.reserve(8, 8), Err(LinkError::Malformed(_))));
    memory.credits.set([2, 0]);
    assert!(matches!(producer.reserve(8, 8), Err(LinkError::Malformed(_))));

    for (len, words) in [(41, 1 << 8), (2049, 0), (u32::MAX, 0)] {
        let (memory, _, mut consumer) = rings(size);
        memory.commits[0].set(commit_word(1, len));
        memory.words[0].set([words | 1, 0]);
        assert!(consumer.peek_plain(Kind::Exec).is_none());
        assert!(matches!(consumer.peek(), Err(LinkError::Malformed(_))));
        memory.commits[0].set(commit_word(1, 8));
        assert!(matches!(consumer.peek(), Err(LinkError::Malformed(_))));
    }
    let (memory, _, mut consumer) = rings(size);
    memory.commits[0].set(commit_word(2, 8));
    assert!(matches!(consumer.peek(), Err(LinkError::Malformed(_))));
}

#[test]
fn a_frame_is_judged_once() {
    let (memory, mut producer, mut consumer) = rings(RingSize { slots: 2, data: 4096 });
    producer.reserve(8, 8).unwrap().unwrap().fill(3);
    producer.commit(Header::new(Kind::Exec, 5, 6), 8);
    let words = consumer.peek().unwrap().unwrap().words;
    memory.commits[0].set(commit_word(1, u32::MAX));
    memory.words[0].set([u64::MAX; 2]);
    let again = consumer.peek().unwrap().unwrap();
    assert_eq!((again.words, again.body.len()), (words, 8));
}

#[test]
fn sequences_wrap() {
    let size = RingSize { slots: 4, data: 4096 };
    let (memory, mut producer, mut consumer) = rings(size);
    // Where both would be after 2³² - 2 frames.
    let passed = (1u64 << 32) - 2;
    producer.skip(passed);
    consumer.skip(passed);
    memory.credits.set([passed, 0]);
    for slot in 0..4 {
        let frame = passed - 4 + slot;
        memory.commits[frame as usize & 3].set(commit_word(frame as u32 + 1, 0));
    }
    for expected in [u32::MAX, 0, 1, 2, 3, 4, 5] {
        producer.reserve(100, 8).unwrap().unwrap();
        assert_eq!(producer.commit(Header::new(Kind::Exec, 0, 0), 100), expected);
        assert_eq!(receive(&mut consumer, true).unwrap().unwrap().0, expected);
        assert!(receive(&mut consumer, true).unwrap().is_none());
        consumer.settle();
    }
}

#[test]
fn a_peer_that_left_is_noticed_behind_its_last_frame() {
    let (memory, mut producer, mut consumer) = rings(RingSize { slots: 4, data: 4096 });
    for _ in 0..3 {
        producer.reserve(8, 8).unwrap().unwrap();
        producer.commit(Header::new(Kind::Exec, 0, 0), 8);
    }
    memory.gone.set(true);
    assert!(matches!(producer.reserve(8, 8), Err(LinkError::Closed)));
    for _ in 0..3 {
        assert!(receive(&mut consumer, true).unwrap().is_some());
    }
    assert!(matches!(receive(&mut consumer, true), Err(LinkError::Closed)));
    assert!(!consumer.arm());
}

#[test]
fn credits_wake_who_waits_for_them() {
    let (memory, mut producer, mut consumer) = rings(RingSize { slots: 2, data: 4096 });
    for _ in 0..2 {
        producer.reserve(8, 8).unwrap().unwrap();
        producer.commit(Header::new(Kind::Exec, 0, 0), 8);
    }
    // Held, and announced for the credits' sake.
    consumer.peek().unwrap().unwrap();
    assert!(!consumer.arm() && memory.asleep.get());
    assert!(producer.reserve(8, 8).unwrap().is_none());
    receive(&mut consumer, true).unwrap().unwrap();
    consumer.settle();
    assert_eq!((memory.rings.get(), memory.asleep.get()), (1, false));
    assert!(producer.reserve(8, 8).unwrap().is_some());
}

/// What `peek_run` finds: distance, number, and bodies.
fn peek_run(consumer: &mut Consumer<View>, most: usize) -> Option<(usize, usize, Vec<Vec<u8>>)> {
    let mut asked_of = None;
    let (_, run) = consumer.peek_run(Kind::Exec, |len| {
        asked_of = Some(len);
        most
    })?;
    let FrameRun {
        len,
        bodies,
        stride,
        count,
        ..
    } = run;
    assert_eq!(asked_of, Some(len));
    let body = |index: usize| {
        let mut body = Vec::new();
        bodies.slice(index * stride, len).unwrap().append_to(&mut body);
        body
    };
    assert_eq!(bodies.len(), (count - 1) * stride + len);
    Some((stride, count, (0..count).map(body).collect()))
}

#[test]
fn frames_that_are_alike_are_a_run_up_to_where_credits_are_due() {
    let size = RingSize {
        slots: 64,
        data: 1 << 12,
    };
    for (len, distance, most, due) in [
        (0, INLINE + 2 * GUARD, 16, 16),
        (8, INLINE + 2 * GUARD, 16, 16),
        (INLINE, INLINE + 2 * GUARD, 16, 16),
        // A quarter of the data ring.
        (INLINE + 1, 64, 16, 16),
        (100, 128, 8, 8),
        // A run of fewer would save nothing.
        (500, 512, 0, 2),
    ] {
        let (memory, mut producer, mut consumer) = rings(size);
        let mut send = |handle: u32, byte: u8| {
            producer.reserve(len, 8).unwrap().unwrap().fill(byte);
            producer.commit(Header::new(Kind::Exec, handle, 0), len);
        };
        assert!(peek_run(&mut consumer, 9).is_none());
        (0..3).for_each(|number| send(7, number));
        assert!(peek_run(&mut consumer, 9).is_none(), "too few");
        send(7, 3);
        if most == 0 {
            assert!(peek_run(&mut consumer, 9).is_none());
            continue;
        }
        let alike = |range: std::ops::Range<u8>| range.map(|byte| vec![byte; len]).collect();
        assert_eq!(peek_run(&mut consumer, 9), Some((distance, 4, alike(0..4))));
        send(7, 4);
        assert_eq!(peek_run(&mut consumer, 9), Some((distance, 5, alike(0..5))));
        assert_eq!(peek_run(&mut consumer, 4), Some((distance, 4, alike(0..4))));
        assert!(peek_run(&mut consumer, 3).is_none());
        // One of another handle ends it.
        send(8, 5);
        assert_eq!(peek_run(&mut consumer, 9), Some((distance, 5, alike(0..5))));
        consumer.release_run(4, len);
        assert!(peek_run(&mut consumer, 9).is_none(), "of two handles");
        for number in [4, 5] {
            let (sequence, words, body) = receive(&mut consumer, true).unwrap().unwrap();
            assert_eq!((sequence, body), (u32::from(number) + 1, vec![number; len]));
            assert_eq!((words[0] >> 32) as u8, 7 + number / 5);
        }
        consumer.settle();
        assert_eq!(memory.credits.get()[0], 6);
        // Through all laps, a run ends where credits are due, and at the last slot.
        let mut taken = 6;
        let mut sent = 6;
        while taken < 400 {
            while producer.reserve(len, 8).unwrap().is_some() {
                producer.reserve(len, 8).unwrap().unwrap().fill(sent as u8);
                producer.commit(Header::new(Kind::Exec, 7, 0), len);
                sent += 1;
            }
            let lap = 64 - taken % 64;
            match peek_run(&mut consumer, usize::MAX) {
                Some((_, count, bodies)) => {
                    // This memory is not mapped twice: what lies behind the first mapping's end is not there.
                    let here = match len {
                        ..=INLINE => count,
                        _ => ((1 << 12) / distance - taken % ((1 << 12) / distance)).min(count),
                    };
                    assert!(count <= due && (len > INLINE || count <= lap));
                    for (number, body) in (taken..).zip(&bodies[..here]) {
                        assert_eq!(*body, vec![number as u8; len]);
                    }
                    consumer.release_run(count, len);
                    taken += count;
                }
                None => {
                    assert!(receive(&mut consumer, false).unwrap().is_some());
                    taken += 1;
                }
            }
        }
        memory.assert_guards();
    }
}
