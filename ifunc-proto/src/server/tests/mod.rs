//! Each request of a peer: what the host is asked for, what is counted, and what is replied.

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{CompanionHead, FrameFlags, Header, InstallHead, Kind, Limits};
use ifunc_abi::machine::Machine;
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_abi::travel::TravelHead;
use zerocopy::IntoBytes as _;

mod batches;
mod travel;

use super::ServerConfig;
use crate::closed::Closed;
use crate::connection::{Config, Connection, Peer};
use crate::host::Event;
use crate::server::INSTALL_HEADS;
use crate::testing::{Code, Ends, Recorder};

type Served = Connection<Code, (), (u8, usize)>;

const LIMITS: Limits = Limits {
    max_payload: 1000,
    max_image: 500,
    max_answer: 300,
};
const BODY: usize = 512;
const EXECUTED: u32 = Status::Executed.code();

/// A connection whose peer calls. `node`: its number in the group.
fn served(node: Option<u32>, credits: usize) -> (Served, Ends, Recorder) {
    served_with(LIMITS, node, credits)
}

fn served_with(limits: Limits, node: Option<u32>, credits: usize) -> (Served, Ends, Recorder) {
    let mut link = Ends::new(BODY, credits);
    let server = ServerConfig {
        limits,
        max_handles: 8,
        has_private_answers: false,
    };
    let mut served = Served::new(Config {
        batch_size: 0,
        max_answers: 0,
        server: Some(server),
    });
    let peer = Peer {
        machine: Machine::default(),
        limits: None,
        invokes: true,
        max_answer: 1000,
        node,
    };
    served.connect(&mut link, peer);
    (served, link, Recorder::new())
}

fn install(letter: u8, entries: u16, len: usize) -> Vec<u8> {
    let head = InstallHead::unsigned([letter; 32], entries);
    [head.as_bytes(), &vec![letter; len]].concat()
}

/// Installs `a` at handle 2, with two entries.
fn install_a(served: &mut Served, link: &mut Ends, host: &mut Recorder) {
    link.arrive(Header::new(Kind::Install, 2, 0), &install(b'a', 2, 10));
    poll(served, link, host);
    host.take_log();
}

fn poll(served: &mut Served, link: &mut Ends, host: &mut Recorder) {
    while served.poll(link, host).expect("the peer keeps the rules") > 0 {}
}

/// Polls until the connection is over. Returns why.
fn end_of(served: &mut Served, link: &mut Ends, host: &mut Recorder) -> Closed {
    loop {
        match served.poll(link, host) {
            Ok(0) => panic!("the connection goes on"),
            Ok(_) => {}
            Err(closed) => return *closed,
        }
    }
}

/// A body arrives in fragments, of which the last one has this header.
fn arrive_in_fragments(link: &mut Ends, number: u32, header: Header, body: &[u8]) {
    let mut parts: Vec<&[u8]> = body.chunks(BODY).collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        link.arrive(Header::new(Kind::Fragment, number, body.len() as u64), part);
    }
    let flags = FrameFlags::ASSEMBLED;
    link.arrive(Header { flags, ..header }, last);
}

#[test]
fn a_poll_of_one_invocation_begins_at_once_unless_the_transport_waits() {
    let (mut served, mut link, mut host) = served(None, usize::MAX);
    link.rx.quantum = 1;
    install_a(&mut served, &mut link, &mut host);
    let mut found = |link: &mut Ends, frames: usize| {
        (0..frames).for_each(|_| link.arrive(Header::new(Kind::Exec, 2, 0), b"some"));
        link.rx.begun = 0;
        let processed = served.poll(link, &mut host).unwrap();
        (processed, link.rx.begun)
    };
    // After an idle poll one, and then the others.
    assert_eq!(
        [2, 1, 0].map(|frames| found(&mut link, frames)),
        [(1, 0), (2, 1), (0, 0)]
    );
    // The transport says so at the end of a poll, however many frames that finds.
    link.rx.waits = true;
    assert_eq!(
        [0, 2, 0].map(|frames| found(&mut link, frames)),
        [(0, 0), (1, 1), (1, 1)]
    );
    link.rx.waits = false;
    assert_eq!([0, 1].map(|frames| found(&mut link, frames)), [(0, 1), (1, 0)]);
    // Each poll ended once.
    assert_eq!(
        link.rx.polls[link.rx.polls.len() - 8..],
        [true, true, false, false, true, true, false, true]
    );
}

