//! Two connections and a link in memory, without a simulator: each test is one situation.

mod answers;
mod entries;
mod hostile;
mod node;
mod pipe;

use ifunc_abi::frame::Kind;
use ifunc_abi::status::{Failure, Status};
use ifunc_proto::calls::Lost;
use ifunc_proto::host::Failed;

use crate::node::{Letter, Node, Takes, connect, settle};
use crate::pipe::Pipe;

/// A source and a target.
fn pair(pipe: &mut Pipe) -> (Node, Node) {
    let (mut source, mut target) = (Node::new(0, false), Node::new(1, true));
    connect(pipe, [&mut source, &mut target], [false, true], [true, false]);
    (source, target)
}

/// Two nodes that invoke each other.
fn peers(pipe: &mut Pipe) -> (Node, Node) {
    let (mut first, mut second) = (Node::new(0, true), Node::new(1, true));
    connect(pipe, [&mut first, &mut second], [true; 2], [true; 2]);
    (first, second)
}

/// Connects a source to a new target, over a new pipe. Returns both after they have sent everything.
fn reconnect(source: &mut Node) -> (Pipe, Node) {
    let mut pipe = Pipe::new(10, 128);
    let mut target = Node::new(1, true);
    connect(&mut pipe, [source, &mut target], [false, true], [true, false]);
    settle(&mut pipe, source, &mut target);
    (pipe, target)
}

#[test]
fn two_nodes_call_each_other_over_one_link_with_one_credit() {
    let mut pipe = Pipe::new(1, 128);
    let (mut first, mut second) = peers(&mut pipe);
    let handles = [&mut first, &mut second].map(|node| node.connection.caller.bind(Letter::new(b'a', 300)));
    let mut tokens = [Vec::new(), Vec::new()];
    let mut left = [100, 100];
    for _ in 0..10_000 {
        for (index, node) in [&mut first, &mut second].into_iter().enumerate() {
            if left[index] > 0
                && let Some(token) = node.submit(&mut pipe, handles[index], &[7; 90], true).unwrap()
            {
                tokens[index].push(token);
                left[index] -= 1;
            }
            node.poll(&mut pipe);
        }
    }
    assert_eq!(left, [0, 0]);
    settle(&mut pipe, &mut first, &mut second);
    for (node, tokens) in [(&mut first, &tokens[0]), (&mut second, &tokens[1])] {
        assert_eq!(node.host.runs.len(), 100);
        for &token in tokens {
            assert_eq!(node.take(token).unwrap().unwrap().bytes(), [7; 90]);
        }
        assert_eq!(node.connection.caller.calls.in_use(), 0);
    }
}

#[test]
fn a_host_that_takes_invocations_answers_them_after_the_poll() {
    let mut pipe = Pipe::new(1, 128);
    let (mut first, mut second) = peers(&mut pipe);
    let handle = first.connection.caller.bind(Letter::new(b'a', 300));
    let back = second.connection.caller.bind(Letter::new(b'b', 300));
    let payloads: [&[u8]; 4] = [&[1; 90], &[2; 900], b"fail", &[3; 8]];
    let mut host = Takes::default();
    let mut tokens = Vec::new();
    for round in 0..40_000 {
        if tokens.len() < 100 {
            let payload = payloads[tokens.len() % payloads.len()];
            let submitted = if tokens.len() % 3 == 0 && payload.len() < 10 {
                first.append(&mut pipe, handle, payload, true)
            } else {
                first.submit(&mut pipe, handle, payload, true)
            };
            tokens.extend(submitted.unwrap());
        }
        first.poll(&mut pipe);
        if let Some((letter, payload, reply_to)) = host.taken.take() {
            assert_eq!(letter, b'a');
            // The connection is used while the invocation runs.
            let _ = second.submit(&mut pipe, back, &[9; 8], false).unwrap();
            let len = payload.len().min(reply_to.max_answer().unwrap());
            let outcome = match &payload[..] {
                b"fail" => Err(Box::new(Failed::new(Status::Failed(Failure::Payload), payload))),
                _ => Ok(&payload[..len]),
            };
            let mut side = pipe.side(1);
            second.connection.answer(&mut side, &mut host, &reply_to, outcome);
        }
        let mut side = pipe.side(1);
        second.connection.drive(&mut side);
        second.connection.poll(&mut side, &mut host).unwrap();
        assert!(round < 39_999 || tokens.len() == 100);
    }
    for (n, token) in tokens.into_iter().enumerate() {
        let payload = payloads[n % payloads.len()];
        let completion = first.take(token).unwrap().unwrap();
        assert_eq!(completion.status == Status::Executed, payload != b"fail");
        assert_eq!(completion.bytes(), &payload[..payload.len().min(100)]);
    }
    assert!(host.taken.is_none() && host.count == 100);
    assert_eq!(first.connection.caller.calls.in_use(), 0);
    assert!(!first.host.runs.is_empty());
}

