//! Ifuncs that a source can send: typed, and by name.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc::payload::{DecodeError, Ifunc};
use ifunc_proto::caller::Submission;
use ifunc_proto::completion::Completion;

use super::Source;
use super::call::Call;
use super::connection::{Connection, NotSent, explain_not_sent};
use super::error::Error;
use super::library::{Entries, Library};
use super::message::{LoadedMessage, Message};
use super::submit::submit;
use crate::driver::backoff::after;
use crate::driver::state::Want;

/// State shared by typed and named handles: an image bound to a handle of the connection.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    bound: Arc<Bound>,
    /// How long its sends and calls wait; `None`: the timeout of the source's options.
    timeout: Option<Duration>,
    mode: Mode,
}

/// How a handle's invocations are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// In one frame per invocation.
    Single,
    /// In a frame each, after the image.
    CarryingCode,
    /// In batches.
    Aggregated,
}

#[derive(Debug)]
struct Bound {
    source: Source,
    library: Arc<Library>,
    index: u32,
    align: usize,
}

impl Handle {
    pub(super) fn new(source: Source, library: Arc<Library>, align: usize) -> Self {
        let index = source.lock().connection.bind(Arc::clone(&library));
        Self {
            bound: Arc::new(Bound {
                source,
                library,
                index,
                align,
            }),
            timeout: None,
            mode: Mode::Single,
        }
    }

