//! Both sides in one process, and hostile peers.

pub(crate) mod authority;
mod certificates;
mod hostile;
mod one_process;
mod relay;

use std::time::{Duration, Instant};

use ifunc_abi::frame::{BODY_ALIGN, Header, Kind, Limits};
use ifunc_proto::link::Body as _;

use crate::keys::{SecretKey, TlsKeys};
use crate::os::wait_readable;
use crate::transport::address::Address;
use crate::transport::{
    ConnectConfig, ConnectError, Link, LinkError, ListenConfig, ListenError, Listener, RingSize, Route,
    listen,
};

const LIMITS: Limits = Limits {
    max_payload: 1 << 20,
    max_image: 1 << 21,
    max_answer: 1 << 22,
};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32], "test")
}

/// The keys of a process that knows these peers.
fn keys(seed: u8, peers: &[u8]) -> TlsKeys {
    let of = |keys: TlsKeys, peer: &u8| keys.peer(key(*peer).public());
    peers.iter().fold(TlsKeys::new(key(seed)), of)
}

fn ring(slots: u32, data: u32) -> ListenConfig {
    let size = RingSize { slots, data };
    ListenConfig {
        to_target: size,
        to_source: size,
        ..ListenConfig::new(LIMITS)
    }
}

/// Rings as small as they can be.
fn small() -> ListenConfig {
    ring(2, RingSize::MIN_DATA)
}

/// A target at any free port.
fn listening(config: ListenConfig) -> Box<dyn Listener> {
    try_listening(config).unwrap()
}

fn try_listening(config: ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    listen(&"tls://127.0.0.1:0".parse().unwrap(), config)
}

/// A target with these keys.
fn with_keys(keys: TlsKeys) -> ListenConfig {
    let mut config = ListenConfig::new(LIMITS);
    let mut connect = crate::policy::Connect::default();
    connect.tls = Some(keys);
    config.connect = connect.into();
    config
}

fn connect(address: &str, tls: Option<TlsKeys>) -> Result<Link, ConnectError> {
    let config = ConnectConfig {
        tls,
        ..ConnectConfig::default()
    };
    let address: Address = address.parse().unwrap();
    Route::Address(address).connect(&config, soon())
}

/// A connection whose both sides are in this process. A target needs no poll to answer a source.
fn pair(config: ListenConfig) -> (Box<dyn Listener>, Link, Link) {
    let mut listener = listening(config);
    let source = connect(&listener.address(), None).unwrap();
    let target = accept(&mut *listener);
    (listener, source, target)
}

/// The next connection.
fn accept(listener: &mut dyn Listener) -> Link {
    let deadline = soon();
    loop {
        listener.arm();
        if let Some(link) = listener.accept() {
            listener.disarm();
            return link;
        }
        assert!(
            wait_readable(listener.doorbell(), deadline),
            "no source connected"
        );
    }
}

/// Sends a frame, if there is credit.
fn send(link: &mut Link, body: &[u8]) -> Result<Option<u32>, LinkError> {
    let Some(room) = link.tx().reserve(body.len(), BODY_ALIGN)? else {
        return Ok(None);
    };
    assert!(room.as_ptr().addr().is_multiple_of(BODY_ALIGN));
    room.copy_from_slice(body);
    Ok(Some(link.tx().commit(Header::new(Kind::Exec, 7, 9), body.len())))
}

/// Takes a frame, if there is one.
fn receive(link: &mut Link) -> Result<Option<(u32, Vec<u8>)>, LinkError> {
    let Some(arrived) = link.rx().peek()? else {
        link.rx().settle();
        return Ok(None);
    };
    assert!(arrived.body.as_ptr().addr().is_multiple_of(BODY_ALIGN));
    assert_eq!(arrived.words, Header::new(Kind::Exec, 7, 9).words());
    let mut body = Vec::new();
    arrived.body.append_to(&mut body);
    let sequence = arrived.sequence;
    link.rx().release();
    Ok(Some((sequence, body)))
}

/// Polls until there is something.
fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = soon();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// Bytes of the `n`th frame, `len` of them.
fn content(n: u32, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (n as usize * 7 + i * 31 + i / 251) as u8)
        .collect()
}
