//! Tests of a node's rules, one at a time. `cargo xtask simulate` combines them.

use ifunc_abi::frame::{FrameFlags, Header, Kind};
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_abi::travel::{LostNode, ReplyHead, ScopeReport, SlotRef, TravelError, TravelHead};
use proptest::prelude::*;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::{Arrival, Ended, Event, Node, NodeConfig, Visit};
use crate::caller::Image;

mod bounds;
mod links;

#[derive(Clone, Copy, Debug)]
struct Code;

impl Image for Code {
    fn id(&self) -> &[u8; 32] {
        &[1; 32]
    }

    fn bytes(&self) -> &[u8] {
        b"code"
    }

    fn entries(&self) -> u8 {
        1
    }

    fn entry(&self) -> u8 {
        0
    }

    fn is_idempotent(&self) -> bool {
        false
    }
}

type TestNode = Node<Code, u32>;

fn node() -> TestNode {
    let mut node = Node::new(NodeConfig {
        number: Some(0),
        seed: 5,
        outbox_bytes: 1000,
        scope_weight: 2,
        grace: 100,
        ..NodeConfig::default()
    });
    node.add(1);
    node.linked(1, 7, 0);
    node
}

/// A source's call, or one in a scope.
fn arrive(node: &mut TestNode, token: u64, head: &TravelHead) -> Visit<Code, u32> {
    let source = Arrival::Source {
        connection: 3,
        token,
        origin: (token != 0).then_some(token as u32),
        max_answer: 100,
    };
    node.arrive(source, head, 0).unwrap()
}

fn reply(node: &mut TestNode, slot: u32, nonce: u64, body: &[u8]) {
    let head = ReplyHead {
        slot: U32::new(slot),
        node: U32::new(1),
        index: U32::ZERO,
        is_last: U32::new(1),
    };
    let header = Header::new(Kind::Reply, Status::Executed.code(), nonce);
    let body = [head.as_bytes(), body].concat();
    node.receive(1, header, &body, 0).unwrap();
}

#[test]
fn a_slot_ends_once_and_by_its_own_nonce() {
    let mut node = node();
    let mut visit = arrive(&mut node, 9, &TravelHead::of_source(4));
    node.forward(&mut visit, 1, Code, b"on").unwrap();
    assert_eq!(node.forward(&mut visit, 1, Code, b"on"), Err(TravelError::Ended));
    assert!(matches!(node.end(visit, Ok(None), 0), Ended::Elsewhere));
    let (index, nonce, _) = node.slots.iter_mut().next().unwrap();
    reply(&mut node, index, nonce ^ 1, b"forged");
    assert!(node.next_event().is_none());
    reply(&mut node, index, nonce, b"yes");
    reply(&mut node, index, nonce, b"again");
    let event = node.next_event();
    assert!(
        matches!(event, Some(Event::Answer { origin: 9, node: 1, outcome: Ok(ref bytes) }) if bytes == b"yes")
    );
    assert!(node.next_event().is_none());
    assert_eq!(node.footprint().slots, 0);
}

#[test]
fn a_forward_that_is_answered_too_never_leaves() {
    let mut node = node();
    let mut visit = arrive(&mut node, 9, &TravelHead::of_source(4));
    node.forward(&mut visit, 1, Code, b"on").unwrap();
    let ended = node.end(visit, Ok(Some(b"and an answer")), 0);
    let Ended::Here {
        origin: Some(9),
        failed: Some(failed),
    } = ended
    else {
        panic!("{ended:?}");
    };
    assert_eq!(failed.status, Status::Failed(Failure::EndedTwice));
    assert!(!node.has_work_for(1));
    assert_eq!(node.footprint(), Default::default());
}

