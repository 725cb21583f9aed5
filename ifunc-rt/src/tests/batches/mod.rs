//! Batches written by hand, and how a target processes them.

mod ear;
mod links;

use ifunc_abi::frame::{FrameFlags, Header, Kind};
use ifunc_abi::stats::Counts;
use ifunc_abi::status::Status;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use self::ear::{
    ADD, ALIGNED, COUNTS, Ear, FILLS, Frame, PANICS, REFUSED, Said, TOO_MANY, UNBOUND, install, installs,
    numbered, told,
};
use super::hostile_frames::{Script, batch};
use super::images;
use crate::target::bench::Bench;
use crate::{Failure, Rejection};

#[derive(Clone, Debug)]
struct Invocation {
    handle: u32,
    asks: bool,
    payload: Vec<u8>,
}

fn invocation() -> impl Strategy<Value = Invocation> {
    let number = |up_to: u64| (0..up_to).prop_map(|number: u64| number.to_le_bytes().to_vec());
    let what = prop_oneof![
        6 => (Just(ADD), number(1000)),
        1 => (Just(ADD), proptest::collection::vec(any::<u8>(), 0..20)),
        1 => (Just(PANICS), Just(Vec::new())),
        1 => (Just(COUNTS), Just(Vec::new())),
        // Some of them are longer than an answer may be.
        2 => (Just(FILLS), number(1100)),
        1 => (Just(ALIGNED), proptest::collection::vec(any::<u8>(), 0..200)),
        1 => (prop_oneof![Just(REFUSED), Just(UNBOUND), Just(TOO_MANY)], number(2)),
        1 => (Just(ADD), Just(vec![0; 4097])),
    ];
    (what, any::<bool>()).prop_map(|((handle, payload), asks)| Invocation {
        handle,
        asks,
        payload,
    })
}

/// How a target is given them, and how its source listens.
#[derive(Clone, Debug)]
struct Way {
    uid: u32,
    max_body: usize,
    /// Room that is given before each turn, again and again.
    room: Vec<usize>,
    /// By which frames overtake each other.
    order: Vec<u8>,
    /// The images have functions for batches.
    has_batches: bool,
}

/// What became of them all.
#[derive(Debug, PartialEq)]
struct Became {
    value: u64,
    told: Vec<Said>,
    counts: Counts,
}

/// `most`: how many invocations a poll runs at most, and one more.
fn deal(frames: Vec<Frame>, way: &Way, most: usize) -> Became {
    let ear = Ear::new(0);
    let mut raw = numbered([installs(way.has_batches), frames].concat());
    let mut order = way.order.iter().cycle();
    raw.sort_by_cached_key(|frame| frame.sequence() as usize + usize::from(*order.next().unwrap_or(&0)));
    let mouth = ear.mouth(way.max_body);
    let mut bench = Bench::new();
    let mut looked = bench.connect(mouth, Script::new(raw), way.uid);
    let mut room = way.room.iter().cycle();
    let mut idle = 0;
    for turn in 0.. {
        assert!(turn < 100_000, "it does not come to an end");
        let given = *room.next().unwrap();
        ear.heard().room = given;
        let done = bench.turn(&mut looked).unwrap();
        assert!(done <= most, "a turn has its end: {done}");
        // If credit was granted and not used, nothing is left. Finished or without credit, nothing happens until the
        // source acts.
        assert!(done > 0 || ear.heard().room > 0 || looked.is_quiet(&bench));
        if done > 0 {
            idle = 0;
        } else if ear.heard().room > 0 {
            idle += 1;
        }
        if idle > 2 {
            break;
        }
    }
    assert!(!looked.has_work());
    let value = looked.value;
    drop(looked);
    let mut counts = bench.stats().total;
    counts.stalls = 0;
    let heard = ear.heard();
    assert!(
        heard.longest <= (8 << 10) + (8 << 10) + 24 + 1024,
        "{}",
        heard.longest
    );
    Became {
        value,
        told: told(&heard.frames),
        counts,
    }
}

