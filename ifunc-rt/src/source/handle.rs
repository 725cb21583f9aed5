//! The handle of an ifunc: how its payloads are encoded, and how it sends, at once, with a wait for credit, and as a future.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ifunc::payload::{DecodeError, Ifunc};
use ifunc_proto::caller::Submission;

use super::Source;
use super::call::Call;
use super::completion::{explain_not_sent, explain_wait};
use super::connection::{Connection, NotSent};
use super::error::Error;
use super::library::Library;
use super::message::Message;
use super::shared::SharedConnection;
use crate::driver::backoff::after;
use crate::driver::future::Task;
use crate::driver::state::Want;

/// The handle of an ifunc: sends payloads and receives answers.
///
/// `E` is the [`Encoding`]. In a typed handle, [`Source::register`] for one, it is the type that `#[ifunc]` makes:
/// `Handle<hello::add>` takes and returns values of the types of `add`. A `Handle<ByName>`, from [`Source::load`] for one,
/// takes and returns bytes.
pub struct Handle<E: Encoding> {
    submitter: Submitter,
    encoding: PhantomData<fn() -> E>,
}

impl<E: Encoding> Handle<E> {
    pub(super) fn new(source: &Source, library: Library) -> Self {
        Self {
            submitter: Submitter::new(source, library),
            encoding: PhantomData,
        }
    }

    /// The ifunc's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.submitter.name()
    }

    /// BLAKE3 of the image.
    #[must_use]
    pub fn id(&self) -> &[u8; 32] {
        &self.submitter.binding.library.id
    }

    /// The image: the bytes that travel once per connection.
    #[must_use]
    pub fn image(&self) -> &[u8] {
        &self.submitter.binding.library.image
    }

    /// The same handle with its own deadline: its sends and calls wait at most `timeout` for credit, and then at most
    /// `timeout` for the answer, instead of [`SourceOptions::timeout`](super::SourceOptions::timeout). The deadline
    /// holds for its messages, too.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let mut handle = self.clone();
        handle.submitter.timeout = timeout;
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
        let shared = self.submitter.shared();
        let delay = shared.lock().connection.options.aggregation.delay;
        shared.start_timer(delay);
        self.sending(Framing::Batched)
    }

    /// The same handle with code in every invocation, as earlier systems for injected functions did, for comparisons: a
    /// frame with the image precedes each. A target that has the image reads only its id. Such invocations are not
    /// [aggregated](Self::aggregated).
    #[cfg(any(test, feature = "comparisons"))]
    #[must_use]
    pub fn carrying_code(&self) -> Self {
        let binding = &self.submitter.binding;
        let connection = &mut self.submitter.shared().lock().connection;
        connection.protocol.caller.resend_image(binding.handle);
        self.sending(Framing::WithImage)
    }

    fn sending(&self, framing: Framing) -> Self {
        let mut handle = self.clone();
        handle.submitter.framing = framing;
        handle
    }

    /// Sends the payload and returns a [`Call`] to wait for.
    ///
    /// # Errors
    /// The reason why it was not sent, see [`Error`].
    pub fn call(&self, payload: &E::Payload<'_>) -> Result<Call<E::Answer>, Error> {
        // The clone comes first: an atomic addition waits for all stores before it, and after the store of a frame that wait
        // lasts until the frame's cache line has reached the other core.
        let submitter = self.submitter.clone();
        let token = self.submit(payload, true, true).map_err(|error| *error)?;
        Ok(Call::new(submitter, token, E::decode))
    }

    /// As [`call`](Self::call), but never waits for credit.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no credit; otherwise as `call`.
    pub fn try_call(&self, payload: &E::Payload<'_>) -> Result<Call<E::Answer>, Error> {
        let submitter = self.submitter.clone();
        let token = self.submit(payload, true, false).map_err(|error| *error)?;
        Ok(Call::new(submitter, token, E::decode))
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
        self.submit(payload, false, true)
            .map(drop)
            .map_err(|error| *error)
    }

    /// As [`send`](Self::send), but never waits for credit.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no credit; otherwise as `send`.
    pub fn try_send(&self, payload: &E::Payload<'_>) -> Result<(), Error> {
        self.submit(payload, false, false)
            .map(drop)
            .map_err(|error| *error)
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
        Message::new(self, payload)
    }

    /// The same handle for payloads of another encoding of the ifunc.
    pub(super) fn encoded_as<F: Encoding>(&self) -> Handle<F> {
        Handle {
            submitter: self.submitter.clone(),
            encoding: PhantomData,
        }
    }

    pub(super) fn library(&self) -> &Library {
        &self.submitter.binding.library
    }

    /// Sends a payload, and waits for credit if `block`. Returns the token if a completion is wanted, otherwise 0. The error is
    /// boxed, so that two registers hold the result.
    #[inline(always)]
    fn submit(
        &self,
        payload: &E::Payload<'_>,
        wants_completion: bool,
        block: bool,
    ) -> Result<u64, Box<Error>> {
        let (submitter, library) = (&self.submitter, self.library());
        let layout = E::layout(library, payload);
        let mut encode = move |room: &mut [u8]| E::encode(library, payload, layout.0, room);
        let mut first = None;
        if submitter.framing == Framing::Own
            && let Some(mut state) = submitter.shared().state.try_lock()
        {
            let submission = submitter.submission(layout, wants_completion);
            match state.connection.submit(submission, &mut encode) {
                Ok(token) => return Ok(token),
                Err(not_sent) => first = Some(not_sent),
            }
        }
        submitter.submit_late(layout, wants_completion, block, first, &mut encode)
    }

    /// Sends when there is credit, and is ready after all of it was sent; what it returns awaits the completion, if one is
    /// wanted. If dropped before, it has sent nothing, or a body in fragments that continues without an answer.
    async fn submit_async(
        &self,
        payload: &E::Payload<'_>,
        wants_completion: bool,
    ) -> Result<Call<E::Answer>, Error> {
        let (submitter, library, name) = (&self.submitter, self.library(), self.name());
        let layout = E::layout(library, payload);
        let mut encode = move |room: &mut [u8]| E::encode(library, payload, layout.0, room);
        let mut task = Task::new(submitter.shared(), submitter.timeout);
        let attempt = |connection: &mut Connection| {
            submitter.sent(submitter.attempt(connection, layout, wants_completion, &mut encode))
        };
        let token = task.wait(Want::Credit, attempt).await;
        let token = token.map_err(|ended| explain_wait(ended, name))?;
        let call = Call::new(submitter.clone(), token, E::decode);
        if submitter.framing != Framing::Batched {
            let drained = task.wait(Want::Credit, Connection::drained).await;
            drained.map_err(|ended| explain_wait(ended, name))?;
        }
        Ok(call)
    }
}

