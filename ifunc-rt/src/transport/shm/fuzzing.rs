//! What the fuzz targets reach of this transport.

use super::handshake::{Request, Welcome};
use super::segment::Side;
use crate::transport::MAX_RING;

/// Takes the bytes for a handshake message from either side.
pub(crate) fn handshake(message: &[u8]) {
    if let Ok(request) = Request::decode(message) {
        // Bytes after those that this version knows are for later ones, and so are other flags.
        let again = request.encode();
        assert_eq!(Request::decode(&again), Ok(request));
    }
    if let Ok(welcome) = Welcome::decode(message, MAX_RING) {
        for side in [Side::Target, Side::Source] {
            let ring = welcome.layout.ring(side);
            assert!(ring.is_valid() && ring.bytes() <= MAX_RING);
        }
        let again = welcome.encode();
        assert_eq!(Welcome::decode(&again, MAX_RING), Ok(welcome));
    }
}
