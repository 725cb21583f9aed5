//! What an invocation on a node may do, and how it ends, at the bounds.

use ifunc_abi::travel::NO_DEADLINE;

use super::super::visit::left;
use super::*;

/// An invocation of node 1 arrives.
pub(super) fn of_node(node: &mut TestNode, head: &TravelHead, now: u64) -> Visit<Code, u32> {
    node.arrive(Arrival::Node(1), head, now).unwrap()
}

/// The failure that the next event ends a call with.
fn failure(node: &mut TestNode) -> (Status, Vec<u8>) {
    match node.next_event() {
        Some(Event::Answer {
            outcome: Err(failed), ..
        }) => (failed.status, failed.detail),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_visit_knows_how_far_it_came_and_how_far_and_how_long_it_may_go_on() {
    let mut node = node();
    let head = TravelHead {
        hops: 3.into(),
        deadline: U64::new(50),
        ..TravelHead::of_source(7)
    };
    let visit = of_node(&mut node, &head, 100);
    assert_eq!((visit.hops(), visit.hops_left(), visit.deadline()), (3, 4, 150));
    assert_eq!((visit.max_answer(), visit.is_forwarded()), (None, false));
    let visit = arrive(&mut node, 9, &TravelHead::of_source(7));
    assert_eq!(
        (visit.hops(), visit.hops_left(), visit.deadline()),
        (0, 7, NO_DEADLINE)
    );
    assert_eq!(visit.max_answer(), Some(100));
    for (deadline, now, expected) in [
        (NO_DEADLINE, 100, NO_DEADLINE),
        (150, 100, 50),
        (100, 100, 0),
        (50, 100, 0),
    ] {
        assert_eq!(left(deadline, now), expected);
    }
}

#[test]
fn a_node_has_the_number_that_it_is_given() {
    let mut node = TestNode::new(NodeConfig::default());
    assert_eq!(node.number(), None);
    let mut visit = arrive(&mut node, 0, &TravelHead::of_source(4));
    assert_eq!(node.send(&mut visit, 0, Code, b""), Err(TravelError::NoGroup));
    node.set_number(5);
    assert_eq!(node.number(), Some(5));
    node.send(&mut visit, 5, Code, b"").unwrap();
    assert!(!node.has_local());
    node.end(visit, Ok(None), 0);
    assert!(node.has_local());
}

#[test]
fn payloads_and_answers_are_as_long_as_they_may_be() {
    let mut node = node();
    node.config.max_payload = 10;
    node.config.max_answer = 10;
    let head = TravelHead {
        stream_next: U32::ZERO,
        stream_window: U32::new(5),
        ..TravelHead::of_source(4)
    };
    let mut visit = arrive(&mut node, 9, &head);
    for (len, expected) in [(10, Ok(())), (11, Err(TravelError::TooLarge))] {
        assert_eq!(node.reply_partially(&mut visit, &vec![0; len]), expected);
        assert_eq!(node.send(&mut visit, 1, Code, &vec![0; len]), expected);
    }
    // To another node an answer is as long as this one keeps, or fails with what to do.
    let policy = "`answer_bytes` of the quotas in this target's policy";
    let outbox = "`Target::builder().outbox(..)`, of which an answer may have a quarter";
    for (limit, len, help) in [
        (10, 10, None),
        (10, 11, Some(policy)),
        (249, 250, Some(policy)),
        (250, 251, Some(outbox)),
        (300, 301, Some(outbox)),
    ] {
        let mut node = super::node();
        node.config.max_answer = limit;
        let head = TravelHead {
            reply_to: SlotRef::new(1, 2, 77),
            max_answer: U32::new(1000),
            ..TravelHead::of_source(4)
        };
        let visit = of_node(&mut node, &head, 0);
        assert!(matches!(
            node.end(visit, Ok(Some(&vec![7; len])), 0),
            Ended::Elsewhere
        ));
        let control = node.members.get_mut(1).unwrap().control.pop_front().unwrap();
        let (header, head, body) = control.frame();
        let (head, _) = ReplyHead::split(head).unwrap();
        assert_eq!((head.index.get(), head.is_last.get(), header.token), (0, 1, 77));
        let Some(help) = help else {
            assert_eq!(
                (header.handle, body),
                (Status::Executed.code(), &vec![7; len][..])
            );
            continue;
        };
        assert_eq!(header.handle, Status::Failed(Failure::Answer).code());
        let detail = String::from_utf8_lossy(body);
        assert!(detail.contains(help), "{detail}");
    }
}

#[test]
fn weight_that_cannot_be_divided_takes_a_scope() {
    let scoped = TravelHead {
        scope: SlotRef::scope_of_source(1),
        ..TravelHead::of_source(4)
    };
    // Each that is sent takes weight, one that is forwarded not.
    for (forwards, most) in [(false, 3), (true, 3)] {
        let mut node = node();
        node.config.outbox_bytes = 1 << 20;
        node.config.scope_weight = 5;
        node.config.max_scopes = 1;
        let mut visit = arrive(&mut node, 0, &scoped);
        if forwards {
            node.forward(&mut visit, 1, Code, b"").unwrap();
        }
        for _ in 0..most {
            node.send(&mut visit, 1, Code, b"").unwrap();
        }
        assert_eq!(node.send(&mut visit, 1, Code, b""), Err(TravelError::Busy));
        node.config.max_scopes = 2;
        node.send(&mut visit, 1, Code, b"").unwrap();
        // Outside of scopes there is no weight.
        node.config.max_scopes = 0;
        let mut visit = arrive(&mut node, 0, &TravelHead::of_source(4));
        node.send(&mut visit, 1, Code, b"").unwrap();
    }
}

#[test]
fn what_nothing_awaits_ends_here_only_for_its_source() {
    let mut node = node();
    let failed = || {
        Box::new(ifunc_abi::refusal::Failed::new(
            Status::Failed(Failure::Payload),
            vec![1],
        ))
    };
    let scoped = TravelHead {
        scope: SlotRef::scope_of_source(1),
        ..TravelHead::of_source(4)
    };
    let plain = TravelHead::of_source(4);
    let reported = |ended: Ended<u32>| match ended {
        Ended::Here { origin: None, failed } => Some(failed.is_some()),
        Ended::Elsewhere => None,
        other => panic!("{other:?}"),
    };
    // A scope collects failures; without one the source receives a report.
    for (head, fails, expected) in [
        (&plain, true, Some(true)),
        (&plain, false, Some(false)),
        (&scoped, true, Some(false)),
        (&scoped, false, Some(false)),
    ] {
        let visit = arrive(&mut node, 0, head);
        let outcome = if fails { Err(failed()) } else { Ok(None) };
        assert_eq!(reported(node.end(visit, outcome, 0)), expected);
    }
    for outcome in [Err(failed()), Ok(None)] {
        let visit = of_node(&mut node, &plain, 0);
        assert_eq!(reported(node.end(visit, outcome, 0)), None);
    }
    let mut visit = arrive(&mut node, 0, &plain);
    node.forward(&mut visit, 1, Code, b"on").unwrap();
    assert_eq!(reported(node.end(visit, Ok(None), 0)), None);
}

#[test]
fn a_slot_takes_partial_answers_of_its_window_and_no_longer_ones() {
    let head = TravelHead {
        stream_next: U32::ZERO,
        stream_window: U32::new(2),
        ..TravelHead::of_source(4)
    };
    for (last, is_answer) in [(100, true), (101, false)] {
        let mut node = node();
        let mut visit = arrive(&mut node, 9, &head);
        node.forward(&mut visit, 1, Code, b"on").unwrap();
        node.end(visit, Ok(None), 0);
        let (slot, nonce, _) = node.slots.iter_mut().next().unwrap();
        let arrives = |node: &mut TestNode, index: u32, is_last: bool, len: usize| {
            let head = ReplyHead {
                slot: U32::new(slot),
                node: U32::new(1),
                index: U32::new(index),
                is_last: U32::new(is_last.into()),
            };
            let header = Header::new(Kind::Reply, Status::Executed.code(), nonce);
            let body = [head.as_bytes(), &vec![7; len]].concat();
            node.receive(1, header, &body, 0).unwrap();
            std::iter::from_fn(|| node.next_event()).collect::<Vec<_>>()
        };
        let numbers = |events: Vec<Event<u32>>| -> Vec<u32> {
            let number = |event| match event {
                Event::Partial { number, .. } => number,
                other => panic!("{other:?}"),
            };
            events.into_iter().map(number).collect()
        };
        assert_eq!(numbers(arrives(&mut node, 0, false, 100)), [0]);
        // Out of the window, again, and too long.
        for (index, len) in [(2, 1), (5, 1), (0, 1), (1, 101)] {
            assert_eq!(numbers(arrives(&mut node, index, false, len)), []);
        }
        node.grant(3, 9, 10);
        assert_eq!(numbers(arrives(&mut node, 1, false, 1)), [1]);
        assert_eq!(numbers(arrives(&mut node, 3, false, 1)), []);
        assert_eq!(numbers(arrives(&mut node, 2, false, 1)), [2, 3]);
        let events = arrives(&mut node, 4, true, last);
        let [Event::Answer { outcome, .. }] = &events[..] else {
            panic!("{events:?}");
        };
        match outcome {
            Ok(answer) => assert!(is_answer && answer.len() == last),
            Err(failed) => {
                assert!(!is_answer);
                assert_eq!(failed.status, Status::Failed(Failure::Answer));
            }
        }
    }
}

#[test]
fn calls_are_counted_for_each_connection() {
    let mut node = node();
    for token in [8, 9] {
        let mut visit = arrive(&mut node, token, &TravelHead::of_source(4));
        node.forward(&mut visit, 1, Code, b"on").unwrap();
        node.end(visit, Ok(None), 0);
    }
    let counts = [(3, 0), (3, 1), (3, 2), (3, 3), (2, 1), (4, 1), (4, 0)];
    let has = counts.map(|(connection, count)| node.has_calls(connection, count));
    assert_eq!(has, [true, true, true, false, false, false, true]);
    // A call that is unknown while none runs is no call.
    node.cancel(3, 77);
    assert!(node.cancelled.is_empty());
}

#[test]
fn what_waits_for_a_window_on_another_node_ends_with_its_deadline_or_that_node() {
    for (deadline, at) in [(NO_DEADLINE, None), (50, Some(60))] {
        for holder in [1, 2] {
            let mut node = node();
            node.add(2);
            let head = TravelHead {
                reply_to: SlotRef::new(holder, 2, 77),
                stream_next: U32::ZERO,
                stream_window: U32::ZERO,
                deadline: U64::new(deadline),
                ..TravelHead::of_source(4)
            };
            for _ in 0..2 {
                let mut visit = of_node(&mut node, &head, 10);
                node.forward(&mut visit, 0, Code, b"on").unwrap();
                node.end(visit, Ok(None), 10);
            }
            assert_eq!((node.footprint().waiting, node.next_deadline()), (2, at));
            let asked = std::mem::take(&mut node.members.get_mut(holder).unwrap().control);
            let waiters: Vec<Kind> = asked.iter().map(|control| control.frame().0.kind).collect();
            assert_eq!(waiters, [Kind::Window; 2]);
            let expected = if at.is_some() {
                node.tick(59);
                assert_eq!(node.footprint().waiting, 2);
                node.tick(60);
                Rejection::TooLate
            } else {
                node.lose(3 - holder, 20, |_| true);
                assert_eq!(node.footprint().waiting, 2);
                node.lose(holder, 20, |_| true);
                Rejection::NodeLost
            };
            assert_eq!((node.footprint().waiting, node.next_deadline()), (0, None));
            let control = &node.members.get_mut(holder).unwrap().control;
            let replies = control.iter().map(|control| control.frame().0);
            let replies = replies.filter(|header| header.kind == Kind::Reply);
            let statuses: Vec<u32> = replies.map(|header| header.handle).collect();
            assert_eq!(statuses, [Status::Rejected(expected).code(); 2]);
        }
    }
}

#[test]
fn what_was_sent_to_a_node_that_was_lost_meanwhile_is_not_kept() {
    let mut node = node();
    let mut visit = arrive(&mut node, 9, &TravelHead::of_source(4));
    node.forward(&mut visit, 1, Code, b"on").unwrap();
    node.lose(1, 0, |_| true);
    assert!(matches!(node.next_event(), Some(Event::NodeLost { .. })));
    node.end(visit, Ok(None), 0);
    let expected = (Status::Rejected(Rejection::NodeLost), b"1".to_vec());
    assert_eq!(failure(&mut node), expected);
    assert_eq!(
        (node.footprint(), node.has_work_for(1)),
        (Default::default(), false)
    );
}