#[test]
fn the_outbox_is_bounded_and_sources_wait_from_its_half_on() {
    let mut node = node();
    let mut visit = arrive(&mut node, 0, &TravelHead::of_source(4));
    assert_eq!(node.send(&mut visit, 5, Code, b""), Err(TravelError::NoNode));
    node.send(&mut visit, 1, Code, &[0; 300]).unwrap();
    assert!(node.admits());
    node.send(&mut visit, 0, Code, &[0; 300]).unwrap();
    assert!(!node.admits());
    assert_eq!(node.send(&mut visit, 1, Code, &[0; 300]), Err(TravelError::Busy));
    node.config.max_payload = 10;
    assert_eq!(
        node.send(&mut visit, 1, Code, &[0; 11]),
        Err(TravelError::TooLarge)
    );
    let last = TravelHead::of_source(0);
    let mut at_the_limit = arrive(&mut node, 0, &last);
    assert_eq!(
        node.send(&mut at_the_limit, 1, Code, b""),
        Err(TravelError::HopLimit)
    );
    assert!(matches!(
        node.end(visit, Ok(None), 0),
        Ended::Here {
            origin: None,
            failed: None
        }
    ));
    assert!(node.next_local(0).is_some() && node.admits());
}

#[test]
fn a_lost_node_fails_what_was_not_sent_and_dates_the_rest() {
    let mut node = node();
    for token in [1, 2] {
        let mut visit = arrive(&mut node, token, &TravelHead::of_source(4));
        node.forward(&mut visit, 1, Code, b"on").unwrap();
        node.end(visit, Ok(None), 0);
    }
    // The first was sent and consumed.
    let consumed = node.members.get_mut(1).unwrap().queue.pop_front().unwrap();
    node.bytes -= consumed.size();
    node.lose(1, 1000, |_| false);
    assert!(matches!(node.next_event(), Some(Event::NodeLost { node: 1 })));
    let Some(Event::Answer {
        origin: 2,
        outcome: Err(failed),
        ..
    }) = node.next_event()
    else {
        panic!("the second call ends");
    };
    assert_eq!(failed.status, Status::Rejected(Rejection::NodeLost));
    assert_eq!(node.next_deadline(), Some(1100));
    node.tick(1100);
    let Some(Event::Answer {
        origin: 1,
        outcome: Err(failed),
        ..
    }) = node.next_event()
    else {
        panic!("the first call ends");
    };
    assert_eq!(failed.status, Status::Failed(Failure::Indeterminate));
    assert_eq!(failed.detail, b"1");
}

#[test]
fn what_a_lost_node_may_have_begun_has_failed() {
    let mut node = node();
    let mut visit = arrive(&mut node, 9, &TravelHead::of_source(4));
    node.forward(&mut visit, 1, Code, b"on").unwrap();
    node.end(visit, Ok(None), 0);
    let (index, nonce, _) = node.slots.iter_mut().next().unwrap();
    let message = node.members.get_mut(1).unwrap().queue.pop_front().unwrap();
    node.bytes -= message.size();
    node.members
        .get_mut(1)
        .unwrap()
        .sent
        .push_back(super::outbox::Sent {
            sequence: Some(1),
            reply_to: SlotRef::new(0, index, nonce),
            stream_next: u32::MAX,
        });
    node.lose(1, 1000, |_| true);
    let failed = std::iter::from_fn(|| node.next_event()).find_map(|event| match event {
        Event::Answer {
            outcome: Err(failed), ..
        } => Some(failed),
        _ => None,
    });
    let failed = failed.expect("the call ends");
    assert_eq!(failed.status, Status::Failed(Failure::NodeLost));
    assert_eq!(failed.detail, b"1");
}

#[test]
fn what_a_node_consumed_is_forgotten_and_seldom_asked_for() {
    const SENT: u32 = 100_000;
    let mut node = node();
    let member = node.members.get_mut(1).unwrap();
    let (mut asked, mut most) = (0, 0);
    for sequence in 0..SENT {
        member.sent.push_back(super::outbox::Sent {
            sequence: Some(sequence),
            reply_to: SlotRef::NONE,
            stream_next: u32::MAX,
        });
        // It says every 256 frames what it has consumed.
        let consumed = sequence / 256 * 256;
        member.prune(|sequence| {
            asked += 1;
            sequence >= consumed
        });
        most = most.max(member.sent.len());
        assert!(
            member
                .sent
                .back()
                .is_some_and(|sent| sent.sequence == Some(sequence))
        );
    }
    assert!(asked < SENT / 8, "{asked} questions for {SENT} invocations");
    assert!(most <= 2 * 256, "{most} are kept");
    // A node that consumes nothing has no more than its window holds.
    (0..5000).for_each(|sequence| {
        let sent = super::outbox::Sent {
            sequence: Some(SENT + sequence),
            reply_to: SlotRef::NONE,
            stream_next: u32::MAX,
        };
        member.sent.push_back(sent);
        member.prune(|_| true);
    });
    assert_eq!(member.unconsumed(), 4096);
}

