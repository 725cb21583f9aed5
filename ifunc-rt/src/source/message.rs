//! Messages: payloads that are encoded once, modified in place and sent many times.

use std::fmt;
use std::marker::PhantomData;

use ifunc_proto::buffer::AlignedBuffer;

use super::call::Call;
use super::encoding::{Encoding, Writer};
use super::error::Error;
use super::handle::Submitter;

/// An encoded payload that can be modified in place and sent many times. [`Handle::message`](super::Handle::message)
/// makes it. Its methods send it as those of the [`Handle`](super::Handle) send a payload, with the same errors.
pub struct Message<E: Encoding> {
    submitter: Submitter,
    payload: AlignedBuffer,
    /// Alignment of the payload.
    align: usize,
    encoding: PhantomData<fn() -> E>,
}

impl<E: Encoding> Message<E> {
    pub(super) fn new(submitter: Submitter, payload: &E::Payload<'_>) -> Result<Self, Error> {
        let mut message = Self {
            submitter,
            payload: AlignedBuffer::default(),
            align: 1,
            encoding: PhantomData,
        };
        message.set(payload)?;
        Ok(message)
    }

    /// Encodes another payload. After an error, set the message again before sending it.
    ///
    /// # Errors
    /// The payload does not encode; `payload_init` returned an error.
    pub fn set(&mut self, payload: &E::Payload<'_>) -> Result<(), Error> {
        let library = &self.submitter.binding.library;
        let ((bound, align), mut write) = E::encode(library, payload);
        self.align = align;
        self.payload
            .try_resize(bound)
            .ok_or_else(|| Error::PayloadTooLarge {
                ifunc: library.name.clone(),
                len: bound as u64,
                limit: isize::MAX as u64,
            })?;
        let len = write(self.payload.as_mut_slice())?;
        self.payload.resize(len);
        Ok(())
    }

    /// The encoded payload, for modification in place. The target rejects bytes that are no valid payload.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload.as_mut_slice()
    }

    /// Sends it and returns a [`Call`] to wait for.
    pub fn call(&self) -> Result<Call<E::Answer>, Error> {
        self.begin(true)
    }

    /// As [`call`](Self::call), but never waits for credit.
    pub fn try_call(&self) -> Result<Call<E::Answer>, Error> {
        self.begin(false)
    }

    /// Sends it as soon as there is credit, and waits for the answer, as a future.
    pub async fn call_async(&self) -> Result<E::Answer, Error> {
        self.submit_async(true).await?.await
    }

    /// Sends it without waiting for an outcome.
    pub fn send(&self) -> Result<(), Error> {
        self.submit(false, true).map(drop)
    }

    /// As [`send`](Self::send), but never waits for credit.
    pub fn try_send(&self) -> Result<(), Error> {
        self.submit(false, false).map(drop)
    }

    /// As [`send`](Self::send), as a future.
    pub async fn send_async(&self) -> Result<(), Error> {
        self.submit_async(false).await.map(drop)
    }

    fn begin(&self, block: bool) -> Result<Call<E::Answer>, Error> {
        let token = self.submit(true, block)?;
        Ok(Call::new(self.submitter.clone(), token, E::decode))
    }

    fn submit(&self, wants: bool, block: bool) -> Result<u64, Error> {
        let sent = self.submitter.submit(self.encoded(), wants, block);
        sent.map_err(|error| *error)
    }

    async fn submit_async(&self, wants: bool) -> Result<Call<E::Answer>, Error> {
        let (layout, copy) = self.encoded();
        self.submitter.submit_async(layout, wants, E::decode, copy).await
    }

    /// The layout of the payload, and what copies it.
    fn encoded(&self) -> ((usize, usize), impl Writer) {
        let payload = self.payload.as_slice();
        let copy = |room: &mut [u8]| {
            room[..payload.len()].copy_from_slice(payload);
            Ok(payload.len())
        };
        ((payload.len(), self.align), copy)
    }
}

impl<E: Encoding> Clone for Message<E> {
    fn clone(&self) -> Self {
        Self {
            submitter: self.submitter.clone(),
            payload: self.payload.clone(),
            ..*self
        }
    }
}

impl<E: Encoding> fmt::Debug for Message<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("ifunc", &self.submitter.name())
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}