    fn with_timeout(&self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self.clone()
        }
    }

    fn carrying_code(&self) -> Self {
        self.source().lock().connection.resend_image(self.bound.index);
        Self {
            mode: Mode::CarryingCode,
            ..self.clone()
        }
    }

    fn aggregated(&self) -> Self {
        let source = self.source();
        let delay = source.lock().connection.options().aggregation.delay;
        source.shared().start_timer(delay);
        Self {
            mode: Mode::Aggregated,
            ..self.clone()
        }
    }

    pub(super) fn is_aggregated(&self) -> bool {
        self.mode == Mode::Aggregated
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(super) fn deadline(&self) -> Instant {
        match self.timeout {
            Some(timeout) => after(timeout),
            None => self.source().shared().deadline(),
        }
    }

    #[inline]
    pub(super) fn source(&self) -> &Source {
        &self.bound.source
    }

    pub(super) fn library(&self) -> &Library {
        &self.bound.library
    }

    pub(super) fn name(&self) -> &str {
        &self.bound.library.name
    }

    /// The outcome of a call, if it ended.
    #[inline]
    pub(super) fn try_take(&self, token: u64) -> Option<Result<Completion, Error>> {
        self.source().lock().connection.try_take(token, self.name())
    }

    /// Alignment of its payloads.
    #[inline]
    pub(super) fn align(&self) -> usize {
        self.bound.align
    }

    #[inline(always)]
    fn submission(&self, bound: usize, align: usize, wants_completion: bool) -> Submission {
        Submission {
            handle: self.bound.index,
            bound,
            align,
            wants_completion,
            carries_code: self.mode == Mode::CarryingCode,
        }
    }

    /// One attempt to send. `None`: there is no credit now, or no link. With a completion the result is its token,
    /// otherwise 0.
    pub(super) fn try_submit(
        &self,
        connection: &mut Connection,
        bound: usize,
        wants_completion: bool,
        mut encode: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<Option<u64>, Error> {
        let submission = self.submission(bound, self.bound.align, wants_completion);
        let result = if self.is_aggregated() {
            connection.append(submission, encode)
        } else {
            connection.submit(submission, &mut encode)
        };
        match result {
            Ok(token) => Ok(Some(token)),
            Err(NotSent::Blocked) => Ok(None),
            Err(NotSent::Failed(error)) => Err(explain_not_sent(self.name(), *error)),
        }
    }

    /// Sends, and waits for credit if `block`. Returns the token if a completion is wanted.
    #[inline(always)]
    pub(super) fn submit(
        &self,
        (bound, align): (usize, usize),
        wants_completion: bool,
        block: bool,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<u64, Error> {
        if self.mode == Mode::Single {
            let submission = self.submission(bound, align, wants_completion);
            let shared = self.source().shared();
            let done = shared.try_with(|connection| {
                let result = connection.submit(submission, encode);
                (result, connection.is_idle())
            });
            return match done {
                Some((Ok(token), true)) => Ok(token),
                Some((result, _)) => self.submit_late(bound, wants_completion, block, result, encode),
                None => self.submit_locked(bound, wants_completion, block, encode),
            };
        }
        self.submit_locked(bound, wants_completion, block, encode)
    }

    /// A call of what `submit` sends. The clone of the handle comes first: an atomic addition waits for all stores
    /// before it, and after the store of a frame that wait lasts until the frame's cache line has reached the other
    /// core.
    #[inline]
    fn begin<A>(
        &self,
        decode: fn(&[u8]) -> Result<A, DecodeError>,
        submit: impl FnOnce() -> Result<u64, Error>,
    ) -> Result<Call<A>, Error> {
        let handle = self.clone();
        Ok(Call::new(handle, submit()?, decode))
    }

    /// Continues after an attempt that did not send everything.
    #[cold]
    #[inline(never)]
    fn submit_late(
        &self,
        bound: usize,
        wants_completion: bool,
        block: bool,
        result: Result<u64, NotSent>,
        encode: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<u64, Error> {
        let sent = match result {
            Ok(token) => Some(token),
            Err(NotSent::Blocked) => None,
            Err(NotSent::Failed(error)) => return Err(explain_not_sent(self.name(), *error)),
        };
        self.submit_blocked(bound, wants_completion, block, sent, encode)
    }

    #[cold]
    fn submit_locked(
        &self,
        bound: usize,
        wants_completion: bool,
        block: bool,
        encode: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<u64, Error> {
        let mut state = self.source().lock();
        let sent = self.try_submit(&mut state.connection, bound, wants_completion, encode)?;
        if let Some(token) = sent
            && (state.connection.is_idle() || self.is_aggregated())
        {
            return Ok(token);
        }
        drop(state);
        self.submit_blocked(bound, wants_completion, block, sent, encode)
    }

    /// Continues after a first attempt: sends if nothing was `sent`, and waits until all fragments are sent.
    #[cold]
    #[inline(never)]
    fn submit_blocked(
        &self,
        bound: usize,
        wants_completion: bool,
        block: bool,
        sent: Option<u64>,
        encode: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<u64, Error> {
        let source = self.source();
        let shared = source.shared();
        let token = match sent {
            Some(token) => token,
            None if !block => {
                shared.try_reconnect();
                let mut state = source.lock();
                let second = self.try_submit(&mut state.connection, bound, wants_completion, encode)?;
                return second.ok_or_else(|| Error::WouldBlock {
                    what: self.name().to_owned(),
                });
            }
            None => {
                failpoint!("source.no_room");
                shared.retry(self.deadline(), self.name(), Want::Credit, |connection| {
                    self.try_submit(connection, bound, wants_completion, encode)
                })?
            }
        };
        if block && !self.is_aggregated() {
            let drained = shared.retry(self.deadline(), self.name(), Want::Credit, |connection| {
                Ok(connection.try_drain().then_some(()))
            });
            if let Err(error) = drained {
                source.lock().connection.abandon(token);
                return Err(error);
            }
        }
        Ok(token)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.source.lock().connection.unbind(self.index);
    }
}

/// The typed handle of an ifunc: sends payloads of its type and receives answers of its type.
pub struct Registered<F: Ifunc> {
    handle: Handle,
    ifunc: PhantomData<fn() -> F>,
}

impl<F: Ifunc> Registered<F> {
    pub(super) fn new(handle: Handle) -> Self {
        Self {
            handle,
            ifunc: PhantomData,
        }
    }

    /// BLAKE3 of the image.
    #[must_use]
    pub fn id(&self) -> &[u8; 32] {
        &self.handle.library().id
    }

    /// The image: the bytes that travel once per connection.
    #[must_use]
    pub fn image(&self) -> &[u8] {
        &self.handle.library().image
    }

    /// The same handle with its own deadline: its sends and calls wait at most `timeout` for credit, and then at most
    /// `timeout` for the answer, instead of [`SourceOptions::timeout`](super::SourceOptions::timeout). The deadline
    /// holds for its messages, too.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self::new(self.handle.with_timeout(timeout))
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
        Self::new(self.handle.aggregated())
    }

    /// The same handle with code in every invocation: its sends and calls carry the image each time, as earlier
    /// systems for injected functions did. The handle's messages do so, too.
    ///
    /// For comparisons: a frame with the image precedes every invocation. A target that has the image reads only its
    /// id. Without this method, code travels once per connection. Such invocations are not
    /// [aggregated](Self::aggregated).
    #[must_use]
    pub fn carrying_code(&self) -> Self {
        Self::new(self.handle.carrying_code())
    }

    /// Sends the payload and returns a [`Call`] to wait for.
    ///
    /// # Errors
    /// The reason why it was not sent, see [`Error`].
    pub fn call(&self, payload: &F::Payload<'_>) -> Result<Call<F::Answer>, Error> {
        self.handle
            .begin(F::decode_answer, || self.submit(payload, true, true))
    }

    /// As [`call`](Self::call), but never waits for credit.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no credit; otherwise as `call`.
    pub fn try_call(&self, payload: &F::Payload<'_>) -> Result<Call<F::Answer>, Error> {
        self.handle
            .begin(F::decode_answer, || self.submit(payload, true, false))
    }

    /// Sends the payload as soon as there is credit, and waits for the answer, as a future. If the future is dropped,
    /// either the payload is not sent or its answer is dropped.
    ///
    /// # Errors
    /// As [`call`](Self::call) and [`Call::wait`], and [`Error::NoThread`].
    pub async fn call_async(&self, payload: &F::Payload<'_>) -> Result<F::Answer, Error> {
        let token = self.submit_async(payload, true).await?;
        Call::new(self.handle.clone(), token, F::decode_answer).await
    }

    /// Sends the payload without waiting for an outcome. The next `send` or [`Source::flush`] returns an error that
    /// this one ends with later.
    ///
    /// # Errors
    /// The reason why it was not sent; [`Error::Earlier`] for an earlier send, and then this one was not sent.
    pub fn send(&self, payload: &F::Payload<'_>) -> Result<(), Error> {
        self.submit(payload, false, true)?;
        Ok(())
    }

    /// As [`send`](Self::send), but never waits for credit.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is no credit; otherwise as `send`.
    pub fn try_send(&self, payload: &F::Payload<'_>) -> Result<(), Error> {
        self.submit(payload, false, false).map(drop)
    }

    /// As [`send`](Self::send), as a future: ready after the payload was sent. A future that is dropped before has
    /// sent nothing, unless the payload travels in fragments and the first was sent.
    ///
    /// # Errors
    /// As `send`, and [`Error::NoThread`].
    pub async fn send_async(&self, payload: &F::Payload<'_>) -> Result<(), Error> {
        self.submit_async(payload, false).await.map(drop)
    }

    /// A message: a payload that is encoded once, modified in place and sent many times.
    ///
    /// # Errors
    /// The payload does not encode.
    pub fn message(&self, payload: &F::Payload<'_>) -> Result<Message<F>, Error> {
        Message::new(self.handle.clone(), payload)
    }

    #[inline(always)]
    fn submit(&self, payload: &F::Payload<'_>, wants: bool, block: bool) -> Result<u64, Error> {
        self.handle
            .submit((F::bound(payload), F::ALIGN), wants, block, &mut |room| {
                encode::<F>(payload, room)
            })
    }

    async fn submit_async(&self, payload: &F::Payload<'_>, wants: bool) -> Result<u64, Error> {
        submit(&self.handle, F::bound(payload), wants, |room: &mut [u8]| {
            encode::<F>(payload, room)
        })
        .await
    }
}

fn encode<F: Ifunc>(payload: &F::Payload<'_>, room: &mut [u8]) -> Result<usize, Error> {
    F::encode(payload, room).map_err(|error| Error::Payload {
        ifunc: F::NAME.into(),
        error,
    })
}

impl<F: Ifunc> Clone for Registered<F> {
    fn clone(&self) -> Self {
        Self::new(self.handle.clone())
    }
}

impl<F: Ifunc> fmt::Debug for Registered<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("name", &F::NAME)
            .finish_non_exhaustive()
    }
}

/// The handle of an ifunc by name, written in Rust or C: the `payload_init` of its library makes its payloads.
#[derive(Clone, Debug)]
pub struct Loaded {
    handle: Handle,
    entries: Option<Arc<Entries>>,
}

impl Loaded {
    pub(super) fn new(handle: Handle, entries: Option<Entries>) -> Self {
        Self {
            handle,
            entries: entries.map(Arc::new),
        }
    }

    /// The ifunc's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.handle.name()
    }

    /// BLAKE3 of the image.
    #[must_use]
    pub fn id(&self) -> &[u8; 32] {
        &self.handle.library().id
    }

    /// As [`Registered::with_timeout`].
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self {
            handle: self.handle.with_timeout(timeout),
            entries: self.entries.clone(),
        }
    }

    /// As [`Registered::aggregated`].
    #[must_use]
    pub fn aggregated(&self) -> Self {
        Self {
            handle: self.handle.aggregated(),
            entries: self.entries.clone(),
        }
    }

    /// As [`Registered::carrying_code`].
    #[must_use]
    pub fn carrying_code(&self) -> Self {
        Self {
            handle: self.handle.carrying_code(),
            entries: self.entries.clone(),
        }
    }

    /// Sends the payload that `payload_init` makes of `source_args`, and returns a [`Call`] for the answer's bytes.
    ///
    /// # Errors
    /// The reason why it was not sent, see [`Error`].
    pub fn call(&self, source_args: &[u8]) -> Result<Call<Vec<u8>>, Error> {
        self.handle.begin(
            |bytes| Ok(bytes.to_vec()),
            || self.submit(source_args, true, true),
        )
    }

    /// As [`Registered::try_call`].
    ///
    /// # Errors
    /// As [`Registered::try_call`].
    pub fn try_call(&self, source_args: &[u8]) -> Result<Call<Vec<u8>>, Error> {
        self.handle.begin(
            |bytes| Ok(bytes.to_vec()),
            || self.submit(source_args, true, false),
        )
    }

    /// As [`Registered::call_async`].
    ///
    /// # Errors
    /// As [`Registered::call_async`].
    pub async fn call_async(&self, source_args: &[u8]) -> Result<Vec<u8>, Error> {
        let token = self.submit_async(source_args, true).await?;
        Call::new(self.handle.clone(), token, |bytes| Ok(bytes.to_vec())).await
    }

    /// As [`Registered::send_async`].
    ///
    /// # Errors
    /// As [`Registered::send_async`].
    pub async fn send_async(&self, source_args: &[u8]) -> Result<(), Error> {
        self.submit_async(source_args, false).await.map(drop)
    }

    /// As [`Registered::send`].
    ///
    /// # Errors
    /// As [`Registered::send`].
    pub fn send(&self, source_args: &[u8]) -> Result<(), Error> {
        self.submit(source_args, false, true).map(drop)
    }

    /// As [`Registered::try_send`].
    ///
    /// # Errors
    /// As [`Registered::try_send`].
    pub fn try_send(&self, source_args: &[u8]) -> Result<(), Error> {
        self.submit(source_args, false, false).map(drop)
    }

    /// A message: a payload that is made once, modified in place and sent many times.
    ///
    /// # Errors
    /// `payload_init` rejects the arguments.
    pub fn message(&self, source_args: &[u8]) -> Result<LoadedMessage, Error> {
        LoadedMessage::new(self.clone(), source_args)
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Upper bound of the payload's length.
    pub(super) fn bound(&self, source_args: &[u8]) -> usize {
        self.entries
            .as_ref()
            .map_or(source_args.len(), |entries| entries.bound(source_args))
    }

    /// Writes the payload.
    pub(super) fn encode(&self, source_args: &[u8], room: &mut [u8]) -> Result<usize, Error> {
        match &self.entries {
            Some(entries) => entries.init(source_args, room),
            None => {
                room[..source_args.len()].copy_from_slice(source_args);
                Ok(source_args.len())
            }
        }
    }

    async fn submit_async(&self, source_args: &[u8], wants: bool) -> Result<u64, Error> {
        let bound = self.bound(source_args);
        submit(&self.handle, bound, wants, |room: &mut [u8]| {
            self.encode(source_args, &mut room[..bound])
        })
        .await
    }

    fn submit(&self, source_args: &[u8], wants: bool, block: bool) -> Result<u64, Error> {
        let bound = self.bound(source_args);
        self.handle
            .submit((bound, self.handle.align()), wants, block, &mut |room| {
                // The library sees the length that it asked for; the transport's buffer may be longer.
                self.encode(source_args, &mut room[..bound])
            })
    }
}
