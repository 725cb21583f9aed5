//! One engine by itself.

use ::ucx::EndpointId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::in_hand::{engine, insert, open, open_with};
use super::*;
use crate::transport::handshake::HANDSHAKE_TIMEOUT;
use crate::transport::ucx::arming::QUIET_ROUNDS;
use crate::transport::ucx::engine::{Engine, Locked};
use crate::transport::ucx::events::{Data, Event};
use crate::transport::ucx::frame::Frame;
use crate::transport::ucx::handshake::LONGEST;
use crate::transport::ucx::header::{Head, Notice};
use crate::transport::ucx::packet::BODY;
use crate::transport::ucx::table::{Acceptor, Connection, ConnectionId};
use crate::transport::window::Credits;

/// Whether a thread that sleeps on the engine would wake.
fn is_ringing(engine: &Engine) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(engine.bell(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

#[test]
fn deadlines_hold_where_something_happens_all_the_time() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    // Of an unknown endpoint: it is dispatched, and nothing follows.
    let happen = |locked: &mut Locked<'_>| {
        let why = locked
            .worker
            .library()
            .status(::ucx::code::UCS_ERR_CONNECTION_RESET);
        let event = Event::Failed(EndpointId::of_raw(std::ptr::null_mut()), why);
        locked.worker.handler().push(event);
    };
    // What was noted is something that happened, also where UCX did nothing.
    happen(&mut locked);
    assert!(locked.progress());
    let mut rounds = 0;
    happen(&mut locked);
    let done = locked.progress_until(Instant::now(), |locked| {
        rounds += 1;
        assert!(rounds < 10, "the deadline is over");
        happen(locked);
        false
    });
    assert!(!done);
}

#[test]
fn a_signalled_worker_wakes_and_can_be_slept_on_again() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    for _ in 0..3 {
        locked.arm();
        assert!(!is_ringing(&engine));
        locked.wake();
        assert!(is_ringing(&engine));
    }
}

#[test]
fn each_progress_is_counted() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    for polls in 1..4 {
        engine.poll();
        assert_eq!(engine.polls(), polls);
    }
}

#[test]
fn a_target_is_woken_if_it_sleeps_and_there_is_something_for_it() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    locked.state.acceptor = Some(Acceptor::new(false, &small()));
    for (asleep, is_ready, waits) in (0..8).map(|n| (n & 1 != 0, n & 2 != 0, n & 4 != 0)) {
        locked.arm();
        let acceptor = locked.state.acceptor.as_mut().unwrap();
        (acceptor.asleep, acceptor.is_woken) = (asleep, false);
        acceptor.waiting.clear();
        acceptor.waiting.extend(waits.then_some(ConnectionId(7)));
        locked.state.ready.clear();
        locked.state.ready.extend(is_ready.then(|| ConnectionId(7).key()));
        locked.dispatch();
        let is_woken = asleep && (is_ready || waits);
        assert_eq!(is_ringing(&engine), is_woken, "{asleep} {is_ready} {waits}");
        let acceptor = locked.state.acceptor.as_ref().unwrap();
        assert_eq!(acceptor.is_woken, is_woken);
        // Another thread that waits, and arms, does not take that back.
        locked.arm();
        assert_eq!(is_ringing(&engine), is_woken, "{asleep} {is_ready} {waits}");
        locked.state.acceptor.as_mut().unwrap().asleep = false;
    }
    locked.state.acceptor = None;
}

/// A frame that has arrived, in this packet.
fn arrive(locked: &mut Locked<'_>, id: ConnectionId, len: usize) {
    let packet = locked.packet(len);
    let head = super::peer::frame(1, len);
    let mut handler = locked.worker.handler();
    let queue = handler.receive_queues.get_mut(id).unwrap();
    queue.arrive(Frame::copied(packet, len, head.sequence, head.words));
}

fn free(locked: &mut Locked<'_>) -> usize {
    locked.worker.handler().pool.free()
}

#[test]
fn what_a_peer_sent_before_it_broke_the_protocol_is_dropped_and_its_memory_used_again() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    let id = insert(&mut locked, open());
    arrive(&mut locked, id, 3000);
    let before = free(&mut locked);
    locked.end(id, LinkError::Malformed("no"));
    assert!(
        locked
            .worker
            .handler()
            .receive_queues
            .get_mut(id)
            .unwrap()
            .is_empty()
    );
    let connection = &locked.state.connections[&id];
    assert!(matches!(connection.gone, Some(LinkError::Malformed("no"))));
    assert_eq!(free(&mut locked), before + BODY + 4096);
    // The first reason stays, and what arrived before an orderly end is delivered.
    let id = insert(&mut locked, open());
    arrive(&mut locked, id, 3000);
    let status = locked
        .worker
        .library()
        .status(::ucx::code::UCS_ERR_CONNECTION_RESET);
    locked.lose(id, "sending", status);
    locked.end(id, LinkError::Malformed("late"));
    assert!(matches!(
        locked.state.connections[&id].gone,
        Some(LinkError::Closed)
    ));
    // All of it is given back at the end.
    let id = insert(&mut locked, open());
    arrive(&mut locked, id, 30_000);
    let before = free(&mut locked);
    locked.forget_all();
    assert!(locked.state.connections.is_empty());
    assert!(free(&mut locked) >= before + BODY + (1 << 15));
}

