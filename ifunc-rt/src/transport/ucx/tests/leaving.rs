//! Peers that leave a side whose UCX answers each put: over TCP, where UCX 1.13 ends a process whose answer finds the connection closed.

use super::two_processes::{Other, ready};
use super::*;
use crate::transport::ucx::engine::LINGER;

/// In a process of its own, which uses TCP alone.
#[test]
fn a_process_survives_peers_that_leave_whatever_they_put_last() {
    if has_ucx() {
        let tcp = [("UCX_TLS", "tcp,self")];
        let other = Other::start("left", "", &tcp);
        assert_eq!(other.said, "alive");
    }
}

/// Is left by sources that put frames and credits before: by some while it polls, by one while it does nothing, until that one has given up.
pub(super) fn be_left() {
    for polls_meanwhile in [true, true, true, true, false] {
        let (mut listener, mut source, mut target) = pair(Mode::Puts, small());
        let over = source.waiter.carried_by();
        assert!(over.split(' ').all(|lane| lane.starts_with("tcp/")), "{over}");
        for n in 1..=20 {
            exchange(&mut source, &mut target, n);
            exchange(&mut target, &mut source, n);
        }
        send(&mut source, &content(21, 8)).unwrap().unwrap();
        let began = Instant::now();
        if polls_meanwhile {
            std::thread::scope(|scope| {
                let leaves = scope.spawn(|| drop(source));
                wait_for("the end", || receive(&mut target).is_err().then_some(()));
                leaves.join().unwrap();
            });
        } else {
            drop(source);
            assert!(began.elapsed() >= LINGER, "the target has answered the goodbye");
        }
        wait_for("the end", || {
            listener.accept();
            receive(&mut target).is_err().then_some(())
        });
    }
    ready("alive");
}

fn exchange(from: &mut Link, to: &mut Link, n: u32) {
    let sent = content(n, 8);
    wait_for("room", || {
        assert!(receive(from).unwrap().is_none());
        send(from, &sent).unwrap()
    });
    let (_, body) = wait_for("the frame", || {
        // UCX sends it, and answers for the credits.
        assert!(receive(from).unwrap().is_none());
        receive(to).unwrap()
    });
    assert_eq!(body, sent);
}