#[test]
fn what_arrives_too_late_or_without_room_does_not_run() {
    let refused = |node: &mut TestNode, head: &TravelHead| {
        let from = Arrival::Source {
            connection: 3,
            token: 9,
            origin: Some(9),
            max_answer: 100,
        };
        match node.arrive(from, head, 100) {
            Err(Ended::Here {
                failed: Some(failed), ..
            }) => failed.status,
            other => panic!("{other:?}"),
        }
    };
    let late = TravelHead {
        deadline: U64::new(0),
        ..TravelHead::of_source(4)
    };
    assert_eq!(refused(&mut node(), &late), Status::Rejected(Rejection::TooLate));
    let scoped = TravelHead {
        scope: SlotRef::new(0, 1, 1),
        ..TravelHead::of_source(4)
    };
    let mut full = node();
    full.config.max_scopes = 0;
    assert_eq!(refused(&mut full, &scoped), Status::Rejected(Rejection::NodeBusy));
}

#[test]
fn what_made_too_many_hops_ends_where_it_is_awaited() {
    let mut node = node();
    let mut visit = arrive(&mut node, 9, &TravelHead::of_source(4));
    node.forward(&mut visit, 1, Code, b"on").unwrap();
    node.end(visit, Ok(None), 0);
    let (index, nonce, _) = node.slots.iter_mut().next().unwrap();
    let far = TravelHead {
        reply_to: SlotRef::new(0, index, nonce),
        hops: 5.into(),
        ..TravelHead::of_source(4)
    };
    assert!(matches!(
        node.arrive(Arrival::Node(1), &far, 0),
        Err(Ended::Elsewhere)
    ));
    let Some(Event::Answer {
        outcome: Err(failed), ..
    }) = node.next_event()
    else {
        panic!("the call ends");
    };
    assert_eq!(failed.status, Status::Rejected(Rejection::HopLimit));
}

#[test]
fn a_scope_ends_after_all_that_was_sent_in_it_even_with_the_least_weight() {
    let mut node = node();
    let head = TravelHead {
        scope: SlotRef::scope_of_source(1),
        ..TravelHead::of_source(20)
    };
    let mut visit = arrive(&mut node, 0, &head);
    node.finish(3, 1, 77, 0);
    let mut count = 1;
    for depth in 0..6 {
        for _ in 0..2 {
            if node.send(&mut visit, 0, Code, b"x").is_ok() {
                count += 1;
            }
        }
        node.end(visit, Ok(None), depth);
        assert!(node.next_event().is_none(), "{depth}");
        visit = node.next_local(0).unwrap().visit;
    }
    node.end(visit, Ok(None), 0);
    while let Some(local) = node.next_local(0) {
        assert!(node.next_event().is_none());
        node.end(local.visit, Ok(None), 0);
    }
    let Some(Event::Finished { origin: 77, report }) = node.next_event() else {
        panic!("the scope ends");
    };
    let expected = ScopeReport {
        executed: count,
        ..ScopeReport::default()
    };
    assert_eq!(*report, expected);
    assert_eq!(node.footprint(), Default::default());
}

