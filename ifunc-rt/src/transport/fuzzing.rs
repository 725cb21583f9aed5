//! What the fuzz targets reach of the transports.

#[cfg(feature = "tls")]
pub use super::tls::fuzzing::{greeting, stream};

/// Takes the bytes for a handshake message of each transport, from either side. One that is accepted is encoded as it was.
pub fn handshakes(message: &[u8]) {
    super::shm::fuzzing::handshake(message);
    #[cfg(feature = "ucx")]
    super::ucx::fuzzing::handshake(message);
}
