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

    fn sent(&self) -> u64 {
        (**self).sent()
    }

    fn hold(&mut self) {
        (**self).hold();
    }

    fn may_wait(&mut self) {
        (**self).may_wait();
    }

    fn flush(&mut self) {
        (**self).flush();
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        (**self).is_unconsumed(sequence)
    }
}

/// [`Inbound`] with the runtime's [`Body`], for trait objects. The hints about the begin of polls are for shared memory alone.
pub(crate) trait Rx: Park + Send {
    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError>;
    fn release(&mut self);
    fn settle(&mut self);
    fn end_poll(&mut self, found: bool, settles: bool);
    fn has_arrived(&mut self) -> Result<bool, LinkError>;
    fn is_empty(&mut self) -> bool;
    fn is_drained(&self) -> bool;
    fn first_quantum(&self) -> usize;
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

    fn end_poll(&mut self, found: bool, settles: bool) {
        Inbound::end_poll(self, found, settles);
    }

    fn has_arrived(&mut self) -> Result<bool, LinkError> {
        Inbound::has_arrived(self)
    }

    fn is_empty(&mut self) -> bool {
        Inbound::is_empty(self)
    }

    fn is_drained(&self) -> bool {
        Inbound::is_drained(self)
    }

    fn first_quantum(&self) -> usize {
        Inbound::first_quantum(self)
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

    fn end_poll(&mut self, found: bool, settles: bool) {
        (**self).end_poll(found, settles);
    }

    fn has_arrived(&mut self) -> Result<bool, LinkError> {
        (**self).has_arrived()
    }

    fn is_empty(&mut self) -> bool {
        (**self).is_empty()
    }

    fn is_drained(&self) -> bool {
        (**self).is_drained()
    }

    fn first_quantum(&self) -> usize {
        (**self).first_quantum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Mutex;

    use ifunc_abi::frame::Kind;

    use super::*;

    /// Both directions of a transport that records how it is called.
    #[derive(Default)]
    struct Recorded {
        calls: std::sync::Arc<Mutex<Vec<String>>>,
        memory: [u8; 8],
        answer: bool,
    }

    impl Recorded {
        fn called(&self, how: String) {
            self.calls.lock().unwrap().push(how);
        }
    }

    impl Outbound for Recorded {
        fn max_body(&self) -> usize {
            self.called("max_body".into());
            77
        }

        fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
            self.called(format!("reserve {len} {align}"));
            Ok(Some(&mut self.memory))
        }

        fn commit(&mut self, header: Header, len: usize) -> u32 {
            self.called(format!("commit {} {len}", header.token));
            33
        }

        fn hold(&mut self) {
            self.called("hold".into());
        }

        fn may_wait(&mut self) {
            self.called("may_wait".into());
        }

        fn flush(&mut self) {
            self.called("flush".into());
        }

        fn is_unconsumed(&mut self, sequence: u32) -> bool {
            self.called(format!("is_unconsumed {sequence}"));
            self.answer
        }
    }

    impl Inbound for Recorded {
        type Body<'a> = Body<'a>;

        fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
            self.called("peek".into());
            Ok(Some(Frame {
                sequence: 5,
                words: [1, 2],
                body: Body::from(&self.memory[..3]),
            }))
        }

        fn release(&mut self) {
            self.called("release".into());
        }

        fn settle(&mut self) {
            self.called("settle".into());
        }

        fn is_drained(&self) -> bool {
            self.called("is_drained".into());
            self.answer
        }

        fn first_quantum(&self) -> usize {
            self.called("first_quantum".into());
            5
        }

        fn end_poll(&mut self, found: bool, settles: bool) {
            self.called(format!("end_poll {found} {settles}"));
        }

        fn has_arrived(&mut self) -> Result<bool, LinkError> {
            self.called("has_arrived".into());
            Ok(self.answer)
        }

        fn is_empty(&mut self) -> bool {
            self.called("is_empty".into());
            self.answer
        }
    }

    impl Park for Recorded {
        fn arm(&mut self) -> bool {
            unreachable!("its trait is the object's")
        }

        fn disarm(&mut self) {}

        fn park(&mut self) {}

        fn is_idle(&mut self) -> bool {
            unreachable!("its trait is the object's")
        }
    }

    #[test]
    fn a_trait_object_passes_every_call_on_and_every_result_back() {
        use ifunc_proto::link::Body as _;

        for answer in [false, true] {
            let calls = std::sync::Arc::<Mutex<Vec<String>>>::default();
            let recorded = || Recorded {
                calls: calls.clone(),
                memory: [9; 8],
                answer,
            };
            let Ends::Other(Pair { mut tx, mut rx }) = Ends::other(recorded(), recorded()) else {
                unreachable!("made so");
            };
            assert_eq!(Outbound::max_body(&tx), 77);
            assert_eq!(Outbound::reserve(&mut tx, 3, 4).unwrap().unwrap(), [9; 8]);
            assert_eq!(Outbound::commit(&mut tx, Header::new(Kind::Exec, 1, 21), 6), 33);
            Outbound::hold(&mut tx);
            Outbound::may_wait(&mut tx);
            Outbound::flush(&mut tx);
            assert_eq!(Outbound::is_unconsumed(&mut tx, 8), answer);
            let frame = Inbound::peek(&mut rx).unwrap().unwrap();
            assert_eq!((frame.sequence, frame.words, frame.body.len()), (5, [1, 2], 3));
            Inbound::release(&mut rx);
            Inbound::settle(&mut rx);
            Inbound::end_poll(&mut rx, answer, !answer);
            assert_eq!(Inbound::has_arrived(&mut rx).unwrap(), answer);
            assert_eq!(Inbound::is_empty(&mut rx), answer);
            assert_eq!(Inbound::first_quantum(&rx), 5);
            assert_eq!(Inbound::is_drained(&rx), answer);
            let expected = [
                "max_body",
                "reserve 3 4",
                "commit 21 6",
                "hold",
                "may_wait",
                "flush",
                "is_unconsumed 8",
                "peek",
                "release",
                "settle",
                &format!("end_poll {answer} {}", !answer),
                "has_arrived",
                "is_empty",
                "first_quantum",
                "is_drained",
            ];
            assert_eq!(*calls.lock().unwrap(), expected);
        }
    }
}
