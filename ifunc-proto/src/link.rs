//! What a connection needs of a transport.

use ifunc_abi::frame::{Header, Kind};

/// The peer is gone, or sent bytes that its transport never sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer closed the connection or died. All frames that arrived before were returned by [`Inbound::peek`].
    #[error("the peer closed the connection or died")]
    Closed,
    /// The peer violated the protocol.
    #[error("the peer broke the protocol: {0}")]
    Malformed(&'static str),
}

/// One side of a link. Its two directions are borrowed apart, so that a payload can be read in place while an answer is
/// written in place.
pub trait Link {
    /// The outgoing direction.
    type Tx: Outbound;
    /// The incoming direction.
    type Rx: Inbound;

    /// Borrows both directions.
    fn split(&mut self) -> (&mut Self::Tx, &mut Self::Rx);
}

/// The outgoing direction of a link.
pub trait Outbound {
    /// Largest body of one frame, in bytes. The connection cuts larger bodies into fragments.
    fn max_body(&self) -> usize;

    /// Memory for the body of the next frame: at least `len` bytes, aligned to `align` (at most
    /// [`BODY_ALIGN`](ifunc_abi::frame::BODY_ALIGN)). `None`: the send window is closed until the peer returns credits. A
    /// second `reserve` without a [`commit`](Self::commit) replaces the first.
    ///
    /// # Errors
    /// The peer is gone.
    ///
    /// # Panics
    /// If `len` exceeds [`max_body`](Self::max_body).
    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError>;

    /// Sends the frame whose body is the first `len` bytes of the last [`reserve`](Self::reserve). Returns its sequence
    /// number.
    fn commit(&mut self, header: Header, len: usize) -> u32;

    /// As [`reserve`](Self::reserve), if there is credit as far as is known. What it returns beside the memory goes to
    /// [`commit_reserved`](Self::commit_reserved), so that a transport need not keep it in between. `None`: only `reserve` tells why.
    ///
    /// # Panics
    /// If `len` exceeds [`max_body`](Self::max_body).
    #[inline(always)]
    fn try_reserve(&mut self, len: usize, align: usize) -> Option<(Reserved, &mut [u8])> {
        let memory = self.reserve(len, align).ok()??;
        let reserved = Reserved { frame: 0, len, align };
        Some((reserved, memory))
    }

    /// As [`commit`](Self::commit), of what the last [`try_reserve`](Self::try_reserve) returned. A peer that sleeps is not
    /// woken: [`wake`](Self::wake) does that.
    #[inline(always)]
    fn commit_reserved(&mut self, _reserved: Reserved, header: Header, len: usize) -> u32 {
        self.commit(header, len)
    }

    /// After [`commit_reserved`](Self::commit_reserved): whether [`wake`](Self::wake) has something to do.
    #[inline(always)]
    fn must_wake(&self) -> bool {
        false
    }

    /// After [`commit_reserved`](Self::commit_reserved): wakes the peer if it sleeps.
    #[inline(always)]
    fn wake(&mut self) {}

    /// How many frames were committed, for a caller that looks after other things once in so many. A transport that does not count says
    /// [`u64::MAX`]: such a caller does then for each.
    #[inline]
    fn sent(&self) -> u64 {
        u64::MAX
    }

    /// Frames that are committed before [`flush`](Self::flush) follow each other at once. The transport may send them together.
    fn hold(&mut self) {}

    /// The frame that is committed next may wait a little for those after it: the application has answers that arrived last and that it has
    /// not taken, and is likely to take them, and to send more. A poll that looks for what has arrived sends it, and the transport bounds
    /// the wait.
    fn may_wait(&mut self) {}

    /// Sends what was held.
    fn flush(&mut self) {}

    /// Whether the peer may not have consumed the frame with this sequence number. The connection asks after the peer is
    /// gone; a transport that cannot know returns `true`.
    fn is_unconsumed(&mut self, _sequence: u32) -> bool {
        true
    }
}

/// Memory that was reserved for a body.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    /// The number of its frame, for the transport.
    pub frame: u64,
    /// Length in bytes.
    pub len: usize,
    /// Alignment.
    pub align: usize,
}

