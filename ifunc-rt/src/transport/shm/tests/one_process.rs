//! Both sides in one process.

use ifunc_abi::hello::Roles;
use std::time::Instant;

use super::{LIMITS, accept, name, receive, send, shm, small, soon};
use crate::os::wait_readable;
use crate::transport::{ConnectError, LinkError, ListenConfig, ListenError, connect, listen};

#[test]
fn frames_of_all_sizes_go_both_ways() {
    let address = shm(&name("sizes"));
    let mut listener = listen(&address, ListenConfig::new(LIMITS)).unwrap();
    assert_eq!(listener.address(), address.to_string());
    let mut source = connect(&address, soon()).unwrap();
    let mut target = accept(&mut *listener);
    assert_eq!(source.hello.limits, small().hello.limits);
    assert_ne!(source.hello.epoch, 0);
    assert!(source.shares_bodies && target.shares_bodies);
    assert!(source.hello.roles == Roles::SERVES && target.hello.roles == Roles::INVOKES);
    assert_eq!(source.hello.arch, target.hello.arch);
    assert_eq!(source.peer.uid, Some(rustix::process::geteuid().as_raw()));
    assert_eq!(target.peer.pid, std::process::id().try_into().ok());
    let largest = source.tx().max_body();
    for (n, len) in [0, 1, 39, 40, 41, 64, 65, 4096, 70_000, largest]
        .into_iter()
        .cycle()
        .take(200)
        .enumerate()
    {
        let body: Vec<u8> = (0..len).map(|at| (at + n) as u8).collect();
        let body_back = &body[..len.min(target.tx().max_body())];
        assert_eq!(send(&mut source, &body).unwrap(), Some(n as u32 + 1));
        assert_eq!(receive(&mut target).unwrap(), Some((n as u32 + 1, body.clone())));
        target.rx().settle();
        send(&mut target, body_back).unwrap().unwrap();
        assert_eq!(receive(&mut source).unwrap().unwrap().1, body_back);
        source.rx().settle();
    }
}

#[test]
fn a_ring_of_two_slots_waits_for_credits() {
    let address = shm(&name("two"));
    let mut listener = listen(&address, small()).unwrap();
    let mut source = connect(&address, soon()).unwrap();
    let mut target = accept(&mut *listener);
    for round in 0..100u32 {
        let body = vec![round as u8; 30_000];
        assert!(send(&mut source, &body).unwrap().is_some());
        assert!(send(&mut source, &body).unwrap().is_some());
        assert_eq!(send(&mut source, &body).unwrap(), None);
        assert_eq!(receive(&mut target).unwrap(), Some((2 * round + 1, body.clone())));
        assert_eq!(receive(&mut target).unwrap(), Some((2 * round + 2, body)));
        assert_eq!(receive(&mut target).unwrap(), None);
        target.rx().settle();
    }
}

