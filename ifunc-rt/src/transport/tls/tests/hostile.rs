//! Peers that may not connect, and peers and networks that lie.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use super::relay::{Change, Relay};
use super::*;
use crate::policy::Policy;
use crate::transport::half_open::{MOST_HALF_OPEN, TIMEOUT};

fn tcp(address: &str) -> TcpStream {
    let socket = TcpStream::connect(address.trim_start_matches("tls://")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
}

/// Reads until the other side closes the connection.
fn read_to_end(mut socket: &TcpStream) {
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the target did not close: {error}"),
    }
}

/// That honest sources are served.
fn serves(listener: &mut dyn Listener) {
    let mut source = wait_for("a connection", || connect(&listener.address(), None).ok());
    let mut target = accept(listener);
    send(&mut source, b"honest").unwrap().unwrap();
    let (_, body) = wait_for("a frame", || receive(&mut target).unwrap());
    assert_eq!(body, b"honest");
}

#[test]
fn keys_that_the_policy_does_not_admit_are_refused_with_the_reason() {
    let mut config = with_keys(keys(1, &[2, 3]));
    let mut admits = Policy::new()
        .connect_key("analyst", key(4).public())
        .revoke(key(3).public())
        .connect;
    admits.tls = Some(keys(1, &[2, 3]));
    config.connect = admits.into();
    let mut listener = listening(config);
    let address = listener.address();
    for admitted in [2, 4] {
        let source = connect(&address, Some(keys(admitted, &[9, 1]))).unwrap();
        let target = accept(&mut *listener);
        assert_eq!(target.peer.key, Some(key(admitted).public()));
        assert_eq!(source.peer.key, Some(key(1).public()));
    }
    for (refused, why) in [
        (5, "does not admit this process's key"),
        (3, "revoked this process's key"),
    ] {
        let error = connect(&address, Some(keys(refused, &[1]))).unwrap_err();
        let ConnectError::Refused { reason, .. } = &error else {
            panic!("{error}")
        };
        let public = key(refused).public().to_string();
        assert!(reason.contains(why) && reason.contains(&public), "{reason}");
        assert!(!error.may_pass());
    }
    assert!(listener.accept().is_none());
}

#[test]
fn a_source_sends_nothing_to_a_target_that_it_does_not_know() {
    let mut listener = listening(with_keys(keys(1, &[2])));
    let error = connect(&listener.address(), Some(keys(2, &[7]))).unwrap_err();
    let expected = key(1).public();
    assert!(
        matches!(&error, ConnectError::UnknownTarget { key, .. } if *key == expected),
        "{error}"
    );
    assert!(!error.may_pass());
    for peers in [&[][..], &[2]] {
        let error = connect(&listener.address(), Some(keys(2, peers)))
            .map(drop)
            .unwrap_err();
        assert!(
            !error.may_pass() && error.to_string().contains("help: "),
            "{error}"
        );
    }
    assert!(listener.accept().is_none());
    let nobody = try_listening(with_keys(keys(1, &[]))).map(drop).unwrap_err();
    assert!(nobody.to_string().contains("Policy::connect_key"), "{nobody}");
}

#[test]
fn addresses_count_beside_keys() {
    let mut config = with_keys(TlsKeys::of_tests());
    let elsewhere = Policy::new().connect_from(["10.0.0.0/8".parse().unwrap()]);
    let mut admits = elsewhere.connect;
    admits.tls = Some(TlsKeys::of_tests());
    config.connect = admits.into();
    let listener = listening(config);
    let error = connect(&listener.address(), None).unwrap_err();
    assert!(
        matches!(&error, ConnectError::Refused { reason, .. } if reason.contains("connect_from")),
        "{error}"
    );
}

#[test]
fn garbage_instead_of_a_handshake_is_closed_at_once() {
    let mut listener = listening(ListenConfig::new(LIMITS));
    let hello_of_another_transport = crate::hello::invoking(7).encode(crate::transport::tls::greeting::TAG);
    let mut long = vec![22, 3, 1, 0xff, 0xff];
    long.resize(100_000, 1);
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 64][..],
        &[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff],
        &hello_of_another_transport,
        &long,
    ] {
        let mut socket = tcp(&listener.address());
        // The target may have closed it before all was written.
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        read_to_end(&socket);
    }
    assert!(listener.accept().is_none());
    serves(&mut *listener);
}