fn completed(token: u64, status: Status, body: &[u8]) -> (Header, Vec<u8>) {
    (Header::new(Kind::Completion, status.code(), token), body.to_vec())
}

fn rejected(reason: Rejection) -> Status {
    Status::Rejected(reason)
}

fn failed(status: Status, payload: usize, detail: usize) -> Event {
    Event::Failed {
        status,
        payload,
        detail,
    }
}

const FAILED: Status = Status::Failed(Failure::Payload);

/// Sends one frame after the other, and compares what each brings about.
fn expect(
    (served, link, host): (&mut Served, &mut Ends, &mut Recorder),
    header: Header,
    body: &[u8],
    log: &[&str],
    events: &[Event],
    replies: &[(Header, Vec<u8>)],
) {
    link.arrive(header, body);
    assert_eq!(served.poll(link, host), Ok(1), "{header:?}");
    let (logged, counted) = host.take_log();
    assert_eq!(logged, log, "{header:?}");
    assert_eq!(counted, events, "{header:?}");
    assert_eq!(link.tx.take(), replies, "{header:?}");
}

#[test]
fn each_request_is_processed_counted_and_answered() {
    let (mut served, mut link, mut host) = served(None, usize::MAX);
    let mut step = |header, body: &[u8], log: &[&str], events: &[Event], replies: &[(Header, Vec<u8>)]| {
        expect(
            (&mut served, &mut link, &mut host),
            header,
            body,
            log,
            events,
            replies,
        );
    };
    let request = |kind, handle, token| Header::new(kind, handle, token);
    let image = install(b'a', 2, 10);
    let arrived = Event::ImageBytes(image.len());
    let installed = ["install a at 2, 2 entries, scheme 0, 0 bytes of a signature, 10 of an image"];
    step(
        request(Kind::Install, 2, 0),
        &image,
        &installed,
        &[Event::Frame, arrived],
        &[],
    );
    // The same image again is not installed again.
    let counted = [Event::Frame, arrived, Event::ReplyBytes(0)];
    step(
        request(Kind::Install, 2, 9),
        &image,
        &[],
        &counted,
        &[completed(9, Status::Executed, b"")],
    );
    let run = ["run a1: hello in place, frame 3, answer Some(300)"];
    step(
        request(Kind::Exec, 3, 5),
        b"hello",
        &run,
        &[],
        &[completed(5, Status::Executed, b"hello")],
    );
    let run = ["run a0: hello in place, frame 4, answer None"];
    step(request(Kind::Exec, 2, 0), b"hello", &run, &[], &[]);
    let run = ["run a0: fail in place, frame 5, answer Some(300)"];
    step(
        request(Kind::Exec, 2, 6),
        b"fail",
        &run,
        &[failed(FAILED, 4, 9)],
        &[completed(6, FAILED, b"it failed")],
    );
    let run = ["run a1: fail in place, frame 6, answer None"];
    let report = (
        Header::new(Kind::Report, FAILED.code(), 6),
        b"\x03\0\0\0it failed".to_vec(),
    );
    step(
        request(Kind::Exec, 3, 0),
        b"fail",
        &run,
        &[failed(FAILED, 4, 9)],
        &[report],
    );
    // Longer than a frame is lent for it.
    let run = ["run a0: long3 in place, frame 7, answer Some(300)"];
    step(
        request(Kind::Exec, 2, 7),
        b"long3",
        &run,
        &[],
        &[completed(7, Status::Executed, &[b'3'; 300])],
    );

    let unbound = rejected(Rejection::Unbound);
    for (handle, token, status, detail) in [
        (1, 8, unbound, "handle 1"),
        (7, 8, unbound, "handle 7"),
        (
            8,
            8,
            rejected(Rejection::TooLarge),
            "handle 8, the limit is 8 handles",
        ),
    ] {
        let counted = [failed(status, 2, detail.len()), Event::Frame];
        let reply = completed(token, status, detail.as_bytes());
        step(request(Kind::Exec, handle, token), b"hi", &[], &counted, &[reply]);
    }
    // An image that is refused, and with it what is sent to it.
    let policy = rejected(Rejection::Policy);
    let image = install(b'x', 1, 3);
    let arrived = Event::ImageBytes(image.len());
    let log = ["install x at 5, 1 entries, scheme 0, 0 bytes of a signature, 3 of an image"];
    let counted = [Event::Frame, arrived, Event::ReplyBytes(4)];
    step(
        request(Kind::Install, 5, 10),
        &image,
        &log,
        &counted,
        &[completed(10, policy, b"no x")],
    );
    let counted = [failed(policy, 2, 4), Event::Frame];
    step(
        request(Kind::Exec, 5, 11),
        b"hi",
        &[],
        &counted,
        &[completed(11, policy, b"no x")],
    );
    // One with more handles than there are.
    let too_large = rejected(Rejection::TooLarge);
    let detail = b"handle 8, the limit is 8 handles";
    let image = install(b'b', 3, 3);
    let arrived = Event::ImageBytes(image.len());
    let counted = [
        Event::Frame,
        arrived,
        Event::Refused(Rejection::TooLarge),
        Event::ReplyBytes(detail.len()),
    ];
    step(
        request(Kind::Install, 6, 12),
        &image,
        &[],
        &counted,
        &[completed(12, too_large, detail)],
    );
    for (handle, token) in [(6, 13), (7, 14)] {
        let counted = [failed(too_large, 2, detail.len()), Event::Frame];
        step(
            request(Kind::Exec, handle, token),
            b"hi",
            &[],
            &counted,
            &[completed(token, too_large, detail)],
        );
    }
    let log = ["install b at 5, 3 entries, scheme 0, 0 bytes of a signature, 3 of an image"];
    step(
        request(Kind::Install, 5, 0),
        &image,
        &log,
        &[Event::Frame, arrived],
        &[],
    );
    let run = ["run b2: hi in place, frame 17, answer None"];
    step(request(Kind::Exec, 7, 0), b"hi", &run, &[], &[]);
    // One with another number of entries than its frame states.
    let image = install(b'E', 3, 3);
    let arrived = Event::ImageBytes(image.len());
    let log = ["install E at 5, 3 entries, scheme 0, 0 bytes of a signature, 3 of an image"];
    let detail = b"the image has 1 entry, its frame states 3";
    let refused = Event::Refused(Rejection::BadImage);
    let counted = [Event::Frame, arrived, refused, Event::ReplyBytes(detail.len())];
    let bad = rejected(Rejection::BadImage);
    step(
        request(Kind::Install, 5, 15),
        &image,
        &log,
        &counted,
        &[completed(15, bad, detail)],
    );
    // Released with all its entries.
    step(request(Kind::Unbind, 2, 0), b"", &[], &[Event::Frame], &[]);
    let counted = [failed(unbound, 2, 8), Event::Frame];
    step(
        request(Kind::Exec, 3, 16),
        b"hi",
        &[],
        &counted,
        &[completed(16, unbound, b"handle 3")],
    );

    step(request(Kind::Sync, 0, 0), b"", &[], &[Event::Frame], &[]);
    step(
        request(Kind::Sync, 0, 17),
        b"",
        &[],
        &[Event::Frame],
        &[completed(17, Status::Executed, b"")],
    );
    let log = ["statistics from 99, at most 512"];
    let counted = [Event::Frame, Event::ReplyBytes(77)];
    step(
        request(Kind::Stats, 99, 18),
        b"",
        &log,
        &counted,
        &[completed(18, Status::Executed, &[1; 77])],
    );
    step(
        request(Kind::Grant, 4, 19),
        b"",
        &["grant 4 to 19"],
        &[Event::Frame],
        &[],
    );
    step(
        request(Kind::Cancel, 0, 19),
        b"",
        &["cancel 19"],
        &[Event::Frame],
        &[],
    );
    let log = ["finish 3, call (3, 20), at most Some(512)"];
    step(request(Kind::Finish, 3, 20), b"", &log, &[Event::Frame], &[]);
    let log = ["finish 0, call (0, 21), at most Some(512)"];
    let no_node = rejected(Rejection::NoNode);
    step(
        request(Kind::Finish, 0, 21),
        b"",
        &log,
        &[Event::Frame],
        &[completed(21, no_node, b"no scope")],
    );
    assert!(!served.has_work() && !served.is_stalled());
    assert_eq!(link.rx.settled, 27);
}