/// A received frame whose body still lies in the transport's memory.
#[derive(Clone, Copy, Debug)]
pub struct Frame<B> {
    /// Sequence number. A transport may deliver frames out of order.
    pub sequence: u32,
    /// Words 1 and 2, not validated. The transport copied them out once.
    pub words: [u64; 2],
    /// The body.
    pub body: B,
}

/// Bytes that the peer may still be able to write, over shared memory. Each method reads a byte at most once.
pub trait Body: Copy {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `len` bytes from `at` on; `None` if the body is shorter.
    fn slice(&self, at: usize, len: usize) -> Option<Self>;

    /// Copies the body to `out`.
    ///
    /// # Panics
    /// If the lengths differ.
    fn copy_to(&self, out: &mut [u8]);

    /// Appends the body to `out`.
    fn append_to(&self, out: &mut Vec<u8>);

    /// Address of the first byte. The bytes stay readable until the frame is released.
    fn as_ptr(&self) -> *const u8;
}

/// Fewest frames of a [run](FrameRun): for less, one crossing of the call gate saves nothing.
pub const MIN_RUN: usize = 4;

/// Frames with one header that arrived one after another, with bodies of one length.
#[derive(Clone, Copy, Debug)]
pub struct FrameRun<B> {
    /// Sequence number of the first one.
    pub sequence: u32,
    /// Length of each body in bytes.
    pub len: usize,
    /// From the begin of the first body to the end of the last one.
    pub bodies: B,
    /// Distance between two bodies in bytes.
    pub stride: usize,
    /// Number of frames.
    pub count: usize,
}

/// The incoming direction of a link.
pub trait Inbound {
    /// The body of a received frame.
    type Body<'a>: Body
    where
        Self: 'a;

    /// Whether [`peek`](Self::peek) returns the frames in the order of their sequence numbers, each once.
    const IN_ORDER: bool = false;

    /// The next frame, if one arrived; the same frame until [`release`](Self::release).
    ///
    /// # Errors
    /// The peer is gone, and every frame that arrived was released.
    fn peek(&mut self) -> Result<Option<Frame<Self::Body<'_>>>, LinkError>;

    /// The next frame, if the transport can tell sooner than with [`peek`](Self::peek) that its header is a
    /// [plain one](Header::parse_plain) of this kind. `None` decides nothing. A later `peek` reads the header again.
    #[inline(always)]
    fn peek_plain(&mut self, _kind: Kind) -> Option<(Header, Frame<Self::Body<'_>>)> {
        None
    }

    /// Returns the memory of the peeked frame to the transport.
    fn release(&mut self);

    /// The next frame, if its header is a [plain one](Header::parse_plain) of this kind, and the frames after it that arrived, have the same
    /// header, and bodies of the same length: at least [`MIN_RUN`], at most as many as `most` says of that length. The first of them is the
    /// peeked frame then. Only a transport that is [in order](Self::IN_ORDER) has runs.
    #[inline(always)]
    fn peek_run(
        &mut self,
        _kind: Kind,
        _most: impl FnOnce(usize) -> usize,
    ) -> Option<(Header, FrameRun<Self::Body<'_>>)> {
        None
    }

    /// Returns the memory of the first `count` frames of a run to the transport. Their bodies have `len` bytes.
    fn release_run(&mut self, _count: usize, _len: usize) {}

    /// Publishes the credits that the peer may wait for. A transport may keep others until they are many, or for a frame that goes to the peer
    /// anyway. The connection calls it when no more frames have arrived.
    fn settle(&mut self);

    /// A cheap test: `true` if [`peek`](Self::peek) would find no frame, or only one that the transport brings in by progress, which a poll in
    /// passing does not wait for. That is said a bounded number of times in succession. `false` decides nothing.
    fn is_empty(&mut self) -> bool {
        false
    }

    /// A hint that this direction is polled soon, after other work: a transport may fetch what it would read first.
    #[inline(always)]
    fn prefetch_frame(&self) {}

    /// The same, some time after [`prefetch_frame`](Self::prefetch_frame): a transport may fetch the body of the frame that has arrived.
    #[inline(always)]
    fn prefetch_body(&self) {}

