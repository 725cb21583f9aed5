//! What an invocation is sent with, and why one was not sent.

use std::sync::Arc;

use ifunc_abi::ImageId;
use ifunc_abi::machine::Machine;
use ifunc_abi::signature::Signature;

use crate::calls::{Lost, Outcome};
use crate::link::LinkError;

/// Bytes of an image that are sent.
#[derive(Clone, Copy, Debug)]
pub struct ImageBytes<'a> {
    /// BLAKE3 of the bytes.
    pub id: &'a ImageId,
    /// The bytes.
    pub bytes: &'a [u8],
    /// The signature that is sent beside them.
    pub signature: Option<&'a Signature>,
}

/// An entry of an image that this side sends.
///
/// An image may have slices: the same entries for several kinds of machines. Which one travels over a link is decided when it is
/// sent, by what the peer's hello states.
pub trait Image {
    /// Identifies the image among those of a connection: BLAKE3 of its bytes, and of an image of several slices a hash of theirs.
    fn id(&self) -> &ImageId;
    /// The image's bytes; those of the first slice.
    fn bytes(&self) -> &[u8];
    /// The signature that is sent beside the image.
    fn signature(&self) -> Option<&Signature> {
        None
    }
    /// Calls `send` with what a machine is sent: the slice for it, and those that accompany it, for other machines that the image may
    /// travel on to. Without slices it is the image: a machine that does not run it refuses it.
    ///
    /// # Errors
    /// There are slices, and none for this machine: why, and what to build.
    fn send_to<R>(
        &self,
        _machine: Machine,
        send: impl FnOnce(ImageBytes<'_>, Vec<ImageBytes<'_>>) -> R,
    ) -> Result<R, String> {
        let image = ImageBytes {
            id: self.id(),
            bytes: self.bytes(),
            signature: self.signature(),
        };
        Ok(send(image, Vec::new()))
    }
    /// Number of the image's entries, 1 to [`MAX_ENTRIES`](ifunc_abi::image::MAX_ENTRIES).
    fn entries(&self) -> u8;
    /// Index of this entry in the image's table.
    fn entry(&self) -> u8;
    /// Whether an invocation may run twice, so that one that may have run is sent again over a new link.
    fn is_idempotent(&self) -> bool;
}

impl<T: Image + ?Sized> Image for Arc<T> {
    fn id(&self) -> &ImageId {
        T::id(self)
    }

    fn bytes(&self) -> &[u8] {
        T::bytes(self)
    }

    fn signature(&self) -> Option<&Signature> {
        T::signature(self)
    }

    fn send_to<R>(
        &self,
        machine: Machine,
        send: impl FnOnce(ImageBytes<'_>, Vec<ImageBytes<'_>>) -> R,
    ) -> Result<R, String> {
        T::send_to(self, machine, send)
    }

    fn entries(&self) -> u8 {
        T::entries(self)
    }

    fn entry(&self) -> u8 {
        T::entry(self)
    }

    #[inline]
    fn is_idempotent(&self) -> bool {
        T::is_idempotent(self)
    }
}

/// What writes a payload: a closure, or a type whose method is inlined wherever it is called.
pub trait Encode {
    /// Why a payload cannot be written.
    type Error;

    /// Writes the payload to the begin of `memory`, and returns its length.
    ///
    /// # Errors
    /// It cannot be written.
    fn encode(&mut self, memory: &mut [u8]) -> Result<usize, Self::Error>;
}

impl<E, F: FnMut(&mut [u8]) -> Result<usize, E>> Encode for F {
    type Error = E;

    #[inline(always)]
    fn encode(&mut self, memory: &mut [u8]) -> Result<usize, E> {
        self(memory)
    }
}

/// How one invocation is sent.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// The handle of its entry.
    pub handle: u32,
    /// Most bytes that its payload takes.
    pub bound: usize,
    /// Alignment of its payload, at most [`BODY_ALIGN`](ifunc_abi::frame::BODY_ALIGN).
    pub align: usize,
    /// Whether the caller awaits a completion.
    pub wants_completion: bool,
    /// Whether the image is sent ahead of it even if the peer has it.
    pub carries_code: bool,
}

/// An invocation that wanted no completion and did not end well.
#[derive(Debug)]
pub struct Report<I> {
    /// The entry that it was sent to.
    pub image: I,
    /// What the peer reported, or why nothing was reported.
    pub outcome: Outcome,
}

/// Why an invocation was not sent.
#[derive(Debug)]
pub enum SubmitError<I, E> {
    /// The payload does not encode.
    Encode(E),
    /// The peer does not accept the payload or the image.
    Lost(Lost),
    /// An earlier invocation that wanted no completion did not end well. This one was not sent.
    Earlier(Box<Report<I>>),
    /// It was accepted, with this token or 0, and something waits for the window: a driver's result, not the protocol's.
    Unfinished(u64),
    /// The link died. The connection handles it before the driver sees it.
    #[doc(hidden)]
    Link(LinkError),
}

/// Why a submission returned no token. Two registers hold it or the token: a large result, written to memory on the way of
/// every frame, would cost more than the frame.
#[derive(Debug)]
pub enum NotSent<I, E> {
    /// The send window is closed, or the link died.
    Blocked,
    /// It was not sent and will not be.
    Failed(Box<SubmitError<I, E>>),
}

impl<I, E> From<SubmitError<I, E>> for NotSent<I, E> {
    #[cold]
    fn from(error: SubmitError<I, E>) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl<I, E> From<LinkError> for NotSent<I, E> {
    #[cold]
    fn from(error: LinkError) -> Self {
        SubmitError::Link(error).into()
    }
}

impl<I, E> From<Lost> for NotSent<I, E> {
    #[cold]
    fn from(lost: Lost) -> Self {
        SubmitError::Lost(lost).into()
    }
}