#[test]
fn calls_are_answered_after_more_failed_sends_than_a_node_keeps_reports() {
    let mut pipe = Pipe::new(1000, 128);
    pipe.queue(1).window = 0;
    let (mut first, mut second) = peers(&mut pipe);
    let handle = first.connection.caller.bind(Letter::new(b'a', 10));
    for _ in 0..200 {
        first.submit(&mut pipe, handle, b"fail", false).unwrap();
    }
    let tokens: Vec<u64> = (0..64)
        .map(|_| first.submit(&mut pipe, handle, b"call", true).unwrap().unwrap())
        .collect();
    assert_eq!(first.submit(&mut pipe, handle, b"call", true).unwrap(), None);
    while second.poll(&mut pipe) > 0 {}
    assert!(
        second.connection.is_linked(),
        "a full outbox is no violation of the peer"
    );
    pipe.queue(1).window = 1000;
    settle(&mut pipe, &mut first, &mut second);
    for token in tokens {
        assert_eq!(first.take(token).unwrap().unwrap().bytes(), b"call");
    }
    assert_eq!(first.connection.caller.take_reports().len(), 64);
}

#[test]
fn a_source_keeps_64_reports_that_are_not_taken() {
    let mut pipe = Pipe::new(1000, 128);
    let (mut source, mut target) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 10));
    for _ in 0..200 {
        source.submit(&mut pipe, handle, b"fail", false).unwrap();
    }
    settle(&mut pipe, &mut source, &mut target);
    assert_eq!(target.host.runs.len(), 200);
    assert_eq!(source.connection.caller.take_reports().len(), 64);
}

#[test]
fn each_report_refuses_one_send() {
    let mut pipe = Pipe::new(1000, 128);
    let (mut source, mut target) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 10));
    for _ in 0..3 {
        source.submit(&mut pipe, handle, b"fail", false).unwrap();
    }
    settle(&mut pipe, &mut source, &mut target);
    let mut is_sent = || source.submit(&mut pipe, handle, b"sent", false).is_ok();
    assert_eq!([(); 4].map(|()| is_sent()), [false, false, false, true]);
}

#[test]
fn a_body_in_fragments_that_finds_a_dead_link_is_accepted_once() {
    let mut pipe = Pipe::new(10, 128);
    let (mut source, mut target) = pair(&mut pipe);
    let image = Letter::new(b'a', 10).idempotent();
    let handle = source.connection.caller.bind(image);
    source.submit(&mut pipe, handle, b"first", false).unwrap();
    settle(&mut pipe, &mut source, &mut target);
    pipe.queue(0).is_dead = true;
    let token = source.submit(&mut pipe, handle, &[3; 500], true).unwrap();
    let token = token.expect("the call is accepted, and sent over the next link");
    pipe.kill();
    source.poll(&mut pipe);
    assert!(!source.connection.is_linked());
    let (_, target) = reconnect(&mut source);
    assert_eq!(target.host.runs, [(b'a', vec![3; 500])]);
    assert!(source.take(token).unwrap().is_ok());
    assert_eq!(source.connection.caller.calls.in_use(), 0);
}

