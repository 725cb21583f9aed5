//! Batches over transports, from a source that reads its completions when the test tells it to.

use ifunc_proto::link::Body as _;
use std::time::{Duration, Instant};

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::status::Status;

use super::ear::{ADD, PANICS, Said, install, told};
use crate::Target;
use crate::tests::hostile_frames::batch;
use crate::tests::images::{self, Add};
use crate::tests::running::{accepting, source, unique, with_quotas};
use crate::transport::{self, Link};

const PATIENCE: Duration = Duration::from_secs(30);

/// A source without any of its code.
struct Bare(Link);

impl Bare {
    fn connect(target: &Target) -> Self {
        let to = target.address().parse().unwrap();
        Self(transport::connect(&to, Instant::now() + PATIENCE).unwrap())
    }

    /// Sends a frame as soon as the target has taken what was sent before.
    fn send(&mut self, target: &mut Target, value: &mut u64, header: Header, body: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(room) = self.0.tx().reserve(body.len(), 8).unwrap() {
                room.copy_from_slice(body);
                self.0.tx().commit(header, body.len());
                return;
            }
            target.poll(value);
            assert!(Instant::now() < deadline);
        }
    }

    fn send_batch(&mut self, target: &mut Target, value: &mut u64, entries: &[(u32, u64, [u8; 8])]) {
        let body = batch(
            entries
                .iter()
                .map(|(handle, token, payload)| (*handle, *token, &payload[..])),
        );
        self.send(target, value, Header::new(Kind::Batch, 0, 0), &body);
    }

    /// Receives all completions.
    fn hear(&mut self, heard: &mut Vec<Said>) {
        while let Some(arrived) = self.0.rx().peek().unwrap() {
            let mut body = Vec::new();
            arrived.body.append_to(&mut body);
            heard.extend(told(&[(Header::parse(arrived.words).unwrap(), body)]));
            self.0.rx().release();
        }
        self.0.rx().settle();
    }
}

fn smallest(transport: &str) -> Target {
    // An answer may be as long as a frame: half a ring.
    with_quotas(accepting(), |quotas| quotas.answer_bytes(1 << 20))
        .credits(2)
        .ring(1 << 16)
        .listen(&unique(transport))
        .unwrap()
}

const FILLS: u32 = 1;
const LONGEST: u64 = 1 << 15;

/// How long the answers are of the batch's invocations.
fn answer_len(token: u64) -> u64 {
    match token % 7 {
        1 => LONGEST,
        3 => 20_000,
        5 => LONGEST + 1,
        _ => 100,
    }
}

#[test]
fn who_does_not_read_waits_and_nobody_else() {
    for transport in ["loopback", "shm"] {
        let mut target = smallest(transport);
        let mut value = 0;
        let mut deaf = Bare::connect(&target);
        for (handle, image) in [(ADD, images::add()), (FILLS, images::fills())] {
            let header = Header::new(Kind::Install, handle, 0);
            deaf.send(&mut target, &mut value, header, &install(image));
        }
        const COUNT: u64 = 300;
        let entries: Vec<_> = (1..=COUNT)
            .flat_map(|token| {
                let fills = (FILLS, token, answer_len(token).to_le_bytes());
                [fills, (ADD, 0, 1u64.to_le_bytes())]
            })
            .collect();
        deaf.send_batch(&mut target, &mut value, &entries);
        while target.poll(&mut value) > 0 {}
        let ran = value;
        assert!(
            ran > 0 && ran < 64,
            "{transport}: as much as there is room for, and not {ran}"
        );
        assert_eq!(target.stats().total.frames, 2, "the batch is not through");
        assert!(target.stats().sources[0].stalled);

        // Others are served, and a target whose others are through sleeps.
        let other = source(&target.address());
        let add = other
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let mut call = add.try_call(&1000).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let sum = loop {
            target.poll(&mut value);
            if let Some(sum) = call.try_wait() {
                break sum.unwrap();
            }
            assert!(Instant::now() < deadline);
        };
        assert_eq!(sum, ran + 1000);
        while target.poll(&mut value) > 0 {}
        assert!(target.arm(), "{transport}: nothing to do");
        target.disarm();
        assert_eq!(target.poll(&mut value), 0);

        // The source reads in small steps; a sync after the batch reports that all of it was run.
        let mut heard = Vec::new();
        let mut sent = false;
        let last = |heard: &[Said]| heard.last().is_some_and(|(_, token, _)| *token == u64::MAX);
        while !last(&heard) {
            deaf.hear(&mut heard);
            if !sent && deaf.0.tx().reserve(0, 8).unwrap().is_some() {
                deaf.0.tx().commit(Header::new(Kind::Sync, 0, u64::MAX), 0);
                sent = true;
            }
            target.poll(&mut value);
            assert!(Instant::now() < deadline);
        }
        assert_eq!(value, 1000 + COUNT);
        assert_eq!(heard.len() as u64, COUNT + 1);
        for (token, (status, of, body)) in (1..=COUNT).zip(heard) {
            assert_eq!(of, token);
            if answer_len(token) > LONGEST {
                assert_eq!(status, Status::Failed(crate::Failure::Answer));
            } else {
                assert_eq!(status, Status::Executed);
                assert_eq!(body.len() as u64, answer_len(token));
                assert!(body.iter().all(|&byte| byte == answer_len(token) as u8));
            }
        }
    }
}

