//! The frames of aggregated invocations, inspected one by one: here the test is the target.

use ifunc_proto::link::Body as _;
use std::cell::Cell;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{Header, Kind, Limits};
use ifunc_abi::status::{Failure, Status};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::images::{self, Add};
use super::running::unique;
use super::threads::until;
use crate::transport::{Link, ListenConfig, Listener, RingSize, listen};
use crate::{Aggregation, ByName, Error, Handle, Source, SourceOptions};

/// Handle, payload, token or not.
type Entries = Vec<(u32, Vec<u8>, bool)>;

#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Install(u32),
    Unbind(u32),
    Sync,
    Exec(u32, usize),
    Batch(Entries),
}

/// The target's end of a connection.
struct Hand {
    _listener: Box<dyn Listener>,
    link: Link,
    /// Those of the calls in the last batches.
    tokens: Vec<u64>,
}

fn by_hand(slots: u32, aggregation: Aggregation) -> (Source, Hand) {
    let limits = Limits {
        max_payload: 1 << 16,
        max_image: 1 << 16,
        max_answer: 1 << 10,
    };
    let ring = RingSize { slots, data: 1 << 16 };
    let config = ListenConfig {
        to_target: ring,
        to_source: ring,
        ..ListenConfig::new(limits)
    };
    let mut listener = listen(&unique("loopback").parse().unwrap(), config).unwrap();
    let options = SourceOptions::default()
        .aggregation(aggregation)
        .reconnect(Duration::ZERO)
        .timeout(Duration::from_secs(20));
    let source = Source::connect_with(&listener.address(), options).unwrap();
    let link = listener.accept().unwrap();
    let hand = Hand {
        _listener: listener,
        link,
        tokens: Vec::new(),
    };
    (source, hand)
}

/// Of batches that are sent when it is asked for, and never by time.
fn never(bytes: usize) -> Aggregation {
    Aggregation::default().bytes(bytes).delay(Duration::MAX)
}

fn add(source: &Source) -> Handle<Add> {
    source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap()
}

/// An ifunc that takes whatever bytes it is sent.
fn bytes(source: &Source) -> Handle<ByName> {
    source.load_bytes(&images::counts().encode().unwrap()).unwrap()
}

impl Hand {
    /// Takes the next frame.
    fn next(&mut self) -> Option<Frame> {
        let arrived = self.link.rx().peek().ok()??;
        let header = Header::parse(arrived.words).unwrap();
        let mut body = Vec::new();
        arrived.body.append_to(&mut body);
        let frame = match header.kind {
            Kind::Install => Frame::Install(header.handle),
            Kind::Unbind => Frame::Unbind(header.handle),
            Kind::Sync => Frame::Sync,
            Kind::Exec => Frame::Exec(header.handle, body.len()),
            Kind::Batch => {
                assert_eq!((header.handle, header.token), (0, 0));
                Frame::Batch(self.entries(&body))
            }
            other => panic!("{other:?}"),
        };
        self.link.rx().release();
        Some(frame)
    }

    fn entries(&mut self, body: &[u8]) -> Entries {
        let mut entries = Vec::new();
        let mut at = 0;
        while at < body.len() {
            let (head, _) = RunHead::read_from_prefix(&body[at..]).unwrap();
            let (len, stride) = (head.len.get() as usize, head.stride.get() as usize);
            let next = at + head.run_len().unwrap();
            at += RunHead::SIZE;
            for index in 0..head.count.get() {
                let payload = body[at..at + len].to_vec();
                assert!(body[at + len..at + stride].iter().all(|&byte| byte == 0));
                entries.push((head.code.get(), payload, head.token != 0));
                let token = head.token.get() + u64::from(index);
                self.tokens.extend((head.token != 0).then_some(token));
                at += stride;
            }
            assert!(body[at..next].iter().all(|&byte| byte == 0));
            at = next;
        }
        entries
    }

    /// Receives everything that has arrived, and returns the credits.
    fn all(&mut self) -> Vec<Frame> {
        let frames = std::iter::from_fn(|| self.next()).collect();
        self.link.rx().settle();
        frames
    }

    fn say(&mut self, header: Header, body: &[u8]) {
        let room = self.link.tx().reserve(body.len(), 8).unwrap().unwrap();
        room[..body.len()].copy_from_slice(body);
        self.link.tx().commit(header, body.len());
    }
}

fn batch(handle: u32, payloads: impl IntoIterator<Item = u64>) -> Frame {
    let entries = payloads.into_iter();
    Frame::Batch(
        entries
            .map(|payload| (handle, payload.to_le_bytes().to_vec(), false))
            .collect(),
    )
}

