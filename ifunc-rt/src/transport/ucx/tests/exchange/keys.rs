//! Exchanges inside of TLS, between sides that prove their keys.

use std::os::fd::AsFd as _;

use super::*;
use crate::keys::{SecretKey, TlsKeys};
use crate::transport::handshake::HANDSHAKE_TIMEOUT;
use crate::transport::tls::once;
use crate::transport::ucx::exchange::source::Answered;
use crate::transport::ucx::tests::peer::ask_with;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32], "test")
}

fn target(mode: Mode, policy: Policy) -> Box<dyn Listener> {
    let mut connect = policy.connect;
    connect.tls = Some(TlsKeys::new(key(1)));
    let config = ListenConfig {
        connect: connect.into(),
        ..small()
    };
    listen(&any(mode), config).unwrap()
}

fn dial(to: &Address, keys: Option<TlsKeys>) -> Result<Link, ConnectError> {
    let config = ConnectConfig {
        tls: keys,
        ..ConnectConfig::default()
    };
    crate::transport::Route::Address(to.clone()).connect(&config, soon())
}

by_each_mode! { both_sides_know_each_other_s_keys }

fn both_sides_know_each_other_s_keys(mode: Mode) {
    let mut listener = target(mode, Policy::new().connect_key("ada", key(2).public()));
    let to = address(&*listener);
    let keys = TlsKeys::new(key(2)).peer(key(1).public());
    let source = std::thread::spawn(move || dial(&to, Some(keys)).unwrap());
    let mut target = accept(&mut *listener);
    wait_for("the source", || {
        assert!(listener.accept().is_none());
        source.is_finished().then_some(())
    });
    let mut source = source.join().unwrap();
    assert_eq!(target.peer.key, Some(key(2).public()));
    assert_eq!(source.peer.key, Some(key(1).public()));
    wait_for("credit", || send(&mut source, b"well").unwrap());
    let (_, body) = wait_for("a frame", || {
        listener.accept();
        receive(&mut source).unwrap();
        receive(&mut target).unwrap()
    });
    assert_eq!(body, b"well");
}

/// The watching thread found the same byte for ever.
#[test]
fn a_source_that_leaves_inside_of_tls_and_keeps_its_socket_is_left() {
    if !has_ucx() {
        return;
    }
    let mut listener = target(Mode::Puts, Policy::new().connect_key("ada", key(2).public()));
    let to = address(&*listener);
    let ucx = Library::load().unwrap();
    let at = host_port(&to).resolve().unwrap();
    let engine = Engine::new(ucx, Some(at.ip()), PEER_TIMEOUT, Mode::Puts).unwrap();
    let config = ConnectConfig {
        tls: Some(TlsKeys::new(key(2)).peer(key(1).public())),
        ..ConnectConfig::default()
    };
    let Answered {
        encrypted, socket, ..
    } = ask_with(&engine, &to, &config).unwrap();
    assert!(encrypted.unwrap().send_last(socket.as_fd(), b""));
    let mut socket = TcpStream::from(socket);
    let _ = socket.write_all(b"x");
    let began = Instant::now();
    wait_for("the target to leave", || {
        assert!(listener.accept().is_none());
        crate::os::is_hung_up(socket.as_fd()).then_some(())
    });
    // The time of its handshake is not what ended it.
    assert!(began.elapsed() < HANDSHAKE_TIMEOUT);
}

#[test]
fn a_source_that_has_proved_its_key_is_answered_when_its_message_is_whole() {
    if !has_ucx() {
        return;
    }
    let listener = target(Mode::Messages, Policy::new().connect_key("ada", key(2).public()));
    let to = address(&*listener);
    let keys = TlsKeys::new(key(2)).peer(key(1).public());
    let whole = message();
    for (sent, is_answered) in [(&whole[..whole.len() - 1], false), (&whole, true)] {
        let socket = stranger(&to);
        socket.set_nonblocking(true).unwrap();
        let mut answer = Vec::new();
        let until = Instant::now() + Duration::from_secs(if is_answered { 30 } else { 1 });
        let asked = once::ask(
            ("there", "127.0.0.1"),
            &keys,
            socket.as_fd(),
            sent,
            |_| Ok(()),
            |bytes| {
                answer.extend_from_slice(bytes);
                Ok(!bytes.is_empty())
            },
            || (Instant::now() < until).then_some(until),
        );
        assert_eq!((asked.is_ok(), answer.is_empty()), (is_answered, !is_answered));
    }
}