#[test]
fn an_entry_whose_batch_finds_a_dead_link_is_accepted_once() {
    let mut pipe = Pipe::new(10, 128);
    let (mut source, mut target) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 10));
    source.append(&mut pipe, handle, b"first", true).unwrap();
    settle(&mut pipe, &mut source, &mut target);
    pipe.kill();
    let token = source.append(&mut pipe, handle, b"second", true).unwrap();
    let token = token.expect("the entry stays in the open batch");
    source.poll(&mut pipe);
    let (_, target) = reconnect(&mut source);
    assert_eq!(target.host.runs, [(b'a', b"second".to_vec())]);
    assert!(source.take(token).unwrap().is_ok());
}

#[test]
fn a_call_that_never_left_ends_as_not_sent_when_its_source_gives_up() {
    let mut pipe = Pipe::new(2, 64);
    let (mut source, _) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 10).idempotent());
    let token = source
        .submit(&mut pipe, handle, &[1; 500], true)
        .unwrap()
        .unwrap();
    pipe.kill();
    source.poll(&mut pipe);
    assert!(source.take(token).is_none(), "it waits for another link");
    source.connection.caller.give_up("no link");
    let lost = source.take(token).unwrap().unwrap_err();
    assert_eq!(
        *lost,
        Lost::NotSent {
            why: "no link".into()
        }
    );
}

#[test]
fn what_is_sent_again_was_not_read_back_from_the_link() {
    let mut pipe = Pipe::new(10, 128);
    let (mut source, _) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 10).idempotent());
    // Where the first one is written, the peer may write, too.
    let mut payloads = [b"link!", b"kept!"].into_iter();
    let mut encode = |memory: &mut [u8]| {
        memory[..5].copy_from_slice(payloads.next().expect("it is encoded twice"));
        Ok::<_, ()>(5)
    };
    let submission = Node::submission(handle, 5, true);
    let submitted = source
        .connection
        .submit(&mut pipe.side(0), submission, &mut encode);
    assert!(submitted.is_ok());
    pipe.kill();
    source.poll(&mut pipe);
    let (_, target) = reconnect(&mut source);
    assert_eq!(target.host.runs, [(b'a', b"kept!".to_vec())]);
}

#[test]
fn a_call_that_is_sent_again_finds_its_image_after_its_handle_was_given_back() {
    let mut pipe = Pipe::new(10, 128);
    let (mut source, _) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 10).idempotent());
    let token = source.submit(&mut pipe, handle, b"again", true).unwrap().unwrap();
    pipe.kill();
    source.poll(&mut pipe);
    source.connection.caller.unbind(handle);
    let other = source.connection.caller.bind(Letter::new(b'b', 10));
    assert_ne!(other, handle, "the call still names its handle");
    let (mut pipe, target) = reconnect(&mut source);
    assert_eq!(target.host.runs, [(b'a', b"again".to_vec())]);
    assert!(source.take(token).unwrap().is_ok());
    let unbound = pipe
        .queue(0)
        .headers
        .iter()
        .filter(|header| header.kind == Kind::Unbind);
    assert_eq!(unbound.map(|header| header.handle).collect::<Vec<_>>(), [handle]);
}

/// Twice: the second one finds its image at hand.
fn call_twice(pipe: &mut Pipe, source: &mut Node, target: &mut Node, handle: u32) {
    for _ in 0..2 {
        let token = source.submit(pipe, handle, b"twice", true).unwrap().unwrap();
        settle(pipe, source, target);
        assert_eq!(source.take(token).unwrap().unwrap().bytes(), b"twice");
    }
}

#[test]
fn what_the_peer_has_no_more_is_at_hand_no_more() {
    let mut pipe = Pipe::new(10, 128);
    let (mut source, mut target) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 10));
    call_twice(&mut pipe, &mut source, &mut target, handle);
    // Released, and bound again: to the same image, and to another one.
    for (letter, installs) in [(b'a', 2), (b'b', 3)] {
        source.connection.caller.unbind(handle);
        assert!(source.connection.drive(&mut pipe.side(0)));
        settle(&mut pipe, &mut source, &mut target);
        let again = source.connection.caller.bind(Letter::new(letter, 10));
        assert_eq!(again, handle);
        call_twice(&mut pipe, &mut source, &mut target, handle);
        let headers = pipe.queue(0).headers.iter();
        let sent = headers.filter(|header| header.kind == Kind::Install).count();
        assert_eq!(sent, installs);
    }
    pipe.kill();
    source.poll(&mut pipe);
    let (mut pipe, mut target) = reconnect(&mut source);
    call_twice(&mut pipe, &mut source, &mut target, handle);
}