#[test]
fn only_requests_that_want_a_reply_wait_for_the_send_window() {
    let request = |kind, token| Header::new(kind, 0, token);
    for (header, waits) in [
        (request(Kind::Fragment, 600), false),
        (request(Kind::Grant, 19), false),
        (request(Kind::Cancel, 19), false),
        (request(Kind::Unbind, 0), false),
        (request(Kind::Sync, 0), false),
        (request(Kind::Install, 0), false),
        (request(Kind::Install, 5), true),
        (request(Kind::Sync, 5), true),
        (request(Kind::Stats, 5), true),
        (request(Kind::Finish, 5), true),
    ] {
        let (mut served, mut link, mut host) = served(None, 0);
        link.arrive(header, &install(b'a', 1, 10));
        assert_eq!(
            served.poll(&mut link, &mut host),
            Ok(usize::from(!waits)),
            "{header:?}"
        );
        assert_eq!(
            (served.is_stalled(), link.rx.frames.len()),
            (waits, usize::from(waits))
        );
        let (_, events) = host.take_log();
        assert_eq!(events.contains(&Event::Stalled(true)), waits);
        // It is processed as soon as the window is open.
        link.tx.credits = 1;
        assert_eq!(served.poll(&mut link, &mut host), Ok(usize::from(waits)));
        assert!(!served.is_stalled() && link.rx.frames.is_empty());
    }
}

