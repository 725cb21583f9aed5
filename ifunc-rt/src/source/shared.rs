//! What the clones of a source, its handles and its calls share: the connection, and who waits on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::completion::Completion;
use super::connection::Connection;
use super::error::Error;
use super::owned::Owned;
use super::patience::{Patience, after};
use super::timer;
use super::waiting::{Ended, Shared, Waited, Want, wait};

/// The shortest attempt to make a lost link again: a target of this host that is there answers in less than a millisecond.
const MOMENT: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct SharedConnection {
    connection: Owned<Connection>,
}

impl Shared for SharedConnection {
    type State = Connection;

    #[inline]
    fn state(&self) -> &Owned<Connection> {
        &self.connection
    }

    fn reconnect(&self, until: Instant, window: Instant) -> Result<(), String> {
        if !self.try_reconnect(until.max(Instant::now() + MOMENT), window)? {
            std::thread::sleep(Patience::SLICE);
        }
        Ok(())
    }
}

impl SharedConnection {
    /// One attempt to make a lost link again, until `until`, with the connection left to others meanwhile. `false`: not now, but
    /// maybe before `window` ends.
    fn try_reconnect(&self, until: Instant, window: Instant) -> Result<bool, String> {
        let (route, config, limit) = {
            let mut connection = self.lock();
            let options = connection.options();
            if options.reconnect.is_zero() {
                return Err("reconnecting is switched off".into());
            }
            if connection.is_connected() {
                return Ok(true);
            }
            if connection.connecting {
                return Ok(false);
            }
            connection.connecting = true;
            (
                connection.route().clone(),
                options.connect_config(),
                after(options.connect_timeout),
            )
        };
        let result = route.connect(&config, until.min(limit));
        let mut connection = self.lock();
        connection.connecting = false;
        match result {
            Ok(_) if connection.is_closed() => Err("the source was dropped".into()),
            Ok(link) => {
                connection.adopt(link);
                Ok(true)
            }
            Err(error) if error.may_pass() && Instant::now() < window => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn new(connection: Connection) -> Arc<Self> {
        Arc::new(Self {
            connection: Owned::new(connection),
        })
    }

    pub(super) fn deadline(&self) -> Instant {
        after(self.lock().options().timeout)
    }

    /// Attempts until one succeeds or fails, or `deadline`.
    pub(super) fn retry<R>(
        &self,
        deadline: Instant,
        what: &str,
        want: Want,
        attempt: impl FnMut(&mut Connection) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        wait(self, deadline, want, attempt).map_err(|ended| {
            let what = what.into();
            match ended {
                Ended::Failed(error) => error,
                Ended::Timeout(waited) => Error::Timeout { what, waited },
                Ended::Gone(why) => Error::PeerGone { what, why },
                Ended::Idle => unreachable!("it waits for something of its own"),
            }
        })
    }

    /// Waits for a completion.
    pub(super) fn wait(&self, token: u64, deadline: Instant, what: &str) -> Result<Completion, Error> {
        self.retry(deadline, what, Want::Completion(token), |connection| {
            connection.try_take(token).transpose().map_err(|error| *error)
        })
    }

    /// One short attempt to make a lost link again, for those who do not wait.
    pub(super) fn nudge(&self) {
        let (connected, never) = {
            let connection = self.lock();
            (
                connection.is_connected(),
                connection.options().reconnect.is_zero(),
            )
        };
        if !connected && never {
            self.lock().give_up("reconnecting is switched off".into());
        } else if !connected {
            // What becomes of it, the next look says.
            let until = Instant::now() + MOMENT;
            let _ = self.try_reconnect(until, until);
        }
    }

    /// Sees to it that an open batch is sent in time.
    pub(super) fn send_in_time(self: &Arc<Self>) {
        let timer = self.lock().needs_timer();
        if let Some(timer) = timer
            && let Err(error) = timer::start(self, timer)
        {
            tracing::warn!(%error, "no thread can be started that sends batches in time: they are sent when the source is used");
            self.lock().timer_failed();
        }
    }

    /// The last who used it has left. What is open, and what travels in fragments, is sent to its end, in a bounded time.
    pub(super) fn close(&self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let until = after(PATIENCE);
        let _ = wait::<_, (), std::convert::Infallible>(self, until, Want::Room, |connection| {
            connection.try_push();
            Ok((connection.try_drain() || !connection.has_unsent()).then_some(()))
        });
        self.lock().close();
    }
}
