//! Batches, and a host that takes invocations.

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::status::{Rejection, Status};
use zerocopy::IntoBytes as _;

use super::{EXECUTED, FAILED, completed, failed, install, install_a, rejected, served};
use crate::host::{Event, Refusal, ReplyTo};
use crate::link::LinkError;
use crate::testing::Recorder;

/// A run of a batch.
fn run(handle: u32, token: u64, payloads: &[&[u8]]) -> Vec<u8> {
    let len = payloads[0].len();
    let head = RunHead::new(handle, token, len as u32, len as u32, payloads.len() as u32);
    let mut run = [head.as_bytes(), &payloads.concat()].concat();
    run.resize(run.len().next_multiple_of(8), 0);
    run
}

#[test]
fn the_entries_of_a_batch_are_answered_together() {
    let (mut served, mut link, mut host) = served(None, usize::MAX);
    install_a(&mut served, &mut link, &mut host);
    let batch = [
        run(2, 10, &[b"one", b"two"]),
        run(3, 0, &[b"none"]),
        run(3, 12, &[b"fail"]),
        run(2, 13, &[b"sure", b"fail", b"too!"]),
        run(2, 0, &[b"fail", b"fine"]),
        run(7, 16, &[b"no"]),
        run(2, 17, &[b"long3"]),
    ]
    .concat();
    link.arrive(Header::new(Kind::Batch, 0, 0), &batch);
    assert_eq!(served.poll(&mut link, &mut host), Ok(12));
    let (log, events) = host.take_log();
    let ran = |what: &str, answer: &str| format!("run {what} in place, frame 2 of a batch, answer {answer}");
    let some = "Some(300)";
    let expected = [
        ran("a0: one", some),
        ran("a0: two", some),
        ran("a1: none", "None"),
        ran("a1: fail", some),
        ran("a0: sure", some),
        ran("a0: fail", some),
        ran("a0: too!", some),
        ran("a0: fail", "None"),
        ran("a0: fine", "None"),
        ran("a0: long3", some),
    ];
    assert_eq!(log, expected);
    let unbound = rejected(Rejection::Unbound);
    let expected = [
        failed(FAILED, 4, 9),
        failed(FAILED, 4, 9),
        failed(FAILED, 4, 9),
        failed(unbound, 2, 8),
        Event::Frame,
    ];
    assert_eq!(events, expected);
    let mut ended = Vec::new();
    for (header, body) in link.tx.take() {
        match header.kind {
            Kind::Completion => ended.push((header.token, header.handle, body)),
            Kind::Report => {
                assert_eq!((header.token, header.handle), (2, FAILED.code()));
                assert_eq!(body, b"\x02\0\0\0it failed");
            }
            Kind::Completions => {
                let mut rest = &body[..];
                while !rest.is_empty() {
                    use zerocopy::FromBytes as _;
                    let (head, answers) = RunHead::read_from_prefix(rest).unwrap();
                    let len = head.len.get() as usize;
                    for index in 0..head.count.get() as usize {
                        let answer = answers[index * len..][..len].to_vec();
                        ended.push((head.token.get() + index as u64, head.code.get(), answer));
                    }
                    rest = &rest[head.run_len().unwrap()..];
                }
            }
            kind => panic!("{kind:?}"),
        }
    }
    ended.sort();
    let expected = [
        (10, EXECUTED, b"one".to_vec()),
        (11, EXECUTED, b"two".to_vec()),
        (12, FAILED.code(), b"it failed".to_vec()),
        (13, EXECUTED, b"sure".to_vec()),
        (14, FAILED.code(), b"it failed".to_vec()),
        (15, EXECUTED, b"too!".to_vec()),
        (16, unbound.code(), b"handle 7".to_vec()),
        (17, EXECUTED, vec![b'3'; 300]),
    ];
    assert_eq!(ended, expected);
    assert!(!served.has_work());
}

