//! Frames, credits, sleeping, and ends.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn frames_arrive_in_order_and_whole_in_both_directions() {
    for config in [small(), ListenConfig::new(LIMITS)] {
        let (_listener, mut source, mut target) = pair(config);
        assert!(!source.shares_bodies && !target.shares_bodies);
        let most = source.tx().max_body();
        assert_eq!(most, target.tx().max_body() * if most > 1 << 16 { 2 } else { 1 });
        let lens = [0, 1, 40, 64, 1000, 17_000, 32_000];
        let len = |n: u32| lens[n as usize % lens.len()];
        let (mut sent, mut back, mut answered) = (0, 0, 0);
        wait_for("all frames", || {
            if sent < 200 && send(&mut source, &content(sent, len(sent))).unwrap().is_some() {
                sent += 1;
            }
            // An answer for each, as soon as there is credit.
            if back < 200
                && let Some((sequence, body)) = receive(&mut target).unwrap()
            {
                assert_eq!((sequence, body), (back + 1, content(back, len(back))));
                back += 1;
                wait_for("credit for an answer", || {
                    if let Some((_, body)) = receive(&mut source).unwrap() {
                        assert_eq!(body, content(answered, 10));
                        answered += 1;
                    }
                    send(&mut target, &content(back - 1, 10)).unwrap()
                });
            }
            if let Some((_, body)) = receive(&mut source).unwrap() {
                assert_eq!(body, content(answered, 10));
                answered += 1;
            }
            (answered == 200).then_some(())
        });
        assert!(!source.tx().is_unconsumed(100));
    }
}

#[test]
fn the_largest_frames_go_through_sockets_that_are_smaller() {
    let (_listener, mut source, mut target) = pair(ring(16, 16 << 20));
    let most = source.tx().max_body();
    assert_eq!(most, 8 << 20);
    let body = content(3, most);
    assert!(send(&mut source, &body).unwrap().is_some());
    // The socket is full, although there are credits.
    assert_eq!(send(&mut source, b"x").unwrap(), None);
    let received = wait_for("a large frame", || {
        let _ = receive(&mut source).unwrap();
        receive(&mut target).unwrap()
    });
    assert!(received == (1, body));
    wait_for("the socket", || send(&mut source, b"x").unwrap());
}

#[test]
fn without_credits_nothing_is_sent_and_they_wake_a_sleeper() {
    let (_listener, mut source, mut target) = pair(small());
    for _ in 0..2 {
        assert!(send(&mut source, b"x").unwrap().is_some());
    }
    assert_eq!(send(&mut source, b"x").unwrap(), None);
    let slept = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(source.rx().arm());
            while send(&mut source, b"x").unwrap().is_none() {
                source.waiter.sleep(soon(), None);
                source.rx().disarm();
                source.rx().arm();
            }
        });
        wait_for("a frame", || receive(&mut target).unwrap());
        waiting.join()
    });
    slept.unwrap();
}

#[test]
fn a_parked_connection_wakes_its_target() {
    let (mut listener, mut source, mut target) = pair(ListenConfig::new(LIMITS));
    let key = target.key.unwrap();
    for round in 0..3 {
        listener.arm();
        target.rx().park();
        listener.fence();
        assert!(target.rx().is_idle());
        assert!(
            !wait_readable(listener.doorbell(), Instant::now()),
            "round {round}"
        );
        send(&mut source, b"wake up").unwrap().unwrap();
        assert!(wait_readable(listener.doorbell(), soon()));
        // Another thread's poll names the connection. The one that sleeps wakes all the same.
        let mut keys = Vec::new();
        wait_for("the connection", || {
            listener.ready(&mut keys);
            keys.contains(&key).then_some(())
        });
        wait_for("the frame", || receive(&mut target).unwrap());
        assert!(wait_readable(listener.doorbell(), Instant::now()));
        listener.disarm();
        target.rx().disarm();
        listener.arm();
        assert!(!wait_readable(listener.doorbell(), Instant::now()));
    }
}