#[test]
fn a_batch_takes_its_share_of_a_turn_and_is_run_to_its_end() {
    for transport in ["loopback", "shm"] {
        let mut target = smallest(transport);
        let mut value = 0;
        let [mut many, mut few] = [(); 2].map(|()| Bare::connect(&target));
        for source in [&mut many, &mut few] {
            let header = Header::new(Kind::Install, ADD, 0);
            source.send(&mut target, &mut value, header, &install(images::add()));
        }
        // Both are let in, and have what they call.
        let deadline = Instant::now() + PATIENCE;
        while target.stats().total.frames < 2 {
            target.poll(&mut value);
            assert!(Instant::now() < deadline);
        }
        let entries: Vec<_> = (1..=1000u64)
            .map(|token| (ADD, token % 2, 1u64.to_le_bytes()))
            .collect();
        many.send_batch(&mut target, &mut value, &entries);
        let one = 1u64.to_le_bytes();
        few.send(&mut target, &mut value, Header::new(Kind::Exec, ADD, 0), &one);
        while value == 0 {
            target.poll(&mut value);
        }
        // The turn of both, in either order.
        target.poll(&mut value);
        let ran = target
            .stats()
            .sources
            .iter()
            .map(|source| source.counts.executed)
            .collect::<Vec<_>>();
        assert!(
            ran.contains(&1) && ran.iter().all(|&ran| ran <= 128),
            "{transport}: {ran:?}"
        );
        // Its source closes. The target still runs what the source had sent.
        drop(many);
        while target.connections() > 1 {
            target.poll(&mut value);
            assert!(Instant::now() < deadline);
        }
        assert_eq!(value, 1001, "{transport}");
        assert_eq!(target.stats().total.executed, 1001);
        drop(few);
    }
}

/// Over shared memory, those that are alike run in one crossing of the call gate; over the other transport, none do.
#[test]
fn frames_that_run_together_count_as_each_alone() {
    let [first, second] = ["loopback", "shm"].map(|transport| {
        // With two credits no frames would run together.
        let sizes = accepting().credits(1024).ring(1 << 20);
        let mut target = sizes.listen(&unique(transport)).unwrap();
        let mut value = 0;
        let mut source = Bare::connect(&target);
        let images = [(ADD, images::add()), (PANICS, images::panics())];
        for (handle, image) in images {
            let header = Header::new(Kind::Install, handle, 0);
            source.send(
                &mut target,
                &mut value,
                header,
                &install(images::with_batch(image)),
            );
        }
        let deadline = Instant::now() + PATIENCE;
        let (mut sent, mut sum, mut panicked) = (0, 0, 0);
        // Past the invocations that are timed one by one; long bodies do not lie in their slots.
        for round in 0..40u64 {
            let count = 1 + round * 7 % 90;
            for number in 0..count {
                let (handle, body) = match round % 4 {
                    0 => (PANICS, vec![0; 8]),
                    1 => (ADD, vec![1; 100]),
                    _ => (ADD, (number + round).to_le_bytes().to_vec()),
                };
                match body.len() {
                    8 if handle == ADD => sum += number + round,
                    _ => panicked += 1,
                }
                source.send(&mut target, &mut value, Header::new(Kind::Exec, handle, 0), &body);
            }
            sent += count;
            while target.stats().total.executed + target.stats().total.failed.total() < sent {
                target.poll(&mut value);
                assert!(Instant::now() < deadline);
            }
        }
        let counts = target.stats().total;
        assert_eq!((value, counts.failed.total()), (sum, panicked), "{transport}");
        (counts.executed, counts.failed, counts.rejected, counts.frames)
    });
    assert_eq!(first, second);
}

/// `cargo test -p ifunc-rt --release --lib -- --ignored --nocapture measured_an_entry`
#[test]
#[ignore = "nightly: a measurement"]
fn measured_an_entry_beside_a_frame() {
    const ROUNDS: u32 = 2000;
    let mut target = accepting().listen(&unique("shm")).unwrap();
    let mut value = 0;
    let mut source = Bare::connect(&target);
    let header = Header::new(Kind::Install, ADD, 0);
    source.send(&mut target, &mut value, header, &install(images::add()));
    let one = 1u64.to_le_bytes();
    for asks in [0, 1] {
        let entries = vec![(ADD, asks, one); 512];
        let mut took = [Duration::ZERO; 2];
        let mut heard = Vec::new();
        for _ in 0..ROUNDS {
            for _ in &entries {
                source.send(&mut target, &mut value, Header::new(Kind::Exec, ADD, asks), &one);
            }
            let began = Instant::now();
            while target.poll(&mut value) > 0 {}
            took[0] += began.elapsed();
            source.hear(&mut heard);
            source.send_batch(&mut target, &mut value, &entries);
            let began = Instant::now();
            while target.poll(&mut value) > 0 {}
            took[1] += began.elapsed();
            source.hear(&mut heard);
            heard.clear();
        }
        let [frame, entry] = took.map(|took| took / (ROUNDS * 512));
        let each = if asks == 0 { "sent" } else { "answered" };
        println!("{each}: {frame:?} a frame, {entry:?} an entry");
    }
}
