//! How many messages and bytes moved, as the servers counted them.

use std::fmt;
use std::ops::Sub;
use std::time::Duration;

use ifunc_rt::Source;

use crate::Failure;

/// Messages and bytes that the servers received and answered. Bytes are those of code, payloads and answers, without headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Frames received, and answers sent.
    pub messages: u64,
    /// Bytes received and sent.
    pub bytes: u64,
}

/// What these servers have received and sent so far.
///
/// # Errors
/// A server is gone.
pub fn moved(servers: &[Source]) -> Result<Moved, Failure> {
    let mut all = Moved::default();
    for server in servers {
        let stats = server.target_stats(Duration::from_secs(30))?;
        // Requests for the counters are frames, too, and answered; they are not counted as invocations.
        all.messages += 2 * stats.total.executed + stats.total.installs;
        all.bytes += stats.total.bytes_in + stats.total.bytes_out;
    }
    Ok(all)
}

impl Sub for Moved {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            messages: self.messages - earlier.messages,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

/// A number of bytes, for people.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            n if n < 1_000 => format!("{n} B"),
            n if n < 1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
            n => format!("{:.1} MB", n as f64 / 1e6),
        };
        f.pad(&text)
    }
}
