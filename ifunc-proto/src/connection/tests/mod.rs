//! What a connection does with single frames and submissions: what it sends, and what its driver is told.

use ifunc_abi::frame::{Header, INLINE, InstallHead, Kind, Limits};
use ifunc_abi::machine::Machine;
use ifunc_abi::status::Status;
use zerocopy::IntoBytes as _;

mod replies;

use super::{Config, Connection, Peer};
use crate::caller::{CALL_WINDOW, NotSent, Submission, SubmitError};
use crate::calls::{Completion, Lost, Outcome, Request};
use crate::host::NoHost;
use crate::link::LinkError;
use crate::server::ServerConfig;
use crate::testing::{Code, Ends};

type Source = Connection<Code, u32, std::convert::Infallible>;

pub(super) const LIMITS: Limits = Limits {
    max_payload: 1000,
    max_image: 500,
    max_answer: 300,
};

const EXECUTED: u32 = Status::Executed.code();

fn config(serves: bool) -> Config {
    let server = ServerConfig {
        limits: LIMITS,
        max_handles: 8,
        has_private_answers: false,
    };
    Config {
        batch_size: 256,
        max_answers: 10_000,
        server: serves.then_some(server),
    }
}

fn peer(limits: Option<Limits>, invokes: bool) -> Peer {
    Peer {
        limits,
        invokes,
        max_answer: 300,
        machine: Machine::default(),
        node: None,
    }
}

/// A connection that calls a peer.
fn source(limits: Limits, max_body: usize, credits: usize) -> (Source, Ends) {
    let mut link = Ends::new(max_body, credits);
    let mut source = Source::new(config(false));
    source.connect(&mut link, peer(Some(limits), false));
    (source, link)
}

/// A connection to a peer that calls, and is called.
fn duplex(credits: usize) -> (Source, Ends) {
    let mut link = Ends::new(256, credits);
    let mut duplex = Source::new(config(true));
    duplex.connect(&mut link, peer(Some(LIMITS), true));
    (duplex, link)
}

fn call(handle: u32, bound: usize) -> Submission {
    Submission {
        handle,
        bound,
        align: 8,
        wants_completion: true,
        carries_code: false,
    }
}

fn send(handle: u32, bound: usize) -> Submission {
    Submission {
        wants_completion: false,
        ..call(handle, bound)
    }
}

/// Fills the memory with this byte.
fn filled(byte: u8) -> impl FnMut(&mut [u8]) -> Result<usize, ()> {
    move |memory| {
        memory.fill(byte);
        Ok(memory.len())
    }
}

/// As `filled`, with the length of the submission.
fn filler(byte: u8, len: usize) -> impl FnMut(&mut [u8]) -> Result<usize, ()> {
    move |memory| {
        memory[..len].fill(byte);
        Ok(len)
    }
}

fn submit(source: &mut Source, link: &mut Ends, submission: Submission) -> Result<u64, NotSent<Code, ()>> {
    source.submit(link, submission, &mut filler(7, submission.bound))
}

/// As `submit`, on the path that does nothing else.
fn at_once(source: &mut Source, link: &mut Ends, submission: Submission) -> Option<u64> {
    let sent = source.submit_at_once(link, &submission, &mut filler(7, submission.bound))?;
    Some(sent.expect("it is sent"))
}

fn append(source: &mut Source, link: &mut Ends, submission: Submission) -> Result<u64, NotSent<Code, ()>> {
    source.append(link, submission, false, &mut filler(7, submission.bound))
}

fn lost(error: NotSent<Code, ()>) -> Lost {
    match error {
        NotSent::Failed(error) => match *error {
            SubmitError::Lost(lost) => lost,
            error => panic!("{error:?}"),
        },
        NotSent::Blocked => panic!("blocked"),
    }
}

fn kinds(link: &mut Ends) -> Vec<Kind> {
    link.tx.take().iter().map(|(header, _)| header.kind).collect()
}

