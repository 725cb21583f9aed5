//! Both sides in one process, other_users at the acceptor, and two processes one of which is killed.

use ifunc_proto::link::Body as _;
use std::time::{Duration, Instant};

use ifunc_abi::frame::{Header, Kind, Limits};

use crate::os::wait_readable;
use crate::transport::address::Address;
use crate::transport::{Link, LinkError, ListenConfig, Listener, RingSize};

mod hostile_bitmap;
mod one_process;
mod two_processes;
mod unauthenticated;

const LIMITS: Limits = Limits {
    max_payload: 1 << 20,
    max_image: 1 << 21,
    max_answer: 1 << 22,
};

/// A name that no other test run uses.
fn name(test: &str) -> String {
    format!("test-{test}-{}", std::process::id())
}

fn shm(name: &str) -> Address {
    Address::Shm(name.to_owned())
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// Rings as small as they can be.
fn small() -> ListenConfig {
    let size = RingSize {
        slots: 2,
        data: RingSize::MIN_DATA,
    };
    ListenConfig {
        to_target: size,
        to_source: size,
        ..ListenConfig::new(LIMITS)
    }
}

/// The next connection.
fn accept(listener: &mut dyn Listener) -> Link {
    let deadline = soon();
    loop {
        if let Some(link) = listener.accept() {
            return link;
        }
        assert!(
            wait_readable(listener.doorbell(), deadline),
            "no source connected"
        );
        listener.arm();
    }
}

/// Sends a frame, if there are credits.
fn send(link: &mut Link, body: &[u8]) -> Result<Option<u32>, LinkError> {
    let Some(room) = link.tx().reserve(body.len(), 8)? else {
        return Ok(None);
    };
    room.copy_from_slice(body);
    Ok(Some(link.tx().commit(Header::new(Kind::Exec, 7, 9), body.len())))
}

/// Takes a frame, if there is one.
fn receive(link: &mut Link) -> Result<Option<(u32, Vec<u8>)>, LinkError> {
    let Some(arrived) = link.rx().peek()? else {
        return Ok(None);
    };
    let mut body = Vec::new();
    arrived.body.append_to(&mut body);
    let sequence = arrived.sequence;
    link.rx().release();
    Ok(Some((sequence, body)))
}
