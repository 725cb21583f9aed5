//! Answers that are larger than a frame.

use ifunc_abi::frame::{FrameFlags, Header, Kind};
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_proto::host::Refusal;
use ifunc_proto::link::{Link as _, Outbound as _};

use crate::node::{LONG, Letter, Node, connect, settle};
use crate::pipe::Pipe;

/// A source and a target with one credit in each direction.
fn pair(max_answer: u64) -> (Pipe, Node, Node, u32) {
    let mut pipe = Pipe::new(1, 128);
    let (mut source, mut target) = (Node::new(0, false), Node::answering(1, true, max_answer));
    connect(
        &mut pipe,
        [&mut source, &mut target],
        [false, true],
        [true, false],
    );
    let handle = source.connection.caller.bind(Letter::new(b'a', 10));
    (pipe, source, target, handle)
}

/// Submits once there is credit.
fn call(pipe: &mut Pipe, source: &mut Node, target: &mut Node, handle: u32, payload: &[u8]) -> u64 {
    for _ in 0..100 {
        if let Some(token) = source.submit(pipe, handle, payload, true).unwrap() {
            return token;
        }
        target.poll(pipe);
        source.connection.receive(&mut pipe.side(0), 0);
    }
    panic!("the window stays closed");
}

#[test]
fn long_answers_of_frames_and_batches_come_whole_and_between_short_ones() {
    let (mut pipe, mut source, mut target, handle) = pair(LONG as u64);
    let payloads: [&[u8]; 6] = [b"long1", b"short", b"long2", b"long3", b"fail", b"x"];
    let mut tokens = Vec::new();
    for payload in payloads {
        tokens.push(call(&mut pipe, &mut source, &mut target, handle, payload));
    }
    for payload in payloads {
        let appended = source.append(&mut pipe, handle, payload, false).unwrap();
        tokens.push(appended.expect("a batch needs no credit"));
    }
    source.connection.close_batch(&mut pipe.side(0));
    settle(&mut pipe, &mut source, &mut target);
    for (token, payload) in tokens.into_iter().zip(payloads.into_iter().cycle()) {
        let completion = source.take(token).unwrap().unwrap();
        match payload {
            b"fail" => assert_eq!(completion.status, Status::Failed(Failure::Payload)),
            [b'l', b'o', b'n', b'g', byte] => assert_eq!(completion.bytes(), [*byte; LONG]),
            short => assert_eq!(completion.bytes(), short),
        }
    }
    assert_eq!(target.connection.unfinished(), None);
    assert_eq!(source.connection.footprint().assembled, 0);
}

#[test]
fn a_call_that_is_dropped_meanwhile_costs_nothing_and_the_next_one_ends() {
    let (mut pipe, mut source, mut target, handle) = pair(LONG as u64);
    let dropped = call(&mut pipe, &mut source, &mut target, handle, b"long1");
    for _ in 0..4 {
        target.poll(&mut pipe);
        source.connection.receive(&mut pipe.side(0), 0);
    }
    assert!(source.connection.footprint().assembled > 0, "a part has arrived");
    source.connection.caller.abandon(dropped);
    assert_eq!(source.connection.footprint().assembled, 0);
    let next = call(&mut pipe, &mut source, &mut target, handle, b"long2");
    settle(&mut pipe, &mut source, &mut target);
    assert_eq!(source.take(next).unwrap().unwrap().bytes(), [b'2'; LONG]);
    assert_eq!(source.connection.caller.calls.in_use(), 0);
}

#[test]
fn an_answer_that_its_source_does_not_take_is_dropped_and_its_call_fails() {
    let (mut pipe, mut source, mut target, handle) = pair(LONG as u64);
    let token = call(&mut pipe, &mut source, &mut target, handle, b"long1");
    for _ in 0..3 {
        target.poll(&mut pipe);
    }
    let waits = target.connection.unfinished();
    assert!(waits.is_some());
    target.poll(&mut pipe);
    assert_eq!(target.connection.unfinished(), waits, "nothing was taken");
    source.connection.receive(&mut pipe.side(0), 0);
    target.poll(&mut pipe);
    assert_ne!(target.connection.unfinished(), waits, "a part was taken");
    let why = "the source took nothing of it for a minute; the setting is so and so";
    target
        .connection
        .refuse_unfinished(Refusal::new(Rejection::Quota, why));
    assert_eq!(target.connection.unfinished(), None);
    settle(&mut pipe, &mut source, &mut target);
    let completion = source.take(token).unwrap().unwrap();
    assert_eq!(completion.status, Status::Failed(Failure::Answer));
    assert_eq!(completion.bytes(), why.as_bytes());
    assert_eq!(source.connection.footprint().assembled, 0);
    let next = call(&mut pipe, &mut source, &mut target, handle, b"long2");
    settle(&mut pipe, &mut source, &mut target);
    assert_eq!(source.take(next).unwrap().unwrap().bytes(), [b'2'; LONG]);
}

#[test]
fn an_answer_above_the_limit_of_the_connection_fails() {
    let (mut pipe, mut source, mut target, handle) = pair(LONG as u64 - 1);
    let token = call(&mut pipe, &mut source, &mut target, handle, b"long1");
    settle(&mut pipe, &mut source, &mut target);
    let completion = source.take(token).unwrap().unwrap();
    assert_eq!(completion.status, Status::Failed(Failure::Answer));
    assert_eq!(completion.bytes(), b"an answer of 1000 bytes, the limit is 999");
}

#[test]
fn parts_that_make_no_answer_end_the_connection() {
    let last = Header {
        flags: FrameFlags::ASSEMBLED,
        ..Header::new(Kind::Completion, Status::Executed.code(), 1)
    };
    let part = |len, token| Header::new(Kind::AnswerFragment, len, token);
    let cases: [&[(Header, usize)]; 4] = [
        &[(last, 5)],
        &[(part(100, 1), 50), (last, 49)],
        &[(part(100, 1), 60), (part(100, 1), 60)],
        &[(part(100, 1), 60), (part(100, 2), 60), (last, 40)],
    ];
    for frames in cases {
        let (mut pipe, mut source, _, handle) = pair(LONG as u64);
        let token = source.submit(&mut pipe, handle, b"x", true).unwrap();
        for &(header, len) in frames {
            let mut side = pipe.side(1);
            let (tx, _) = side.split();
            tx.reserve(len, 8).unwrap().unwrap().fill(0);
            tx.commit(header, len);
            source.connection.receive(&mut pipe.side(0), 0);
        }
        assert!(!source.connection.is_linked(), "{frames:?}");
        let _ = token;
    }
}