    /// A poll begins. A transport may wait here for a stream to get ahead, some thirty microseconds at most, and in a stream eight.
    #[inline(always)]
    fn begin_poll(&mut self) {}

    /// Whether [`begin_poll`](Self::begin_poll) would wait. The connection asks after [`end_poll`](Self::end_poll), and does not call
    /// `begin_poll` before a poll of one invocation if it would not: only `end_poll` may change this to `true`.
    #[inline(always)]
    fn must_begin_poll(&self) -> bool {
        false
    }

    /// A poll ended, which `found` a frame or nothing. `settles`: also does what [`settle`](Self::settle) does.
    #[inline(always)]
    fn end_poll(&mut self, _found: bool, settles: bool) {
        if settles {
            self.settle();
        }
    }

    /// Whether a frame has arrived. For between two polls: its body is not read.
    ///
    /// # Errors
    /// As those of [`peek`](Self::peek).
    #[inline(always)]
    fn has_arrived(&mut self) -> Result<bool, LinkError> {
        Ok(self.peek()?.is_some())
    }

    /// Whether a poll that has processed a frame ends without a look at what is behind: nothing else is here, and to look may be a
    /// system call.
    #[inline(always)]
    fn is_drained(&self) -> bool {
        false
    }

    /// Invocations in the first poll after an idle one. Over shared memory it is 1: to look at the next slot would take
    /// its cache line from the peer before the first invocation ran. It is 1 also where giving credits back delays what follows from the
    /// invocation.
    fn first_quantum(&self) -> usize {
        usize::MAX
    }
}

impl Body for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn slice(&self, at: usize, len: usize) -> Option<Self> {
        self.get(at..at.checked_add(len)?)
    }

    fn copy_to(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn as_ptr(&self) -> *const u8 {
        <[u8]>::as_ptr(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with what each must have alone.
    struct Least([u8; 8]);

    impl Outbound for Least {
        fn max_body(&self) -> usize {
            8
        }

        fn reserve(&mut self, len: usize, _: usize) -> Result<Option<&mut [u8]>, LinkError> {
            match len {
                0 => Ok(None),
                1 => Err(LinkError::Closed),
                _ => Ok(Some(&mut self.0[..len])),
            }
        }

        fn commit(&mut self, header: Header, len: usize) -> u32 {
            header.handle + len as u32
        }
    }

    impl Inbound for Least {
        type Body<'a> = &'a [u8];

        fn peek(&mut self) -> Result<Option<Frame<&[u8]>>, LinkError> {
            Ok(None)
        }

        fn release(&mut self) {}

        fn settle(&mut self) {}
    }

    #[test]
    fn a_transport_that_cannot_tell_decides_nothing() {
        let link = &mut Least([0; 8]);
        link.hold();
        link.may_wait();
        link.flush();
        assert!(link.is_unconsumed(1), "it may be lost");
        assert!(!link.is_empty(), "`peek` tells");
        assert!(link.peek_plain(Kind::Exec).is_none());
        assert_eq!(link.first_quantum(), usize::MAX);
        assert!(!link.is_drained());
        let (reserved, memory) = link.try_reserve(4, 2).unwrap();
        assert_eq!((reserved.len, reserved.align, memory.len()), (4, 2, 4));
        assert_eq!(
            link.commit_reserved(reserved, Header::new(Kind::Exec, 100, 0), 3),
            103
        );
        assert!(link.try_reserve(0, 1).is_none() && link.try_reserve(1, 1).is_none());
    }

    #[test]
    fn bytes_are_a_body() {
        let bytes = &b"hello"[..];
        assert!(!Body::is_empty(&bytes) && Body::is_empty(&&b""[..]));
        assert_eq!(Body::as_ptr(&bytes), bytes.as_ptr());
        assert_eq!(
            (bytes.slice(1, 4), bytes.slice(5, 0)),
            (Some(&b"ello"[..]), Some(&b""[..]))
        );
        assert_eq!((bytes.slice(2, 4), bytes.slice(6, 0)), (None, None));
        assert_eq!(bytes.slice(1, usize::MAX), None);
    }
}