#[test]
fn bodies_in_fragments_are_processed_as_wholes() {
    let (mut served, mut link, mut host) = served(None, usize::MAX);
    let header = Header::new(Kind::Install, 2, 4);
    let image = install(b'a', 1, 500);
    arrive_in_fragments(&mut link, 1, header, &image);
    poll(&mut served, &mut link, &mut host);
    let log = ["install a at 2, 1 entries, scheme 0, 0 bytes of a signature, 500 of an image"];
    let counted = [
        Event::Frame,
        Event::Frame,
        Event::ImageBytes(image.len()),
        Event::ReplyBytes(0),
    ];
    assert_eq!(
        host.take_log(),
        (log.map(String::from).to_vec(), counted.to_vec())
    );
    assert_eq!(link.tx.take(), [completed(4, Status::Executed, b"")]);
    assert_eq!(served.footprint().assembled, 0);

    for (len, number) in [(1000, 2), (1001, 3)] {
        let body = vec![b'p'; len];
        link.arrive(Header::new(Kind::Fragment, number, len as u64), &body[..BODY]);
        poll(&mut served, &mut link, &mut host);
        assert_eq!(served.footprint().assembled, BODY);
        assert!(served.unfinished().is_some());
        let last = Header {
            flags: FrameFlags::ASSEMBLED,
            ..Header::new(Kind::Exec, 2, 5)
        };
        link.arrive(last, &body[BODY..]);
        poll(&mut served, &mut link, &mut host);
        let (log, events) = host.take_log();
        let (reply, expected, counted) = if len == 1000 {
            let run = "run a0: 1000 bytes private, frame 4, answer Some(300)".to_owned();
            (
                completed(5, Status::Executed, &[b'p'; 300]),
                vec![run],
                vec![Event::Frame],
            )
        } else {
            let (status, detail) = (
                rejected(Rejection::TooLarge),
                b"a payload of 1001 bytes, the limit is 1000",
            );
            let counted = vec![
                Event::Frame,
                failed(status, len - BODY, detail.len()),
                Event::Frame,
            ];
            (completed(5, status, detail), vec![], counted)
        };
        assert_eq!((log, events, link.tx.take()), (expected, counted, vec![reply]));
        assert_eq!((served.footprint().assembled, served.unfinished()), (0, None));
    }

    // A body that the host does not keep, of each kind.
    host.budget = 600;
    let quota = rejected(Rejection::Quota);
    let exec = Header::new(Kind::Exec, 2, 6);
    arrive_in_fragments(&mut link, 4, exec, &[b'p'; 700]);
    poll(&mut served, &mut link, &mut host);
    let counted = vec![Event::Frame, failed(quota, 700 - BODY, 8), Event::Frame];
    assert_eq!(host.take_log(), (vec![], counted));
    assert_eq!(link.tx.take(), [completed(6, quota, b"too much")]);
    let image = install(b'b', 1, 600);
    arrive_in_fragments(&mut link, 5, Header::new(Kind::Install, 7, 7), &image);
    poll(&mut served, &mut link, &mut host);
    let counted = vec![
        Event::Frame,
        Event::Frame,
        Event::ImageBytes(0),
        Event::Refused(Rejection::Quota),
        Event::ReplyBytes(8),
    ];
    assert_eq!(host.take_log(), (vec![], counted));
    assert_eq!(link.tx.take(), [completed(7, quota, b"too much")]);
    link.arrive(Header::new(Kind::Exec, 7, 8), b"hi");
    poll(&mut served, &mut link, &mut host);
    assert_eq!(link.tx.take(), [completed(8, quota, b"too much")]);
    let travel = [TravelHead::of_source(7).as_bytes(), &[b'p'; 650]].concat();
    arrive_in_fragments(&mut link, 6, Header::new(Kind::Travel, 2, 9), &travel);
    host.take_log();
    poll(&mut served, &mut link, &mut host);
    let log = vec!["reject of 7 hops, call (2, 9), 0 bytes: too much".to_owned()];
    let counted = vec![Event::Frame, failed(quota, travel.len() - BODY, 8), Event::Frame];
    assert_eq!(host.take_log(), (log, counted));
    assert_eq!(link.tx.take(), [completed(9, quota, b"too much")]);
    assert_eq!(served.unfinished(), None);
    // The limits of all kinds in one: what is longer is no body.
    let most = [1000 + TravelHead::SIZE, 500 + INSTALL_HEADS]
        .into_iter()
        .max()
        .unwrap();
    link.arrive(Header::new(Kind::Fragment, 7, most as u64), b"x");
    assert!(served.poll(&mut link, &mut host).is_ok());
    link.arrive(Header::new(Kind::Fragment, 8, most as u64 + 1), b"x");
    let why = format!("a body of {} bytes in fragments, the limit is {most}", most + 1);
    assert_eq!(end_of(&mut served, &mut link, &mut host), Closed::Broke(why));
}

