use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::transport::{ConnectConfig, ConnectError, Connector, ListenError};

by_each_mode! {
    a_target_listens_on_loopback_and_says_where,
    frames_of_every_length_arrive_whole_aligned_and_once,
    two_credits_are_enough_in_both_directions,
    a_third_frame_waits_for_credits,
    a_frame_may_be_shorter_than_what_was_reserved,
    frames_sent_before_the_close_arrive,
    a_target_that_sleeps_is_rung,
    a_source_that_sleeps_is_rung,
    many_sources_come_and_go,
    links_beside_a_listener_are_named_by_it,
}

fn a_target_listens_on_loopback_and_says_where(mode: Mode) {
    let (listener, mut source, mut target) = pair(mode, ListenConfig::new(LIMITS));
    let address_of_it = address(&*listener);
    let at = host_port(&address_of_it);
    assert_eq!(at.host, "127.0.0.1");
    assert_ne!(at.port, 0);
    assert_eq!(source.hello.limits, LIMITS);
    assert_ne!(source.hello.epoch, 0);
    assert_eq!(target.hello.roles, ifunc_abi::hello::Roles::INVOKES);
    assert!(!source.waiter.is_peer_closed() && !target.waiter.check_peer_closed());
    assert!(receive(&mut target).unwrap().is_none() && receive(&mut source).unwrap().is_none());
    let error = listen(&address(&*listener), small()).map(drop).unwrap_err();
    assert!(matches!(error, ListenError::PortInUse { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("is in use; help: stop that target or choose another port"),
        "{error}"
    );
}

fn links_beside_a_listener_are_named_by_it(mode: Mode) {
    let [mut here, mut there] = [(); 2].map(|()| listen(&any(mode), small()).unwrap());
    let (connector, to) = (here.connector().unwrap(), address(&*there));
    let dialing = std::thread::spawn(move || connector.connect(&to, &ConnectConfig::default(), soon()));
    let mut accepted = None;
    wait_for("a link", || {
        assert!(here.accept().is_none());
        // Its welcome may need more work than the accept.
        let more = there.accept();
        accepted = accepted.take().or(more);
        (dialing.is_finished() && accepted.is_some()).then_some(())
    });
    let mut dialed = dialing.join().unwrap().unwrap().unwrap();
    let key = dialed.key.unwrap();
    // A poll of the listener is one of the link.
    wait_for("credit", || send(accepted.as_mut().unwrap(), b"1").unwrap());
    let frame = wait_for("a frame", || {
        there.accept();
        here.accept();
        receive(&mut dialed).unwrap()
    });
    assert_eq!(frame.1, b"1");
    // The listener wakes a thread that sleeps, for a frame and for the peer's end.
    for is_end in [false, true] {
        dialed.rx().park();
        here.fence();
        wait_for("sleep", || {
            here.arm();
            there.accept();
            here.accept();
            dialed.rx().is_idle().then_some(())
        });
        if is_end {
            drop(accepted.take());
        } else {
            wait_for("credit", || send(accepted.as_mut().unwrap(), b"2").unwrap());
        }
        wait_for("the name", || {
            there.accept();
            here.accept();
            let mut keys = Vec::new();
            here.ready(&mut keys);
            keys.contains(&key).then_some(())
        });
        here.disarm();
        dialed.rx().disarm();
        match is_end {
            false => assert_eq!(receive(&mut dialed).unwrap().unwrap().1, b"2"),
            true => assert!(receive(&mut dialed).is_err()),
        }
    }
    // Another kind of address is left to other means.
    let elsewhere = match mode {
        Mode::Messages => "ucx-put://127.0.0.1:9",
        Mode::Puts => "ucx://127.0.0.1:9",
    };
    let to = elsewhere.parse().unwrap();
    let other = here
        .connector()
        .unwrap()
        .connect(&to, &ConnectConfig::default(), soon());
    assert!(other.is_none());
}

#[test]
fn where_nobody_listens_is_said() {
    if !has_ucx() {
        return;
    }
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let to: Address = format!("ucx://{port}").parse().unwrap();
    let error = connect(&to, soon()).unwrap_err();
    assert!(matches!(error, ConnectError::NobodyListens { .. }), "{error}");
    assert!(error.to_string().contains("help: start the target first"));
}

/// A target that listens is connected to, and one that does not is said not to, also if the time was over before UCX was asked.
#[test]
fn an_attempt_whose_time_is_over_is_made_nevertheless() {
    if !has_ucx() {
        return;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let to: Address = format!("ucx://{port}").parse().unwrap();
    let over = Instant::now();
    let error = connect(&to, over).unwrap_err();
    assert!(matches!(error, ConnectError::NobodyListens { .. }), "{error}");
    // The same on the worker of a target.
    let listener = listen(&any(Mode::Messages), small()).unwrap();
    let connector = listener.connector().unwrap();
    let error = connector
        .connect(&to, &ConnectConfig::default(), over)
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, ConnectError::NobodyListens { .. }), "{error}");
}

/// A target whose process does not serve.
/// A source connects, on a worker of its own or on that of another target, until its time is over.
fn time_out(beside: Option<&dyn Connector>, silent: &dyn Listener, until: Instant) {
    let to = address(silent);
    let error = match beside {
        Some(connector) => connector.connect(&to, &ConnectConfig::default(), until).unwrap(),
        None => connect(&to, until),
    };
    let error = error.map(drop).unwrap_err();
    assert!(matches!(error, ConnectError::Timeout { .. }), "{error}");
}

#[test]
fn an_attempt_without_an_answer_is_over_at_its_deadline() {
    if !has_ucx() {
        return;
    }
    let listener = listen(&any(Mode::Messages), small()).unwrap();
    let connector = listener.connector().unwrap();
    let until = Instant::now() + Duration::from_millis(150);
    for beside in [true, false] {
        // Another one each time: when an attempt is over, the background thread looks whether more has come of it, and of others.
        let silent = listen(&any(Mode::Messages), small()).unwrap();
        time_out(beside.then_some(&*connector), &*silent, until);
        let late = Instant::now().checked_duration_since(until).unwrap();
        // Long before an attempt is hopeless.
        assert!(late < Duration::from_secs(5), "{late:?}");
    }
}

/// UCX 1.13 ends a process that destroys a worker while it answers, over TCP, a peer to which it has no endpoint any more.
#[test]
fn targets_that_are_never_polled_leave_beside_their_sources() {
    if !has_ucx() {
        return;
    }
    let listener = listen(&any(Mode::Messages), small()).unwrap();
    let connector = listener.connector().unwrap();
    for beside in [true, false].repeat(8) {
        let silent = listen(&any(Mode::Messages), small()).unwrap();
        time_out(beside.then_some(&*connector), &*silent, Instant::now());
    }
}

/// Every length from nothing to the largest, so that UCX sends them in each of its ways.
fn frames_of_every_length_arrive_whole_aligned_and_once(mode: Mode) {
    let (_listener, mut source, mut target) = pair(mode, ListenConfig::new(LIMITS));
    let largest = source.tx().max_body();
    assert_eq!(largest, 1 << 20);
    let mut lens = vec![0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 1000, 1024, 1025];
    lens.extend((11..20).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]));
    lens.extend([largest - 1, largest]);
    for (from, to) in [(&mut source, &mut target)] {
        let mut seen = BTreeMap::new();
        for (n, &len) in lens.iter().enumerate() {
            let body = content(n as u32, len);
            let sequence = wait_for("credits", || {
                if let Some((sequence, body)) = receive(to).unwrap() {
                    assert!(seen.insert(sequence, body).is_none());
                }
                // The sender works, too.
                assert!(receive(from).unwrap().is_none());
                send(from, &body).unwrap()
            });
            assert_eq!(sequence as usize, n + 1);
        }
        wait_for("the rest", || {
            assert!(receive(from).unwrap().is_none());
            if let Some((sequence, body)) = receive(to).unwrap() {
                assert!(seen.insert(sequence, body).is_none());
            }
            (seen.len() == lens.len()).then_some(())
        });
        for (n, &len) in lens.iter().enumerate() {
            assert!(
                seen[&(n as u32 + 1)] == content(n as u32, len),
                "frame {n} of {len} bytes"
            );
        }
    }
}