#[test]
fn a_report_names_the_image_that_its_handle_was_bound_to_then() {
    let mut pipe = Pipe::new(10, 128);
    let (mut source, mut target) = pair(&mut pipe);
    let (first, second) = (Letter::new(b'x', 10), Letter::new(b'b', 10));
    let handle = source.connection.caller.bind(first.clone());
    source.submit(&mut pipe, handle, b"refused", false).unwrap();
    source.connection.caller.unbind(handle);
    assert_eq!(source.connection.caller.bind(second.clone()), handle);
    source.submit(&mut pipe, handle, b"fail", false).unwrap();
    settle(&mut pipe, &mut source, &mut target);
    let reports = source.connection.caller.take_reports();
    let images: Vec<&Letter> = reports.iter().map(|report| &report.image).collect();
    assert_eq!(images, [&first, &second]);
}

#[test]
fn an_image_whose_handle_was_bound_to_another_one_is_released() {
    let mut pipe = Pipe::new(1, 64);
    let (mut source, mut target) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 200));
    assert_eq!(source.submit(&mut pipe, handle, b"waits", true).unwrap(), None);
    source.connection.caller.unbind(handle);
    for letter in [b'b', b'b'] {
        assert_eq!(source.connection.caller.bind(Letter::new(letter, 10)), handle);
        source.connection.caller.unbind(handle);
    }
    settle(&mut pipe, &mut source, &mut target);
    assert_eq!(pipe.queue(0).headers.last().unwrap().kind, Kind::Unbind);
}

#[test]
fn nothing_is_sent_to_a_peer_that_does_not_serve() {
    let mut pipe = Pipe::new(10, 128);
    let (mut first, mut second) = (Node::new(0, false), Node::new(1, false));
    connect(&mut pipe, [&mut first, &mut second], [false; 2], [true; 2]);
    let handle = first.connection.caller.bind(Letter::new(b'a', 10));
    assert_eq!(first.submit(&mut pipe, handle, b"", true).unwrap(), None);
    first.connection.caller.unbind(handle);
    settle(&mut pipe, &mut first, &mut second);
    assert!(pipe.queue(0).headers.is_empty());
    assert!(first.connection.is_linked() && second.connection.is_linked());
}

#[test]
fn a_batch_goes_on_where_the_send_window_stopped_it() {
    let mut pipe = Pipe::new(2, 256);
    let (mut source, mut target) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 10));
    let mut tokens = Vec::new();
    for number in 0..60u8 {
        loop {
            let token = source.append(&mut pipe, handle, &[number; 50], false).unwrap();
            if let Some(token) = token {
                tokens.push(token);
                break;
            }
            target.poll(&mut pipe);
            source.poll(&mut pipe);
        }
    }
    source.connection.close_batch(&mut pipe.side(0));
    settle(&mut pipe, &mut source, &mut target);
    let expected: Vec<_> = (0..60u8).map(|number| (b'a', vec![number; 50])).collect();
    assert_eq!(target.host.runs, expected);
    for (number, token) in tokens.into_iter().enumerate() {
        let completion = source.take(token).unwrap().unwrap();
        assert_eq!(completion.status, Status::Executed);
        assert_eq!(completion.bytes(), [number as u8; 50]);
    }
}

#[test]
fn bodies_of_every_length_arrive_whole() {
    let mut pipe = Pipe::new(3, 64);
    let (mut source, mut target) = pair(&mut pipe);
    let handle = source.connection.caller.bind(Letter::new(b'a', 333));
    for len in 0..200 {
        let payload: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
        let token = loop {
            if let Some(token) = source.submit(&mut pipe, handle, &payload, true).unwrap() {
                break token;
            }
            target.poll(&mut pipe);
            source.poll(&mut pipe);
        };
        settle(&mut pipe, &mut source, &mut target);
        assert_eq!(target.host.runs.pop().unwrap().1, payload);
        assert!(source.take(token).unwrap().is_ok());
    }
}