#[test]
fn a_body_in_fragments_is_as_long_as_the_longest_of_its_kind() {
    let node_frame = super::MAX_NODE_FRAME;
    let cases: [(u64, u64, u64, Option<u32>, usize); 4] = [
        (5000, 0, 0, None, 5000 + TravelHead::SIZE),
        (0, 5000, 0, None, 5000 + INSTALL_HEADS),
        (0, 0, 5000, None, 5000 + ifunc_abi::travel::ReplyHead::SIZE),
        (0, 0, 0, Some(3), node_frame),
    ];
    for (max_payload, max_image, max_answer, node, most) in cases {
        let limits = Limits {
            max_payload,
            max_image,
            max_answer,
        };
        for (len, is_accepted) in [(most, true), (most + 1, false)] {
            let (mut served, mut link, mut host) = served_with(limits, node, 1);
            link.arrive(Header::new(Kind::Fragment, 1, len as u64), b"x");
            let _ = served.poll(&mut link, &mut host);
            assert_eq!(served.is_linked(), is_accepted, "{limits:?}");
        }
    }
}

#[test]
fn a_malformed_request_ends_the_connection_and_says_why() {
    let header = |kind, token| Header::new(kind, 0, token);
    let stated = Header {
        flags: FrameFlags::ASSEMBLED,
        ..header(Kind::Batch, 0)
    };
    let assembled = Header {
        flags: FrameFlags::ASSEMBLED,
        ..header(Kind::Install, 0)
    };
    let more = "a batch whose header states more than its kind";
    let cut_off = "a batch with a run that is malformed or cut off";
    let entry = RunHead::new(0, 0, 8, 8, 1);
    let cases: [(Header, Vec<u8>, &str); 9] = [
        (
            header(Kind::Stats, 0),
            vec![],
            "a `Stats` request without a token",
        ),
        (header(Kind::Finish, 0), vec![], "a `Finish` without a token"),
        (header(Kind::Batch, 1), vec![], more),
        (Header::new(Kind::Batch, 1, 0), vec![], more),
        (stated, vec![], more),
        (header(Kind::Batch, 0), vec![0; 23], cut_off),
        (header(Kind::Batch, 0), entry.as_bytes().to_vec(), cut_off),
        (
            header(Kind::Reply, 0),
            vec![],
            "a frame between nodes, from a peer that is none",
        ),
        (assembled, vec![], "a last fragment without a first"),
    ];
    for (header, body, why) in cases {
        let (mut served, mut link, mut host) = served(None, usize::MAX);
        link.arrive(header, &body);
        let closed = end_of(&mut served, &mut link, &mut host);
        assert_eq!(closed, Closed::Broke(why.into()));
        assert!(!served.is_linked());
        assert_eq!(
            served.lost_because(),
            format!("the peer broke the protocol: {why}")
        );
    }
}

#[test]
fn companions_reach_the_host_and_are_no_part_of_the_image() {
    let (mut served, mut link, mut host) = served(None, 1000);
    let companion = CompanionHead::new([b'z'; 32], 490, false);
    let head = InstallHead::unsigned([b'a'; 32], 1).with_companions(1);
    let body = [head.as_bytes(), companion.as_bytes(), &[b'z'; 490], b"aaa"].concat();
    link.arrive(Header::new(Kind::Install, 2, 0), &body);
    arrive_in_fragments(&mut link, 3, Header::new(Kind::Install, 3, 0), &body);
    poll(&mut served, &mut link, &mut host);
    let (log, _) = host.take_log();
    let install =
        |handle| format!("install a at {handle}, 1 entries, scheme 0, 0 bytes of a signature, 3 of an image");
    let with = "with z, 490 bytes, scheme 0".to_owned();
    assert_eq!(log, [install(2), with.clone(), install(3), with]);
    // A companion that is longer than the body.
    link.arrive(Header::new(Kind::Install, 4, 0), &body[..body.len() - 4]);
    assert!(matches!(
        end_of(&mut served, &mut link, &mut host),
        Closed::Broke(_)
    ));
}