fn a_frame_may_be_shorter_than_what_was_reserved(mode: Mode) {
    let (_listener, mut source, mut target) = pair(mode, ListenConfig::new(LIMITS));
    let short = crate::transport::ucx::put::layout::SHORT;
    for reserved in [32, 33, short, short + 1, 1000, 100_000] {
        for len in [0, 1, 32, 33, short, short + 1, 999]
            .into_iter()
            .filter(|&len| len <= reserved)
        {
            let body = content(len as u32, len);
            let room = source.tx().reserve(reserved, BODY_ALIGN).unwrap().unwrap();
            room[..len].copy_from_slice(&body);
            source.tx().commit(Header::new(Kind::Exec, 7, 9), len);
            let (_, arrived) = wait_for("the frame", || {
                assert!(receive(&mut source).unwrap().is_none());
                receive(&mut target).unwrap()
            });
            assert!(arrived == body, "{len} of {reserved}");
        }
    }
}

fn two_credits_are_enough_in_both_directions(mode: Mode) {
    const FRAMES: u32 = 300;
    let (listener, mut source, target) = pair(mode, small());
    let most = source.tx().max_body();
    let length = move |n: u32| (n as usize * 7919) % (most + 1);
    let both = Arc::new(AtomicU32::new(0));
    let run = move |mut link: Link, both: Arc<AtomicU32>| {
        let (mut sent, mut seen, mut done) = (0, 0, false);
        let mut next = content(0, length(0));
        wait_for("the stream", || {
            if sent < FRAMES && send(&mut link, &next).unwrap().is_some() {
                sent += 1;
                next = content(sent, length(sent));
            }
            if let Some((sequence, body)) = receive(&mut link).unwrap() {
                assert_eq!(sequence, seen + 1);
                assert!(body == content(seen, length(seen)));
                seen += 1;
            }
            if sent == FRAMES && seen == FRAMES && !std::mem::replace(&mut done, true) {
                both.fetch_add(1, Ordering::SeqCst);
            }
            // A body that is fetched needs its sender's work.
            (both.load(Ordering::SeqCst) == 2).then_some(())
        });
        link
    };
    let other = {
        let both = Arc::clone(&both);
        std::thread::spawn(move || run(source, both))
    };
    let target = run(target, both);
    let source = other.join().unwrap();
    drop((target, source, listener));
}

