//! Both sides in one process, peers, and two processes one of which is killed. Without UCX on the machine there is
//! nothing to test; `IFUNC_REQUIRE_UCX` says that there must be.

use ifunc_proto::link::Body as _;
use std::time::{Duration, Instant};

use ifunc_abi::frame::{BODY_ALIGN, FrameFlags, Header, Kind, Limits};

use crate::os::wait_readable;
use crate::transport::address::{Address, HostPort};
use crate::transport::ucx::handshake::Mode;
use crate::transport::{Link, LinkError, ListenConfig, Listener, RingSize, connect, listen};

/// Makes tests of functions that are told which way frames go.
macro_rules! by_each_mode {
    ($($test:ident),* $(,)?) => {
        mod messages {
            $(
                #[test]
                fn $test() {
                    crate::transport::ucx::tests::by(crate::transport::ucx::handshake::Mode::Messages, super::$test);
                }
            )*
        }
        mod puts {
            $(
                #[test]
                fn $test() {
                    crate::transport::ucx::tests::by(crate::transport::ucx::handshake::Mode::Puts, super::$test);
                }
            )*
        }
    };
}

mod attached;
mod engine;
mod exchange;
mod gather;
mod in_hand;
mod leaving;
mod lent;
mod link;
mod long_bodies;
mod one_process;
mod peer;
mod places;
mod routes;
mod sleeping;
mod two_processes;
mod unauthenticated;
mod unauthenticated_put;
mod vanished;

const LIMITS: Limits = Limits {
    max_payload: 1 << 20,
    max_image: 1 << 21,
    max_answer: 1 << 22,
};

/// Whether there is a UCX to test with.
fn has_ucx() -> bool {
    match ::ucx::Library::load() {
        Ok(_) => true,
        Err(error) => {
            let required = std::env::var_os("IFUNC_REQUIRE_UCX").is_some();
            assert!(!required, "UCX is required here: {error}");
            eprintln!("not tested: {error}");
            false
        }
    }
}

/// Runs a test if there is a UCX to test with.
fn by(mode: Mode, test: fn(Mode)) {
    if has_ucx() {
        test(mode);
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Any free port of this host.
fn any(mode: Mode) -> Address {
    let at = HostPort {
        host: "127.0.0.1".into(),
        port: 0,
    };
    match mode {
        Mode::Messages => Address::Ucx(at),
        Mode::Puts => Address::UcxPut(at),
    }
}

/// Where the listener is.
fn host_port(address: &Address) -> &HostPort {
    match address {
        Address::Ucx(at) | Address::UcxPut(at) => at,
        other => panic!("{other}"),
    }
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

fn address(listener: &dyn Listener) -> Address {
    listener.address().parse().unwrap()
}

/// A connection whose both sides are in this process.
fn pair(mode: Mode, config: ListenConfig) -> (Box<dyn Listener>, Link, Link) {
    let mut listener = listen(&any(mode), config).unwrap();
    let to = address(&*listener);
    let source = std::thread::spawn(move || connect(&to, soon()).unwrap());
    let target = accept(&mut *listener);
    // The source hears of it by itself; UCX's own handshake may still need the target's work.
    let deadline = soon();
    while !source.is_finished() {
        assert!(listener.accept().is_none());
        assert!(Instant::now() < deadline, "the source did not connect");
    }
    (listener, source.join().unwrap(), target)
}

/// The next connection.
fn accept(listener: &mut dyn Listener) -> Link {
    let deadline = soon();
    loop {
        if let Some(link) = listener.accept() {
            return link;
        }
        listener.arm();
        // As a target does it: between `silence` and sleep there is a last look.
        if let Some(link) = listener.accept() {
            return link;
        }
        assert!(
            wait_readable(listener.doorbell(), deadline),
            "no source connected"
        );
    }
}

/// Sends a frame, if there are credits.
fn send(link: &mut Link, body: &[u8]) -> Result<Option<u32>, LinkError> {
    let Some(room) = link.tx().reserve(body.len(), BODY_ALIGN)? else {
        return Ok(None);
    };
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
    let sent = Header::new(Kind::Exec, 7, 9);
    let inline = Header {
        flags: FrameFlags::INLINE,
        ..sent
    };
    assert!(
        [sent, inline]
            .map(|header| header.words())
            .contains(&arrived.words)
    );
    let mut body = Vec::new();
    arrived.body.append_to(&mut body);
    let sequence = arrived.sequence;
    link.rx().release();
    Ok(Some((sequence, body)))
}

/// Looks until there is something; `work` is what else has to go on meanwhile.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = soon();
    loop {
        if let Some(found) = look() {
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