/// A row of entries.
fn row(entries: &[(u32, &[u8], u64)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (code, bytes, token) in entries {
        let len = bytes.len() as u32;
        body.extend_from_slice(RunHead::new(*code, *token, len, len, 1).as_bytes());
        body.extend_from_slice(bytes);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    body
}

#[test]
fn a_batch_is_closed_by_what_goes_behind_it() {
    let (source, mut hand) = by_hand(64, never(128));
    let direct = add(&source);
    let (fast, bytes) = (direct.aggregated(), bytes(&source).aggregated());
    fast.send(&1).unwrap();
    fast.with_timeout(Duration::from_secs(1)).send(&2).unwrap();
    assert_eq!(hand.all(), [Frame::Install(0)], "and nothing else yet");
    direct.send(&3).unwrap();
    assert_eq!(hand.all(), [batch(0, [1, 2]), Frame::Exec(0, 8)]);
    fast.message(&4).unwrap().send().unwrap();
    source.push().unwrap();
    source.push().unwrap();
    assert_eq!(hand.all(), [batch(0, [4])]);
    // Full: ten fit in. The next one opens the next.
    (5..16).for_each(|payload| fast.send(&payload).unwrap());
    assert_eq!(hand.all(), [batch(0, 5..15)]);
    // Too large for any batch: sent after the open batch. Odd lengths: padded with zeros.
    bytes.send(&[7; 105]).unwrap();
    bytes.send(&[7; 9]).unwrap();
    let sync = source.flush_async();
    let mut sync = Box::pin(sync);
    let polled = sync.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    let odd = Frame::Batch(vec![(1, vec![7; 9], false)]);
    let behind = [batch(0, [15]), Frame::Install(1), Frame::Exec(1, 105)];
    let mut came = hand.all();
    assert_eq!(came.split_off(3), [odd, Frame::Sync]);
    assert_eq!(came, behind);
    drop(sync);
    // The source releases a dropped handle after its invocations.
    bytes.send(&[1]).unwrap();
    drop(bytes);
    let other = source.load_bytes(&images::set().encode().unwrap()).unwrap();
    other.send(&[2; 8]).unwrap();
    let one = Frame::Batch(vec![(1, vec![1], false)]);
    assert_eq!(
        hand.all(),
        [one, Frame::Unbind(1), Frame::Install(2), Frame::Exec(2, 8)]
    );
    // The drop of the last user sends the open batch.
    fast.send(&11).unwrap();
    drop((fast, direct, other, source));
    let last = hand.all();
    assert!(last.contains(&batch(0, [11])), "{last:?}");
}

#[test]
fn who_waits_for_a_call_sends_its_batch_and_no_other() {
    let (source, mut hand) = by_hand(64, never(4096));
    let direct = add(&source);
    let fast = direct.aggregated();
    let mut first = direct.call(&1).unwrap();
    let mut second = fast.call(&2).unwrap();
    let (third, dropped) = (fast.call(&3).unwrap(), fast.call(&4).unwrap());
    drop(dropped);
    assert!(first.try_wait().is_none());
    assert_eq!(hand.all(), [Frame::Install(0), Frame::Exec(0, 8)]);
    assert!(second.try_wait().is_none());
    let entries = (2..5u64).map(|payload| (0, payload.to_le_bytes().to_vec(), true));
    assert_eq!(hand.all(), [Frame::Batch(entries.collect())]);
    // Another is open now, and stays open.
    fast.send(&5).unwrap();
    let [two, three, four] = hand.tokens[..] else {
        panic!("{:?}", hand.tokens);
    };
    let (executed, failed) = (Status::Executed.code(), Status::Failed(Failure::Payload).code());
    let body = row(&[
        (executed, &2u64.to_le_bytes(), two),
        (failed, b"", three),
        (executed, &4u64.to_le_bytes(), four),
        (executed, b"no token", 0),
    ]);
    hand.say(Header::new(Kind::Completions, 0, 0), &body);
    assert_eq!(second.try_wait().unwrap().unwrap(), 2);
    match third.wait() {
        Err(Error::Failed { why, .. }) => assert_eq!(why, Failure::Payload),
        other => panic!("{other:?}"),
    }
    assert_eq!(hand.all(), []);
    assert_eq!(source.remains()[0], 1, "the first");
}

#[test]
fn a_full_batch_without_room_is_all_there_is() {
    let (source, mut hand) = by_hand(2, never(128));
    let fast = add(&source).aggregated();
    // The image, a batch, and a full batch without credit.
    let mut accepted = 0u64;
    let full = loop {
        match fast.try_send(&accepted) {
            Ok(()) => accepted += 1,
            Err(full) => break full,
        }
    };
    assert!(matches!(full, Error::WouldBlock { .. }));
    assert_eq!(accepted, 20);
    let impatient = fast.with_timeout(Duration::from_millis(10));
    assert!(matches!(impatient.send(&20), Err(Error::Timeout { .. })));
    assert_eq!(hand.all(), [Frame::Install(0), batch(0, 0..10)]);
    fast.send(&20).unwrap();
    source.push().unwrap();
    assert_eq!(hand.all(), [batch(0, 10..20), batch(0, [20])]);
    // A payload that does not encode leaves nothing in the batch.
    let large = bytes(&source).aggregated();
    assert!(matches!(
        large.send(&vec![0; (1 << 16) + 1]),
        Err(Error::PayloadTooLarge { .. })
    ));
    source.push().unwrap();
    assert_eq!(hand.all(), [Frame::Install(1)]);
}

#[test]
fn a_batch_is_sent_in_time_by_itself() {
    let delay = Duration::from_millis(5);
    let (source, mut hand) = by_hand(64, Aggregation::default().delay(delay));
    let fast = add(&source).aggregated();
    for payload in 0..20 {
        let began = Instant::now();
        fast.send(&payload).unwrap();
        // Short enough that the thread has not gone to sleep, and long enough that it has.
        let mut come = Vec::new();
        until(|| {
            come.extend(hand.all());
            come.contains(&batch(0, [payload]))
        });
        assert!(began.elapsed() >= delay);
        thread::sleep(delay * (payload as u32 % 4));
    }
    // In time is not at once: it is full before.
    let (source, mut hand) = by_hand(64, Aggregation::default().delay(Duration::from_secs(3600)));
    let fast = add(&source).aggregated();
    (0..1018).for_each(|payload| fast.send(&payload).unwrap());
    assert_eq!(hand.all(), [Frame::Install(0), batch(0, 0..1018)]);
    fast.send(&1).unwrap();
    drop(fast);
    drop(source);
    assert_eq!(hand.all()[0], batch(0, [1]));
}

/// No call hangs for any answer of the target, and none is answered with bytes past a cut.
#[test]
fn mutated_completions_are_refused_or_harmless() {
    let (ran, refused) = (Cell::new(0), Cell::new(0));
    let strategy = prop::collection::vec((any::<prop::sample::Index>(), 0..8u32), 0..4);
    let strategy = (strategy, prop::option::of(any::<prop::sample::Index>()));
    let config = ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |((flips, cut) in strategy)| {
        ran.set(ran.get() + 1);
        let (source, mut hand) = by_hand(64, never(4096));
        let fast = add(&source).aggregated();
        let calls: Vec<_> = (0..3).map(|payload| fast.call(&payload).unwrap()).collect();
        source.push().unwrap();
        hand.all();
        let answers = [[1u8; 8].as_slice(), &[2; 3], &[3; 60]];
        let told: Vec<_> = hand.tokens.iter().zip(answers).map(|(&token, answer)| (Status::Executed.code(), answer, token)).collect();
        let mut body = row(&told);
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()));
        }
        let len = body.len();
        for (at, bit) in flips.iter().filter(|_| len > 0) {
            body[at.index(len)] ^= 1 << bit;
        }
        hand.say(Header::new(Kind::Completions, 0, 0), &body);
        let mut calls = calls;
        let ended = calls.iter_mut().filter_map(|call| call.try_wait()).count();
        if !source.is_connected() {
            refused.set(refused.get() + 1);
            prop_assert_eq!(ended, 3);
        }
    });
    assert!(
        (ran.get() / 8..ran.get()).contains(&refused.get()),
        "{} of {}",
        refused.get(),
        ran.get()
    );
}

/// The first poll of a future sends its batch.
#[test]
fn an_awaited_call_sends_its_batch() {
    let (source, mut hand) = by_hand(64, never(4096));
    let fast = add(&source).aggregated();
    fast.send(&1).unwrap();
    let mut call = Box::pin(fast.call_async(&2));
    let mut context = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut context).is_pending());
    let entries = vec![
        (0, 1u64.to_le_bytes().to_vec(), false),
        (0, 2u64.to_le_bytes().to_vec(), true),
    ];
    assert_eq!(hand.all(), [Frame::Install(0), Frame::Batch(entries)]);
    let body = row(&[(Status::Executed.code(), &9u64.to_le_bytes(), hand.tokens[0])]);
    hand.say(Header::new(Kind::Completions, 0, 0), &body);
    match call.as_mut().poll(&mut context) {
        Poll::Ready(answer) => assert_eq!(answer.unwrap(), 9),
        Poll::Pending => panic!("it was answered"),
    }
}