fn completion(token: u64) -> Header {
    Header::new(Kind::Completion, EXECUTED, token)
}

#[test]
fn an_invocation_is_sent_at_once_if_nothing_else_is_to_be_done() {
    let (mut source, mut link) = source(LIMITS, 512, usize::MAX);
    let handle = source.caller.bind(Code::new(b'a', 100));
    assert_eq!(
        at_once(&mut source, &mut link, call(handle, 8)),
        None,
        "the image is not sent"
    );
    let token = submit(&mut source, &mut link, call(handle, 8)).unwrap();
    assert_eq!(token, 1);
    let [(install, image), (exec, payload)] = &link.tx.take()[..] else {
        panic!("an image and an invocation");
    };
    assert_eq!(*install, Header::new(Kind::Install, handle, 0));
    let head = InstallHead::unsigned([b'a'; 32], 1);
    assert_eq!(*image, [head.as_bytes(), &[b'a'; 100]].concat());
    assert_eq!(
        (*exec, &payload[..]),
        (Header::new(Kind::Exec, handle, 1), &[7; 8][..])
    );

    // As long as a frame, with and without a completion, and no longer.
    assert_eq!(at_once(&mut source, &mut link, call(handle, 512)), Some(2));
    assert_eq!(at_once(&mut source, &mut link, send(handle, 512)), Some(0));
    assert_eq!(at_once(&mut source, &mut link, call(handle, 513)), None);
    let sent = link.tx.take();
    let headers: Vec<Header> = sent.iter().map(|(header, _)| *header).collect();
    let expected = [2, 0].map(|token| Header::new(Kind::Exec, handle, token));
    assert_eq!(headers, expected);
    assert!(sent.iter().all(|(_, body)| *body == [7; 512]));
    assert_eq!(link.tx.reserved.last(), Some(&(512, 8)));

    // The code goes along, once, and everything else as before.
    let carries = Submission {
        carries_code: true,
        ..call(handle, 8)
    };
    assert_eq!(at_once(&mut source, &mut link, carries), None);
    submit(&mut source, &mut link, carries).unwrap();
    submit(&mut source, &mut link, carries).unwrap();
    assert_eq!(kinds(&mut link), [Kind::Exec, Kind::Install, Kind::Exec]);
    assert_eq!(at_once(&mut source, &mut link, call(handle, 8)), None);
    submit(&mut source, &mut link, call(handle, 8)).unwrap();
    assert_eq!(kinds(&mut link), [Kind::Exec]);

    // `submit` receives before an invocation without a completion, and not before a call.
    link.arrive(completion(1), b"");
    submit(&mut source, &mut link, call(handle, 8)).unwrap();
    assert_eq!((source.received(), link.rx.frames.len()), (0, 1));
    submit(&mut source, &mut link, send(handle, 8)).unwrap();
    assert_eq!((source.received(), link.rx.frames.len()), (1, 0));

    // A closed window is another one's business.
    link.tx.credits = 0;
    let closed = source.submit_at_once(&mut link, &call(handle, 8), &mut filled(1));
    assert!(closed.is_none());
    let blocked = submit(&mut source, &mut link, call(handle, 77));
    assert!(matches!(blocked, Err(NotSent::Blocked)));
    assert_eq!(source.caller.lacking(), 77);
}

