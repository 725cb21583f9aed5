//! The handle of an ifunc: an image that is bound to a connection, and how its invocations travel.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ifunc_proto::caller::Submission;

use super::Source;
use super::call::{Encode, Encoding};
use super::completion::explain_not_sent;
use super::connection::{Connection, NotSent};
use super::error::Error;
use super::library::Library;
use super::message::Message;
use super::shared::SharedConnection;
use crate::driver::backoff::after;
use crate::driver::state::Want;

/// The handle of an ifunc: sends payloads and receives answers.
///
/// `E` is the [`Encoding`]. In a typed handle, [`Source::register`] for one, it is the type that `#[ifunc]` makes:
/// `Handle<hello::add>` takes and returns values of the types of `add`. A `Handle<ByName>`, from [`Source::load`] for one,
/// takes and returns bytes.
pub struct Handle<E: Encoding> {
    pub(super) submitter: Submitter,
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
    pub(super) framing: Framing,
}

/// How an invocation travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
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
    pub(super) fn submission(&self, (bound, align): (usize, usize), wants_completion: bool) -> Submission {
        Submission {
            handle: self.binding.handle,
            bound,
            align,
            wants_completion,
            carries_code: self.framing == Framing::WithImage,
        }
    }

    /// One attempt to send. With a completion the result is its token, otherwise 0.
    pub(super) fn attempt(
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
    pub(super) fn sent(&self, result: Result<u64, NotSent>) -> Result<Option<u64>, Error> {
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
    pub(super) fn submit_late(
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
