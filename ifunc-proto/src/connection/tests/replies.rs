//! Each reply: which call it ends, what the driver is told, and how a malformed one ends the connection.

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{FrameFlags, Header, INLINE, Kind};
use ifunc_abi::status::{Failure, Rejection, Status};
use zerocopy::IntoBytes as _;

use super::{EXECUTED, Source, bytes, completion, config, peer, with_calls, woken};
use crate::calls::Lost;
use crate::testing::{Code, Ends};

#[test]
fn each_reply_ends_its_call_and_wakes_its_waiter() {
    let failed = Status::Failed(Failure::Payload);
    let ended = |token: u64, flags: FrameFlags, status: Status| Header {
        flags,
        ..Header::new(Kind::Completion, status.code(), token)
    };
    let long = vec![9; INLINE + 1];
    type Case<'a> = (&'a [(Header, &'a [u8])], Status, &'a [u8]);
    let cases: [Case<'_>; 5] = [
        (
            &[(ended(1, FrameFlags::NONE, Status::Executed), b"yes")],
            Status::Executed,
            b"yes",
        ),
        (&[(ended(1, FrameFlags::NONE, failed), b"no")], failed, b"no"),
        (
            &[(ended(1, FrameFlags::NONE, Status::Executed), &long)],
            Status::Executed,
            &long,
        ),
        (
            &[
                (Header::new(Kind::AnswerFragment, 5, 1), b"abc"),
                (ended(1, FrameFlags::ASSEMBLED, Status::Executed), b"de"),
            ],
            Status::Executed,
            b"abcde",
        ),
        (
            &[(
                Header::new(Kind::Completions, 0, 0),
                &[
                    RunHead::new(EXECUTED, 1, 3, 3, 2).as_bytes(),
                    b"onetwo\0\0",
                    RunHead::new(failed.code(), 4, 1, 1, 1).as_bytes(),
                    b"f\0\0\0\0\0\0\0",
                ]
                .concat(),
            )],
            Status::Executed,
            b"one",
        ),
    ];
    for (frames, status, answer) in cases {
        let (mut source, mut link, _) = with_calls();
        assert!(source.caller.is_quiet() && !source.caller.needs_attention());
        for (number, (header, body)) in frames.iter().enumerate() {
            assert_eq!(source.received(), number as u64);
            assert!(source.caller.is_quiet());
            link.arrive(*header, body);
            source.receive(&mut link, 0);
        }
        assert!(!source.caller.is_quiet() && source.caller.needs_attention());
        assert_eq!(bytes(source.caller.calls.take(1)), (status, answer.to_vec()));
        if frames[0].0.kind == Kind::Completions {
            assert_eq!(source.received(), 3);
            assert_eq!(woken(&mut source), [11, 12]);
            assert_eq!(
                bytes(source.caller.calls.take(2)),
                (Status::Executed, b"two".to_vec())
            );
            assert_eq!(bytes(source.caller.calls.take(4)), (failed, b"f".to_vec()));
        } else {
            assert_eq!(source.received(), frames.len() as u64);
            assert_eq!(woken(&mut source), [11]);
        }
        assert!(source.caller.is_quiet() && !source.caller.needs_attention());
        assert_eq!(source.footprint().assembled, 0);
    }
    // One that nothing waits for wakes nobody.
    let (mut source, mut link, _) = with_calls();
    link.arrive(completion(3), b"");
    source.receive(&mut link, 0);
    assert!(source.caller.is_quiet());
    assert!(source.caller.calls.take(3).is_some());
}

#[test]
fn replies_of_nodes_and_reports_reach_the_driver() {
    let (mut source, mut link, handle) = with_calls();
    // On another node.
    let relayed = Header {
        flags: FrameFlags::RELAYED,
        ..Header::new(Kind::Completion, Status::Failed(Failure::Payload).code(), 1)
    };
    link.arrive(relayed, b"\x05\0\0\0detail");
    source.receive(&mut link, 0);
    let expected = Lost::AtNode {
        node: 5,
        status: Status::Failed(Failure::Payload),
        detail: b"detail".to_vec(),
    };
    assert_eq!(*source.caller.calls.take(1).unwrap().unwrap_err(), expected);
    assert_eq!((source.received(), woken(&mut source)), (1, vec![11]));
    // A partial answer, and the last one.
    link.arrive(Header::new(Kind::Partial, 0, 2), b"part");
    source.receive(&mut link, 0);
    assert_eq!((source.received(), source.caller.is_quiet()), (2, false));
    assert_eq!(woken(&mut source), [12]);
    assert_eq!(source.caller.calls.take_partial(2), Some(b"part".to_vec()));
    assert_eq!(source.caller.calls.take_partial(2), None);
    assert!(source.caller.calls.take(2).is_none(), "it goes on");
    // A report.
    link.arrive(
        Header::new(Kind::Report, Status::Rejected(Rejection::Policy).code(), 3),
        &[&handle.to_le_bytes(), &b"why"[..]].concat(),
    );
    source.receive(&mut link, 0);
    assert_eq!((source.received(), source.caller.is_quiet()), (3, true));
    assert!(source.caller.needs_attention());
    let report = source.caller.take_report().unwrap();
    assert_eq!(report.image, Code::new(b'a', 10));
    assert_eq!(
        bytes(Some(report.outcome)),
        (Status::Rejected(Rejection::Policy), b"why".to_vec())
    );
    assert!(source.caller.take_report().is_none() && !source.caller.needs_attention());
    // One that is too short is about nothing.
    link.arrive(
        Header::new(Kind::Report, Status::Rejected(Rejection::Policy).code(), 3),
        b"abc",
    );
    source.receive(&mut link, 0);
    assert_eq!((source.received(), source.footprint().reports), (4, 0));
    assert!(source.is_linked());
}

#[test]
fn a_malformed_reply_ends_the_connection_and_says_why() {
    let code = |kind: Kind, code: u32| Header::new(kind, code, 1);
    let relayed = Header {
        flags: FrameFlags::RELAYED,
        ..completion(1)
    };
    let assembled = Header {
        flags: FrameFlags::ASSEMBLED,
        ..completion(1)
    };
    let run = |count| RunHead::new(EXECUTED, 1, 0, 0, count);
    let cases: [(Header, Vec<u8>, &str); 9] = [
        (code(Kind::Completion, 0xffff), vec![], "an unknown status"),
        (code(Kind::Report, 0xffff), vec![0; 4], "an unknown status"),
        (relayed, vec![0; 3], "completions that are cut off"),
        (assembled, vec![], "the last part of an answer without a first"),
        (
            code(Kind::Exec, 0),
            vec![],
            "a request from a peer that does not invoke",
        ),
        (
            code(Kind::NodesLost, 0),
            vec![0; 16],
            "a request from a peer that does not invoke",
        ),
        (
            code(Kind::Completions, 0),
            run(1).as_bytes()[..23].to_vec(),
            "completions that are cut off",
        ),
        (
            code(Kind::Completions, 0),
            [run(16).as_bytes(), run(1).as_bytes()].concat(),
            "more completions than calls",
        ),
        (
            code(Kind::Completions, 0),
            [RunHead::new(EXECUTED, 1, 8, 8, 2).as_bytes(), &[0; 8]].concat(),
            "completions that are cut off",
        ),
    ];
    for (header, body, why) in cases {
        let (mut source, mut link, _) = with_calls();
        link.arrive(header, &body);
        assert!(source.is_linked());
        source.receive(&mut link, 0);
        assert!(!source.is_linked(), "{why}");
        assert_eq!(
            source.lost_because(),
            format!("the peer broke the protocol: {why}")
        );
    }
    // As many completions as there are places.
    let (mut source, mut link, _) = with_calls();
    link.arrive(Header::new(Kind::Completions, 0, 0), run(16).as_bytes());
    source.receive(&mut link, 0);
    assert_eq!((source.received(), source.is_linked()), (16, true));
    // Of a peer that does not serve, nothing is a reply.
    for header in [
        completion(1),
        code(Kind::Completion, Status::Failed(Failure::Payload).code()),
    ] {
        let mut link = Ends::new(512, 1);
        let mut source = Source::new(config(false));
        source.connect(&mut link, peer(None, true));
        link.arrive(header, b"");
        source.receive(&mut link, 0);
        let why = "the peer broke the protocol: a completion from a peer that does not serve";
        assert_eq!(source.lost_because(), why);
    }
}
