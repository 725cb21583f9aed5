//! Deadlines of a source.

use std::time::Duration;

/// Deadlines of a [`Source`](super::Source).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceOptions {
    /// How long each call, send and flush waits before it gives up. Default 30 s.
    pub timeout: Duration,
    /// How long connecting may take, waiting for a target that is not there yet included. Default 5 s.
    pub connect_timeout: Duration,
    /// How long the next call or send after the target went away tries to reach it again; zero: not at all. Default 5 s.
    pub reconnect: Duration,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            timeout: super::DEFAULT_TIMEOUT,
            connect_timeout: Duration::from_secs(5),
            reconnect: Duration::from_secs(5),
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
}