#[test]
fn a_payload_longer_than_the_peer_accepts_is_not_sent() {
    for (max_payload, len) in [(4, 5), (INLINE as u64 - 1, INLINE), (100, 101)] {
        let limits = Limits {
            max_payload,
            ..LIMITS
        };
        let (mut source, mut link) = source(limits, 512, usize::MAX);
        let handle = source.caller.bind(Code::new(b'a', 10));
        for bound in [max_payload as usize, len] {
            // The bound may be longer than the payload.
            let submission = call(handle, 200);
            let mut encode = filler(3, bound);
            let result = match source.submit_at_once(&mut link, &submission, &mut encode) {
                Some(sent) => sent,
                None => source.submit(&mut link, submission, &mut encode),
            };
            let batched = source.append(&mut link, submission, true, &mut encode);
            for result in [result, batched] {
                if bound == len {
                    let expected = Lost::PayloadTooLarge {
                        len: len as u64,
                        limit: max_payload,
                    };
                    assert_eq!(lost(result.unwrap_err()), expected);
                } else {
                    assert_ne!(result.unwrap(), 0);
                }
            }
        }
        assert_eq!(source.caller.calls.in_use(), 2);
        // On the path of short payloads, too.
        let short = source.submit_at_once(&mut link, &call(handle, INLINE), &mut filler(3, INLINE));
        assert_eq!(short.is_some(), max_payload >= INLINE as u64);
    }
}

#[test]
fn one_receive_processes_256_frames() {
    let (mut source, mut link) = source(LIMITS, 512, 1);
    for token in 1..=300 {
        link.arrive(completion(token), b"");
    }
    assert!(!source.receive(&mut link, 0));
    assert_eq!((source.received(), source.has_more()), (256, true));
    assert_eq!((link.rx.released, link.rx.settled), (256, 0));
    assert!(!source.receive(&mut link, 0));
    assert_eq!((source.received(), source.has_more()), (300, false));
    assert_eq!((link.rx.released, link.rx.settled), (0, 300));

    // The first one last: 256 are parked, then 43, and then their turn comes, 212 of them in the same call.
    for sequence in (302..=600).chain([301]) {
        link.arrive_as(sequence, completion(1), b"");
    }
    let mut steps = Vec::new();
    for _ in 0..4 {
        source.receive(&mut link, 0);
        steps.push((source.received(), source.footprint().parked.0, source.has_more()));
    }
    let expected = [
        (300, 256, true),
        (513, 87, true),
        (600, 0, false),
        (600, 0, false),
    ];
    assert_eq!(steps, expected);
    assert_eq!(link.rx.settled, 600);
    // While a frame is missing, no credits are returned.
    link.arrive_as(602, completion(1), b"");
    source.receive(&mut link, 0);
    assert_eq!((link.rx.released, link.rx.settled), (1, 600));
    // A number that was there already is no frame.
    link.arrive_as(600, completion(1), b"");
    link.arrive_as(601, completion(1), b"");
    source.receive(&mut link, 0);
    assert_eq!((source.received(), link.rx.settled), (602, 603));
}

#[test]
fn a_receive_ends_with_the_awaited_completion_if_the_link_is_dear_to_look_at() {
    for (quantum, token, is_found, left) in [
        (1, 1, true, 1),
        (2, 1, false, 0),
        (1, 9, false, 0),
        (1, 0, false, 0),
    ] {
        let (mut source, mut link) = source(LIMITS, 512, 1);
        link.rx.quantum = quantum;
        link.arrive(completion(0), b"");
        link.arrive(completion(1), b"");
        link.arrive(completion(2), b"");
        assert_eq!(source.receive(&mut link, token), is_found);
        assert_eq!((link.rx.frames.len(), link.rx.settled == 3), (left, left == 0));
    }
}

/// A source with calls 1 to 4 under way, the third and the fourth of which nothing waits for.
fn with_calls() -> (Source, Ends, u32) {
    let (mut source, mut link) = source(LIMITS, 512, usize::MAX);
    let handle = source.caller.bind(Code::new(b'a', 10));
    for token in 1..=4 {
        assert_eq!(submit(&mut source, &mut link, call(handle, 8)).unwrap(), token);
    }
    for token in [1, 2] {
        source.caller.calls.set_user(token, Some(token as u32 + 10));
    }
    link.tx.frames.clear();
    (source, link, handle)
}

/// Which waiters were woken.
fn woken(source: &mut Source) -> Vec<u32> {
    source.caller.ended().collect()
}

