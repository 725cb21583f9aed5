//! Invocations that travel, their answers, and frames between nodes.

use ifunc_abi::frame::{FrameFlags, Header, Kind};
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::TravelHead;
use zerocopy::IntoBytes as _;

use super::{
    FAILED, arrive_in_fragments, completed, end_of, expect, failed, install_a, poll, rejected, served,
};
use crate::closed::Closed;
use crate::host::{Event, Failed};

#[test]
fn an_invocation_that_travels_has_a_head_and_a_payload() {
    let (mut served, mut link, mut host) = served(None, usize::MAX);
    install_a(&mut served, &mut link, &mut host);
    let travel = |hops, payload: &[u8]| [TravelHead::of_source(hops).as_bytes(), payload].concat();
    let mut step =
        |handle, token, body: &[u8], log: &[&str], events: &[Event], replies: &[(Header, Vec<u8>)]| {
            let header = Header::new(Kind::Travel, handle, token);
            expect(
                (&mut served, &mut link, &mut host),
                header,
                body,
                log,
                events,
                replies,
            );
        };
    let log = [
        "travel a1: hello in place, frame 2, answer Some(300)",
        "of 6 hops, call (3, 5), late true, at most Some(300) or 300 elsewhere, 5 bytes",
    ];
    step(
        3,
        5,
        &travel(6, b"hello"),
        &log,
        &[],
        &[completed(5, Status::Executed, b"hello")],
    );
    let log = [
        "travel a0: take in place, frame 3, answer None",
        "of 6 hops, call (2, 0), late true, at most None or 300 elsewhere, 4 bytes",
    ];
    step(2, 0, &travel(6, b"take"), &log, &[], &[]);
    let log = [
        "travel a0: fail in place, frame 4, answer Some(300)",
        "of 6 hops, call (2, 6), late true, at most Some(300) or 300 elsewhere, 4 bytes",
    ];
    let body = travel(6, b"fail");
    step(
        2,
        6,
        &body,
        &log,
        &[failed(FAILED, body.len(), 9)],
        &[completed(6, FAILED, b"it failed")],
    );
    // One that does not run is rejected by the host, or reported elsewhere.
    let unbound = rejected(Rejection::Unbound);
    for (handle, hops, status, detail) in [
        (1, 5, unbound, "handle 1"),
        (7, 5, unbound, "handle 7"),
        (
            8,
            5,
            rejected(Rejection::TooLarge),
            "handle 8, the limit is 8 handles",
        ),
        (1, 99, unbound, "handle 1"),
    ] {
        let body = travel(hops, b"hi");
        let log = format!("reject of {hops} hops, call ({handle}, 7), 2 bytes: {detail}");
        let counted = [failed(status, body.len(), detail.len()), Event::Frame];
        let reply = completed(7, status, detail.as_bytes());
        let is_reported = hops == 99;
        step(
            handle,
            7,
            &body,
            &[&log],
            if is_reported { &[] } else { &counted },
            if is_reported {
                &[]
            } else {
                std::slice::from_ref(&reply)
            },
        );
    }
    // In fragments, up to the limit.
    for (len, number) in [(1000, 1), (1001, 2)] {
        let body = travel(6, &vec![b'p'; len]);
        arrive_in_fragments(&mut link, number, Header::new(Kind::Travel, 2, 8), &body);
        poll(&mut served, &mut link, &mut host);
        let (log, _) = host.take_log();
        let status = if len == 1000 {
            assert!(log[0].starts_with("travel a0: 1000 bytes private"), "{log:?}");
            Status::Executed
        } else {
            assert_eq!(
                log,
                ["reject of 6 hops, call (2, 8), 1001 bytes: a payload of 1001 bytes, the limit is 1000"]
            );
            rejected(Rejection::TooLarge)
        };
        assert_eq!(link.tx.take()[0].0, completed(8, status, b"").0);
        assert_eq!(served.footprint().assembled, 0);
    }
    // A host that admits none.
    host.admits = false;
    link.arrive(Header::new(Kind::Travel, 2, 9), &travel(6, b"hello"));
    assert_eq!(served.poll(&mut link, &mut host), Ok(0));
    assert!(served.is_held() && !served.is_stalled());
    host.admits = true;
    assert_eq!(served.poll(&mut link, &mut host), Ok(1));
    assert!(!served.is_held());
    assert_eq!(link.tx.take(), [completed(9, Status::Executed, b"hello")]);
    // Without a head.
    link.arrive(Header::new(Kind::Travel, 2, 9), &travel(6, b"")[1..]);
    let why = "an invocation that travels and has no head".to_owned();
    assert_eq!(end_of(&mut served, &mut link, &mut host), Closed::Broke(why));
}

