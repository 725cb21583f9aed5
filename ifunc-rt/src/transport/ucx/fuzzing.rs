//! What the fuzz targets reach of this transport.

use super::exchange::Incoming;
use super::exchange::acceptor::worker_of;
use super::handshake::{Hello, Mode, Welcome};
use super::header::{HEADER, Head};
use super::put::fuzzing::offer;

/// Takes the bytes for the header of an active message, for a handshake message from either side, and for a message of the exchange
/// before it.
pub(crate) fn handshake(message: &[u8]) {
    if let Some(header) = message.first_chunk::<HEADER>() {
        let head = Head::decode(header);
        assert_eq!(head.encode(), *header);
        assert_eq!(head.is_notice(), !matches!(head.as_notice(), Ok(None)));
        let _ = head.is_of_the_handshake();
    }
    let mut incoming = Incoming::default();
    let taken = message
        .chunks(7)
        .try_for_each(|piece| incoming.take(piece).map(drop));
    assert!(incoming.message().len() <= message.len());
    if taken.is_ok() && incoming.is_whole() {
        assert_eq!(incoming.message(), message);
    }
    for mode in [Mode::Messages, Mode::Puts] {
        if worker_of(&mut { mode }, message).is_ok() {
            assert!(taken.is_ok() && incoming.is_whole(), "the address of a worker");
        }
        if let Ok(hello) = Hello::decode(mode, message) {
            assert_eq!(Hello::decode(mode, &hello.encode(mode)), Ok(hello));
        }
        if let Ok((welcome, name, ring)) = Welcome::decode(mode, message) {
            assert!(welcome.to_target.is_valid() && welcome.to_source.is_valid());
            let again = [welcome.encode(mode, name), ring.to_vec()].concat();
            assert_eq!(Welcome::decode(mode, &again), Ok((welcome, name, ring)));
            offer(ring, welcome.to_target);
        }
    }
    offer(
        message,
        crate::transport::RingSize {
            slots: 4,
            data: 1 << 16,
        },
    );
}
