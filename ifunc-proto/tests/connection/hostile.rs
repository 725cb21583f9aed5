//! A source that ignores what the target accepts, and a host that unwinds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ifunc_abi::status::{Rejection, Status};

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
