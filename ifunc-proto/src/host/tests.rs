//! What a host has by default, and the types of what it receives.

use super::*;
use crate::testing::Recorder;
use ifunc_abi::frame::Kind;

/// A host with what each must have alone.
struct Least;

impl Host for Least {
    type Image = ();

    fn install(&mut self, _: Install<'_>) -> Result<Vec<()>, Refusal> {
        Ok(Vec::new())
    }

    fn has_id(&mut self, (): &(), _: &ImageId) -> bool {
        false
    }

    fn invoke<B: Body>(
        &mut self,
        (): &(),
        _: Invocation<'_, B>,
        _: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        Ok(0)
    }

    fn stats(&mut self, _: u32, _: usize) -> (Status, Vec<u8>) {
        (Status::Executed, Vec::new())
    }

    fn observe(&mut self, _: Event) {}
}

fn reply_to() -> ReplyTo {
    ReplyTo::late((3, 9), 7, 5, Some(64))
}

#[test]
fn a_host_of_no_group_runs_nothing_that_travels_and_keeps_no_scopes() {
    let refused = |detail| Refusal::new(Rejection::NoNode, detail);
    assert_eq!(
        Least.finish(1, reply_to()),
        Err(refused("this target keeps no scopes"))
    );
    assert!(Least.admits_travel(), "it is refused, and waits for nothing");
    let (invocation, head) = (reply_to().invocation(b"hello"), TravelHead::of_source(3));
    let failed = Least
        .travel(&(), invocation, &head, reply_to(), None)
        .unwrap_err();
    let expected = refused("this target runs no invocations that travel");
    assert_eq!(failed.status, Status::Rejected(Rejection::NoNode));
    assert_eq!(failed.detail, expected.detail.as_bytes());
    // The peer receives every failure.
    let failed = Least.reject_travel(&head, &reply_to(), expected.into()).unwrap();
    assert_eq!(failed.status, Status::Rejected(Rejection::NoNode));
    let malformed = Least.node_frame(Header::new(Kind::Reply, 0, 0), b"").unwrap_err();
    assert_eq!(malformed.to_string(), "a frame between nodes, and this is none");
    assert_eq!(Least.hold(usize::MAX), Ok(()));
}

#[test]
fn a_node_that_does_not_serve_installs_nothing_and_has_no_statistics() {
    let install = Install {
        companions: Companions::default(),
        handle: 0,
        entries: 1,
        id: [1; 32],
        scheme: 0,
        signature: &[],
        image: &[],
    };
    let refusal = Refusal::new(Rejection::Policy, "this node does not serve");
    assert_eq!(NoHost.install(install), Err(refusal));
    assert_eq!(
        NoHost.stats(0, 10),
        (Status::Rejected(Rejection::Policy), Vec::new())
    );
}

#[test]
fn a_reply_names_its_call_and_the_memory_of_its_answer() {
    let late = reply_to();
    assert!(late.is_late && !late.is_batched);
    assert_eq!(
        (late.token(), late.max_answer(), late.longest_answer()),
        (9, Some(64), 64)
    );
    assert_eq!(late.with_longest(1000).longest_answer(), 1000);
    let none = ReplyTo::late((3, 0), 7, 5, None);
    assert_eq!((none.max_answer(), none.longest_answer()), (None, 0));
    let invocation = reply_to().invocation(b"hello");
    assert_eq!((invocation.sequence, invocation.is_batched), (7, false));
    let mut answer = [0; 32];
    let own = ReplyTo::new((3, 9), &invocation, Some(&mut answer));
    assert_eq!(
        (own.max_answer(), own.longest_answer(), own.payload),
        (Some(32), 32, 5)
    );
    assert!(!own.is_late && own.sequence == 7);
    let none = ReplyTo::new((3, 0), &invocation, None);
    assert_eq!((none.max_answer(), none.longest_answer()), (None, 0));
}

