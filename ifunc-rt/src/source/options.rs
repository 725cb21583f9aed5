//! Deadlines of a source, who makes progress, and how much travels together.

use std::time::Duration;

use crate::transport::{ConnectConfig, PEER_TIMEOUT};

/// Who makes progress while nobody calls a [`Source`](super::Source): who takes in what has come, sends on what waits for
/// room, and lets the transport do its own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Whoever uses the source, in every call and every wait; while futures wait, a thread or an event loop (see
    /// [`Source::driver`](super::Source::driver)). In between nothing happens: no thread of the source's costs anything, and what the
    /// transport would have to do waits for the next call. Over `shm` and `loopback` that is nothing, because what was sent is
    /// with the target already. Over `ucx` it is the end of large payloads, which the target fetches with the source's
    /// help, and of what a full socket did not take. A source that sends and then does something else for long calls
    /// [`flush`](super::Source::flush) first, or chooses a thread.
    #[default]
    Caller,
    /// A thread of the source's, which lives as long as the source: what was sent is finished, answers are taken in, and a
    /// target's end is noticed, whatever the application does meanwhile. The thread sleeps while there is nothing to do;
    /// over `ucx` it looks every 5 ms even so. The target makes a system call to wake it for an answer that finds it asleep,
    /// and every call takes a lock that is shared. A lost link is made again by the next call, not by the thread. While there is
    /// a [`Driver`](super::Driver), that one does all this instead.
    Thread,
}

/// When the open batch of a source is sent, into which its [aggregated](super::Registered::aggregated) handles put what they
/// send: when it is full, when it is old enough, and whenever it must go first for the sake of order or of somebody who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aggregation {
    /// Most bytes of a batch: each invocation takes 16 and its payload, rounded up to 8. Less where the transport takes less
    /// in one frame. An invocation that fits into no batch travels by itself. Default 8 KiB.
    pub bytes: usize,
    /// How long an invocation may lie in a batch that is not full. [`Duration::MAX`]: as long as nobody needs it to be sent, and
    /// the source has no thread for it. Default 100 µs.
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
    /// Sets [`bytes`](Self::bytes).
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets [`delay`](Self::delay).
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

/// Deadlines of a [`Source`](super::Source), and who makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceOptions {
    /// How long each call, send and flush waits before it gives up. Default 30 s.
    pub timeout: Duration,
    /// How long connecting may take, waiting for a target that is not there yet included. Default 5 s.
    pub connect_timeout: Duration,
    /// How long the next call or send after the target went away tries to reach it again; zero: not at all. Default 5 s.
    pub reconnect: Duration,
    /// Who makes progress while nobody calls. Default: nobody ([`Progress::Caller`]).
    pub progress: Progress,
    /// How long a target may be silent that has vanished, host and all, before it is taken for gone. Default 5 s. A target
    /// that ends is noticed at once, and one that is merely stopped is not gone.
    ///
    /// Over UCX it sets TCP's probes (in whole seconds, 2 s at least) and UCX's own, which find out about a process that
    /// ended without a socket (`UCX_TLS=sm`); on other networks their hardware's retries decide. `UCX_KEEPALIVE_INTERVAL`,
    /// `UCX_TCP_KEEPIDLE`, `UCX_TCP_KEEPINTVL`, `UCX_TCP_KEEPCNT` and the like in the environment win over it. `shm` and
    /// `loopback` do not use it: the kernel tells the end of a process of the same host at once.
    pub peer_timeout: Duration,
    /// When invocations of [aggregated](super::Registered::aggregated) handles are sent.
    pub aggregation: Aggregation,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            timeout: super::DEFAULT_TIMEOUT,
            connect_timeout: Duration::from_secs(5),
            reconnect: Duration::from_secs(5),
            progress: Progress::Caller,
            peer_timeout: PEER_TIMEOUT,
            aggregation: Aggregation::default(),
        }
    }
}

impl SourceOptions {
    /// Sets [`timeout`](Self::timeout).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets [`connect_timeout`](Self::connect_timeout).
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets [`reconnect`](Self::reconnect).
    #[must_use]
    pub fn reconnect(mut self, time: Duration) -> Self {
        self.reconnect = time;
        self
    }

    /// Sets [`progress`](Self::progress).
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Sets [`peer_timeout`](Self::peer_timeout).
    #[must_use]
    pub fn peer_timeout(mut self, timeout: Duration) -> Self {
        self.peer_timeout = timeout;
        self
    }

    /// Sets [`aggregation`](Self::aggregation).
    #[must_use]
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.aggregation = aggregation;
        self
    }

    /// What transports ask for.
    pub(super) fn connect_config(&self) -> ConnectConfig {
        ConnectConfig {
            #[cfg(feature = "ucx")]
            peer_timeout: self.peer_timeout,
            serves: None,
        }
    }
}