#[test]
fn sources_without_the_right_key_are_refused_with_what_to_do() {
    if !has_ucx() {
        return;
    }
    let policy = Policy::new()
        .connect_key("ada", key(2).public())
        .connect_key("bob", key(3).public())
        .revoke(key(3).public());
    let listener = target(Mode::Messages, policy);
    let to = address(&*listener);
    let knows = |seed| Some(TlsKeys::new(key(seed)).peer(key(1).public()));
    for (keys, told) in [
        (
            None,
            "admits sources by their keys, and this process proves none; help: make one by `cargo ifunc keygen`",
        ),
        (knows(3), "revoked this process's key"),
        (knows(4), "does not admit this process's key"),
        (
            Some(TlsKeys::new(key(2)).peer(key(9).public())),
            "is of no target that this source knows",
        ),
        (Some(TlsKeys::new(key(2))), "knows the key of no target"),
    ] {
        let error = dial(&to, keys).map(drop).unwrap_err();
        assert!(
            error.to_string().contains(told) && !error.may_pass(),
            "{told}: {error}"
        );
    }
    // The reverse: a target without a key.
    let plain = listen(&any(Mode::Messages), small()).unwrap();
    let error = dial(&address(&*plain), knows(2))
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("it has no key, and this process connects by keys; help: "),
        "{error}"
    );
    let no_key = listen(&any(Mode::Messages), {
        let mut connect = Policy::new().connect;
        connect.tls = Some(TlsKeys::new(key(1)));
        ListenConfig {
            connect: connect.into(),
            ..small()
        }
    });
    let error = no_key.map(drop).unwrap_err().to_string();
    assert!(error.contains("admits no key and no certificate"), "{error}");
}

#[test]
fn a_certificate_s_name_is_known_over_ucx_too() {
    use crate::transport::authority::{Authority, Says};

    if !has_ucx() {
        return;
    }
    let authority = Authority::new("cluster", 30);
    let policy = Policy::new()
        .connect_certificate(authority.trusted(), ["ada.example"])
        .unwrap();
    let mut listener = target(Mode::Messages, policy);
    let to = address(&*listener);
    let keys = |names: &[&str]| {
        let certificate = authority.certificate(&key(5), &Says::names(names));
        let keys = TlsKeys::new(key(5)).certificate(certificate).unwrap();
        Some(keys.peer(key(1).public()))
    };
    let error = dial(&to, keys(&["bob.example"])).map(drop).unwrap_err();
    assert!(
        matches!(&error, ConnectError::Refused { reason, .. } if reason.contains("certificate")),
        "{error}"
    );
    let ada = keys(&["ada.example"]);
    let source = std::thread::spawn(move || dial(&to, ada).map(drop).unwrap());
    let target = accept(&mut *listener);
    let certified = target.peer.certified.as_ref().unwrap();
    assert_eq!(
        (&*certified.name, target.peer.key),
        ("ada.example", Some(key(5).public()))
    );
    wait_for("the source", || {
        listener.accept();
        source.is_finished().then_some(())
    });
    source.join().unwrap();
}

/// What listens there speaks no TLS, and says that its worker is where the source is to go.
#[test]
fn a_source_with_keys_takes_no_answer_that_is_not_encrypted() {
    if !has_ucx() {
        return;
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let to: Address = format!("ucx://{}", other.local_addr().unwrap()).parse().unwrap();
    let own = super::super::in_hand::engine(Mode::Messages)
        .lock()
        .address()
        .unwrap()
        .to_bytes();
    let answering = std::thread::spawn(move || {
        let (mut source, _) = other.accept().unwrap();
        let mut answer = Vec::new();
        let worker = Exchange::Worker {
            nonce: 7,
            address: &own,
        };
        worker.encode(TransportTag::UCX, &mut answer);
        source.write_all(&answer).unwrap();
        let _ = source.read_to_end(&mut Vec::new());
    });
    let keys = TlsKeys::new(key(2)).peer(key(1).public());
    let error = dial(&to, Some(keys)).map(drop).unwrap_err().to_string();
    assert!(error.contains("it proves no key"), "{error}");
    answering.join().unwrap();
}
