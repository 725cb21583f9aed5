//! The handle of an ifunc: an image that is bound to a connection, and how its invocations travel.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ifunc_abi::travel::{SlotRef, TravelHead};

use super::Source;
use super::encoding::Encoding;
use super::error::Error;
use super::library::Library;
use super::message::Message;
use super::shared::SharedConnection;
use crate::travel::HOP_LIMIT;

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

    /// Whether it sends over this source's connection.
    #[must_use]
    pub fn is_of(&self, source: &Source) -> bool {
        Arc::ptr_eq(self.submitter.shared(), source.shared())
    }

    /// BLAKE3 of the [image](Self::image).
    #[must_use]
    pub fn id(&self) -> &[u8; 32] {
        &self.submitter.binding.library.sent().id
    }

    /// The image: the bytes that travel once per connection. Of a library with several slices, the one that was sent last; before the
    /// first use it is the first slice.
    #[must_use]
    pub fn image(&self) -> &[u8] {
        &self.submitter.binding.library.sent().image
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
    /// [`send_many`](Self::send_many) and [`call_many`](Self::call_many) append many at once, which is cheaper still.
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
    /// polls or awaits a [`Call`](super::Call) in it; before anything that is not aggregated is sent; and when the last user of
    /// the source drops it. A thread of the source's keeps the time and sleeps while no batch is open. Where only the
    /// caller's thread may use the connection (a UCX worker of the application's, [`ucx`](crate::ucx)) there is no
    /// such thread: the next use of the source sends what is due.
    ///
    /// **Ifuncs that travel** ([`ifunc::travel`]) are sent alone also by an aggregated handle.
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
        let Submitter {
            framing: current,
            travels,
            ..
        } = &mut handle.submitter;
        match current {
            Framing::Traveling => travels.carries_code = framing == Framing::WithImage,
            other => *other = framing,
        }
        handle
    }

    /// The same handle for invocations of a source's scope.
    pub(super) fn in_scope(&self, number: u32) -> Self {
        let mut handle = self.clone();
        let Submitter { framing, travels, .. } = &mut handle.submitter;
        if *framing != Framing::Traveling {
            travels.carries_code = *framing == Framing::WithImage;
        }
        *framing = Framing::Traveling;
        travels.scope = number;
        handle
    }

    /// The same handle with another limit of hops: how often an invocation, and what it sends, may go on from node to node of a
    /// [group](crate::group). Default 16,384. It has no effect on ifuncs that do not travel.
    #[must_use]
    pub fn with_hop_limit(&self, hops: u16) -> Self {
        let mut handle = self.clone();
        handle.submitter.travels.hop_limit = hops;
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
    pub(super) travels: Travels,
}

/// What a call keeps of its handle: the fewer words it has, the cheaper it is to move.
#[derive(Clone, Debug)]
pub(super) struct Invoked {
    pub(super) binding: Arc<Binding>,
    /// How long it waits.
    pub(super) timeout: Duration,
}

impl Invoked {
    #[inline]
    pub(super) fn shared(&self) -> &Arc<SharedConnection> {
        &self.binding.source.shared
    }

    pub(super) fn name(&self) -> &str {
        &self.binding.library.name
    }
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
    /// In a frame of its own, with what accompanies it from node to node: [`Travels`].
    Traveling,
}

/// Time in which the report that a call's deadline has passed reaches its source.
const REPORT: Duration = Duration::from_millis(250);

/// What accompanies an invocation that may travel on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Travels {
    pub(super) hop_limit: u16,
    /// The source's number of the scope; 0: none.
    pub(super) scope: u32,
    /// Partial answers that may be on their way; 0: the call takes one answer.
    pub(super) window: u32,
    /// The image is sent ahead of each.
    pub(super) carries_code: bool,
}

impl Default for Travels {
    fn default() -> Self {
        Self {
            hop_limit: HOP_LIMIT,
            scope: 0,
            window: 0,
            carries_code: false,
        }
    }
}

impl Travels {
    /// The head of an invocation whose source waits as long as this. The call's deadline in the group is a little earlier: so
    /// the source receives which nodes died, and does not merely stop waiting.
    pub(super) fn head(self, timeout: Duration) -> TravelHead {
        let mut head = TravelHead::of_source(self.hop_limit);
        let in_group = timeout.saturating_sub(REPORT.min(timeout / 8));
        if let Ok(nanoseconds) = u64::try_from(in_group.as_nanos()) {
            head.deadline = nanoseconds.into();
        }
        if self.scope != 0 {
            head.scope = SlotRef::scope_of_source(self.scope);
        }
        if self.window != 0 {
            (head.stream_next, head.stream_window) = (0.into(), self.window.into());
        }
        head
    }
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
    pub(super) fn new(source: &Source, mut library: Library) -> Self {
        let mut state = source.shared.lock();
        let connection = &mut state.connection;
        library.sign(&connection.signatures);
        let library = Arc::new(library);
        let handle = connection.protocol.caller.bind(Arc::clone(&library));
        drop(state);
        let binding = Binding {
            source: source.clone(),
            library,
            handle,
        };
        let framing = if binding.library.travels {
            Framing::Traveling
        } else {
            Framing::Own
        };
        Self {
            binding: Arc::new(binding),
            timeout: source.shared.config.timeout,
            framing,
            travels: Travels::default(),
        }
    }

    #[inline]
    pub(super) fn shared(&self) -> &Arc<SharedConnection> {
        &self.binding.source.shared
    }

    pub(super) fn name(&self) -> &str {
        &self.binding.library.name
    }

    #[inline]
    pub(super) fn invoked(&self) -> Invoked {
        Invoked {
            binding: Arc::clone(&self.binding),
            timeout: self.timeout,
        }
    }
}