impl<E: Encoding> Clone for Handle<E> {
    fn clone(&self) -> Self {
        self.encoded_as()
    }
}

impl<E: Encoding> fmt::Debug for Handle<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.name()).finish()
    }
}

/// An image that is bound to a handle of the connection, and how its invocations are sent.
#[derive(Clone, Debug)]
pub(super) struct Submitter {
    pub(super) binding: Arc<Binding>,
    /// How long its sends and calls wait.
    pub(super) timeout: Duration,
    framing: Framing,
}

/// How an invocation travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// In a frame of its own.
    Own,
    /// In a batch.
    Batched,
    /// In a frame of its own, after the image.
    WithImage,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) source: Source,
    pub(super) library: Arc<Library>,
    pub(super) handle: u32,
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.source.shared.lock().connection.unbind(self.handle);
    }
}

impl Submitter {
    pub(super) fn new(source: &Source, library: Library) -> Self {
        let library = Arc::new(library);
        let handle = source
            .shared
            .lock()
            .connection
            .protocol
            .caller
            .bind(Arc::clone(&library));
        let binding = Binding {
            source: source.clone(),
            library,
            handle,
        };
        Self {
            binding: Arc::new(binding),
            timeout: source.shared.config.timeout,
            framing: Framing::Own,
        }
    }

    #[inline]
    pub(super) fn shared(&self) -> &Arc<SharedConnection> {
        &self.binding.source.shared
    }

    pub(super) fn name(&self) -> &str {
        &self.binding.library.name
    }

    /// An invocation with a payload of this layout.
    #[inline(always)]
    fn submission(&self, (bound, align): (usize, usize), wants_completion: bool) -> Submission {
        Submission {
            handle: self.binding.handle,
            bound,
            align,
            wants_completion,
            carries_code: self.framing == Framing::WithImage,
        }
    }

    /// One attempt to send. With a completion the result is its token, otherwise 0.
    fn attempt(
        &self,
        connection: &mut Connection,
        layout: (usize, usize),
        wants_completion: bool,
        mut encode: &mut Encode,
    ) -> Result<u64, NotSent> {
        let submission = self.submission(layout, wants_completion);
        if self.framing == Framing::Batched {
            connection.append(submission, encode)
        } else {
            connection.submit(submission, &mut encode)
        }
    }

    /// The outcome of an attempt. `None`: there is no credit now, or no link.
    fn sent(&self, result: Result<u64, NotSent>) -> Result<Option<u64>, Error> {
        match result {
            Ok(token) => Ok(Some(token)),
            Err(NotSent::Blocked) => Ok(None),
            Err(NotSent::Failed(error)) => explain_not_sent(self.name(), *error).map(Some),
        }
    }

