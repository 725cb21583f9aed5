//! Which peers a target takes, with so many others there.

use super::in_hand::{Served, engine, insert, open};
use super::*;
use crate::policy::Policy;
use crate::transport::config::ConnectConfig;
use crate::transport::handshake::MOST_WAITING;
use crate::transport::ucx::acceptor::MOST_HALF_OPEN;
use crate::transport::ucx::engine::Locked;
use crate::transport::ucx::handshake::Hello;
use crate::transport::ucx::header::Name;
use crate::transport::ucx::table::{Connection, ConnectionId, Stage};

/// A source says hello on a half-open connection; whether it is taken.
fn hello(locked: &mut Locked<'_>) -> bool {
    let id = insert(locked, Connection::default());
    locked.state.set_deadline(id, Some(Duration::from_secs(60)));
    let hello = Hello {
        hello: ConnectConfig::default().hello,
        name: Name::new(3, 4),
        address: None,
    };
    locked.receive_hello(id, Ok(hello)).unwrap();
    let taken = match &locked.state.connections[&id].stage {
        Stage::Open { .. } | Stage::Put(_) => true,
        Stage::TurnedAway => false,
        other => panic!("{other:?}"),
    };
    // Its handshake is over, or it has time to read why not; one whose frames are put is to send its ring.
    let is_timed = locked.state.connections[&id].deadline.is_some();
    assert_eq!(is_timed, !taken || locked.state.mode == Mode::Puts);
    taken
}

#[test]
fn half_open_connections_have_as_many_places_as_are_stated() {
    if !has_ucx() {
        return;
    }
    let long = Duration::from_secs(60);
    let mut served = Served::new(Mode::Messages, &small());
    for (others, is_taken) in [(MOST_HALF_OPEN - 1, true), (MOST_HALF_OPEN, false)] {
        served.half_open(others, long);
        assert_eq!(served.takes(), is_taken, "beside {others}");
    }
    // Those whose time is over go first.
    served.half_open(MOST_HALF_OPEN, Duration::ZERO);
    assert!(served.takes());
}

#[test]
fn peers_that_are_not_admitted_leave_half_of_the_places_to_others() {
    if !has_ucx() {
        return;
    }
    let policy = Policy::new().connect_from(["10.0.0.0/8".parse().unwrap()]);
    let config = ListenConfig {
        connect: policy.connect.into(),
        ..small()
    };
    let mut served = Served::new(Mode::Messages, &config);
    for (others, is_taken) in [(MOST_HALF_OPEN / 2 - 1, true), (MOST_HALF_OPEN / 2, false)] {
        served.half_open(others, Duration::from_secs(60));
        assert_eq!(served.takes(), is_taken, "beside {others}");
    }
}

#[test]
fn only_connections_that_are_open_count_against_the_most() {
    if !has_ucx() {
        return;
    }
    let config = ListenConfig {
        max_connections: 2,
        ..small()
    };
    let served = Served::new(Mode::Messages, &config);
    let mut locked = served.engine.lock();
    let (mut gone, mut closed) = (open(), open());
    gone.end(LinkError::Closed);
    closed.closed = true;
    for connection in [open(), gone, closed, Connection::default()] {
        insert(&mut locked, connection);
    }
    assert!(hello(&mut locked), "one of two");
    assert!(!hello(&mut locked), "a third");
}

#[test]
fn no_more_connections_wait_for_a_target_than_are_stated() {
    if !has_ucx() {
        return;
    }
    for mode in [Mode::Messages, Mode::Puts] {
        let served = Served::new(mode, &small());
        let mut locked = served.engine.lock();
        for (waiting, is_taken) in [(MOST_WAITING - 1, true), (MOST_WAITING, false)] {
            let acceptor = locked.state.acceptor.as_mut().unwrap();
            acceptor.waiting.clear();
            acceptor.waiting.resize(waiting, ConnectionId(0));
            assert_eq!(hello(&mut locked), is_taken, "{mode:?} behind {waiting}");
        }
    }
}

/// A source offers its ring when others have taken the last places meanwhile.
#[test]
fn a_source_that_offers_its_ring_too_late_is_closed() {
    if !has_ucx() {
        return;
    }
    for (waiting, is_taken) in [(MOST_WAITING - 1, true), (MOST_WAITING, false)] {
        let served = Served::new(Mode::Puts, &small());
        let here = engine(Mode::Puts);
        let at = host_port(&served.to).resolve().unwrap();
        let hello = ConnectConfig::default().hello;
        let mut calling = here.lock().call_host(&here, at, hello, "there").unwrap();
        let (mut source, mut is_welcomed) = (None, false);
        let found = wait_for("the offer", || {
            let mut locked = served.engine.lock();
            locked.progress();
            let connection = locked.state.connections.iter().next();
            let id = connection.map(|(&id, _)| id);
            let has_rings = connection.is_some_and(|(_, c)| matches!(c.stage, Stage::Put(_)));
            let acceptor = locked.state.acceptor.as_mut().unwrap();
            if has_rings && !is_welcomed {
                // The source has not polled since, and offers nothing yet.
                is_welcomed = true;
                acceptor.waiting = std::iter::repeat_n(ConnectionId(0), waiting).collect();
            }
            let is_found = match id {
                Some(id) => acceptor.waiting.contains(&id).then_some(true),
                // One that is over is forgotten.
                None => is_welcomed.then_some(false),
            };
            drop(locked);
            source = source.take().or_else(|| calling.poll());
            here.poll();
            is_found
        });
        assert_eq!(found, is_taken, "behind {waiting}");
        here.lock().forget_all();
    }
}

/// One that was welcomed, and has not offered its ring.
#[test]
fn a_source_without_a_ring_is_not_lingered_for() {
    if !has_ucx() {
        return;
    }
    let served = Served::new(Mode::Puts, &small());
    let mut locked = served.engine.lock();
    assert!(hello(&mut locked));
    let id = *locked.state.connections.first_key_value().unwrap().0;
    locked.close_connection(id);
    assert!(locked.state.connections.is_empty());
}