#[test]
fn what_traveled_is_answered_later_and_from_elsewhere() {
    let (mut served, mut link, mut host) = served(None, usize::MAX);
    install_a(&mut served, &mut link, &mut host);
    let body = [TravelHead::of_source(6).as_bytes(), b"take"].concat();
    for token in [5, 6, 7, 8, 0] {
        link.arrive(Header::new(Kind::Travel, 2, token), &body);
    }
    poll(&mut served, &mut link, &mut host);
    host.take_log();
    let [answered, relayed, elsewhere, partly, none] = &std::mem::take(&mut host.taken)[..] else {
        panic!("five were taken");
    };
    let detail = || Box::new(Failed::new(FAILED, b"why".to_vec()));
    served.answer(&mut link, &mut host, answered, Ok(b"yes"));
    served.relay(&mut link, &mut host, relayed, 9, Ok(b"too"));
    served.relay(&mut link, &mut host, elsewhere, 9, Err(&detail()));
    served.answer_partially(&mut link, partly, 3, b"part".to_vec());
    served.answer(&mut link, &mut host, partly, Err(detail()));
    served.answer(&mut link, &mut host, none, Ok(b"dropped"));
    served.answer(&mut link, &mut host, none, Err(detail()));
    let relayed = Header {
        flags: FrameFlags::RELAYED,
        ..Header::new(Kind::Completion, FAILED.code(), 7)
    };
    let expected = [
        completed(5, Status::Executed, b"yes"),
        completed(6, Status::Executed, b"too"),
        (relayed, b"\x09\0\0\0why".to_vec()),
        (Header::new(Kind::Partial, 3, 8), b"part".to_vec()),
        completed(8, FAILED, b"why"),
        (
            Header::new(Kind::Report, FAILED.code(), 6),
            b"\x02\0\0\0why".to_vec(),
        ),
    ];
    assert_eq!(link.tx.take(), expected);
    assert_eq!(host.events, [failed(FAILED, 4, 3); 3]);
    // A long answer is sent in fragments, and waits for the window.
    link.tx.credits = 1;
    served.relay(&mut link, &mut host, partly, 9, Ok(&[7; 600]));
    assert_eq!((served.footprint().late, served.footprint().replies), (0, 0));
    assert!(served.unfinished().is_some() && served.has_work());
    served.answer_partially(&mut link, partly, 4, b"next".to_vec());
    assert_eq!(served.footprint().late, 1);
    link.tx.credits = 2;
    poll(&mut served, &mut link, &mut host);
    let last = Header {
        flags: FrameFlags::ASSEMBLED,
        ..completed(8, Status::Executed, b"").0
    };
    let expected = [
        (Header::new(Kind::AnswerFragment, 600, 8), vec![7; 512]),
        (last, vec![7; 88]),
        (Header::new(Kind::Partial, 4, 8), b"next".to_vec()),
    ];
    assert_eq!(link.tx.take(), expected);
    assert!(!served.has_work() && served.unfinished().is_none());
}

#[test]
fn frames_between_nodes_are_for_nodes() {
    let kinds = [
        Kind::Reply,
        Kind::Weights,
        Kind::NodesLost,
        Kind::Window,
        Kind::Bounce,
    ];
    let (mut served, mut link, mut host) = served(Some(3), usize::MAX);
    for kind in kinds {
        let log = format!("{kind:?} of a node, 5 bytes");
        let parts = (&mut served, &mut link, &mut host);
        expect(
            parts,
            Header::new(kind, 0, 1),
            b"hello",
            &[&log],
            &[Event::Frame],
            &[],
        );
    }
    arrive_in_fragments(&mut link, 1, Header::new(Kind::Weights, 0, 1), &[1; 600]);
    poll(&mut served, &mut link, &mut host);
    let log = vec!["Weights of a node, 600 bytes".to_owned()];
    assert_eq!(host.take_log(), (log, vec![Event::Frame; 2]));
    assert_eq!(served.footprint().assembled, 0);
    link.arrive(Header::new(Kind::Reply, 0, 1), b"bad");
    let closed = end_of(&mut served, &mut link, &mut host);
    assert_eq!(closed, Closed::Broke("bad".into()));
    // Not even one that is kept: another invocation may wait for it.
    let (mut served, mut link, mut host) = super::served(Some(3), usize::MAX);
    host.budget = 10;
    arrive_in_fragments(&mut link, 1, Header::new(Kind::Weights, 0, 1), &[1; 600]);
    let closed = end_of(&mut served, &mut link, &mut host);
    assert_eq!(closed, Closed::Broke("too much".into()));
    for kind in kinds {
        let (mut served, mut link, mut host) = super::served(None, usize::MAX);
        link.arrive(Header::new(kind, 0, 1), b"hello");
        let closed = end_of(&mut served, &mut link, &mut host);
        assert!(matches!(closed, Closed::Broke(_)), "{kind:?}");
        assert_eq!(host.take_log(), (vec![], vec![]));
    }
}