#[test]
fn a_payload_says_where_it_lies_and_how_long_it_is() {
    for bytes in [&b""[..], b"hello"] {
        let private = Payload::<&[u8]>::Private(bytes);
        let in_place = Payload::InPlace(bytes);
        assert!(in_place.is_in_place() && !private.is_in_place());
        for payload in [private, in_place] {
            assert_eq!(
                (payload.len(), payload.is_empty()),
                (bytes.len(), bytes.is_empty())
            );
            assert_eq!(payload.as_ptr(), bytes.as_ptr());
            let mut copy = vec![0; bytes.len()];
            payload.copy_to(&mut copy);
            assert_eq!(copy, bytes);
        }
    }
}

/// Runs entries one by one with so much memory for their answers. Returns how many ran, why the next one did not, and the answers.
fn run(payloads: &[&[u8]], memory: usize, max_answer: usize) -> (usize, Option<Status>, Vec<Vec<u8>>) {
    let mut host = Recorder::<false>::new();
    let (len, stride) = (payloads[0].len(), payloads[0].len().next_multiple_of(8));
    let mut bytes = Vec::new();
    for payload in payloads {
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let run = Run {
        sequence: 7,
        is_batched: true,
        payloads: &bytes[..],
        len,
        stride,
        count: payloads.len(),
    };
    let (mut answers, mut lens) = (vec![0; memory], vec![0; payloads.len()]);
    let end = host.invoke_run(
        &(b'a', 0),
        run,
        Some(Answers {
            memory: &mut answers,
            max_answer,
            lens: &mut lens,
        }),
    );
    let shown =
        |payload| format!("run a0: {payload} in place, frame 7 of a batch, answer Some({max_answer})");
    let ran = end.executed + usize::from(end.failed.is_some());
    let expected: Vec<String> = payloads[..ran]
        .iter()
        .map(|payload| shown(String::from_utf8_lossy(payload)))
        .collect();
    assert_eq!(host.log, expected);
    let mut at = 0;
    let answered = lens[..end.executed].iter().map(|&len| {
        let answer = answers[at..][..len as usize].to_vec();
        at += (len as usize).next_multiple_of(8);
        answer
    });
    let answered = answered.collect();
    (end.executed, end.failed.map(|failed| failed.status), answered)
}

#[test]
fn entries_run_while_there_is_memory_for_the_longest_answer() {
    let payloads: [&[u8]; 3] = [b"one..", b"two..", b"three"];
    let answers = |count: usize| payloads[..count].iter().map(|payload| payload.to_vec()).collect();
    for (memory, max_answer, ran) in [
        (22, 5, 3),
        (21, 5, 3),
        (20, 5, 2),
        (13, 5, 2),
        (12, 5, 1),
        (5, 5, 1),
        (40, 16, 3),
        (31, 16, 2),
        (24, 16, 2),
        (23, 16, 1),
    ] {
        let ended = run(&payloads, memory, max_answer);
        assert_eq!(ended, (ran, None, answers(ran)), "{memory}, {max_answer}");
    }
    // Not even the first has to have more than it takes.
    assert_eq!(run(&payloads, 3, 3).0, 1);
    let failed = Some(Status::Failed(ifunc_abi::status::Failure::Payload));
    assert_eq!(
        run(&[b"good", b"fail", b"more"], 100, 8),
        (1, failed, vec![b"good".to_vec()])
    );
    let mut host = Recorder::<false>::new();
    let none = Run {
        sequence: 1,
        is_batched: true,
        payloads: &b"onetwo"[..],
        len: 3,
        stride: 3,
        count: 2,
    };
    let end = host.invoke_run(&(b'b', 1), none, None);
    assert_eq!((end.executed, end.failed.is_none()), (2, true));
    let part = none.part(1, 1);
    assert_eq!((part.payloads, part.count, part.len), (&b"two"[..], 1, 3));
}

#[test]
fn the_memory_after_some_answers_is_what_they_left() {
    let (mut memory, mut lens) = ([7; 40], [9; 5]);
    memory[16] = 1;
    lens[2] = 3;
    let mut answers = Answers {
        memory: &mut memory,
        max_answer: 8,
        lens: &mut lens,
    };
    let after = answers.after(2, 16);
    assert_eq!(
        (after.memory.len(), after.memory[0], after.max_answer),
        (24, 1, 8)
    );
    assert_eq!(after.lens, [3, 9, 9]);
}