#[test]
fn nobody_listens() {
    match connect(&shm(&name("absent")), soon()) {
        Err(ConnectError::NobodyListens { path: Some(path), .. }) => {
            assert!(path.to_string_lossy().ends_with(".sock"));
        }
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_name_is_taken_once_and_freed() {
    let address = shm(&name("once"));
    let listener = listen(&address, small()).unwrap();
    match listen(&address, small()) {
        Err(error @ ListenError::InUse { .. }) => {
            assert!(
                error
                    .to_string()
                    .contains(&format!("in use by process {}", std::process::id()))
            );
        }
        other => panic!("{:?}", other.err()),
    }
    drop(listener);
    assert!(matches!(
        connect(&address, soon()),
        Err(ConnectError::NobodyListens { .. })
    ));
    drop(listen(&address, small()).unwrap());
}

#[test]
fn what_was_sent_before_leaving_arrives() {
    let address = shm(&name("leaving"));
    let mut listener = listen(&address, ListenConfig::new(LIMITS)).unwrap();
    let mut source = connect(&address, soon()).unwrap();
    for n in 0..1000u32 {
        send(&mut source, &n.to_le_bytes()).unwrap().unwrap();
    }
    drop(source);
    let mut target = accept(&mut *listener);
    for n in 0..1000u32 {
        assert_eq!(
            receive(&mut target).unwrap(),
            Some((n + 1, n.to_le_bytes().to_vec()))
        );
    }
    let deadline = soon();
    while receive(&mut target).is_ok() {
        assert!(Instant::now() < deadline);
    }
    assert!(target.waiter.is_peer_closed());
}

#[test]
fn the_end_of_the_target_is_noticed_without_a_call() {
    let address = shm(&name("end"));
    let mut listener = listen(&address, small()).unwrap();
    let mut met = connect(&address, soon()).unwrap();
    let mut unmet = connect(&address, soon()).unwrap();
    let target = accept(&mut *listener);
    drop((target, listener));
    let deadline = soon();
    for source in [&mut met, &mut unmet] {
        while !source.waiter.is_peer_closed() {
            assert!(Instant::now() < deadline);
        }
        assert!(matches!(source.rx().peek(), Err(LinkError::Closed)));
        assert!(matches!(source.tx().reserve(8, 8), Err(LinkError::Closed)));
        assert!(!source.rx().arm());
        source.waiter.sleep(soon(), None);
    }
}

#[test]
fn a_side_that_closes_is_seen_before_the_next_frame() {
    let address = shm(&name("closes"));
    let mut listener = listen(&address, small()).unwrap();
    for closes_itself in [true, false] {
        let mut source = connect(&address, soon()).unwrap();
        let mut target = accept(&mut *listener);
        send(&mut target, b"last").unwrap().unwrap();
        if closes_itself {
            target.waiter.close();
        }
        drop(target);
        // No system call comes in between, and no turn of the watcher's thread.
        assert!(matches!(source.tx().reserve(8, 8), Err(LinkError::Closed)));
        assert!(source.waiter.is_peer_closed());
        assert_eq!(receive(&mut source).unwrap(), Some((1, b"last".to_vec())));
        assert!(matches!(source.rx().peek(), Err(LinkError::Closed)));
    }
    let source = connect(&address, soon()).unwrap();
    let mut target = accept(&mut *listener);
    drop(source);
    assert!(matches!(target.tx().reserve(8, 8), Err(LinkError::Closed)));
    assert!(matches!(target.rx().peek(), Err(LinkError::Closed)));
}

#[test]
fn both_sides_are_rung() {
    let address = shm(&name("rung"));
    let mut listener = listen(&address, small()).unwrap();
    let mut source = connect(&address, soon()).unwrap();
    let mut target = accept(&mut *listener);
    let echo = std::thread::spawn(move || {
        let mut echoed = 0;
        loop {
            match receive(&mut target) {
                Ok(Some((_, body))) => {
                    target.rx().settle();
                    while send(&mut target, &body).unwrap().is_none() {}
                    echoed += 1;
                }
                Ok(None) if target.rx().arm() => {
                    assert!(wait_readable(listener.doorbell(), soon()), "not rung");
                    listener.arm();
                    target.rx().disarm();
                }
                Ok(None) => {}
                Err(LinkError::Closed) => return echoed,
                Err(gone) => panic!("{gone}"),
            }
        }
    });
    for n in 0..3000u32 {
        send(&mut source, &n.to_le_bytes()).unwrap().unwrap();
        let deadline = soon();
        loop {
            if let Some((_, body)) = receive(&mut source).unwrap() {
                assert_eq!(body, n.to_le_bytes());
                source.rx().settle();
                break;
            }
            if source.rx().arm() {
                source.waiter.sleep(deadline, None);
                source.rx().disarm();
                assert!(Instant::now() < deadline, "not rung");
            }
        }
    }
    drop(source);
    assert_eq!(echo.join().unwrap(), 3000);
}
