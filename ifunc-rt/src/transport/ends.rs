//! The two directions of a link, and the one place that tells the transports apart.
//!
//! Over shared memory a whole frame costs some ten nanoseconds, of which calls through a vtable would be half. So code
//! that handles frames is compiled twice: for shared memory, and for all other transports behind one boxed type.
//! The macros `with_end` and `with_link` choose the copy.

use ifunc_abi::frame::Header;
use ifunc_proto::link;

use super::other::{OtherRx, OtherTx};
use super::{Body, Frame, Inbound, LinkError, Outbound, Park, Rx, shm};

/// The outgoing direction of a link over any transport.
pub(crate) struct Outgoing(pub(in crate::transport) Transport<shm::Outgoing, OtherTx>);

/// The incoming direction of a link over any transport.
pub(crate) struct Incoming(pub(in crate::transport) Transport<shm::Incoming, OtherRx>);

/// Shared memory, or another transport.
pub(crate) enum Transport<S, O> {
    Shm(S),
    Other(O),
}

impl<S, O> Transport<S, O> {
    /// Borrows it.
    #[inline(always)]
    pub(crate) fn as_mut(&mut self) -> Transport<&mut S, &mut O> {
        match self {
            Self::Shm(shm) => Transport::Shm(shm),
            Self::Other(other) => Transport::Other(other),
        }
    }
}

impl Outgoing {
    #[inline(always)]
    pub(crate) fn transport(&mut self) -> Transport<&mut shm::Outgoing, &mut OtherTx> {
        self.0.as_mut()
    }
}

impl Incoming {
    #[inline(always)]
    pub(crate) fn transport(&mut self) -> Transport<&mut shm::Incoming, &mut OtherRx> {
        self.0.as_mut()
    }
}

/// Evaluates an expression for the `&mut impl Outbound` or `&mut impl Rx` in an [`Outgoing`] or [`Incoming`], compiled
/// once for each kind of transport.
macro_rules! with_end {
    ($end:expr, $name:ident => $do:expr) => {
        match $end.transport() {
            $crate::transport::Transport::Shm($name) => $do,
            $crate::transport::Transport::Other($name) => $do,
        }
    };
}

/// Both directions of one transport, borrowed: an [`ifunc_proto::link::Link`].
pub(crate) struct Ends<'a, T, R> {
    pub(crate) tx: &'a mut T,
    pub(crate) rx: &'a mut R,
}

impl<T: Outbound, R: Inbound> link::Link for Ends<'_, T, R> {
    type Tx = T;
    type Rx = R;

    #[inline(always)]
    fn split(&mut self) -> (&mut T, &mut R) {
        (self.tx, self.rx)
    }
}

/// Evaluates an expression for the `&mut impl ifunc_proto::link::Link` of a [`Link`](super::Link), compiled once for each
/// kind of transport.
macro_rules! with_link {
    ($link:expr, $name:ident => $do:expr) => {{
        use $crate::transport::{Ends, Transport};
        match ($link.tx.transport(), $link.rx.transport()) {
            (Transport::Shm(tx), Transport::Shm(rx)) => {
                let $name = &mut Ends { tx, rx };
                $do
            }
            (Transport::Other(tx), Transport::Other(rx)) => {
                let $name = &mut Ends { tx, rx };
                $do
            }
            _ => unreachable!("a link has two ends of one transport"),
        }
    }};
}

pub(crate) use with_link;

impl Outbound for Outgoing {
    #[inline]
    fn max_body(&self) -> usize {
        match &self.0 {
            Transport::Shm(tx) => tx.max_body(),
            Transport::Other(tx) => tx.max_body(),
        }
    }

    #[inline]
    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        with_end!(self, tx => tx.reserve(len, align))
    }

    #[inline(always)]
    fn commit(&mut self, header: Header, len: usize) -> u32 {
        with_end!(self, tx => tx.commit(header, len))
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        with_end!(self, tx => tx.is_unconsumed(sequence))
    }
}

impl Inbound for Incoming {
    type Body<'a> = Body<'a>;

    #[inline(always)]
    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        with_end!(self, rx => rx.peek())
    }

    #[inline(always)]
    fn release(&mut self) {
        with_end!(self, rx => rx.release());
    }

    #[inline]
    fn settle(&mut self) {
        with_end!(self, rx => rx.settle());
    }

    #[inline(always)]
    fn is_empty(&mut self) -> bool {
        with_end!(self, rx => rx.is_empty())
    }

    #[inline]
    fn begin_poll(&mut self) {
        with_end!(self, rx => rx.begin_poll());
    }

    #[inline]
    fn end_poll(&mut self, frames: usize) {
        with_end!(self, rx => rx.end_poll(frames));
    }

    #[inline]
    fn first_quantum(&self) -> usize {
        match &self.0 {
            Transport::Shm(rx) => rx.first_quantum(),
            Transport::Other(rx) => rx.first_quantum(),
        }
    }
}

impl Park for Incoming {
    fn arm(&mut self) -> bool {
        with_end!(self, rx => rx.arm())
    }

    fn disarm(&mut self) {
        with_end!(self, rx => rx.disarm());
    }

    fn park(&mut self) {
        with_end!(self, rx => rx.park());
    }

    #[inline]
    fn is_idle(&mut self) -> bool {
        with_end!(self, rx => rx.is_idle())
    }
}

impl From<shm::Outgoing> for Outgoing {
    fn from(shm: shm::Outgoing) -> Self {
        Self(Transport::Shm(shm))
    }
}

impl From<shm::Incoming> for Incoming {
    fn from(shm: shm::Incoming) -> Self {
        Self(Transport::Shm(shm))
    }
}

impl<T: Outbound + Send + 'static> From<Box<T>> for Outgoing {
    fn from(other: Box<T>) -> Self {
        Self(Transport::Other(OtherTx::new(other)))
    }
}

impl<R: Rx> From<Box<R>> for Incoming {
    fn from(other: Box<R>) -> Self {
        Self(Transport::Other(OtherRx::new(other)))
    }
}
