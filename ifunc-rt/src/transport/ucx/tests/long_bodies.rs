//! How long bodies come.

use super::in_hand::Pair;
use super::two_processes::{Other, ready};
use super::*;

/// In a process of its own, which uses TCP alone.
#[test]
fn over_tcp_long_bodies_come_at_once_and_are_not_fetched() {
    if has_ucx() {
        let tcp = [("UCX_TLS", "tcp,self"), ("UCX_RNDV_THRESH", "64k")];
        let other = Other::start("long-bodies", "", &tcp);
        assert_eq!(other.said, "kept");
    }
}

/// Receives a body that UCX would let the target fetch, of a source that does nothing meanwhile but to send it.
pub(super) fn receive_long_body() {
    const LEN: usize = 1 << 20;
    let mut pair = Pair::new(Mode::Messages, &ring(64, 2 << 20));
    send(&mut pair.source, &content(1, LEN)).unwrap().unwrap();
    let id = pair.of_target;
    wait_for("the frame", || {
        // A socket does not take all of it at once.
        pair.here.poll();
        let mut locked = pair.served.engine.lock();
        locked.progress();
        let mut handler = locked.worker.handler();
        let frame = handler.receive_queues.get_mut(id)?.arrived().iter().next()?;
        assert!(frame.is_kept(), "it was fetched");
        Some(())
    });
    let (sequence, body) = receive(&mut pair.target).unwrap().unwrap();
    assert!(sequence == 1 && body == content(1, LEN));
    ready("kept");
}