fn bytes(outcome: Option<Outcome>) -> (Status, Vec<u8>) {
    let completion = outcome.expect("it has ended").expect("it has an outcome");
    (completion.status, completion.bytes().to_vec())
}

#[test]
fn requests_are_sent_after_what_waits() {
    let (mut source, mut link) = source(LIMITS, 512, usize::MAX);
    assert_eq!(source.flushed(), None, "there is a link");
    let handle = source.caller.bind(Code::new(b'a', 10));
    let first = append(&mut source, &mut link, call(handle, 8)).unwrap();
    let alike = append(&mut source, &mut link, call(handle, 8)).unwrap();
    assert!(source.caller.has_unsent() && !source.caller.is_quiet());
    assert_eq!(source.caller.open_batch(), Some(1));
    assert_eq!(kinds(&mut link), [Kind::Install]);
    let flush = source.flush(&mut link).unwrap();
    let stats = source.stats(&mut link, 77).unwrap();
    let finish = source.finish(&mut link, 78).unwrap();
    assert!(source.grant(&mut link, 3, 5));
    let headers: Vec<Header> = link.tx.take().iter().map(|(header, _)| *header).collect();
    let expected = [
        Header::new(Kind::Batch, 0, 0),
        Header::new(Kind::Sync, 0, flush),
        Header::new(Kind::Stats, 77, stats),
        Header::new(Kind::Finish, 78, finish),
        Header::new(Kind::Grant, 5, 3),
    ];
    assert_eq!(headers, expected);
    assert_eq!([first, alike, flush, stats, finish], [1, 2, 3, 4, 5]);
    let calls = &mut source.caller.calls;
    assert_eq!(calls.pending(flush), Some(Request::Flush));
    assert_eq!(calls.pending(stats), Some(Request::Stats));
    assert_eq!(calls.pending(finish), Some(Request::Finish));
    assert!(
        [flush, stats, finish, first, alike]
            .into_iter()
            .all(|token| calls.was_sent(token))
    );

    link.tx.credits = 0;
    append(&mut source, &mut link, send(handle, 8)).unwrap();
    source.caller.lacking = 5;
    assert_eq!(source.flush(&mut link), None);
    assert_eq!(source.caller.lacking(), 32, "the batch lacks credit");
    assert!(source.caller.is_batch_closing() && source.caller.has_backlog());
    link.tx.credits = 1;
    assert_eq!(source.flush(&mut link), None);
    assert_eq!(
        (source.caller.lacking(), kinds(&mut link)),
        (0, vec![Kind::Batch])
    );
    assert!(!source.grant(&mut link, 1, 1));

    // Without a link a flush has ended if nothing is under way.
    link.die();
    assert_eq!(source.flush(&mut link), None);
    assert!(!source.is_linked());
    assert_eq!(source.lost_because(), "the peer closed the connection or died");
    let flushed = source.flushed().unwrap();
    assert_eq!(
        bytes(source.caller.calls.take(flushed)),
        (Status::Executed, vec![])
    );
}

#[test]
fn a_flush_without_a_link_ends_when_nothing_is_to_be_sent() {
    let (mut source, mut link) = source(LIMITS, 512, usize::MAX);
    let handle = source.caller.bind(Code::idempotent(b'a', 10));
    let again = submit(&mut source, &mut link, call(handle, 8)).unwrap();
    source.lose(&mut link, "it was cut");
    assert_eq!((source.lost_because(), source.is_linked()), ("it was cut", false));
    // It is sent again over the next link.
    assert_eq!(source.flushed(), None);
    source.caller.abandon(again);
    assert!(source.flushed().is_some());
    let mut link = Ends::new(512, usize::MAX);
    source.connect(&mut link, peer(Some(LIMITS), false));
    assert!(source.drive(&mut link));
    assert_eq!(source.caller.generation(), 2);
    append(&mut source, &mut link, call(handle, 8)).unwrap();
    link.die();
    source.receive(&mut link, 0);
    assert!(!source.is_linked());
    assert_eq!(source.flushed(), None, "the batch waits");
}