/// Invocations in batches have the same outcomes as in frames of their own, for any content, any split, any order of
/// arrival, and with or without a reading source.
#[test]
fn entries_mean_what_frames_mean() {
    let mine = rustix::process::geteuid().as_raw();
    let way = (
        prop_oneof![Just(mine), Just(mine + 1)],
        prop_oneof![Just(1 << 16), Just(1040), Just(2000)],
        proptest::collection::vec(0..3usize, 1..4)
            .prop_filter("room, some day", |room| room.iter().any(|&room| room > 0)),
        prop_oneof![Just(Vec::new()), proptest::collection::vec(0..20u8, 1..20)],
        any::<bool>(),
    )
        .prop_map(|(uid, max_body, room, order, has_batches)| Way {
            uid,
            max_body,
            room,
            order,
            has_batches,
        });
    let strategy = (
        proptest::collection::vec(invocation(), 0..150),
        proptest::collection::vec(0..100usize, 1..6),
        way,
    );
    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let reached = std::cell::RefCell::new(Counts::default());
    TestRunner::new(config)
        .run(&strategy, |(invocations, cuts, way)| {
            let mut token = 0;
            let entries: Vec<(u32, u64, &[u8])> = invocations
                .iter()
                .map(
                    |Invocation {
                         handle,
                         asks,
                         payload,
                     }| {
                        token += u64::from(*asks);
                        (*handle, if *asks { token } else { 0 }, &payload[..])
                    },
                )
                .collect();
            let frames = entries
                .iter()
                .map(|(handle, token, payload)| (Header::new(Kind::Exec, *handle, *token), payload.to_vec()))
                .collect();
            let mut rest = &entries[..];
            let mut batches = Vec::new();
            for cut in cuts.iter().cycle().take(cuts.len() + invocations.len()) {
                let (here, behind) = rest.split_at((*cut).min(rest.len()));
                batches.push((Header::new(Kind::Batch, 0, 0), batch(here.iter().copied())));
                rest = behind;
            }
            batches.push((Header::new(Kind::Batch, 0, 0), batch(rest.iter().copied())));
            let count = batches.len() as u64;
            let plain = Way {
                order: Vec::new(),
                room: vec![1 << 10],
                ..way.clone()
            };
            let one_by_one = deal(frames, &plain, 64 + 1);
            let together = deal(batches, &way, 1024 + 1);
            prop_assert_eq!(without_calls(&together.told), without_calls(&one_by_one.told));
            prop_assert_eq!(together.value, one_by_one.value);
            prop_assert_eq!(one_by_one.counts.frames, 6 + invocations.len() as u64);
            prop_assert_eq!(together.counts.frames, 6 + count);
            let frames = one_by_one.counts.frames;
            // The detail of a panic names one call more.
            let bytes_out = if way.has_batches {
                one_by_one.counts.bytes_out
            } else {
                together.counts.bytes_out
            };
            prop_assert_eq!(
                &Counts {
                    frames,
                    bytes_out,
                    ..together.counts.clone()
                },
                &one_by_one.counts
            );
            reached.borrow_mut().merge(&together.counts);
            Ok(())
        })
        .unwrap();
    let reached = reached.into_inner();
    for why in [Failure::Panic, Failure::Payload, Failure::Answer] {
        assert!(reached.failed.get(why) > 0, "no case reached {why:?}");
    }
    for why in [Rejection::Unbound, Rejection::MissingImport, Rejection::TooLarge] {
        assert!(reached.rejected.get(why) > 0, "no case reached {why:?}");
    }
}

/// Without the calls that are found on the stack of a panic: of an entry of a batch, that of `X_main` is one of them.
fn without_calls(told: &[Said]) -> Vec<Said> {
    let mut told = told.to_vec();
    for (status, token, body) in &mut told {
        if *status == Status::Failed(Failure::Panic) {
            // Line, column and length of the file, after the handle in a report; message and file are the last 8 bytes.
            let calls = if *token == 0 { 16 } else { 12 };
            body.drain(calls..body.len() - 8);
        }
    }
    told
}

