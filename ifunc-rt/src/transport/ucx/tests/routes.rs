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
    assert!(locked.leave_route(id, Leave::Rested).is_none());
    assert_eq!(locked.state.resting, 0, "one uses it");
    for _ in 0..2 {
        assert!(locked.leave_route(id, Leave::Rested).is_none());
        assert_eq!(locked.state.resting, 1);
        assert!(locked.state.use_route(id));
        assert_eq!(locked.state.resting, 0);
    }
    assert!(locked.leave_route(id, Leave::Rested).is_none());
    let now = Instant::now();
    locked.close_rested(now);
    assert_eq!((locked.state.resting, locked.state.routes.len()), (1, 1));
    locked.close_rested(now + LINGER);
    assert_eq!((locked.state.resting, locked.state.routes.len()), (0, 0));
    // The peer has asked to pair.
    let id = locked.route_to(&to).unwrap().id();
    assert!(locked.state.use_route(id));
    locked.leave_route(id, Leave::AtOnce);
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