#[test]
fn an_invocation_whose_caller_is_unknown_comes_back_to_the_node_that_sent_it() {
    // Node 1 knows neither node 4, which awaits the answer, nor node 5, which holds the scope.
    let heads = [
        (SlotRef::new(4, 2, 77), SlotRef::NONE, 4),
        (SlotRef::NONE, SlotRef::new(5, 2, 77), 5),
        (SlotRef::new(0, 2, 77), SlotRef::new(5, 2, 77), 5),
    ];
    let mut node = node();
    for (reply_to, scope, unknown) in heads {
        let head = TravelHead {
            reply_to,
            scope,
            ..TravelHead::of_source(4)
        };
        assert!(matches!(
            node.arrive(Arrival::Node(1), &head, 0),
            Err(Ended::Elsewhere)
        ));
        let control = node.members.get_mut(1).unwrap().control.pop_front().unwrap();
        let (header, body, _) = control.frame();
        assert_eq!(
            (header.kind, header.handle, body),
            (Kind::Bounce, unknown, head.as_bytes())
        );
    }
    assert_eq!(node.footprint(), Default::default());

    // The node that sent it reports it.
    let head = TravelHead {
        scope: SlotRef::scope_of_source(1),
        ..TravelHead::of_source(4)
    };
    let mut visit = arrive(&mut node, 9, &head);
    node.forward(&mut visit, 1, Code, b"on").unwrap();
    node.end(visit, Ok(None), 0);
    let sent = node.members.get_mut(1).unwrap().queue.pop_front().unwrap();
    node.bytes -= sent.size();
    let header = Header::new(Kind::Bounce, 0, 0);
    node.receive(1, header, sent.head.as_bytes(), 0).unwrap();
    let Some(Event::Answer {
        origin: 9,
        node: 1,
        outcome: Err(failed),
    }) = node.next_event()
    else {
        panic!("the call ends");
    };
    assert_eq!(failed.status, Status::Rejected(Rejection::UnknownNode));
    assert_eq!(failed.detail, b"0");
    node.finish(3, 1, 77, 0);
    let Some(Event::Finished { report, .. }) = node.next_event() else {
        panic!("the scope ends");
    };
    assert_eq!((report.executed, report.failed), (1, 1));
}

#[test]
fn a_window_holds_partial_answers_back_and_the_invocation_goes_on_when_it_opens() {
    let mut node = node();
    let head = TravelHead {
        stream_next: U32::ZERO,
        stream_window: U32::new(1),
        deadline: U64::new(50),
        ..TravelHead::of_source(4)
    };
    let mut visit = arrive(&mut node, 9, &head);
    node.reply_partially(&mut visit, b"first").unwrap();
    assert_eq!(
        node.reply_partially(&mut visit, b"second"),
        Err(TravelError::Window)
    );
    node.forward(&mut visit, 0, Code, b"on").unwrap();
    node.end(visit, Ok(None), 0);
    assert!(!node.has_local() && node.footprint().waiting == 1);
    assert!(matches!(
        node.next_event(),
        Some(Event::Partial { number: 0, .. })
    ));
    node.grant(3, 9, 1);
    let mut visit = node.next_local(0).unwrap().visit;
    node.reply_partially(&mut visit, b"second").unwrap();
    node.end(visit, Ok(Some(b"end")), 0);
    assert!(matches!(
        node.next_event(),
        Some(Event::Partial { number: 1, .. })
    ));
    assert!(matches!(
        node.next_event(),
        Some(Event::Answer { outcome: Ok(_), .. })
    ));
    assert_eq!(node.next_deadline(), None);
}

#[test]
fn a_call_that_was_dropped_gives_its_slot_back_and_ends_once() {
    let mut node = node();
    let mut visit = arrive(&mut node, 9, &TravelHead::of_source(4));
    node.forward(&mut visit, 1, Code, b"on").unwrap();
    node.end(visit, Ok(None), 0);
    let (index, nonce, _) = node.slots.iter_mut().next().unwrap();
    // Of another connection, and another call.
    node.cancel(4, 9);
    node.cancel(3, 8);
    assert_eq!(node.footprint().slots, 1);
    node.cancel(3, 9);
    let Some(Event::Answer {
        origin: 9,
        node: 0,
        outcome: Err(failed),
    }) = node.next_event()
    else {
        panic!("the source learns that nothing more arrives");
    };
    assert_eq!(failed.status, Status::Failed(Failure::Cancelled));
    // Its reply comes late, and so does another cancellation.
    reply(&mut node, index, nonce, b"yes");
    node.cancel(3, 9);
    assert!(node.next_event().is_none());
    assert_eq!((node.footprint().slots, node.next_deadline()), (0, None));
    // What was forwarded is sent all the same.
    assert!(node.has_work_for(1));
}

