//! The handle of an ifunc.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::Source;
use super::call::Call;
use super::encoding::Encoding;
use super::error::Error;
use super::library::Library;
use super::message::Message;
use super::sender::Sender;

/// The handle of an ifunc: sends payloads and receives answers.
///
/// `E` is the [`Encoding`]. In a typed handle, [`Source::register`] for one, it is the type that `#[ifunc]` makes:
/// `Handle<hello::add>` takes and returns values of the types of `add`. A `Handle<ByName>`, from [`Source::load`] for one,
/// takes and returns bytes.
pub struct Handle<E: Encoding> {
    sender: Sender,
    encoding: PhantomData<fn() -> E>,
}

impl<E: Encoding> Handle<E> {
    pub(super) fn new(source: &Source, library: Library) -> Self {
        Self {
            sender: Sender::new(source, library),
            encoding: PhantomData,
        }
    }

    /// The ifunc's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.sender.name()
    }

    /// BLAKE3 of the image.
    #[must_use]
    pub fn id(&self) -> &[u8; 32] {
        &self.sender.binding.library.id
    }

    /// The image: the bytes that travel once per connection.
    #[must_use]
    pub fn image(&self) -> &[u8] {
        &self.sender.binding.library.image
    }

    /// The same handle with its own deadline: its sends and calls wait at most `timeout` for credit, and then at most
    /// `timeout` for the answer, instead of [`SourceOptions::timeout`](super::SourceOptions::timeout). The deadline
    /// holds for its messages, too.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let mut handle = self.clone();
        handle.sender.timeout = Some(timeout);
        handle
    }

    /// The same ifunc with invocations that travel in batches: several share one frame of the transport, up to the
    /// size in [`SourceOptions::aggregation`](super::SourceOptions::aggregation). Batches pay off for many small
    /// invocations: over a network a frame costs microseconds, and an invocation in it nanoseconds.
    ///
    /// ```no_run
    /// # mod hello { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
    /// let source = ifunc_rt::Source::connect("ucx://10.0.0.1:7000")?;
    /// let add = source.register::<hello::add>()?.aggregated();
    /// for delta in 0..1_000_000 {
    ///     add.send(&delta)?;
    /// }
    /// let calls = (0..100).map(|delta| add.call(&delta)).collect::<Result<Vec<_>, _>>()?;
    /// for call in calls {
    ///     println!("{}", call.wait()?);
    /// }
    /// source.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// This holds for every method that sends, and for the handle's messages. `send` and `call` append the invocation
    /// to the source's open batch, and return after that. All aggregated handles of a source share one open batch.
    ///
    /// **When the source sends a batch.** When the batch is full; when its first invocation has waited for
    /// [`delay`](super::Aggregation::delay); on [`Source::push`] and [`Source::flush`]; when a caller waits for,
    /// polls or awaits a [`Call`] in it; before anything that is not aggregated is sent; and when the last user of
    /// the source drops it. A thread of the source's keeps the time and sleeps while no batch is open. Where only the
    /// caller's thread may use the connection (a UCX worker of the application's, [`ucx`](crate::ucx)) there is no
    /// such thread: the next use of the source sends what is due.
    ///
    /// **Semantics.** Invocations keep the order of the program, aggregated or not. The target runs, answers,
    /// rejects, reports and counts each as if it had arrived alone; answers travel in batches, too. When there is no
    /// credit for a full batch, the next `send` or `call` waits for it as for its own credit.
    ///
    /// **When the target goes away,** the open batch has not been sent. The source sends it after it has reconnected
    /// within [`SourceOptions::reconnect`](super::SourceOptions::reconnect). Otherwise the calls in it end as
    /// [`Error::PeerGone`], and the source reports its sends so. Invocations of a batch that was sent end like
    /// invocations that were sent alone.
    #[must_use]
    pub fn aggregated(&self) -> Self {
        let shared = self.sender.shared();
        let delay = shared.lock().connection.options.aggregation.delay;
        shared.start_timer(delay);
        self.sending(true, false)
    }

    /// The same handle with code in every invocation, as earlier systems for injected functions did, for comparisons: a
    /// frame with the image precedes each. A target that has the image reads only its id. Such invocations are not
    /// [aggregated](Self::aggregated).
    #[cfg(any(test, feature = "comparisons"))]
    #[must_use]
    pub fn carrying_code(&self) -> Self {
        let binding = &self.sender.binding;
        let connection = &mut self.sender.shared().lock().connection;
        connection.protocol.resend_image(binding.handle);
        self.sending(false, true)
    }

    fn sending(&self, is_aggregated: bool, carries_code: bool) -> Self {
        let mut handle = self.clone();
        (handle.sender.is_aggregated, handle.sender.carries_code) = (is_aggregated, carries_code);
        handle
    }

    /// Sends the payload and returns a [`Call`] to wait for.
    ///
    /// # Errors
    /// The reason why it was not sent, see [`Error`].
    pub fn call(&self, payload: &E::Payload<'_>) -> Result<Call<E::Answer>, Error> {
        self.begin(payload, true)
    }

    /// As [`call`](Self::call), but never waits for credit.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no credit; otherwise as `call`.
    pub fn try_call(&self, payload: &E::Payload<'_>) -> Result<Call<E::Answer>, Error> {
        self.begin(payload, false)
    }

    /// Sends the payload as soon as there is credit, and waits for the answer, as a future. If the future is dropped,
    /// either the payload is not sent or its answer is dropped.
    ///
    /// # Errors
    /// As [`call`](Self::call) and [`Call::wait`], and [`Error::NoThread`].
    pub async fn call_async(&self, payload: &E::Payload<'_>) -> Result<E::Answer, Error> {
        self.submit_async(payload, true).await?.await
    }

    /// Sends the payload without waiting for an outcome. The next `send` or [`Source::flush`] returns an error that
    /// this one ends with later.
    ///
    /// # Errors
    /// The reason why it was not sent; [`Error::Earlier`] for an earlier send, and then this one was not sent.
    pub fn send(&self, payload: &E::Payload<'_>) -> Result<(), Error> {
        self.submit(payload, false, true)?;
        Ok(())
    }

    /// As [`send`](Self::send), but never waits for credit.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no credit; otherwise as `send`.
    pub fn try_send(&self, payload: &E::Payload<'_>) -> Result<(), Error> {
        self.submit(payload, false, false).map(drop)
    }

    /// As [`send`](Self::send), as a future: ready after the payload was sent. A future that is dropped before has
    /// sent nothing, unless the payload travels in fragments and the first was sent.
    ///
    /// # Errors
    /// As `send`, and [`Error::NoThread`].
    pub async fn send_async(&self, payload: &E::Payload<'_>) -> Result<(), Error> {
        self.submit_async(payload, false).await.map(drop)
    }

    /// A message: a payload that is encoded once, modified in place and sent many times.
    ///
    /// # Errors
    /// The payload does not encode; `payload_init` rejects the arguments.
    pub fn message(&self, payload: &E::Payload<'_>) -> Result<Message<E>, Error> {
        Message::new(self.sender.clone(), payload)
    }

    /// The clone comes first: an atomic addition waits for all stores before it, and after the store of a frame that wait
    /// lasts until the frame's cache line has reached the other core.
    #[inline(always)]
    fn begin(&self, payload: &E::Payload<'_>, block: bool) -> Result<Call<E::Answer>, Error> {
        let sender = self.sender.clone();
        Ok(Call::new(sender, self.submit(payload, true, block)?, E::decode))
    }

    #[inline(always)]
    fn submit(&self, payload: &E::Payload<'_>, wants: bool, block: bool) -> Result<u64, Error> {
        let (layout, mut write) = E::encode(&self.sender.binding.library, payload);
        self.sender.submit(layout, wants, block, &mut write)
    }

    async fn submit_async(&self, payload: &E::Payload<'_>, wants: bool) -> Result<Call<E::Answer>, Error> {
        let library = &*self.sender.binding.library;
        let (layout, _) = E::encode(library, payload);
        // A future that held the closure of `encode` could not be proved to be `Send`.
        let write = |room: &mut [u8]| E::encode(library, payload).1(room);
        self.sender.submit_async(layout, wants, E::decode, write).await
    }
}

impl<E: Encoding> Clone for Handle<E> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            encoding: PhantomData,
        }
    }
}

impl<E: Encoding> fmt::Debug for Handle<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.name()).finish()
    }
}
