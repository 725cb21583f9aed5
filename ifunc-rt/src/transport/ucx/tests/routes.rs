//! Endpoints that the connections to a worker share, and when they are closed.

use super::in_hand::{Pair, engine};
use super::*;
use crate::transport::ucx::engine::LINGER;
use crate::transport::ucx::routes::Leave;

/// The peer may still ask to pair, and finds it.
#[test]
fn an_endpoint_rests_before_it_is_closed_unless_it_is_used_again() {
    if !has_ucx() {
        return;
    }
    let [here, there] = [(); 2].map(|()| engine(Mode::Messages));
    let to = there.lock().address().unwrap();
    let mut locked = here.lock();
    let id = locked.route_to(&to).unwrap().id();
    for _ in 0..2 {
        assert!(locked.state.use_route(id));
    }
    assert!(locked.leave_route(id, Leave::Rested, None).is_none());
    assert_eq!(locked.state.resting, 0, "one uses it");
    for _ in 0..2 {
        assert!(locked.leave_route(id, Leave::Rested, None).is_none());
        assert_eq!(locked.state.resting, 1);
        assert!(locked.state.use_route(id));
        assert_eq!(locked.state.resting, 0);
    }
    assert!(locked.leave_route(id, Leave::Rested, None).is_none());
    let now = Instant::now();
    locked.close_rested(now);
    assert_eq!((locked.state.resting, locked.state.routes.len()), (1, 1));
    locked.close_rested(now + LINGER);
    assert_eq!((locked.state.resting, locked.state.routes.len()), (0, 0));
    // The peer has asked to pair.
    let id = locked.route_to(&to).unwrap().id();
    assert!(locked.state.use_route(id));
    locked.leave_route(id, Leave::AtOnce, None);
    assert_eq!((locked.state.resting, locked.state.routes.len()), (0, 0));
}

/// What came by the socket says nothing of UCX; a frame or credits that the peer has put do.
#[test]
fn an_endpoint_over_which_something_was_put_does_not_rest() {
    if !has_ucx() {
        return;
    }
    for has_come in [false, true] {
        let mut pair = Pair::new(Mode::Puts, &small());
        if has_come {
            send(&mut pair.source, b"x").unwrap().unwrap();
            wait_for("the frame", || {
                pair.here.poll();
                pair.served.engine.poll();
                pair.target.rx().peek().unwrap().map(drop)
            });
        }
        let mut locked = pair.served.engine.lock();
        locked.drop_endpoint(pair.of_target);
        assert_eq!(locked.state.resting, usize::from(!has_come));
    }
}

/// The peer's UCX answers what was put before: until then the endpoint is open, and longer than it rests it is not.
#[test]
fn an_endpoint_is_flushed_before_it_is_closed() {
    if !has_ucx() {
        return;
    }
    let [here, there] = [(); 2].map(|()| engine(Mode::Messages));
    let to = there.lock().address().unwrap();
    let leave = || {
        let mut locked = here.lock();
        let id = locked.route_to(&to).unwrap().id();
        assert!(locked.state.use_route(id));
        assert!(locked.leave_route(id, Leave::Flushed, None).is_none());
        assert_eq!((locked.state.resting, locked.state.routes.len()), (1, 1));
    };
    let is_closed = || {
        let locked = here.lock();
        locked.state.resting == 0 && locked.state.routes.is_empty()
    };
    leave();
    here.lock().close_flushing(|sockets| !sockets.is_empty());
    assert!(!is_closed(), "no peer has left");
    here.lock().close_flushing(|_| true);
    assert!(is_closed());
    leave();
    let now = Instant::now();
    here.lock().close_rested(now);
    assert!(!is_closed());
    here.lock().close_rested(now + LINGER);
    assert!(is_closed());
    leave();
    let began = Instant::now();
    wait_for("the answer", || {
        there.poll();
        here.poll();
        is_closed().then_some(())
    });
    assert!(began.elapsed() < LINGER, "it rested");
}
