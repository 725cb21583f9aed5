//! Processes that connect and are no sources.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ifunc_abi::hello::{HelloError, WIRE_VERSION};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{accept, name, receive, shm, small, soon};
use crate::os::wait_readable;
use crate::transport::shm::bound_name::new_socket;
use crate::transport::shm::directory::candidates;
use crate::transport::shm::listener::MOST_HALF_OPEN;
use crate::transport::{ConnectError, connect, listen};

/// A socket that is connected to the target, and no more.
pub(super) fn knock(name: &str) -> OwnedFd {
    let directory = candidates().swap_remove(0);
    let address = directory.socket(name).1.unwrap();
    let socket = new_socket().unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    socket
}

fn hear(socket: &OwnedFd) -> Vec<u8> {
    let mut buffer = [0; 1024];
    assert!(wait_readable(socket.as_fd(), soon()));
    let len = recv(socket, &mut buffer, RecvFlags::DONTWAIT).map_or(0, |(len, _)| len);
    buffer[..len].to_vec()
}

#[test]
fn who_says_nothing_or_nonsense_keeps_nobody_out() {
    let name = name("other_users");
    let mut listener = listen(&shm(&name), small()).unwrap();
    let silent: Vec<_> = (0..50).map(|_| knock(&name)).collect();
    let rude: Vec<_> = (0..50).map(|_| knock(&name)).collect();
    for socket in &rude {
        let _ = send(
            socket,
            b"GET / HTTP/1.1\r\n\r\n",
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
    }
    let mut source = connect(&shm(&name), soon()).unwrap();
    let mut target = accept(&mut *listener);
    super::send(&mut source, b"here").unwrap().unwrap();
    assert_eq!(receive(&mut target).unwrap().unwrap().1, b"here");
    for socket in &rude {
        assert_eq!(hear(socket), b"");
    }
    drop(silent);
    assert!(listener.accept().is_none());
}

/// The process at the socket never calls `accept`, and its queue has room for one.
#[test]
fn an_attempt_ends_in_time_where_the_queue_of_new_connections_is_full() {
    let name = name("full_queue");
    let directory = candidates().swap_remove(0);
    directory.prepare().unwrap();
    let (path, address) = directory.socket(&name);
    let listening = new_socket().unwrap();
    rustix::net::bind(&listening, &address.unwrap()).unwrap();
    rustix::net::listen(&listening, 0).unwrap();
    let _first = knock(&name);
    let error = connect(&shm(&name), Instant::now() + Duration::from_millis(50)).map(drop);
    std::fs::remove_file(path).unwrap();
    let error = error.unwrap_err().to_string();
    assert!(error.contains("its queue of new connections is full"), "{error}");
}

/// As many as there may be say nothing: the next one is refused for the moment, and not after one of them has left.
#[test]
fn silent_connections_are_bounded() {
    let name = name("half_open");
    let mut listener = listen(&shm(&name), small()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        // Those of a busy machine may have been sent away before the last of them connected.
        let silent: Vec<_> = (0..MOST_HALF_OPEN).map(|_| knock(&name)).collect();
        match connect(&shm(&name), soon()) {
            Err(ConnectError::Busy { reason, .. }) => {
                assert!(reason.contains("too many connections are being made"), "{reason}");
                drop(silent);
                break;
            }
            Ok(link) => drop(link),
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "there is no bound");
        let _ = listener.accept();
    }
    while let Err(error) = connect(&shm(&name), soon()) {
        assert!(matches!(error, ConnectError::Busy { .. }), "{error}");
        assert!(Instant::now() < deadline, "{error}");
    }
}

#[test]
fn who_says_nothing_is_sent_away() {
    let name = name("silent");
    let _listener = listen(&shm(&name), small()).unwrap();
    let began = Instant::now();
    let answer = hear(&knock(&name));
    assert!(answer.ends_with(b"no hello arrived in time"));
    assert!((Duration::from_secs(4)..Duration::from_secs(60)).contains(&began.elapsed()));
}

#[test]
fn another_version_is_told_ours() {
    let name = name("version");
    let _listener = listen(&shm(&name), small()).unwrap();
    let socket = knock(&name);
    send(
        &socket,
        b"ifuncshm\x01\0\0\0\0\0\0\0",
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )
    .unwrap();
    let answer = hear(&socket);
    let ours = [&b"ifuncshm"[..], &WIRE_VERSION.to_le_bytes(), &1u32.to_le_bytes()].concat();
    assert_eq!(answer[..16], ours);
    let why = HelloError::Version(1).to_string();
    assert!(answer.ends_with(why.as_bytes()));
}

#[test]
fn a_target_that_says_nothing_is_a_timeout() {
    let name = name("mute");
    let directory = candidates().swap_remove(0);
    let (_place, _socket) =
        crate::transport::shm::bound_name::BoundName::take(&directory, &name, false).unwrap();
    let mut took = (0..5).map(|_| {
        let began = Instant::now();
        let error = connect(&shm(&name), began + Duration::from_millis(100))
            .err()
            .unwrap();
        assert!(matches!(error, ConnectError::Timeout { .. }), "{error}");
        assert!(began.elapsed() >= Duration::from_millis(100));
        began.elapsed()
    });
    // The deadline counts, and not the limit of a handshake. A busy machine may delay some of the attempts.
    assert!(took.any(|took| took < Duration::from_secs(4)));
}

#[test]
fn connections_that_nobody_takes_are_refused_at_last() {
    let name = name("untaken");
    let mut listener = listen(&shm(&name), small()).unwrap();
    // They leave at once; the target has not looked yet.
    let mut made = 0;
    let refused = loop {
        match connect(&shm(&name), soon()) {
            Ok(link) => drop(link),
            Err(ConnectError::Busy { reason, .. }) => break reason,
            Err(error) => panic!("{error}"),
        }
        made += 1;
        assert!(made < 5000);
    };
    assert!(refused.contains("does not take"), "{refused}");
    while let Some(mut link) = listener.accept() {
        let deadline = soon();
        while receive(&mut link).is_ok() {
            assert!(Instant::now() < deadline);
        }
    }
    connect(&shm(&name), soon()).unwrap();
}
