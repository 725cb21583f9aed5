//! What a node returns, sends over its links and knows of them, at the bounds.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use ifunc_abi::frame::Limits;
use ifunc_abi::machine::Machine;
use ifunc_abi::travel::NOT_STREAMED;

use super::super::outbox::Sent;
use super::bounds::of_node;
use super::*;
use crate::caller::ImageBytes;
use crate::connection::{Config, Connection, Peer};
use crate::testing::Ends;

/// A connection to a node, and its link.
fn link<I: Image + Clone>(credits: usize) -> (Connection<I, u32, Infallible>, Ends) {
    let mut connection = Connection::new(Config {
        batch_size: 0,
        max_answers: 0,
        server: None,
    });
    let mut link = Ends::new(1000, credits);
    let limits = Limits {
        max_payload: 500,
        max_image: 500,
        max_answer: 500,
    };
    let peer = Peer {
        machine: Machine::default(),
        limits: Some(limits),
        invokes: false,
        max_answer: 500,
        node: None,
    };
    connection.connect(&mut link, peer);
    (connection, link)
}

fn kinds(link: &mut Ends) -> Vec<Kind> {
    link.tx.take().iter().map(|(header, _)| header.kind).collect()
}

/// The scope of node 1 with this number.
fn scope_of_1(slot: u32) -> TravelHead {
    TravelHead {
        scope: SlotRef::new(1, slot, 77),
        weight: U64::new(5),
        ..TravelHead::of_source(4)
    }
}

fn visit_scope(node: &mut TestNode, slot: u32, now: u64) {
    let visit = of_node(node, &scope_of_1(slot), now);
    node.end(visit, Ok(None), now);
}

#[test]
fn returns_wait_twice_as_long_each_time_unless_work_paid_for_them() {
    let mut node = node();
    let (mut now, mut visits) = (1000, 0);
    let mut waited = Vec::new();
    let mut send = |node: &mut TestNode, count: u32| {
        assert!(!node.has_gathered());
        (0..count).for_each(|_| visit_scope(node, 2, now));
        visits += u64::from(count);
        assert!(node.has_gathered());
        waited.push((node.next_deadline().unwrap() - now) / 100_000);
        // Nothing is sent before, unless it was paid for.
        node.idle(now);
        let is_paid = node.has_work_for(1);
        now = node.next_deadline().unwrap();
        node.tick(now - 1);
        assert_eq!(node.has_work_for(1), is_paid);
        node.tick(now);
        assert!(node.has_work_for(1));
        let (header, body, scopes) = node.weights_for(1).unwrap();
        assert_eq!((header.kind, scopes.len()), (Kind::Weights, 1));
        assert!(!body.is_empty());
        node.weights_sent(&scopes);
        node.members.get_mut(1).unwrap().are_returns_due = false;
        assert!(!node.has_work_for(1));
        is_paid
    };
    for _ in 0..12 {
        assert!(!send(&mut node, 1));
    }
    // 12 invocations arrived, and 244 more make 256, which pay for one frame.
    assert!(send(&mut node, 244));
    assert!(!send(&mut node, 1));
    assert!(send(&mut node, 999));
    // 745 are left, and then 490, and then too few.
    assert_eq!([1; 3].map(|count| send(&mut node, count)), [true, true, false]);
    assert_eq!(
        waited,
        [
            1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512, 512, 256, 512, 256, 128, 64
        ]
    );
    assert_eq!(node.traffic().weights, 18);
}

#[test]
fn scopes_to_which_nothing_is_returned_are_forgotten() {
    let mut node = node();
    // 200 wait, and those of the others were sent.
    (0..200).for_each(|slot| visit_scope(&mut node, slot, 0));
    let mut most = Vec::new();
    for slot in 200..700 {
        visit_scope(&mut node, slot, 0);
        let scopes = [scope_of_1(slot).scope];
        node.weights_sent(&scopes);
        most.push(node.returns.len());
    }
    assert_eq!(node.footprint().returns, 200);
    // When one more would be the 256th, and then twice as many as were left.
    let swept: Vec<usize> = most
        .windows(2)
        .filter(|len| len[1] < len[0])
        .map(|len| len[0])
        .collect();
    assert_eq!(swept, [255, 399, 399]);
}

