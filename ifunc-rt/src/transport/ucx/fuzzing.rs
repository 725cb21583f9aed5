//! What the fuzz targets reach of this transport.

use super::handshake::{Hello, Mode, Welcome};
use super::header::{HEADER, Head};
use super::put::fuzzing::offer;

/// Takes the bytes for the header of an active message, and for a handshake message from either side.
pub(crate) fn handshake(message: &[u8]) {
    if let Some(header) = message.first_chunk::<HEADER>() {
        let head = Head::decode(header);
        assert_eq!(head.encode(), *header);
        assert_eq!(head.is_notice(), !matches!(head.as_notice(), Ok(None)));
        let _ = head.is_of_the_handshake();
    }
    for mode in [Mode::Messages, Mode::Puts] {
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