    /// Continues after the `first` attempt over the fast path of the lock: sends if that did not, and waits until all fragments
    /// are sent.
    #[cold]
    #[inline(never)]
    fn submit_late(
        &self,
        layout: (usize, usize),
        wants_completion: bool,
        block: bool,
        first: Option<NotSent>,
        encode: &mut Encode,
    ) -> Result<u64, Box<Error>> {
        let (shared, name) = (self.shared(), self.name());
        // To unlock wakes the waiters whose completion the first attempt has received.
        let mut state = shared.lock();
        let first = match first {
            None => self.attempt(&mut state.connection, layout, wants_completion, encode),
            Some(not_sent) => Err(not_sent),
        };
        // Otherwise the lock was taken to wake waiters, and there is nothing to wait for.
        let has_backlog = state.connection.protocol.caller.has_backlog();
        drop(state);
        if let Ok(token) = first {
            return Ok(token);
        }
        let mut attempt = |connection: &mut Connection| {
            self.sent(self.attempt(connection, layout, wants_completion, encode))
        };
        let token = match self.sent(first)? {
            Some(token) if !has_backlog => return Ok(token),
            Some(token) => token,
            None if !block => {
                shared.try_reconnect();
                let second = attempt(&mut shared.lock().connection)?;
                return second.ok_or_else(|| Error::WouldBlock { what: name.into() }.into());
            }
            None => {
                failpoint!("source.no_room");
                shared.retry(after(self.timeout), name, Want::Credit, attempt)?
            }
        };
        if block && self.framing != Framing::Batched {
            let drained = shared.retry(after(self.timeout), name, Want::Credit, Connection::drained);
            // A thread that serves the link sends the rest in its next polls.
            if let Err(error) = drained
                && !matches!(error, Error::Serving { .. })
            {
                shared.lock().connection.protocol.caller.abandon(token);
                return Err(error.into());
            }
        }
        Ok(token)
    }
}

/// Writes a payload into memory that may be longer than it asked for.
type Encode<'a> = dyn FnMut(&mut [u8]) -> Result<usize, Error> + 'a;

/// The encoding of a [`Handle`]'s payloads and answers. Every [`Ifunc`], the type that `#[ifunc]` makes, is one;
/// [`ByName`] is the other.
pub trait Encoding: 'static {
    /// The type that a call takes by reference.
    type Payload<'a>: ?Sized;
    /// The type that a call returns.
    type Answer;

    /// Upper bound of the payload's length, and its alignment.
    #[doc(hidden)]
    fn layout(library: &Library, payload: &Self::Payload<'_>) -> (usize, usize);

    /// Writes the payload, and returns its length. The memory may be longer than its `bound`.
    #[doc(hidden)]
    fn encode(
        library: &Library,
        payload: &Self::Payload<'_>,
        bound: usize,
        room: &mut [u8],
    ) -> Result<usize, Error>;

    /// Reads an answer.
    #[doc(hidden)]
    fn decode(bytes: &[u8]) -> Result<Self::Answer, DecodeError>;
}

impl<F: Ifunc> Encoding for F {
    type Payload<'a> = <F as Ifunc>::Payload<'a>;
    type Answer = <F as Ifunc>::Answer;

    #[inline(always)]
    fn layout(_: &Library, payload: &<F as Ifunc>::Payload<'_>) -> (usize, usize) {
        (F::bound(payload), F::ALIGN)
    }

    #[inline(always)]
    fn encode(
        _: &Library,
        payload: &<F as Ifunc>::Payload<'_>,
        _: usize,
        room: &mut [u8],
    ) -> Result<usize, Error> {
        F::encode(payload, room).map_err(|error| Error::Payload {
            ifunc: F::NAME.into(),
            error,
        })
    }

    #[inline(always)]
    fn decode(bytes: &[u8]) -> Result<<F as Ifunc>::Answer, DecodeError> {
        F::decode_answer(bytes)
    }
}

/// The encoding of an ifunc by name, written in Rust or C: the `payload_init` of its library makes a payload of the source
/// arguments that a call takes. Where only an image was loaded ([`Source::load_bytes`]), a call takes the payload itself. The
/// answer is bytes.
#[derive(Clone, Copy, Debug)]
pub enum ByName {}

impl Encoding for ByName {
    type Payload<'a> = [u8];
    type Answer = Vec<u8>;

    fn layout(library: &Library, source_args: &[u8]) -> (usize, usize) {
        let entries = library.entries.as_ref();
        let bound = entries.map_or(source_args.len(), |entries| entries.bound(source_args));
        (bound, library.payload_align)
    }

    fn encode(library: &Library, source_args: &[u8], bound: usize, room: &mut [u8]) -> Result<usize, Error> {
        // The library sees the length that it asked for.
        let len = bound.min(room.len());
        let room = &mut room[..len];
        let Some(entries) = &library.entries else {
            room.copy_from_slice(source_args);
            return Ok(len);
        };
        entries.init(source_args, room)
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(bytes.to_vec())
    }
}