#[test]
fn a_batch_is_sent_for_the_call_that_lies_in_it() {
    let (mut source, mut link) = source(LIMITS, 512, usize::MAX);
    let handle = source.caller.bind(Code::new(b'a', 10));
    let sent = submit(&mut source, &mut link, call(handle, 8)).unwrap();
    link.tx.frames.clear();
    source.close_batch_of(&mut link, sent);
    let token = append(&mut source, &mut link, call(handle, 8)).unwrap();
    source.close_batch_of(&mut link, sent);
    assert_eq!(kinds(&mut link), []);
    source.close_batch_of(&mut link, token);
    assert_eq!(kinds(&mut link), [Kind::Batch]);
    assert_eq!(source.caller.open_batch(), None);
    source.close_batch_of(&mut link, token);
    assert_eq!(kinds(&mut link), []);
    source.close_batch(&mut link);
    assert_eq!(kinds(&mut link), []);
    append(&mut source, &mut link, call(handle, 8)).unwrap();
    assert_eq!(source.caller.open_batch(), Some(2));
    source.close_batch(&mut link);
    assert_eq!(kinds(&mut link), [Kind::Batch]);
}

#[test]
fn a_window_is_open_for_what_it_has_credit_for() {
    let (mut source, mut link) = source(LIMITS, 512, 1);
    let handle = source.caller.bind(Code::new(b'a', 10));
    assert!(source.has_window(&mut link, 0) && source.has_window(&mut link, 512));
    assert!(
        source.has_window(&mut link, 100_000),
        "as much as a frame may have"
    );
    assert_eq!(link.tx.reserved.last(), Some(&(512, 1)));
    append(&mut source, &mut link, send(handle, 8)).unwrap();
    assert!(!source.has_window(&mut link, 8));
    assert!(source.has_window(&mut link, CALL_WINDOW), "calls are not bounded");
    source.caller.close_batch_soon();
    link.tx.credits = 1;
    assert!(!source.has_window(&mut link, 8), "what waits is sent first");
    assert_eq!(kinds(&mut link), [Kind::Install, Kind::Batch]);
    link.die();
    assert!(!source.has_window(&mut link, 8));
    assert!(!source.is_linked());
    assert!(!source.has_window(&mut link, CALL_WINDOW), "there is no link");
}

#[test]
fn both_ways_64_calls_are_under_way_and_one_way_more() {
    let (mut both, mut link) = duplex(usize::MAX);
    let handle = both.caller.bind(Code::new(b'a', 10));
    for token in 1..=63 {
        assert_eq!(submit(&mut both, &mut link, call(handle, 8)).unwrap(), token);
    }
    assert!(both.has_window(&mut link, CALL_WINDOW));
    assert_eq!(
        at_once(&mut both, &mut link, call(handle, 8)),
        None,
        "calls are counted"
    );
    assert_eq!(
        at_once(&mut both, &mut link, send(handle, 8)),
        Some(0),
        "sends are not"
    );
    assert_eq!(both.flush(&mut link), Some(64));
    assert!(!both.has_window(&mut link, CALL_WINDOW));
    both.caller.lacking = 0;
    assert!(matches!(
        submit(&mut both, &mut link, call(handle, 8)),
        Err(NotSent::Blocked)
    ));
    assert_eq!(both.caller.lacking(), CALL_WINDOW);
    both.caller.lacking = 0;
    assert!(matches!(
        append(&mut both, &mut link, call(handle, 8)),
        Err(NotSent::Blocked)
    ));
    assert_eq!(both.caller.lacking(), CALL_WINDOW);
    both.caller.lacking = 0;
    assert_eq!(both.flush(&mut link), None);
    assert_eq!(both.caller.lacking(), CALL_WINDOW);
    assert!(!both.receive(&mut link, 0), "a connection that serves is polled");
    link.arrive(completion(1), b"");
    assert_eq!(both.poll(&mut link, &mut NoHost).unwrap(), 1);
    assert!(both.has_window(&mut link, CALL_WINDOW));
    assert_eq!(submit(&mut both, &mut link, call(handle, 8)).unwrap(), 65);

    let (mut one, mut link) = source(LIMITS, 512, usize::MAX);
    let handle = one.caller.bind(Code::new(b'a', 10));
    for token in 1..=200 {
        assert_eq!(submit(&mut one, &mut link, call(handle, 8)).unwrap(), token);
    }
    assert_eq!(at_once(&mut one, &mut link, call(handle, 8)), Some(201));
}