/// A target's answer to frames that follow the installing ones.
fn answer(frames: Vec<Frame>) -> (Result<(), String>, u64, Vec<Said>) {
    let ear = Ear::new(usize::MAX);
    let mouth = ear.mouth(1 << 16);
    let script = Script::new(numbered([installs(true), frames].concat()));
    let mut bench = Bench::new();
    let mut looked = bench.connect(mouth, script, rustix::process::geteuid().as_raw());
    let ended = loop {
        match bench.turn(&mut looked) {
            Ok(0) => break Ok(()),
            Ok(_) => {}
            Err(why) => break Err(why),
        }
    };
    let told = told(&ear.heard().frames);
    (ended, looked.value, told)
}

#[test]
fn what_stands_before_a_cut_is_run_and_told() {
    let number = 1u64.to_le_bytes();
    let entries = [
        (ADD, 1, &number[..]),
        (FILLS, 2, &number),
        (PANICS, 3, b""),
        (ADD, 4, &number),
    ];
    let ends: Vec<usize> = (0..=entries.len())
        .map(|count| batch(entries[..count].iter().copied()).len())
        .collect();
    let whole = batch(entries);
    for len in 0..=whole.len() {
        let frame = (Header::new(Kind::Batch, 0, 0), whole[..len].to_vec());
        // The target processes no frame after it.
        let behind = (Header::new(Kind::Exec, ADD, 5), number.to_vec());
        let (ended, value, told) = answer(vec![frame, behind]);
        let count = ends.iter().filter(|&&end| end <= len).count() - 1;
        let cut = !ends.contains(&len);
        match ended {
            Err(why) => assert!(cut && why.contains("cut off"), "{len}: {why}"),
            Ok(()) => assert!(!cut, "{len}"),
        }
        let tokens: Vec<u64> = told.iter().map(|(_, token, _)| *token).collect();
        let expected: Vec<u64> = (1..=count as u64).chain((!cut).then_some(5)).collect();
        assert_eq!(tokens, expected, "{len}");
        let adds = [0, 1, 1, 1, 2][count] + u64::from(!cut);
        assert_eq!(value, adds, "{len}");
    }
    // Longer than what follows, by any number.
    for len in [73, 1 << 12, 1 << 31, u32::MAX - 15, u32::MAX] {
        let mut body = whole.clone();
        body[4..8].copy_from_slice(&u32::to_le_bytes(len));
        let (ended, value, told) = answer(vec![(Header::new(Kind::Batch, 0, 0), body)]);
        assert!(ended.is_err(), "{len}");
        assert_eq!((value, told.len()), (0, 0), "{len}");
    }
    let says_more = [
        Header::new(Kind::Batch, 1, 0),
        Header::new(Kind::Batch, 0, 1),
        Header {
            flags: FrameFlags::ASSEMBLED,
            ..Header::new(Kind::Batch, 0, 0)
        },
    ];
    for header in says_more {
        let (ended, value, told) = answer(vec![(header, whole.clone())]);
        assert!(ended.is_err());
        assert_eq!((value, told.len()), (0, 0));
    }
}

#[test]
fn answers_go_when_a_turn_ends() {
    let ear = Ear::new(usize::MAX);
    let mouth = ear.mouth(1 << 16);
    let number = 1u64.to_le_bytes();
    let frames = vec![
        (Header::new(Kind::Install, ADD, 0), install(images::add())),
        (
            Header::new(Kind::Batch, 0, 0),
            batch((1..=150).map(|token| (ADD, token, &number[..]))),
        ),
    ];
    let mut bench = Bench::new();
    let script = Script::new(numbered(frames));
    let mut looked = bench.connect(mouth, script, rustix::process::geteuid().as_raw());
    let mut turns = 0;
    while bench.turn(&mut looked).unwrap() > 0 {
        turns += 1;
        let heard = ear.heard();
        assert_eq!(told(&heard.frames).len() as u64, looked.value);
        assert_eq!(heard.frames.len(), turns, "in one frame");
    }
    // An image counts for eight.
    assert_eq!((looked.value, turns), (150, 3));
}
