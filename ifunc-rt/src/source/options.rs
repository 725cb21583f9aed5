//! Options of a source: its deadlines, which thread makes progress, and the size of batches.

use std::time::Duration;

use ifunc_abi::hello::Hello;

use crate::keys::TlsKeys;
use crate::transport::{ConnectConfig, MAX_RING, PEER_TIMEOUT};

/// Methods that set public fields.
macro_rules! setters {
    ($($field:ident: $type:ty),+ $(,)?) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )+};
}

/// Which thread makes progress between calls of a [`Source`](super::Source). Progress receives what has arrived,
/// sends what waits for credit, and runs the transport's own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The threads that use the source, in every call and every wait; while futures wait, a thread or an event loop
    /// (see [`Source::driver`](super::Source::driver)). Between calls the source makes no progress: it has no thread
    /// that costs anything, and the transport's pending work waits for the next call. Over `shm` and `loopback` there
    /// is none, because the target already has what was sent. Over `ucx` the pending work is the end of large
    /// payloads, which the target fetches with the source's help, and what a full socket did not take. A source that
    /// sends and then does other work for long calls [`flush`](super::Source::flush) first, or uses
    /// [`Thread`](Self::Thread).
    #[default]
    Caller,
    /// A thread of the source's, which lives as long as the source. It completes sends, receives answers and detects
    /// the end of the target, whatever the application does meanwhile. The thread sleeps while there is nothing to
    /// do; over `ucx` it still polls every 5 ms. The target makes a system call to wake it for an answer that finds
    /// it asleep, and every call takes a lock that it shares with the thread. The next call reconnects a lost link,
    /// not the thread. While there is a [`Driver`](super::Driver), the driver does all this instead.
    Thread,
}

/// When a source sends its open batch, into which its [aggregated](super::Handle::aggregated) handles put their
/// invocations: when the batch is full, when its delay has passed, and earlier when the order of frames or a waiting
/// caller requires it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aggregation {
    /// Maximum size of a batch in bytes. An invocation takes its payload, rounded up to its alignment, and 24 bytes if it
    /// is unlike the one before it: of another handle, or with a payload of another length. A transport with smaller frames
    /// lowers the limit. An invocation that fits into no batch travels alone. Default 8 KiB.
    pub bytes: usize,
    /// How long an invocation may stay in a batch that is not full. With [`Duration::MAX`] it stays until a caller
    /// needs it to be sent, and the source has no thread for it. Default 100 µs.
    pub delay: Duration,
}

impl Default for Aggregation {
    fn default() -> Self {
        Self {
            bytes: 8 << 10,
            delay: Duration::from_micros(100),
        }
    }
}

impl Aggregation {
    setters!(bytes: usize, delay: Duration);
}

/// Options of a [`Source`](super::Source): deadlines, progress, keys and batches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceOptions {
    /// How long each call, send and flush waits before it gives up. Default 30 s.
    pub timeout: Duration,
    /// How long connecting may take, including the wait for a target that does not listen yet. Default 5 s.
    pub connect_timeout: Duration,
    /// How long the next call or send tries to reconnect after the target went away; zero: not at all. Default 5 s.
    pub reconnect: Duration,
    /// Which thread makes progress between calls. Default: none ([`Progress::Caller`]).
    pub progress: Progress,
    /// How long a thread that waits polls before it sleeps. Default 60 µs: longer than a wake-up takes, so that a short wait never sleeps.
    /// Zero, where more processes wait than there are processors: a thread that polls keeps the others from theirs.
    pub spin: Duration,
    /// How long a target that vanished with its host may be silent before the source takes it for dead. Default 5 s.
    /// The source notices at once when the target's process ends. A target that is merely stopped stays connected.
    ///
    /// Over UCX it sets TCP's keepalive probes (in whole seconds, 2 s at least) and UCX's own, which detect a process
    /// that ended without a socket (`UCX_TLS=sm`). On other networks the hardware's retries decide.
    /// `UCX_KEEPALIVE_INTERVAL`, `UCX_TCP_KEEPIDLE`, `UCX_TCP_KEEPINTVL`, `UCX_TCP_KEEPCNT` and the like in the
    /// environment override it. `shm` and `loopback` do not use it: the kernel reports the end of a process on the
    /// same host at once.
    pub peer_timeout: Duration,
    /// Whether the source connects to a target of another user over `shm`. Default: only to one of its own user, or of root. In
    /// a directory that several users can write to (`IFUNC_RUNTIME_DIR`), another user may take a target's name first.
    pub other_users: bool,
    /// Largest ring that the source maps for one direction of a connection, in bytes: its slots, 64 bytes each, and its bodies.
    /// The target [chooses the rings](crate::TargetBuilder::ring); a source refuses larger ones with
    /// [`ConnectError::Ring`](crate::ConnectError::Ring). Over UCX, whose peers are trusted, the target's choice holds. Default
    /// 64 MiB.
    pub max_ring: usize,
    /// Memory for answers that the source has received and its callers have not dropped, in bytes, of all calls of a connection.
    /// An answer that finds no room is dropped, and its call ends with [`Error::AnswersTooLarge`](crate::Error::AnswersTooLarge).
    /// Default 256 MiB.
    pub max_answers: usize,
    /// Largest answer that the source takes, in bytes. The target's [limit](crate::Quotas::answer_bytes) counts as well. An ifunc
    /// whose answer is longer fails, unless it asks how much it may write (`ctx.max_answer()`, `ctx.answer_writer()`). Of a link that
    /// a target [made or accepted](crate::Target::connect) as a node the target's limit counts. Default 256 MiB.
    pub max_answer: usize,
    /// The keys of this process over `tls`, and over `ucx` and `ucx-put`, where a source that has keys connects to targets alone that have
    /// some as well. `None`, the default: those of the target that makes the source
    /// ([`Target::connect`](crate::Target::connect)), or [those that the environment names](TlsKeys::from_env).
    pub tls: Option<TlsKeys>,
    /// When the source sends invocations of [aggregated](super::Handle::aggregated) handles.
    pub aggregation: Aggregation,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            timeout: super::DEFAULT_TIMEOUT,
            connect_timeout: Duration::from_secs(5),
            reconnect: Duration::from_secs(5),
            progress: Progress::Caller,
            spin: Duration::from_micros(60),
            peer_timeout: PEER_TIMEOUT,
            other_users: false,
            max_ring: MAX_RING,
            max_answers: 256 << 20,
            max_answer: 256 << 20,
            tls: None,
            aggregation: Aggregation::default(),
        }
    }
}

impl SourceOptions {
    setters!(
        timeout: Duration,
        connect_timeout: Duration,
        reconnect: Duration,
        progress: Progress,
        spin: Duration,
        peer_timeout: Duration,
        other_users: bool,
        max_ring: usize,
        max_answers: usize,
        max_answer: usize,
        tls: Option<TlsKeys>,
        aggregation: Aggregation,
    );

    /// The options that the transport needs.
    pub(super) fn connect_config(&self) -> ConnectConfig {
        ConnectConfig {
            #[cfg(any(feature = "ucx", feature = "tls"))]
            peer_timeout: self.peer_timeout,
            other_users: self.other_users,
            max_ring: self.max_ring,
            tls: self.tls.clone(),
            hello: self.hello(),
        }
    }

    /// What the source states about itself.
    pub(crate) fn hello(&self) -> Hello {
        crate::hello::invoking(self.max_answer.min(self.max_answers))
    }
}
