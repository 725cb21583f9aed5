//! The target's side of a handshake.

use std::os::fd::BorrowedFd;

use super::credentials::{Proof, Server};
use super::stream::{End, Opening, Stream};

/// A handshake of a source with this target.
pub(super) enum Handshake {
    /// The source's first message has not arrived.
    Opening(Opening),
    Stream(Stream),
}

impl Default for Handshake {
    fn default() -> Self {
        Self::Opening(Opening::default())
    }
}

impl Handshake {
    /// Takes what has arrived, answers, and calls `take` with what was encrypted.
    ///
    /// # Errors
    /// The stream has ended: the source is told.
    pub(super) fn advance(
        &mut self,
        socket: BorrowedFd<'_>,
        server: &Server,
        take: impl FnMut(&[u8]) -> Result<(), &'static str>,
    ) -> Result<(), End> {
        match self {
            Self::Stream(stream) => {
                let received = stream.receive(socket, take);
                // A peer that does not read as little as a handshake is not worth waiting for.
                let flushed = stream.flush(socket);
                received.and(flushed)
            }
            Self::Opening(opening) => match opening.receive(socket, |hello| server.choose(hello))? {
                Some(mut stream) => {
                    let flushed = stream.flush(socket);
                    *self = Self::Stream(stream);
                    flushed
                }
                None => Ok(()),
            },
        }
    }

    /// Whether both sides have proved their keys, and the source has everything that was sent to it.
    pub(super) fn is_established(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.is_established() && !stream.has_backlog())
    }

    /// Whether the source does not take what was sent to it.
    pub(super) fn has_backlog(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.has_backlog())
    }

    /// The stream, and what the source has proved. `None`: it proved nothing, or speaks another protocol.
    pub(super) fn into_established(self) -> Option<(Stream, Proof)> {
        let Self::Stream(stream) = self else {
            return None;
        };
        let proof = stream.peer()?;
        Some((stream, proof))
    }
}
