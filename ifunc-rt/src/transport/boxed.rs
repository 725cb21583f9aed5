//! Links as trait objects, for transports that are not shared memory.

use ifunc_abi::frame::Header;

use super::{Body, Frame, Inbound, LinkError, Outbound, Park};
#[cfg(any(test, feature = "ucx", feature = "tls"))]
use super::{Ends, Pair};

#[cfg(any(test, feature = "ucx", feature = "tls"))]
impl Ends {
    /// Those of a transport that is not shared memory.
    pub(crate) fn other(tx: impl Tx + 'static, rx: impl Rx + 'static) -> Self {
        Self::Other(Pair {
            tx: Box::new(tx),
            rx: Box::new(rx),
        })
    }
}

/// [`Outbound`], for trait objects.
pub(crate) trait Tx: Outbound + Send {}

impl<T: Outbound + Send> Tx for T {}

impl Outbound for Box<dyn Tx> {
    fn max_body(&self) -> usize {
        (**self).max_body()
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        (**self).reserve(len, align)
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        (**self).commit(header, len)
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        (**self).is_unconsumed(sequence)
    }
}

/// [`Inbound`] with the runtime's [`Body`], for trait objects. The hints about polls are for shared memory alone.
pub(crate) trait Rx: Park + Send {
    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError>;
    fn release(&mut self);
    fn settle(&mut self);
    fn is_empty(&mut self) -> bool;
}

impl<R: for<'a> Inbound<Body<'a> = Body<'a>> + Park + Send + 'static> Rx for R {
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
}

impl Inbound for Box<dyn Rx> {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        (**self).peek()
    }

    fn release(&mut self) {
        (**self).release();
    }

    fn settle(&mut self) {
        (**self).settle();
    }

    fn is_empty(&mut self) -> bool {
        (**self).is_empty()
    }
}
