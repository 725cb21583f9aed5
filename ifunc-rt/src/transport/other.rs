//! The ends of a link over any transport but shared memory: a network, or a lock, lies between them and the peer, so a
//! call through a vtable is not noticed.

use ifunc_abi::frame::Header;

use super::{Body, Frame, Inbound, LinkError, Outbound, Park, Rx};

/// The outgoing direction over any transport but shared memory.
pub(crate) struct OtherTx(Box<dyn Outbound + Send>);

impl OtherTx {
    pub(super) fn new(tx: Box<dyn Outbound + Send>) -> Self {
        Self(tx)
    }
}

impl Outbound for OtherTx {
    fn max_body(&self) -> usize {
        self.0.max_body()
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        self.0.reserve(len, align)
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        self.0.commit(header, len)
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        self.0.is_unconsumed(sequence)
    }
}

/// The incoming direction over any transport but shared memory.
pub(crate) struct OtherRx(Box<dyn DynInbound>);

impl OtherRx {
    pub(super) fn new(rx: Box<impl Rx>) -> Self {
        Self(rx)
    }
}

/// [`Inbound`] and [`Park`], for trait objects.
trait DynInbound: Park + Send {
    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError>;
    fn release(&mut self);
    fn settle(&mut self);
    fn is_empty(&mut self) -> bool;
    fn begin_poll(&mut self);
    fn end_poll(&mut self, frames: usize);
    fn first_quantum(&self) -> usize;
}

impl<R: Rx> DynInbound for R {
    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        Inbound::peek(self)
    }

    fn release(&mut self) {
        Inbound::release(self);
    }

    fn settle(&mut self) {
        Inbound::settle(self);
    }

    fn is_empty(&mut self) -> bool {
        Inbound::is_empty(self)
    }

    fn begin_poll(&mut self) {
        Inbound::begin_poll(self);
    }

    fn end_poll(&mut self, frames: usize) {
        Inbound::end_poll(self, frames);
    }

    fn first_quantum(&self) -> usize {
        Inbound::first_quantum(self)
    }
}

impl Inbound for OtherRx {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        self.0.peek()
    }

    fn release(&mut self) {
        self.0.release();
    }

    fn settle(&mut self) {
        self.0.settle();
    }

    fn is_empty(&mut self) -> bool {
        self.0.is_empty()
    }

    fn begin_poll(&mut self) {
        self.0.begin_poll();
    }

    fn end_poll(&mut self, frames: usize) {
        self.0.end_poll(frames);
    }

    fn first_quantum(&self) -> usize {
        self.0.first_quantum()
    }
}

impl Park for OtherRx {
    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }

    fn park(&mut self) {
        self.0.park();
    }

    fn is_idle(&mut self) -> bool {
        self.0.is_idle()
    }
}
