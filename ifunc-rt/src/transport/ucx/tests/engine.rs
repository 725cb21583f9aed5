//! One engine by itself.

use std::sync::Arc;

use ::ucx::{EndpointId, Library};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::transport::config::PEER_TIMEOUT;
use crate::transport::ucx::engine::{Engine, Locked};
use crate::transport::ucx::events::Event;

fn engine() -> Arc<Engine> {
    let ucx = Library::load().unwrap();
    Engine::new(ucx, Some([127, 0, 0, 1].into()), PEER_TIMEOUT, Mode::Messages).unwrap()
}

#[test]
fn deadlines_hold_where_something_happens_all_the_time() {
    if !has_ucx() {
        return;
    }
    let engine = engine();
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
    let engine = engine();
    let is_ringing = || {
        let mut fds = [PollFd::from_borrowed_fd(engine.bell(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    };
    let mut locked = engine.lock();
    for _ in 0..3 {
        locked.arm();
        assert!(!is_ringing());
        locked.worker.signal().unwrap();
        assert!(is_ringing());
    }
}
