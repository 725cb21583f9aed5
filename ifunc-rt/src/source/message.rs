//! Messages: payloads that are encoded once, modified in place and sent many times.

use std::marker::PhantomData;

use ifunc::payload::Ifunc;

use super::call::Call;
use super::error::Error;
use super::handle::{Handle, Loaded};
use super::submit::submit;
use ifunc_proto::buffer::AlignedBuffer;

/// Handle and payload, shared by typed and named messages.
#[derive(Clone, Debug)]
struct Encoded {
    handle: Handle,
    payload: AlignedBuffer,
}

impl Encoded {
    fn write(
        &mut self,
        bound: usize,
        encode: impl FnOnce(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        self.payload
            .try_resize(bound)
            .ok_or_else(|| Error::PayloadTooLarge {
                ifunc: self.handle.name().to_owned(),
                len: bound as u64,
                limit: isize::MAX as u64,
            })?;
        let len = encode(self.payload.as_mut_slice())?;
        self.payload.resize(len);
        Ok(())
    }

    fn submit(&self, wants: bool, block: bool) -> Result<u64, Error> {
        let payload = self.payload.as_slice();
        self.handle
            .submit((payload.len(), self.handle.align()), wants, block, &mut |room| {
                room[..payload.len()].copy_from_slice(payload);
                Ok(payload.len())
            })
    }

    async fn submit_async(&self, wants: bool) -> Result<u64, Error> {
        let payload = self.payload.as_slice();
        submit(&self.handle, payload.len(), wants, |room: &mut [u8]| {
            room[..payload.len()].copy_from_slice(payload);
            Ok(payload.len())
        })
        .await
    }
}

/// A message of a typed ifunc: an encoded payload that can be modified in place and sent many times.
#[derive(Clone, Debug)]
pub struct Message<F: Ifunc> {
    encoded: Encoded,
    ifunc: PhantomData<fn() -> F>,
}

impl<F: Ifunc> Message<F> {
    pub(super) fn new(handle: Handle, payload: &F::Payload<'_>) -> Result<Self, Error> {
        let encoded = Encoded {
            handle,
            payload: AlignedBuffer::default(),
        };
        let mut message = Self {
            encoded,
            ifunc: PhantomData,
        };
        message.set(payload)?;
        Ok(message)
    }

    /// Replaces the payload. After an error, set the message again before sending it.
    ///
    /// # Errors
    /// The payload does not encode.
    pub fn set(&mut self, payload: &F::Payload<'_>) -> Result<(), Error> {
        self.encoded.write(F::bound(payload), |room| {
            F::encode(payload, room).map_err(|error| Error::Payload {
                ifunc: F::NAME.into(),
                error,
            })
        })
    }

    /// The encoded payload, for modification in place. The target rejects bytes that are no valid payload.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.encoded.payload.as_mut_slice()
    }

    /// As [`Registered::call`](super::Registered::call).
    ///
    /// # Errors
    /// As there.
    pub fn call(&self) -> Result<Call<F::Answer>, Error> {
        let token = self.encoded.submit(true, true)?;
        Ok(Call::new(self.encoded.handle.clone(), token, F::decode_answer))
    }

    /// As [`Registered::send`](super::Registered::send).
    ///
    /// # Errors
    /// As there.
    pub fn send(&self) -> Result<(), Error> {
        self.encoded.submit(false, true).map(drop)
    }

    /// As [`Registered::try_call`](super::Registered::try_call).
    ///
    /// # Errors
    /// As there.
    pub fn try_call(&self) -> Result<Call<F::Answer>, Error> {
        let token = self.encoded.submit(true, false)?;
        Ok(Call::new(self.encoded.handle.clone(), token, F::decode_answer))
    }

    /// As [`Registered::call_async`](super::Registered::call_async).
    ///
    /// # Errors
    /// As there.
    pub async fn call_async(&self) -> Result<F::Answer, Error> {
        let token = self.encoded.submit_async(true).await?;
        Call::new(self.encoded.handle.clone(), token, F::decode_answer).await
    }

    /// As [`Registered::send_async`](super::Registered::send_async).
    ///
    /// # Errors
    /// As there.
    pub async fn send_async(&self) -> Result<(), Error> {
        self.encoded.submit_async(false).await.map(drop)
    }

    /// As [`Registered::try_send`](super::Registered::try_send).
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&self) -> Result<(), Error> {
        self.encoded.submit(false, false).map(drop)
    }
}

/// A message of an ifunc by name: a payload that can be modified in place and sent many times.
#[derive(Clone, Debug)]
pub struct LoadedMessage {
    encoded: Encoded,
    loaded: Loaded,
}

impl LoadedMessage {
    pub(super) fn new(loaded: Loaded, source_args: &[u8]) -> Result<Self, Error> {
        let encoded = Encoded {
            handle: loaded.handle().clone(),
            payload: AlignedBuffer::default(),
        };
        let mut message = Self { encoded, loaded };
        message.set(source_args)?;
        Ok(message)
    }

    /// Runs `payload_init` again. After an error, set the message again before sending it.
    ///
    /// # Errors
    /// `payload_init` returned an error.
    pub fn set(&mut self, source_args: &[u8]) -> Result<(), Error> {
        let loaded = &self.loaded;
        self.encoded
            .write(loaded.bound(source_args), |room| loaded.encode(source_args, room))
    }

    /// The payload, for modification in place.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.encoded.payload.as_mut_slice()
    }

    /// As [`Loaded::call`].
    ///
    /// # Errors
    /// As there.
    pub fn call(&self) -> Result<Call<Vec<u8>>, Error> {
        let token = self.encoded.submit(true, true)?;
        Ok(Call::new(self.encoded.handle.clone(), token, |bytes| {
            Ok(bytes.to_vec())
        }))
    }

    /// As [`Loaded::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self) -> Result<(), Error> {
        self.encoded.submit(false, true).map(drop)
    }

    /// As [`Loaded::try_call`].
    ///
    /// # Errors
    /// As there.
    pub fn try_call(&self) -> Result<Call<Vec<u8>>, Error> {
        let token = self.encoded.submit(true, false)?;
        Ok(Call::new(self.encoded.handle.clone(), token, |bytes| {
            Ok(bytes.to_vec())
        }))
    }

    /// As [`Loaded::call_async`].
    ///
    /// # Errors
    /// As there.
    pub async fn call_async(&self) -> Result<Vec<u8>, Error> {
        let token = self.encoded.submit_async(true).await?;
        Call::new(self.encoded.handle.clone(), token, |bytes| Ok(bytes.to_vec())).await
    }

    /// As [`Loaded::send_async`].
    ///
    /// # Errors
    /// As there.
    pub async fn send_async(&self) -> Result<(), Error> {
        self.encoded.submit_async(false).await.map(drop)
    }

    /// As [`Loaded::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&self) -> Result<(), Error> {
        self.encoded.submit(false, false).map(drop)
    }
}
