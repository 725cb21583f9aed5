//! What UCX defers to the next round of progress happens before the worker is slept on.

use std::io::Read as _;
use std::net::{Shutdown, TcpStream};

use super::in_hand::engine;
use super::two_processes::{Other, reachable_at, ready, sockets};
use super::*;

/// In a process of its own: the engines of the other tests listen, too.
#[test]
fn a_socket_that_a_peer_left_is_closed_before_a_sleep() {
    if has_ucx() {
        let tcp = [("UCX_TLS", "tcp,self")];
        let other = Other::start("sleeper", "", &tcp);
        assert_eq!(other.said, "closed");
    }
}

/// Sleeps on a worker that has no endpoint, after a peer has left UCX's port.
pub(super) fn sleep_beside_ending_socket() {
    // A child inherits UCX's sockets.
    let process = std::process::id();
    let inherited = sockets(process);
    let engine = engine(Mode::Messages);
    let mut own = sockets(process);
    own.retain(|socket| !inherited.contains(socket));
    let own = reachable_at(process, &own);
    let [local] = &own[..] else {
        panic!("UCX listens at one port: {own:?}");
    };
    let port = u16::from_str_radix(local.rsplit_once(':').unwrap().1, 16).unwrap();
    engine.lock().arm();
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    peer.set_nonblocking(true).unwrap();
    wait_for("the end of the socket", || {
        assert!(
            wait_readable(engine.bell(), soon()),
            "it sleeps on, with the socket of a peer that left"
        );
        // UCX has signalled the worker, which arming finds. The next round of progress finds the socket's end.
        engine.lock().arm();
        matches!(peer.read(&mut [0]), Ok(0)).then_some(())
    });
    ready("closed");
}