#[test]
fn a_host_that_takes_invocations_ends_a_poll_with_each_and_answers_them_later() {
    let (mut served, mut link, _) = served(None, usize::MAX);
    let mut host = Recorder::<true>::new();
    link.arrive(Header::new(Kind::Install, 2, 0), &install(b'a', 1, 10));
    served.poll(&mut link, &mut host).unwrap();
    host.take_log();
    link.arrive(Header::new(Kind::Exec, 2, 5), b"alone");
    let batch = [run(2, 6, &[b"one", b"two"]), run(2, 0, &[b"none"])].concat();
    link.arrive(Header::new(Kind::Batch, 0, 0), &batch);
    link.arrive(Header::new(Kind::Exec, 2, 8), b"last");
    let counts: Vec<usize> = (0..6)
        .map(|_| served.poll(&mut link, &mut host).unwrap())
        .collect();
    assert_eq!(counts, [1, 1, 1, 2, 1, 0]);
    let took = |what: &str, answer: &str| format!("take a0: {what}, answer {answer}");
    let expected = [
        took("alone in place, frame 2", "Some(300)"),
        took("one in place, frame 3 of a batch", "Some(300)"),
        took("two in place, frame 3 of a batch", "Some(300)"),
        took("none in place, frame 3 of a batch", "None"),
        took("last in place, frame 4", "Some(300)"),
    ];
    assert_eq!(host.take_log(), (expected.to_vec(), vec![Event::Frame]));
    let taken = std::mem::take(&mut host.taken);
    let tokens: Vec<u64> = taken.iter().map(ReplyTo::token).collect();
    assert_eq!(tokens, [5, 6, 7, 0, 8]);
    served.answer(&mut link, &mut host, &taken[0], Ok(b"yes"));
    let policy = || Refusal::new(Rejection::Policy, "not now").into();
    served.answer(&mut link, &mut host, &taken[1], Err(policy()));
    served.answer(&mut link, &mut host, &taken[3], Err(policy()));
    served.answer(&mut link, &mut host, &taken[4], Err(policy()));
    served.poll(&mut link, &mut host).unwrap();
    let policy = rejected(Rejection::Policy);
    let counted = [
        failed(policy, 3, 7),
        failed(policy, 4, 7),
        // Of one in a frame of its own, the frame is counted, too.
        failed(policy, 4, 7),
        Event::Frame,
    ];
    assert_eq!(host.events, counted);
    let mut sent = link.tx.take();
    sent.sort_by_key(|(header, _)| (header.kind as u8, header.token));
    let report = (
        Header::new(Kind::Report, policy.code(), 3),
        b"\x02\0\0\0not now".to_vec(),
    );
    let mut gathered = [RunHead::new(policy.code(), 6, 7, 7, 1).as_bytes(), b"not now\0"].concat();
    gathered.truncate(32);
    let expected = [
        completed(5, Status::Executed, b"yes"),
        completed(8, policy, b"not now"),
        report,
        (Header::new(Kind::Completions, 0, 0), gathered),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn what_failed_is_counted_though_the_link_broke() {
    // The message for answers is full at an answer before a failure, or at a failure.
    for len in (1..200).step_by(8) {
        let (mut served, mut link, mut host) = served(None, usize::MAX);
        install_a(&mut served, &mut link, &mut host);
        let filling = vec![b'.'; len];
        let single = [run(2, 1, &[&filling])];
        let pairs = (0..40).map(|pair| run(2, 10 + 2 * pair, &[b"well", b"fail"]));
        link.arrive(
            Header::new(Kind::Batch, 0, 0),
            &single.into_iter().chain(pairs).collect::<Vec<_>>().concat(),
        );
        link.tx.error = Some(LinkError::Malformed("the peer wrote over its counters"));
        while served.poll(&mut link, &mut host).is_ok() {}
        let (log, events) = host.take_log();
        let failed = log.iter().filter(|line| line.contains("fail"));
        let counted = events
            .iter()
            .filter(|event| matches!(event, Event::Failed { .. }));
        assert!(failed.clone().count() > 0);
        assert_eq!(failed.count(), counted.count(), "{log:?} {events:?}");
    }
}