#[test]
fn what_a_sender_receives_in_passing_wakes_who_sleeps() {
    let (mut listener, mut source, mut target) = pair(small());
    let key = target.key.unwrap();
    // A sender of the target's has used up its credits, so it polls the socket.
    while send(&mut target, b"answer").unwrap().is_some() {}
    listener.arm();
    target.rx().park();
    assert!(target.rx().is_idle());
    send(&mut source, b"request").unwrap().unwrap();
    wait_for("the request", || {
        assert_eq!(send(&mut target, b"answer").unwrap(), None);
        (!target.rx().is_idle()).then_some(())
    });
    assert!(wait_readable(listener.doorbell(), Instant::now()));
    let mut keys = Vec::new();
    listener.ready(&mut keys);
    assert!(keys.contains(&key));
}

#[test]
fn what_was_sent_before_a_close_arrives_and_then_the_end() {
    let (_listener, mut source, mut target) = pair(ListenConfig::new(LIMITS));
    for n in 0..50 {
        send(&mut source, &content(n, 500)).unwrap().unwrap();
        // The source never reads these.
        send(&mut target, b"unread").unwrap().unwrap();
    }
    drop(source);
    for n in 0..50 {
        let (_, body) = wait_for("a frame", || receive(&mut target).unwrap());
        assert_eq!(body, content(n, 500));
    }
    let end = wait_for("the end", || receive(&mut target).err());
    assert_eq!(end, LinkError::Closed);
    assert!(target.waiter.check_peer_closed() && target.waiter.is_peer_closed());
    assert_eq!(send(&mut target, b"x"), Err(LinkError::Closed));
    assert!(!target.rx().is_idle() && !target.rx().arm());
}

#[test]
fn a_source_learns_that_its_target_ends() {
    let (listener, mut source, target) = pair(ListenConfig::new(LIMITS));
    assert!(source.rx().arm());
    drop((target, listener));
    wait_for("a wake-up", || {
        source.waiter.sleep(soon(), None);
        source.waiter.is_peer_closed().then_some(())
    });
    assert_eq!(
        wait_for("the end", || receive(&mut source).err()),
        LinkError::Closed
    );
}

#[test]
fn a_port_is_taken_once_and_nobody_answers_at_a_free_one() {
    let listener = listening(ListenConfig::new(LIMITS));
    let address = listener.address();
    let taken = listen(&address.parse().unwrap(), ListenConfig::new(LIMITS)).map(drop);
    assert!(matches!(taken, Err(ListenError::InUse { .. })), "{taken:?}");
    drop(listener);
    let error = connect(&address, None).unwrap_err();
    assert!(matches!(error, ConnectError::NobodyListens { .. }), "{error}");
}

#[test]
fn no_more_connections_than_the_target_admits() {
    let config = ListenConfig {
        max_connections: 1,
        ..ListenConfig::new(LIMITS)
    };
    let (mut listener, source, target) = pair(config);
    let address = listener.address();
    let error = connect(&address, None).unwrap_err();
    assert!(
        matches!(&error, ConnectError::Busy { reason, .. } if reason.contains("max_connections")),
        "{error}"
    );
    assert!(error.may_pass());
    drop((source, target));
    let source = connect(&address, None).unwrap();
    let target = accept(&mut *listener);
    assert_eq!(source.peer, target.peer);
    assert!(source.waiter.carried_by().starts_with("tls TLS13_"));
}

/// The socket takes less than the frame: the rest is written while its link closes.
#[test]
fn what_was_sent_arrives_whole_though_its_link_closes_at_once() {
    let (_listener, mut source, mut target) = pair(ring(16, 16 << 20));
    let body = content(3, source.tx().max_body());
    assert!(send(&mut source, &body).unwrap().is_some());
    assert!(!may_write(&mut source), "the socket is full");
    let is_read = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_read = &is_read;
        let closing = scope.spawn(move || {
            drop(source);
            is_read.load(Ordering::SeqCst)
        });
        // The target is slow.
        std::thread::sleep(Duration::from_millis(20));
        is_read.store(true, Ordering::SeqCst);
        let received = wait_for("the frame", || receive(&mut target).unwrap());
        assert!(received == (1, body));
        assert!(closing.join().unwrap(), "it waited for nobody");
    });
    let end = wait_for("the end", || receive(&mut target).err());
    assert!(matches!(end, LinkError::Closed), "{end}");
}