#[test]
fn a_node_is_ready_if_there_is_a_link_with_credit_and_something_to_send() {
    let mut node = node();
    node.add(2);
    let ready = |node: &TestNode| node.ready_peers().collect::<Vec<u32>>();
    let post = |node: &mut TestNode, to: u32| {
        let mut visit = arrive(node, 0, &TravelHead::of_source(4));
        node.send(&mut visit, to, Code, b"on").unwrap();
        node.end(visit, Ok(None), 0);
    };
    assert_eq!(ready(&node), []);
    assert_eq!(node.peers().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(node.linked_peers().collect::<Vec<_>>(), [1]);
    assert_eq!([1, 2, 3].map(|peer| node.is_linked(peer)), [true, false, false]);
    post(&mut node, 2);
    assert!(matches!(node.next_event(), Some(Event::Connect { node: 2 })));
    assert_eq!(ready(&node), [], "there is no link");
    post(&mut node, 1);
    assert_eq!(ready(&node), [1]);
    let (mut connection, mut end) = link(0);
    assert!(!node.drive(1, &mut connection, &mut end, 0));
    assert_eq!(ready(&node), [], "the window is closed");
    end.tx.credits = 9;
    assert!(node.drive(1, &mut connection, &mut end, 0));
    assert_eq!(kinds(&mut end), [Kind::Install, Kind::Travel]);
    assert_eq!((ready(&node), node.footprint().outbox_bytes > 0), (vec![], true));
    node.linked(2, 7, 0);
    assert_eq!(ready(&node), [2]);
    node.lose(2, 0, |_| true);
    assert_eq!(
        (ready(&node), node.footprint().outbox_bytes),
        (vec![1], 0),
        "the other one learns of it"
    );
    assert_eq!(node.peers().collect::<Vec<_>>(), [1]);
    assert_eq!(node.linked_peers().collect::<Vec<_>>(), [1]);
    assert_eq!([1, 2].map(|peer| node.is_linked(peer)), [true, false]);
}

#[test]
fn a_node_that_reads_nothing_is_left_after_as_much_as_it_may_leave_unread() {
    let mut node = node();
    node.config.max_unread = 2;
    let (mut connection, mut end) = link(0);
    let head = TravelHead {
        reply_to: SlotRef::new(1, 2, 77),
        max_answer: U32::new(100),
        ..TravelHead::of_source(4)
    };
    for count in [1, 2, 3] {
        let visit = of_node(&mut node, &head, 0);
        node.end(visit, Ok(Some(b"yes")), 0);
        assert_eq!(node.footprint().replies, count.min(2));
        assert_eq!(node.ready_peers().count(), usize::from(count != 2));
        assert!(connection.is_linked());
        assert!(!node.drive(1, &mut connection, &mut end, 0));
    }
    assert!(!connection.is_linked());
    assert!(connection.lost_because().contains("receives nothing"));
    assert_eq!((node.footprint().replies, node.ready_peers().count()), (0, 0));
}

#[test]
fn each_frame_to_a_node_is_counted_as_what_it_is() {
    let mut node = node();
    let (mut connection, mut end) = link(usize::MAX);
    let awaited = TravelHead {
        reply_to: SlotRef::new(1, 2, 77),
        max_answer: U32::new(100),
        ..TravelHead::of_source(4)
    };
    for _ in 0..2 {
        let visit = of_node(&mut node, &awaited, 0);
        node.end(visit, Ok(Some(b"yes")), 0);
    }
    let unknown = TravelHead {
        reply_to: SlotRef::new(9, 2, 77),
        ..awaited
    };
    (0..3).for_each(|_| drop(node.arrive(Arrival::Node(1), &unknown, 0)));
    for _ in 0..4 {
        let mut visit = arrive(&mut node, 0, &TravelHead::of_source(4));
        node.send(&mut visit, 1, Code, b"on").unwrap();
        node.end(visit, Ok(None), 0);
    }
    visit_scope(&mut node, 2, 0);
    node.tick(100_000);
    assert!(node.drive(1, &mut connection, &mut end, 0));
    let traffic = node.traffic();
    assert_eq!(
        (
            traffic.replies,
            traffic.others,
            traffic.invocations,
            traffic.weights
        ),
        (2, 3, 4, 1)
    );
    use Kind::{Bounce, Install, Reply, Travel, Weights};
    assert_eq!(
        kinds(&mut end),
        [
            Reply, Reply, Bounce, Bounce, Bounce, Weights, Install, Travel, Travel, Travel, Travel
        ]
    );
    assert_eq!(node.footprint(), Default::default());
}

/// An image of one byte.
#[derive(Clone, Debug)]
struct Numbered([u8; 32]);

impl Image for Numbered {
    fn id(&self) -> &[u8; 32] {
        &self.0
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..1]
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

#[test]
fn the_64_images_used_last_stay_bound_on_a_node_s_connection() {
    let mut node = Node::<Numbered, u32>::new(NodeConfig {
        number: Some(0),
        ..NodeConfig::default()
    });
    node.linked(1, 7, 0);
    let (mut connection, mut end) = link(usize::MAX);
    let mut send = |letter: u8| {
        let from = Arrival::Source {
            connection: 3,
            token: 0,
            origin: None,
            max_answer: 100,
        };
        let mut visit = node.arrive(from, &TravelHead::of_source(4), 0).unwrap();
        node.send(&mut visit, 1, Numbered([letter; 32]), b"on").unwrap();
        node.end(visit, Ok(None), 0);
        assert!(node.drive(1, &mut connection, &mut end, 0));
        kinds(&mut end)
    };
    use Kind::{Install, Travel};
    for letter in 0..64 {
        assert_eq!(send(letter), [Install, Travel]);
    }
    for letter in [0, 2, 63] {
        assert_eq!(send(letter), [Travel]);
    }
    // Image 1 was used longest ago, and then image 3.
    assert_eq!(send(64).last(), Some(&Travel));
    assert_eq!(send(0), [Travel]);
    assert_eq!(send(65).last(), Some(&Travel));
    for letter in [0, 2, 4, 63, 64, 65] {
        assert!(!send(letter).contains(&Install), "{letter}");
    }
    for letter in [1, 3] {
        assert!(send(letter).contains(&Install), "{letter}");
    }
}

/// An image whose companions are gone if the flag is set. All have one id.
#[derive(Clone, Debug)]
struct Accompanied(Rc<Cell<bool>>);

impl Image for Accompanied {
    fn id(&self) -> &[u8; 32] {
        &[2; 32]
    }

    fn bytes(&self) -> &[u8] {
        b"code"
    }

    fn send_to<R>(
        &self,
        _machine: Machine,
        send: impl FnOnce(ImageBytes<'_>, Vec<ImageBytes<'_>>) -> R,
    ) -> Result<R, String> {
        if self.0.get() {
            return Err("gone".into());
        }
        let image = ImageBytes {
            id: self.id(),
            bytes: self.bytes(),
            signature: None,
        };
        Ok(send(image, vec![image]))
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

#[test]
fn an_image_that_was_bound_and_not_sent_is_sent_as_the_next_invocation_has_it() {
    let mut node = Node::<Accompanied, u32>::new(NodeConfig {
        number: Some(0),
        ..NodeConfig::default()
    });
    node.linked(1, 7, 0);
    let (mut connection, mut end) = link(0);
    let send = |node: &mut Node<Accompanied, u32>, image: &Accompanied, deadline: u64| {
        let from = Arrival::Source {
            connection: 3,
            token: 0,
            origin: None,
            max_answer: 100,
        };
        let head = TravelHead {
            deadline: U64::new(deadline),
            ..TravelHead::of_source(4)
        };
        let mut visit = node.arrive(from, &head, 0).unwrap();
        node.send(&mut visit, 1, image.clone(), b"on").unwrap();
        node.end(visit, Ok(None), 0);
    };
    let [first, second] = [(); 2].map(|()| Accompanied(Rc::default()));
    send(&mut node, &first, 10);
    send(&mut node, &second, u64::MAX);
    assert!(!node.drive(1, &mut connection, &mut end, 0));
    // The first one is too late, and what accompanied it is dropped.
    first.0.set(true);
    end.tx.credits = 9;
    assert!(node.drive(1, &mut connection, &mut end, 20));
    assert_eq!(kinds(&mut end), [Kind::Install, Kind::Travel]);
    // There is none for this peer.
    second.0.set(true);
    let (mut connection, mut end) = link(usize::MAX);
    node.lose(1, 20, |_| true);
    node.linked(1, 7, 20);
    send(&mut node, &second, u64::MAX);
    assert!(node.drive(1, &mut connection, &mut end, 20));
    assert_eq!(kinds(&mut end), []);
    assert_eq!(node.footprint().outbox_bytes, 0);
}

#[test]
fn a_node_is_asked_what_it_consumed_after_64_invocations() {
    let mut node = node();
    let member = node.members.get_mut(1).unwrap();
    for sequence in 0..64 {
        assert_eq!(member.unconsumed(), sequence as usize);
        member.prune(|_| panic!("too early"));
        member.sent.push_back(Sent {
            sequence: Some(sequence),
            reply_to: SlotRef::NONE,
            stream_next: NOT_STREAMED,
        });
    }
    member.prune(|sequence| sequence >= 10);
    assert_eq!(node.footprint().unconsumed, 54);
}

#[test]
fn a_loss_is_numbered_and_the_later_epoch_is_another_process() {
    let mut node = node();
    node.add(2);
    let report = |node: &mut TestNode, epoch: u64| {
        let header = Header::new(Kind::NodesLost, 0, 0);
        let lost = LostNode::new(2, epoch);
        node.receive(1, header, lost.as_bytes(), 0).unwrap();
        std::iter::from_fn(|| node.next_event())
            .filter(|event| matches!(event, Event::NodeLost { .. }))
            .count()
    };
    // Without a link an earlier epoch than the known one is old news.
    node.linked(2, 5, 0);
    node.lose(2, 0, |_| true);
    while node.next_event().is_some() {}
    node.add(2);
    assert_eq!(report(&mut node, 4), 0);
    assert_eq!(node.peers().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(report(&mut node, 5), 1);
    assert_eq!(node.peers().collect::<Vec<_>>(), [1]);
    assert_eq!(report(&mut node, 6), 0, "it is lost already");
    node.add(2);
    node.lose(2, 0, |_| true);
    assert_eq!(node.lost_count, 3);
    assert_eq!(
        (node.lost_since(0), node.lost_since(2), node.lost_since(3)),
        (vec![2], vec![2], vec![])
    );
}

#[test]
fn a_link_that_is_there_twice_was_lost_in_between() {
    for epoch in [7, 8] {
        let mut node = node();
        node.linked(1, epoch, 0);
        assert!(matches!(node.next_event(), Some(Event::NodeLost { .. })));
        assert!(node.is_linked(1));
        // After a loss that is known it is one link more.
        node.lose(1, 0, |_| true);
        assert!(matches!(node.next_event(), Some(Event::NodeLost { .. })));
        node.linked(1, 9, 0);
        assert!(node.next_event().is_none());
    }
    let mut node = node();
    node.linked(2, 5, 0);
    assert!(node.next_event().is_none(), "it is the first one");
}

#[test]
fn only_connections_that_ended_are_forgotten() {
    let mut node = node();
    for connection in [3, 4] {
        let from = Arrival::Source {
            connection,
            token: 9,
            origin: Some(9),
            max_answer: 100,
        };
        let mut visit = node.arrive(from, &TravelHead::of_source(4), 0).unwrap();
        node.forward(&mut visit, 1, Code, b"on").unwrap();
        node.end(visit, Ok(None), 0);
    }
    for number in 0..2000 {
        node.forget_connection(100 + number);
    }
    assert!(node.ended_connections.len() < 2000);
    assert_eq!(node.footprint().slots, 2);
    node.forget_connection(3);
    assert_eq!((node.has_calls(3, 1), node.has_calls(4, 1)), (false, true));
}