#[test]
fn a_handshake_that_is_never_completed_is_closed_in_time() {
    let mut listener = listening(ListenConfig::new(LIMITS));
    // The first half of a record of TLS, and nothing at all.
    let mut half = tcp(&listener.address());
    half.write_all(&[22, 3, 1, 1, 0, 1, 0, 0, 0xfc]).unwrap();
    let silent = tcp(&listener.address());
    read_to_end(&half);
    read_to_end(&silent);
    serves(&mut *listener);
}

#[test]
fn silent_connections_by_the_hundred_close_each_other_and_no_honest_one() {
    let (mut listener, mut source, mut target) = pair(ListenConfig::new(LIMITS));
    let open = |count| -> Vec<_> { (0..count).map(|_| tcp(&listener.address())).collect() };
    // Those that were accepted first are closed, however many come.
    open(MOST_HALF_OPEN * 5)[..MOST_HALF_OPEN]
        .iter()
        .for_each(read_to_end);
    // That is long before their time is over: as many as the kernel queues. A busy machine may need another attempt.
    let closes_at_once = || {
        let began = Instant::now();
        let silent = open(MOST_HALF_OPEN * 3 / 2);
        silent[..MOST_HALF_OPEN / 2].iter().for_each(read_to_end);
        began.elapsed() < TIMEOUT
    };
    assert!((0..5).any(|_| closes_at_once()), "their time closed them");
    send(&mut source, b"before").unwrap().unwrap();
    wait_for("a frame", || receive(&mut target).unwrap());
    serves(&mut *listener);
}

#[test]
fn records_that_are_changed_repeated_cut_or_left_out_end_the_connection() {
    for change in [
        Change::Flip,
        Change::Repeat,
        Change::Cut,
        Change::Drop,
        Change::Garbage,
    ] {
        let mut listener = listening(ListenConfig::new(LIMITS));
        let relay = Relay::to(&listener.address());
        let mut source = connect(&relay.address, None).unwrap();
        let mut target = accept(&mut *listener);
        send(&mut source, b"first").unwrap().unwrap();
        let (_, body) = wait_for("a frame", || receive(&mut target).unwrap());
        assert_eq!(body, b"first");
        relay.change(change);
        let _ = send(&mut source, &content(1, 5000)).unwrap();
        // What is left out is noticed by the next record.
        let _ = send(&mut source, b"third");
        let mut bodies = Vec::new();
        let end = wait_for("the end", || match receive(&mut target) {
            Ok(frame) => {
                bodies.extend(frame.map(|(_, body)| body));
                None
            }
            Err(end) => Some(end),
        });
        // Nothing that was changed is delivered, and nothing twice.
        let is_honest = bodies.is_empty() || change == Change::Repeat && bodies == [content(1, 5000)];
        assert!(is_honest, "{change:?}: {} frames", bodies.len());
        assert_eq!(
            end == LinkError::Closed,
            change == Change::Cut,
            "{change:?}: {end}"
        );
        let end = wait_for("the end", || {
            let _ = send(&mut source, b"x");
            receive(&mut source).err()
        });
        assert!(end == LinkError::Closed || matches!(end, LinkError::Malformed(_)));
    }
}

#[test]
fn a_wrong_record_that_arrives_while_the_target_closes_is_dropped() {
    let mut listener = listening(ListenConfig::new(LIMITS));
    let relay = Relay::to(&listener.address());
    let mut source = connect(&relay.address, None).unwrap();
    let target = accept(&mut *listener);
    listener.arm();
    relay.change(Change::Garbage);
    send(&mut source, b"changed on its way").unwrap().unwrap();
    assert!(wait_readable(listener.doorbell(), soon()), "nothing arrived");
    listener.disarm();
    drop(target);
    serves(&mut *listener);
}