fn a_third_frame_waits_for_credits(mode: Mode) {
    let (mut listener, mut source, mut target) = pair(mode, small());
    for n in 1..=2 {
        assert_eq!(send(&mut source, b"x").unwrap(), Some(n));
    }
    assert_eq!(send(&mut source, b"x").unwrap(), None);
    wait_for("both", || {
        listener.accept();
        // Looked at, and not released.
        target.rx().peek().unwrap().map(drop)
    });
    assert!(receive(&mut source).unwrap().is_none());
    assert_eq!(send(&mut source, b"x").unwrap(), None);
    target.rx().release();
    target.rx().settle();
    wait_for("credits", || {
        assert!(receive(&mut source).unwrap().is_none());
        send(&mut source, b"x").unwrap()
    });
}

fn frames_sent_before_the_close_arrive(mode: Mode) {
    // Once the source leaves first, once the target.
    for source_leaves in [true, false] {
        // A busy machine may delay some of them; a wait for its deadline would delay each.
        let took = (0..5).map(|_| frames_sent_before_one_leaves(mode, source_leaves));
        let soon = |took: &Duration| *took < Duration::from_millis(900);
        assert!(
            took.into_iter().any(|took| soon(&took)),
            "leaving waits for its deadline"
        );
    }
}

/// With bodies that are fetched after they were announced. Returns how long leaving took.
fn frames_sent_before_one_leaves(mode: Mode, source_leaves: bool) -> Duration {
    let (listener, source, target) = pair(mode, ListenConfig::new(LIMITS));
    let (mut leaver, mut other) = if source_leaves {
        (source, target)
    } else {
        (target, source)
    };
    let bodies = [content(1, 10), content(2, 400_000), content(3, 5000)];
    for body in &bodies {
        send(&mut leaver, body).unwrap().unwrap();
    }
    let leaving = std::thread::spawn(move || {
        let began = Instant::now();
        if source_leaves {
            drop(leaver);
            (began.elapsed(), Some(listener))
        } else {
            // The target's last connection and its listener: it is over.
            drop(leaver);
            drop(listener);
            (began.elapsed(), None)
        }
    });
    let mut seen = BTreeMap::new();
    let gone = wait_for("the end", || match receive(&mut other) {
        Ok(Some((sequence, body))) => {
            seen.insert(sequence, body);
            None
        }
        Ok(None) => None,
        Err(gone) => Some(gone),
    });
    assert!(matches!(gone, LinkError::Closed), "{gone}");
    assert!(seen.into_values().eq(bodies));
    assert!(other.waiter.is_peer_closed());
    assert!(matches!(other.tx().reserve(0, 1), Err(LinkError::Closed)));
    let (took, listener) = leaving.join().unwrap();
    drop(other);
    drop(listener);
    took
}

