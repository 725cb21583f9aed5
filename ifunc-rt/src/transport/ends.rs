//! The two ends of a link, as the layers above hold them.
//!
//! Every frame passes here several times on its way. Over shared memory a whole frame costs some ten nanoseconds, of which
//! calls through a table of functions would be half: so that transport is known by name, and what it does becomes part of
//! its callers. The others have a network, or a lock, between themselves and their peers.

use ifunc_abi::frame::Header;

use super::{Arrived, Gone, Inbound, Outbound, shm};

/// Where frames go out: what [`Outbound`] says.
pub(crate) struct Outgoing(Way<shm::Outgoing, dyn Outbound>);

/// Where frames come in: what [`Inbound`] says.
pub(crate) struct Incoming(Way<shm::Incoming, dyn Inbound>);

enum Way<S, O: ?Sized> {
    /// Over shared memory.
    Shm(S),
    /// Any other.
    Other(Box<O>),
}

/// Either [`Incoming`], for who looks at many frames: compiled twice, once for each, so that nothing is asked per frame.
pub(crate) enum Either<'a> {
    /// Over shared memory.
    Shm(&'a mut shm::Incoming),
    /// Any other.
    Other(&'a mut dyn Inbound),
}

impl From<shm::Outgoing> for Outgoing {
    fn from(shm: shm::Outgoing) -> Self {
        Self(Way::Shm(shm))
    }
}

impl From<shm::Incoming> for Incoming {
    fn from(shm: shm::Incoming) -> Self {
        Self(Way::Shm(shm))
    }
}

impl<T: Outbound + 'static> From<Box<T>> for Outgoing {
    fn from(other: Box<T>) -> Self {
        Self(Way::Other(other))
    }
}

impl<T: Inbound + 'static> From<Box<T>> for Incoming {
    fn from(other: Box<T>) -> Self {
        Self(Way::Other(other))
    }
}

/// Calls the one that it is.
macro_rules! either {
    ($self:ident, $end:ident => $call:expr) => {
        match &mut $self.0 {
            Way::Shm($end) => $call,
            Way::Other($end) => $call,
        }
    };
}

impl Outgoing {
    #[inline]
    pub(crate) fn max_body(&self) -> usize {
        match &self.0 {
            Way::Shm(end) => end.max_body(),
            Way::Other(end) => end.max_body(),
        }
    }

    #[inline]
    pub(crate) fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, Gone> {
        either!(self, end => end.reserve(len, align))
    }

    /// The end, if it is shared memory's.
    #[inline(always)]
    pub(crate) fn as_shm(&mut self) -> Option<&mut shm::Outgoing> {
        match &mut self.0 {
            Way::Shm(end) => Some(end),
            Way::Other(_) => None,
        }
    }

    #[inline(always)]
    pub(crate) fn commit(&mut self, header: Header, len: usize) -> u32 {
        either!(self, end => end.commit(header, len))
    }

    pub(crate) fn is_unconsumed(&mut self, sequence: u32) -> bool {
        either!(self, end => end.is_unconsumed(sequence))
    }
}

impl Incoming {
    /// Which of the two it is.
    #[inline]
    pub(crate) fn either(&mut self) -> Either<'_> {
        match &mut self.0 {
            Way::Shm(end) => Either::Shm(end),
            Way::Other(end) => Either::Other(&mut **end),
        }
    }

    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Result<Option<Arrived<'_>>, Gone> {
        either!(self, end => end.peek())
    }

    #[inline(always)]
    pub(crate) fn release(&mut self) {
        either!(self, end => end.release());
    }

    /// Whether a look is a look at memory that the peer is about to write: who has what it wants should not look for more, and
    /// enough of what was released is settled without that.
    #[inline]
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.0, Way::Shm(_))
    }

    #[inline]
    pub(crate) fn settle(&mut self) {
        either!(self, end => end.settle());
    }

    /// Whether [`peek`](Self::peek) would say that nothing has arrived. `false` also where only it can know.
    #[inline(always)]
    pub(crate) fn is_silent(&mut self) -> bool {
        match &mut self.0 {
            Way::Shm(end) => end.is_silent(),
            Way::Other(_) => false,
        }
    }

    pub(crate) fn arm(&mut self) -> bool {
        either!(self, end => end.arm())
    }

    pub(crate) fn disarm(&mut self) {
        either!(self, end => end.disarm());
    }

    pub(crate) fn rest(&mut self) {
        either!(self, end => end.rest());
    }

    #[inline]
    pub(crate) fn is_quiet(&mut self) -> bool {
        either!(self, end => end.is_quiet())
    }
}