/// As many as fill a part of the ring that the peer sends into; the credits of the others go with messages to it.
#[test]
fn memory_of_some_frames_is_given_back_as_soon_as_they_are_executed() {
    const FRAMES: usize = 64;
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    let id = insert(&mut locked, open_with(ring(FRAMES as u32, 1 << 20).to_target));
    let mut due = 0;
    for _ in 0..FRAMES {
        arrive(&mut locked, id, 8);
        let mut handler = locked.worker.handler();
        let queue = handler.receive_queues.get_mut(id).unwrap();
        let (frame, is_due) = queue.take().unwrap();
        assert_eq!(queue.release(8), is_due);
        if is_due {
            queue.publish();
        }
        drop(handler);
        due += usize::from(is_due);
        locked.release(frame);
    }
    assert!((1..=FRAMES / 4).contains(&due), "{due}");
    locked.forget(id);
}

#[test]
fn a_connection_that_is_closed_lingers_unless_its_peer_is_gone() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    let mut gone = open();
    gone.end(LinkError::Closed);
    let (open, gone) = (insert(&mut locked, open()), insert(&mut locked, gone));
    let half_open = insert(&mut locked, Connection::default());
    for id in [open, gone, half_open] {
        locked.close_connection(id);
    }
    assert_eq!(locked.state.connections.ids(), [open]);
    assert!(locked.state.connections[&open].closed);
    locked.forget(open);
}

#[test]
fn pauses_grow_while_ucx_is_stuck() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    assert_eq!(locked.backoff(), Duration::ZERO);
    locked.state.stuck = 8;
    assert_eq!(locked.backoff(), Duration::from_micros(100));
    // It can be armed: it is not stuck.
    assert!(locked.try_arm().is_ok());
    assert_eq!(locked.state.stuck, 0);
}

#[test]
fn connections_with_a_deadline_are_forgotten_when_it_is_over_or_the_peer_has_answered() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    let mut gone = open();
    gone.end(LinkError::Closed);
    let mut acknowledged = open();
    acknowledged.fin_acked = true;
    let [kept, gone, acknowledged, late] =
        [open(), gone, acknowledged, open()].map(|connection| insert(&mut locked, connection));
    assert!(!locked.state.has_housekeeping());
    for id in [kept, gone, acknowledged] {
        locked.state.set_deadline(id, Some(HANDSHAKE_TIMEOUT));
    }
    locked.state.set_deadline(late, Some(Duration::ZERO));
    assert_eq!(locked.state.timed, 4);
    assert!(locked.state.has_housekeeping());
    locked.dispatch();
    assert_eq!(locked.state.connections.ids(), [kept]);
    assert_eq!(locked.state.timed, 1);
    locked.forget(kept);
    assert_eq!(locked.state.timed, 0);
}

#[test]
fn a_thread_that_goes_to_sleep_looks_for_silent_peers_first() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    locked.arm();
    // Where the environment has no word of its own.
    if let Some(watch) = &mut locked.state.watch {
        assert!(!watch.is_due(), "it was not looked for");
    }
}

#[test]
fn a_notice_has_the_length_that_it_says_and_a_bounded_one() {
    if !has_ucx() {
        return;
    }
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    let mut connection = open();
    for (said, len, is_valid) in [
        (LONGEST, LONGEST, true),
        (LONGEST + 1, LONGEST + 1, false),
        (7, 8, false),
    ] {
        let data = Data::Copied(locked.packet(len), len);
        let head = Head::notice(Notice::Credit, 0, said, Credits::default());
        let validated = connection.validate(None, &head, &data);
        assert_eq!(
            validated == Ok(Some(Notice::Credit)),
            is_valid,
            "{len}: {validated:?}"
        );
    }
}

#[test]
fn a_close_is_settled_by_rounds_of_progress_in_which_nothing_happens() {
    if !has_ucx() {
        return;
    }
    let (here, there) = (engine(Mode::Messages), engine(Mode::Messages));
    let address = there.lock().address().unwrap();
    let mut locked = here.lock();
    let endpoint = locked.connect_to_worker(&address).unwrap();
    assert_eq!(locked.state.quiet_rounds_due, 0);
    locked.close(endpoint);
    assert_eq!(locked.state.quiet_rounds_due, QUIET_ROUNDS);
    let mut quiet = 0;
    wait_for("rounds in which nothing happens", || {
        quiet = if locked.progress_worker() { 0 } else { quiet + 1 };
        assert_eq!(locked.state.quiet_rounds_due, QUIET_ROUNDS - quiet);
        (quiet == QUIET_ROUNDS).then_some(())
    });
    locked.progress_worker();
    assert_eq!(locked.state.quiet_rounds_due, 0);
}