#[test]
fn a_peer_that_is_not_called_and_calls_waits_for_its_credits() {
    // Both sides call: an answer is kept. The peer alone calls: its request stays where it is.
    for limits in [Some(LIMITS), None] {
        let mut link = Ends::new(256, 0);
        let mut server = Source::new(config(true));
        server.connect(&mut link, peer(limits, true));
        link.arrive(Header::new(Kind::Sync, 0, 5), b"");
        let processed = server.poll(&mut link, &mut NoHost).unwrap();
        assert_eq!(processed, usize::from(limits.is_some()));
        assert_eq!(server.footprint().replies, processed);
        assert!(server.is_stalled() && server.is_blocked(&mut link));
        link.tx.credits = 1;
        assert!(!server.is_blocked(&mut link));
        server.poll(&mut link, &mut NoHost).unwrap();
        assert!(!server.is_stalled() && !server.has_work());
        assert_eq!(link.tx.take(), [(completion(5), vec![])]);
    }
}

#[test]
fn what_arrived_before_a_link_was_lost_is_received() {
    let (mut source, mut link, handle) = with_calls();
    for _ in 0..299 {
        link.arrive(completion(100), b"");
    }
    link.arrive(completion(2), b"in time");
    link.tx.consumed = 3;
    let sent = submit(&mut source, &mut link, send(handle, 600)).unwrap();
    assert_eq!(sent, 0);
    source.lose(&mut link, "it was cut");
    assert_eq!((source.received(), source.has_more()), (300, false));
    assert_eq!(
        bytes(source.caller.calls.take(2)),
        (Status::Executed, b"in time".to_vec())
    );
    for token in [1, 3, 4] {
        let outcome = source.caller.calls.take(token).unwrap();
        assert_eq!(*outcome.unwrap_err(), Lost::Indeterminate);
    }
    assert_eq!((source.lost_because(), source.is_linked()), ("it was cut", false));
    source.lose(&mut link, "twice");
    assert_eq!(source.lost_because(), "it was cut");
    assert_eq!(woken(&mut source), [12, 11]);
}

#[test]
fn a_link_that_fails_to_send_is_over_unless_the_peer_is_served() {
    let (mut source, mut link, handle) = with_calls();
    link.tx.error = Some(LinkError::Closed);
    assert!(matches!(
        submit(&mut source, &mut link, call(handle, 8)),
        Err(NotSent::Blocked)
    ));
    assert!(!source.is_linked());
    let (mut both, mut link) = duplex(usize::MAX);
    let handle = both.caller.bind(Code::new(b'a', 10));
    link.tx.error = Some(LinkError::Closed);
    assert!(matches!(
        submit(&mut both, &mut link, call(handle, 8)),
        Err(NotSent::Blocked)
    ));
    assert!(both.is_linked(), "what the peer sent before is processed first");
    link.rx.is_dead = true;
    both.poll(&mut link, &mut NoHost).unwrap_err();
    assert!(!both.is_linked());
}

#[test]
fn a_completion_without_an_answer_has_ended_well() {
    let completion = Completion::executed();
    assert_eq!(
        (completion.status, completion.bytes()),
        (Status::Executed, &b""[..])
    );
}
