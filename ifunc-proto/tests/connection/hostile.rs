//! A source that ignores what the target accepts, a node that receives nothing, and a host that unwinds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ifunc_abi::frame::Limits;
use ifunc_abi::machine::Machine;
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::{SlotRef, TravelHead};
use ifunc_proto::link::{Inbound as _, Link as _};
use ifunc_proto::node::{self, Arrival, NodeConfig};
use ifunc_proto::{Closed, Peer};

use crate::node::{Letter, Node, connect, settle};
use crate::pipe::Pipe;

/// How the source sends a payload.
#[derive(Clone, Copy, Debug)]
enum Way {
    Frame,
    Batch,
}

fn send(source: &mut Node, pipe: &mut Pipe, handle: u32, way: Way, payload: &[u8]) -> u64 {
    let token = match way {
        Way::Frame => source.submit(pipe, handle, payload, true),
        Way::Batch => source.append(pipe, handle, payload, false),
    };
    token.unwrap().expect("the window is open")
}

/// In a frame, in fragments, as one entry of a batch, and as a run of entries.
#[test]
fn a_payload_above_the_limit_is_rejected_whatever_its_source_was_told() {
    const MAX: usize = 50;
    let cases: [(Way, usize, usize); 7] = [
        (Way::Frame, MAX, 1),
        (Way::Frame, MAX + 1, 1),
        (Way::Frame, 300, 1),
        (Way::Batch, MAX, 1),
        (Way::Batch, MAX + 1, 1),
        (Way::Batch, MAX, 3),
        (Way::Batch, MAX + 1, 3),
    ];
    for (way, len, count) in cases {
        let mut pipe = Pipe::new(100, 256);
        let mut source = Node::new(0, false);
        let mut target = Node::accepting(1, true, MAX as u64);
        connect(
            &mut pipe,
            [&mut source, &mut target],
            [false, true],
            [true, false],
        );
        let handle = source.connection.caller.bind(Letter::new(b'a', 10));
        let payloads: Vec<Vec<u8>> = (0..count).map(|number| vec![number as u8; len]).collect();
        let tokens: Vec<u64> = payloads
            .iter()
            .map(|payload| send(&mut source, &mut pipe, handle, way, payload))
            .collect();
        source.connection.close_batch(&mut pipe.side(0));
        settle(&mut pipe, &mut source, &mut target);
        let is_accepted = len <= MAX;
        for token in tokens {
            let status = source.take(token).unwrap().unwrap().status;
            let expected = if is_accepted {
                Status::Executed
            } else {
                Status::Rejected(Rejection::TooLarge)
            };
            assert_eq!(status, expected, "{way:?}, {len} bytes, {count} of them");
        }
        assert_eq!(target.host.runs.len(), if is_accepted { count } else { 0 });
    }
}

/// What has begun was counted before: a frame of its own, an entry of a batch, and the entries of a run.
#[test]
fn nothing_runs_again_after_a_host_that_unwound() {
    let cases: [(Way, [&[u8]; 3]); 3] = [
        (Way::Frame, [b"first", b"unwinds", b"third"]),
        (Way::Batch, [b"first", b"unwinds", b"the third"]),
        (Way::Batch, [b"first one", b"unwinds 2", b"the third"]),
    ];
    for (way, payloads) in cases {
        let mut pipe = Pipe::new(100, 256);
        let (mut source, mut target) = (Node::new(0, false), Node::new(1, true));
        connect(
            &mut pipe,
            [&mut source, &mut target],
            [false, true],
            [true, false],
        );
        let handle = source.connection.caller.bind(Letter::new(b'a', 10));
        for payload in payloads {
            send(&mut source, &mut pipe, handle, way, payload);
        }
        source.connection.close_batch(&mut pipe.side(0));
        let unwound = catch_unwind(AssertUnwindSafe(|| while target.poll(&mut pipe) > 0 {}));
        assert!(unwound.is_err());
        while target.poll(&mut pipe) > 0 {}
        let mut runs = target.host.runs;
        let count = runs.len();
        runs.dedup();
        assert_eq!(runs.len(), count, "{way:?}: {runs:?}");
        assert!(runs.len() >= 2, "{way:?}: {runs:?}");
    }
}

/// How a node makes another one reply.
#[derive(Clone, Copy, Debug)]
enum Provokes {
    /// Its invocations bounce.
    Bounces,
    /// It awaits answers.
    Answers,
    /// It holds as many scopes.
    Weights,
}

/// A node receives so many invocations, most of them after the node that sends them stopped to receive. Returns the most frames
/// and weights that waited for that node, and how its connection ended.
fn provoke(how: Provokes, count: u32, receives: bool) -> (usize, Option<Closed>) {
    let mut pipe = Pipe::new(4, 256);
    let mut target = Node::new(0, true);
    let peer = Peer {
        machine: Machine::default(),
        max_answer: u64::MAX,
        limits: Some(Limits {
            max_payload: 100,
            max_image: 100,
            max_answer: 100,
        }),
        invokes: true,
        node: Some(1),
    };
    target.connection.connect(&mut pipe.side(0), peer);
    let mut state = node::Node::<Letter, ()>::new(NodeConfig {
        number: Some(0),
        max_unread: MAX_UNREAD,
        ..NodeConfig::default()
    });
    state.linked(1, 1, 0);
    let mut most = 0;
    for number in 0..count {
        let (mut head, slot) = (TravelHead::of_source(4), SlotRef::new(1, number, 7));
        match how {
            Provokes::Bounces => head.reply_to = SlotRef::new(9, number, 7),
            Provokes::Answers => head.reply_to = slot,
            Provokes::Weights => (head.scope, head.weight) = (slot, 1.into()),
        }
        if let Ok(visit) = state.arrive(Arrival::Node(1), &head, 0) {
            state.end(visit, Ok(Some(b"yes")), 0);
        }
        state.tick(u64::MAX - 1);
        if state.ready_peers().next().is_some() {
            state.drive(1, &mut target.connection, &mut pipe.side(0), 0);
        }
        let held = state.footprint();
        most = most.max(held.replies + held.returns);
        if receives {
            let mut side = pipe.side(1);
            let (_, rx) = side.split();
            while rx.peek().unwrap().is_some() {
                rx.release();
            }
            rx.settle();
            state.drive(1, &mut target.connection, &mut pipe.side(0), 0);
        }
    }
    let polled = target.connection.poll(&mut pipe.side(0), &mut target.host);
    (most, polled.err().map(|closed| *closed))
}

/// Frames, and weights, that wait for a node of [`provoke`] at most.
const MAX_UNREAD: usize = 100;

#[test]
fn a_node_that_provokes_replies_and_receives_none_loses_its_link() {
    for how in [Provokes::Bounces, Provokes::Answers, Provokes::Weights] {
        let (most, closed) = provoke(how, 2000, false);
        assert_eq!(most, MAX_UNREAD, "{how:?}");
        let closed = closed.expect("the connection is over");
        assert!(
            closed.to_string().contains("it receives nothing"),
            "{how:?}: {closed}"
        );
        let (most, closed) = provoke(how, 2000, true);
        assert!(most <= 4 && closed.is_none(), "{how:?}: {most}, {closed:?}");
    }
}