/// Nobody takes the rest: closing is over in time nevertheless.
#[test]
fn a_link_that_closes_waits_for_a_bounded_time() {
    let (_listener, mut source, _target) = pair(ring(16, 16 << 20));
    let body = content(3, source.tx().max_body());
    send(&mut source, &body).unwrap().unwrap();
    let began = Instant::now();
    drop(source);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_link_that_has_nothing_to_write_closes_at_once() {
    // A busy machine may delay some of them.
    let took = (0..5).map(|_| {
        let (_listener, mut source, mut target) = pair(small());
        send(&mut source, b"x").unwrap().unwrap();
        wait_for("the frame", || receive(&mut target).unwrap());
        let began = Instant::now();
        drop(source);
        began.elapsed()
    });
    assert!(took.into_iter().any(|took| took < Duration::from_millis(500)));
}

fn may_write(link: &mut Link) -> bool {
    link.tx().reserve(0, 1).unwrap().is_some()
}

#[test]
fn a_full_socket_wakes_who_waits_when_it_takes_more() {
    let (_listener, mut source, mut target) = pair(ring(16, 16 << 20));
    let body = content(3, source.tx().max_body());
    send(&mut source, &body).unwrap().unwrap();
    assert!(!may_write(&mut source));
    let is_woken = |source: &Link, within| {
        source.waiter.clear_doorbell();
        wait_readable(source.waiter.doorbell(), Instant::now() + within)
    };
    assert!(!is_woken(&source, Duration::from_millis(20)), "nobody reads");
    std::thread::scope(|scope| {
        // Looked at and not released: no credit goes back.
        scope.spawn(|| wait_for("the frame", || target.rx().peek().unwrap().map(drop)));
        while !may_write(&mut source) {
            assert!(is_woken(&source, Duration::from_secs(20)), "it is not woken");
        }
    });
    assert!(may_write(&mut source));
    assert!(
        !is_woken(&source, Duration::from_millis(20)),
        "it waits for nothing"
    );
    assert!(
        source
            .waiter
            .poll_interval()
            .is_some_and(|interval| !interval.is_zero())
    );
}

/// A target is not told of what it has taken by itself.
#[test]
fn only_parked_connections_are_named_as_ready() {
    let (mut listener, mut source, mut target) = pair(small());
    let mut keys = Vec::new();
    // Without credit an attempt to send takes what has arrived.
    assert!((1..=2).all(|n| send(&mut target, b"x").unwrap() == Some(n)));
    for is_parked in [false, true] {
        target.rx().park();
        if !is_parked {
            target.rx().disarm();
        }
        send(&mut source, b"x").unwrap().unwrap();
        wait_for("the frame", || {
            assert!(!may_write(&mut target));
            (!target.rx().is_idle()).then_some(())
        });
        keys.clear();
        listener.ready(&mut keys);
        assert_eq!(keys.contains(&target.key.unwrap()), is_parked, "{is_parked}");
        receive(&mut target).unwrap().unwrap();
    }
}

#[test]
fn a_frame_is_unconsumed_until_its_credit_is_back() {
    let (_listener, mut source, mut target) = pair(ring(64, RingSize::MIN_DATA));
    for n in 1..=2 {
        assert_eq!(send(&mut source, b"x").unwrap(), Some(n));
    }
    for _ in 0..2 {
        wait_for("the frame", || target.rx().peek().unwrap().map(drop));
        target.rx().release();
    }
    // Credits that are not due wait for the end of a poll.
    assert!(source.rx().peek().unwrap().is_none() && source.tx().is_unconsumed(1));
    target.rx().settle();
    wait_for("credits", || {
        assert!(source.rx().peek().unwrap().is_none());
        (!source.tx().is_unconsumed(2)).then_some(())
    });
    assert!(source.tx().is_unconsumed(3));
}
