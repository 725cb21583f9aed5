//! Messages: payloads that are encoded once, modified in place and sent many times.

use std::fmt;
use std::marker::PhantomData;

use ifunc::payload::DecodeError;
use ifunc_proto::buffer::AlignedBuffer;

use super::call::Call;
use super::encoding::Encoding;
use super::error::Error;
use super::handle::Handle;
use super::library::Library;

/// An encoded payload that can be modified in place and sent many times. [`Handle::message`](super::Handle::message)
/// makes it. Its methods send it as those of the [`Handle`] send a payload, with the same errors.
pub struct Message<E: Encoding> {
    handle: Handle<Encoded<E>>,
    payload: Payload,
}

/// The encoding of a payload that was encoded before: a copy.
struct Encoded<E>(PhantomData<E>);

#[derive(Clone)]
struct Payload {
    bytes: AlignedBuffer,
    align: usize,
}

impl<E: Encoding> Encoding for Encoded<E> {
    type Payload<'a> = Payload;
    type Answer = E::Answer;

    fn layout(_: &Library, payload: &Payload) -> (usize, usize) {
        (payload.bytes.len(), payload.align)
    }

    fn encode(_: &Library, payload: &Payload, bound: usize, room: &mut [u8]) -> Result<usize, Error> {
        room[..bound].copy_from_slice(payload.bytes.as_slice());
        Ok(bound)
    }

    fn decode(bytes: &[u8]) -> Result<E::Answer, DecodeError> {
        E::decode(bytes)
    }
}

impl<E: Encoding> Message<E> {
    pub(super) fn new(handle: &Handle<E>, payload: &E::Payload<'_>) -> Result<Self, Error> {
        let mut message = Self {
            handle: handle.encoded_as(),
            payload: Payload {
                bytes: AlignedBuffer::default(),
                align: 1,
            },
        };
        message.set(payload)?;
        Ok(message)
    }

    /// Encodes another payload. After an error, set the message again before sending it.
    ///
    /// # Errors
    /// The payload does not encode; `payload_init` returned an error.
    pub fn set(&mut self, payload: &E::Payload<'_>) -> Result<(), Error> {
        let library = self.handle.library();
        let (bound, align) = E::layout(library, payload);
        let Payload { bytes, align: known } = &mut self.payload;
        *known = align;
        bytes.try_resize(bound).ok_or_else(|| Error::PayloadTooLarge {
            ifunc: library.name.clone(),
            len: bound as u64,
            limit: isize::MAX as u64,
        })?;
        let len = E::encode(library, payload, bound, bytes.as_mut_slice())?;
        bytes.resize(len);
        Ok(())
    }

    /// This message for another handle of the same ifunc, such as one of another [`Source`](crate::Source): it is made once and
    /// sent to many targets.
    ///
    /// ```no_run
    /// # mod hello { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
    /// let sources = ["shm:one", "shm:two"].map(ifunc_rt::Source::connect);
    /// let handles = sources.into_iter().map(|source| Ok(source?.register::<hello::add>()?));
    /// let handles = handles.collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
    /// let message = handles[0].message(&5)?;
    /// for handle in &handles {
    ///     println!("{}", message.to(handle)?.call()?.wait()?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OtherIfunc`]: the handle is of another ifunc, or of another build of it.
    pub fn to(&self, handle: &Handle<E>) -> Result<MessageTo<'_, E>, Error> {
        if handle.id() != self.handle.id() || handle.name() != self.handle.name() {
            return Err(Error::OtherIfunc {
                message: self.handle.name().to_owned(),
                handle: handle.name().to_owned(),
            });
        }
        Ok(MessageTo {
            handle: handle.encoded_as(),
            payload: &self.payload,
        })
    }

    /// The encoded payload, for modification in place. The target rejects bytes that are no valid payload.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload.bytes.as_mut_slice()
    }

    /// Sends it and returns a [`Call`] to wait for.
    pub fn call(&self) -> Result<Call<E::Answer>, Error> {
        self.handle.call(&self.payload)
    }

    /// As [`call`](Self::call), but never waits for credit.
    pub fn try_call(&self) -> Result<Call<E::Answer>, Error> {
        self.handle.try_call(&self.payload)
    }

    /// Sends it as soon as there is credit, and waits for the answer, as a future.
    pub async fn call_async(&self) -> Result<E::Answer, Error> {
        self.handle.call_async(&self.payload).await
    }

    /// Sends it without waiting for an outcome.
    pub fn send(&self) -> Result<(), Error> {
        self.handle.send(&self.payload)
    }

    /// As [`send`](Self::send), but never waits for credit.
    pub fn try_send(&self) -> Result<(), Error> {
        self.handle.try_send(&self.payload)
    }

    /// As [`send`](Self::send), as a future.
    pub async fn send_async(&self) -> Result<(), Error> {
        self.handle.send_async(&self.payload).await
    }
}

/// A [`Message`] for a certain handle: see [`Message::to`]. Its methods send it as those of the [`Handle`] send a payload, with
/// the same errors.
pub struct MessageTo<'a, E: Encoding> {
    handle: Handle<Encoded<E>>,
    payload: &'a Payload,
}

impl<E: Encoding> MessageTo<'_, E> {
    /// Sends it and returns a [`Call`] to wait for.
    pub fn call(&self) -> Result<Call<E::Answer>, Error> {
        self.handle.call(self.payload)
    }

    /// As [`call`](Self::call), but never waits for credit.
    pub fn try_call(&self) -> Result<Call<E::Answer>, Error> {
        self.handle.try_call(self.payload)
    }

    /// Sends it without waiting for an outcome.
    pub fn send(&self) -> Result<(), Error> {
        self.handle.send(self.payload)
    }

    /// As [`send`](Self::send), but never waits for credit.
    pub fn try_send(&self) -> Result<(), Error> {
        self.handle.try_send(self.payload)
    }
}

impl<E: Encoding> fmt::Debug for MessageTo<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageTo")
            .field("ifunc", &self.handle.name())
            .finish_non_exhaustive()
    }
}

impl<E: Encoding> Clone for Message<E> {
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
            payload: self.payload.clone(),
        }
    }
}

impl<E: Encoding> fmt::Debug for Message<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("ifunc", &self.handle.name())
            .field("payload", &self.payload.bytes)
            .finish_non_exhaustive()
    }
}
