//! The capabilities `time`, `random` and `log`.

use std::time::{SystemTime, UNIX_EPOCH};

use ifuncd_interfaces::{Clock, Log, NodeError, Random};
use rustix::time::{ClockId, clock_gettime};

use crate::capability::Capability;
use crate::node::Node;

/// Most random bytes of one call.
const MAX_RANDOM: usize = 64 << 10;
/// Longest line of the log.
const MAX_LINE: usize = 4096;

#[ifunc::export]
impl Clock for Node {
    fn unix_time(&self) -> Result<u64, NodeError> {
        self.caller(Capability::Time)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn monotonic_time(&self) -> Result<u64, NodeError> {
        self.caller(Capability::Time)?;
        let now = clock_gettime(ClockId::Monotonic);
        Ok(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
    }
}

#[ifunc::export]
impl Random for Node {
    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), NodeError> {
        let caller = self.caller(Capability::Random)?;
        if bytes.len() > MAX_RANDOM {
            return Err(NodeError::Range);
        }
        caller.moved(bytes.len());
        getrandom::fill(bytes).map_err(|error| {
            tracing::error!(%error, "the system has no random numbers");
            NodeError::Storage
        })
    }
}

#[ifunc::export]
impl Log for Node {
    fn info(&self, line: &str) -> Result<(), NodeError> {
        let caller = self.caller(Capability::Log)?;
        tracing::info!(target: LOG, peer = &*caller.settings.name, "{}", cut(line));
        Ok(())
    }

    fn warn(&self, line: &str) -> Result<(), NodeError> {
        let caller = self.caller(Capability::Log)?;
        tracing::warn!(target: LOG, peer = &*caller.settings.name, "{}", cut(line));
        Ok(())
    }

    fn error(&self, line: &str) -> Result<(), NodeError> {
        let caller = self.caller(Capability::Log)?;
        tracing::error!(target: LOG, peer = &*caller.settings.name, "{}", cut(line));
        Ok(())
    }
}

/// The target of these events.
const LOG: &str = "ifuncd::log";

/// A line of the log: short, and one line.
fn cut(line: &str) -> String {
    let line = &line[..line.floor_char_boundary(MAX_LINE)];
    line.replace(char::is_control, " ")
}
