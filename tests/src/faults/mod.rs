//! The fault matrix: what becomes of a source and its target when one of them is killed, stopped or restarted, in every
//! state that their connection can be in, on every transport. `docs/testing.md` says what it proves.
//!
//! [`source`] and [`target`] are the two roles, each a process; [`process`] is how a cell holds them; [`cell`] names the
//! cells; [`scene`] brings two processes and a bystander into a state; [`act`] does to the victim what the cell says, and
//! looks at the survivor; [`ledger`] compares what was sent with what was run; [`run`] runs cells side by side.

pub mod act;
pub mod cell;
pub mod ledger;
pub mod process;
pub mod run;
pub mod scene;
pub mod source;
pub mod target;

use std::io::Write;
use std::time::Duration;

/// Frames that a source may send ahead.
const CREDITS: u32 = 16;
/// Bytes of the ring for bodies: a body of more than half of it travels in fragments.
const RING: u32 = 64 << 10;
/// A payload that the ring does not hold.
const LARGE: usize = 256 << 10;
/// Longer than anything takes that is not meant to wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// The ifuncs: an ordinary one, one that may be run twice, one that is sent later.
const IFUNCS: [&str; 3] = ["t_fault", "t_fault_again", "t_fault_late"];

/// What both roles begin with.
fn begin() -> Result<(), Box<dyn std::error::Error>> {
    // Whoever started this process may be killed, and this process be standing still.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(std::io::stdout)
        .init();
    Ok(())
}

/// A line on standard output, at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody is left to be told that nobody listens.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The number and the sender that an answer holds.
fn answer(bytes: &[u8]) -> Option<(u64, u64)> {
    let (id, rest) = bytes.split_first_chunk()?;
    let sender = rest.try_into().ok()?;
    Some((u64::from_le_bytes(*id), u64::from_le_bytes(sender)))
}