#[test]
fn a_call_that_is_dropped_while_it_runs_holds_no_slot_when_it_is_forwarded() {
    let mut node = node();
    let mut visit = arrive(&mut node, 9, &TravelHead::of_source(4));
    node.forward(&mut visit, 1, Code, b"on").unwrap();
    node.cancel(3, 9);
    node.end(visit, Ok(None), 0);
    assert!(matches!(
        node.next_event(),
        Some(Event::Answer {
            origin: 9,
            outcome: Err(_),
            ..
        })
    ));
    assert_eq!(node.footprint().slots, 0);
    // It is forgotten with the last invocation that ran at the time.
    assert!(node.cancelled.is_empty());
}

#[test]
fn the_loss_of_a_node_that_had_no_link_here_ends_a_scope() {
    let mut node = node();
    let head = TravelHead {
        scope: SlotRef::scope_of_source(1),
        ..TravelHead::of_source(4)
    };
    let mut visit = arrive(&mut node, 0, &head);
    node.send(&mut visit, 1, Code, b"goes on to node 2").unwrap();
    node.end(visit, Ok(None), 0);
    node.finish(3, 1, 77, 0);
    let reports = |node: &mut TestNode| {
        let header = Header::new(Kind::NodesLost, 0, 0);
        node.receive(1, header, LostNode::new(2, 5).as_bytes(), 0)
            .unwrap();
        matches!(node.next_event(), Some(Event::NodeLost { .. }))
    };
    // It is unknown here; or it has started again, and only the later process is known, which is reported once.
    assert!(reports(&mut node));
    node.linked(2, 6, 0);
    assert!(reports(&mut node));
    assert!(!reports(&mut node));
    node.tick(2_000_000_000);
    let Some(Event::Finished { origin: 77, report }) = node.next_event() else {
        panic!("the scope ends");
    };
    assert_eq!(report.lost, [2]);
}

#[test]
fn a_node_that_reports_too_many_unknown_nodes_hides_no_loss_of_the_group() {
    let mut node = node();
    node.add(2);
    node.lose(2, 0, |_| true);
    let mut report = |lost: u32| {
        let header = Header::new(Kind::NodesLost, 0, 0);
        let reported = node.receive(1, header, LostNode::new(lost, 5).as_bytes(), 0);
        while node.next_event().is_some() {}
        assert!(node.lost.len() <= super::MAX_LOST);
        assert!(node.lost_since(0).contains(&2));
        reported
    };
    for stranger in 0..super::MAX_STRANGERS as u32 {
        // The same node again is nothing new.
        (0..2).for_each(|_| report(100 + stranger).unwrap());
    }
    report(99).expect_err("no group has as many nodes");
}

#[test]
fn a_stream_that_was_dropped_ends_what_waits_for_its_window() {
    let mut node = node();
    let head = TravelHead {
        stream_next: U32::ZERO,
        stream_window: U32::ZERO,
        ..TravelHead::of_source(4)
    };
    let mut visit = arrive(&mut node, 9, &head);
    assert_eq!(
        node.reply_partially(&mut visit, b"first"),
        Err(TravelError::Window)
    );
    node.forward(&mut visit, 0, Code, b"on").unwrap();
    node.end(visit, Ok(None), 0);
    assert_eq!(node.footprint().waiting, 1);
    node.cancel(3, 9);
    assert!(matches!(
        node.next_event(),
        Some(Event::Answer {
            origin: 9,
            outcome: Err(_),
            ..
        })
    ));
    assert!(node.next_event().is_none() && !node.has_local());
    assert_eq!(node.footprint(), Default::default());
}

proptest! {
    #[test]
    fn any_frame_of_a_node_is_processed(
        frames in prop::collection::vec((19..25_u8, any::<u8>(), 0..3_u64, prop::collection::vec(0..4_u8, 0..120)), 1..20),
    ) {
        let mut node = node();
        let mut visit = arrive(&mut node, 9, &TravelHead::of_source(4));
        node.forward(&mut visit, 1, Code, b"on").unwrap();
        node.end(visit, Ok(None), 0);
        for (kind, handle, token, body) in frames {
            let header = Header {
                kind: Kind::from_code(kind).unwrap(),
                flags: FrameFlags::NONE,
                handle: handle.into(),
                token,
            };
            let _ = node.receive(1, header, &body, 0);
            while node.next_event().is_some() {}
        }
        node.tick(u64::MAX - 1);
    }
}
