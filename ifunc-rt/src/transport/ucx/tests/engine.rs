//! One engine by itself.

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ucx_sys::{UCS_ERR_CONNECTION_RESET, Ucx};

use super::*;
use crate::transport::config::PEER_TIMEOUT;
use crate::transport::ucx::engine::{Engine, Locked};
use crate::transport::ucx::inbox::Event;
use crate::transport::ucx::settings::Settings;

fn engine() -> Arc<Engine> {
    let ucx = Ucx::load().unwrap();
    Engine::new(
        ucx,
        &Settings::new(ucx, Some([127, 0, 0, 1].into()), PEER_TIMEOUT).unwrap(),
        Way::Messages,
    )
    .unwrap()
}

#[test]
fn deadlines_hold_where_something_happens_all_the_time() {
    if !has_ucx() {
        return;
    }
    let engine = engine();
    let mut locked = engine.lock();
    // Of nobody: it is looked at, and nothing follows.
    let happen = |locked: &mut Locked<'_>| {
        let event = Event::Failed(std::ptr::null_mut(), UCS_ERR_CONNECTION_RESET);
        locked.inbox().put(event);
    };
    let mut rounds = 0;
    happen(&mut locked);
    let done = locked.work_until(Instant::now(), |locked| {
        rounds += 1;
        assert!(rounds < 10, "the deadline is over");
        happen(locked);
        false
    });
    assert!(!done);
}

#[test]
fn whoever_is_rung_wakes_and_can_sleep_again() {
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
        locked.ring().unwrap();
        assert!(is_ringing());
    }
}