fn a_target_that_sleeps_is_rung(mode: Mode) {
    let (mut listener, mut source, mut target) = pair(mode, ListenConfig::new(LIMITS));
    for n in 0..200u32 {
        let len = [0, 100, 10_000, 600_000][n as usize % 4];
        let deadline = soon();
        let ringer = std::thread::spawn(move || {
            send(&mut source, &content(n, len)).unwrap().unwrap();
            // A body that is fetched needs the sender's work.
            let answer = wait_for("an answer", || receive(&mut source).unwrap());
            (source, answer)
        });
        let body = loop {
            listener.accept();
            if let Some((_, body)) = receive(&mut target).unwrap() {
                break body;
            }
            // As a target does it.
            listener.arm();
            target.rx().park();
            listener.fence();
            if target.rx().is_idle() && listener.accept().is_none() {
                assert!(
                    wait_readable(listener.doorbell(), deadline),
                    "no wake-up in round {n}"
                );
            }
            target.rx().disarm();
        };
        assert!(body == content(n, len));
        send(&mut target, &content(n + 1, 100)).unwrap().unwrap();
        wait_for("the answer to go", || {
            listener.accept();
            ringer.is_finished().then_some(())
        });
        let (back, answer) = ringer.join().unwrap();
        assert!(answer.1 == content(n + 1, 100));
        source = back;
    }
}

fn a_source_that_sleeps_is_rung(mode: Mode) {
    let (mut listener, mut source, mut target) = pair(mode, ListenConfig::new(LIMITS));
    for n in 0..100u32 {
        let deadline = soon();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                loop {
                    if let Some((_, body)) = receive(&mut source).unwrap() {
                        return body;
                    }
                    if source.rx().arm() {
                        source.waiter.sleep(deadline, None);
                    }
                    source.rx().disarm();
                    assert!(Instant::now() < deadline, "no wake-up in round {n}");
                }
            });
            send(&mut target, &content(n, 3000)).unwrap().unwrap();
            wait_for("the sleeper to wake", || {
                listener.accept();
                sleeper.is_finished().then_some(())
            });
            assert!(sleeper.join().unwrap() == content(n, 3000));
        });
    }
}

fn many_sources_come_and_go(mode: Mode) {
    let mut listener = listen(&any(mode), small()).unwrap();
    let to = address(&*listener);
    for round in 0..3u32 {
        let sources: Vec<_> = (0..8u32)
            .map(|n| {
                let to = to.clone();
                std::thread::spawn(move || {
                    let mut link = connect(&to, soon()).unwrap();
                    send(&mut link, &content(round * 8 + n, 100)).unwrap().unwrap();
                    let answer = wait_for("an answer", || receive(&mut link).unwrap());
                    assert!(answer.1 == content(round * 8 + n, 100));
                })
            })
            .collect();
        let mut links = Vec::new();
        let mut ends = 0;
        wait_for("all of them", || {
            links.extend(listener.accept());
            links.retain_mut(|link: &mut Link| match receive(link) {
                Ok(Some((_, body))) => {
                    send(link, &body).unwrap().unwrap();
                    true
                }
                Ok(None) => true,
                Err(gone) => {
                    assert!(matches!(gone, LinkError::Closed), "{gone}");
                    ends += 1;
                    false
                }
            });
            (ends == 8).then_some(())
        });
        for source in sources {
            source.join().unwrap();
        }
    }
}
