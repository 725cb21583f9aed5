//! Which peers a target takes, with so many others there.

use super::in_hand::{Served, call, engine, insert, open};
use super::peer::ask;
use super::*;
use crate::transport::ConnectError;
use crate::transport::config::ConnectConfig;
use crate::transport::handshake::MOST_WAITING;
use crate::transport::ucx::acceptor::{MOST_CLOSING, MOST_HALF_OPEN, TOO_MANY_CLOSE};
use crate::transport::ucx::engine::Locked;
use crate::transport::ucx::handshake::{Hello, Nonce};
use crate::transport::ucx::header::Name;
use crate::transport::ucx::table::{Connection, ConnectionId, Stage};

/// A source says hello on a half-open connection; whether it is taken.
fn hello(locked: &mut Locked<'_>) -> bool {
    let id = insert(locked, Connection::default());
    locked.state.set_deadline(id, Some(Duration::from_secs(60)));
    let hello = Hello {
        hello: ConnectConfig::default().hello,
        name: Name::new(3, 4),
        nonce: Nonce::NONE,
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

/// One more source than there are places is answered, and the oldest that has not said hello has lost its place.
#[test]
fn half_open_connections_have_as_many_places_as_are_stated() {
    if !has_ucx() {
        return;
    }
    let served = Served::new(Mode::Messages, &small());
    let here = engine(Mode::Messages);
    for (others, timeout, left) in [
        (MOST_HALF_OPEN - 1, 60, MOST_HALF_OPEN),
        (MOST_HALF_OPEN, 60, MOST_HALF_OPEN),
        // Those whose time is over go first.
        (MOST_HALF_OPEN, 0, 1),
    ] {
        served.forget_all();
        let oldest = {
            let mut locked = served.engine.lock();
            let ids = Vec::from_iter((0..others).map(|n| {
                let id = insert(&mut locked, Connection::default());
                let timeout = timeout * Duration::from_millis(1000 + n as u64);
                locked.state.set_deadline(id, Some(timeout));
                id
            }));
            ids[0]
        };
        let answered = ask(&here, &served.to).unwrap();
        let mut locked = served.engine.lock();
        assert_eq!(locked.state.half_open().count(), left, "beside {others}");
        let is_there = locked.state.connections.get(&oldest).is_some();
        assert_eq!(is_there, others < MOST_HALF_OPEN);
        let name = answered.nonce.name();
        let named = locked.state.connections.at_mut(name.number());
        assert!(named.is_some_and(|(_, connection)| connection.name == name));
    }
}

/// Sources that come and leave faster than UCX closes their endpoints are told to come later.
#[test]
fn endpoints_that_are_being_closed_have_as_many_places_as_are_stated() {
    if !has_ucx() {
        return;
    }
    let served = Served::new(Mode::Messages, &small());
    let here = engine(Mode::Messages);
    let packets = {
        let mut locked = served.engine.lock();
        let packets = Vec::from_iter((0..MOST_CLOSING).map(|_| locked.packet(0)));
        let ids = packets.iter().map(|packet| packet.0.id());
        locked.state.closing.extend(ids.map(|id| (id, Vec::new())));
        packets
    };
    let error = ask(&here, &served.to).map(drop).unwrap_err();
    assert!(error.may_pass(), "{error}");
    assert!(error.to_string().contains(TOO_MANY_CLOSE), "{error}");
    served.engine.lock().state.closing.pop_first();
    ask(&here, &served.to).map(drop).unwrap();
    served.engine.lock().state.closing.clear();
    drop(packets);
}

/// A target that takes no connection says so before UCX has anything to do with the source.
#[test]
fn a_source_that_is_not_taken_is_answered_by_the_exchange() {
    if !has_ucx() {
        return;
    }
    let config = ListenConfig {
        max_connections: 1,
        ..small()
    };
    let served = Served::new(Mode::Messages, &config);
    let here = engine(Mode::Messages);
    let refused = |why: &str| {
        let error = ask(&here, &served.to).map(drop).unwrap_err();
        assert!(
            matches!(error, ConnectError::Busy { .. }) && error.to_string().contains(why),
            "{error}"
        );
        assert!(served.engine.lock().state.routes.is_empty());
    };
    let id = insert(&mut served.engine.lock(), open());
    refused("it has 1 connection");
    served.engine.lock().forget(id);
    let full = std::iter::repeat_n(ConnectionId(0), MOST_WAITING).collect();
    served.engine.lock().state.acceptor.as_mut().unwrap().waiting = full;
    refused("the connections that wait already");
    served.engine.lock().state.acceptor = None;
    refused("it stops listening");
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
        let mut calling = call(&here, &served.to).unwrap();
        let (mut source, mut is_welcomed) = (None, false);
        // Until then the background thread does not take the welcome, either.
        let mut kept = Some(here.lock());
        let found = wait_for("the offer", || {
            let mut locked = served.engine.lock();
            locked.progress();
            let connection = locked.state.connections.iter().next();
            let id = connection.map(|(id, _)| id);
            let has_rings = connection.is_some_and(|(_, c)| matches!(c.stage, Stage::Put(_)));
            let acceptor = locked.state.acceptor.as_mut().unwrap();
            if has_rings && !is_welcomed {
                is_welcomed = true;
                acceptor.waiting = std::iter::repeat_n(ConnectionId(0), waiting).collect();
                kept = None;
            }
            let is_found = match id {
                Some(id) => acceptor.waiting.contains(&id).then_some(true),
                // One that is over is forgotten.
                None => is_welcomed.then_some(false),
            };
            drop(locked);
            if kept.is_none() {
                source = source.take().or_else(|| calling.poll());
                here.poll();
            }
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
    let id = locked.state.connections.ids()[0];
    locked.close_connection(id);
    assert!(locked.state.connections.is_empty());
}
