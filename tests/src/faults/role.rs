//! What both roles do.

use std::io::Write;

/// Bytes of the ring for bodies: a body of more than half of it travels in fragments.
pub(super) const RING: u32 = 64 << 10;
/// The ifuncs: an ordinary one, one that may be run twice, one that is sent later.
pub(super) const IFUNCS: [&str; 3] = ["t_fault", "t_fault_again", "t_fault_late"];
/// The ifunc that travels from node to node.
pub(super) const TOUR: &str = "t_fault_tour";

/// What both roles begin with.
pub(super) fn begin() -> Result<(), Box<dyn std::error::Error>> {
    // The parent may be killed while this process waits at a failpoint.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(std::io::stdout)
        .init();
    Ok(())
}

/// A line on standard output, at once.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A closed standard output does not end the role.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The number and the sender that an answer holds.
pub(super) fn answer(bytes: &[u8]) -> Option<(u64, u64)> {
    let (id, rest) = bytes.split_first_chunk()?;
    let sender = rest.try_into().ok()?;
    Some((u64::from_le_bytes(*id), u64::from_le_bytes(sender)))
}
