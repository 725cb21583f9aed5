//! The message of a fault that is not contained. It is written before the earlier action is taken, which mostly ends the process, and
//! allocates nothing and takes no lock.
//!
//! Without an earlier handler the process ends, so the message is always written. An earlier handler may end the process, as that of Rust's
//! standard library does, or recover, as that of a WebAssembly runtime in an exported function does: the handlers cannot know which. So the
//! message is written for the first such fault of the process only.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::signals::signal_name;
use crate::gate::{Gate, Interruption};

/// Longest message in bytes; a longer one is cut.
const LONGEST: usize = 512;

struct Line {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

/// Whether the message of a fault is due. `ends`: the process has no earlier handler for it.
pub(super) fn is_due(ends: bool) -> bool {
    static WAS_WRITTEN: AtomicBool = AtomicBool::new(false);
    ends || !WAS_WRITTEN.swap(true, Ordering::Relaxed)
}

/// Writes to the standard error what is known of a fault in an invocation.
pub(super) fn print(gate: &Gate, at: &Interruption, why: &str) {
    let mut line = Line {
        bytes: [0; LONGEST],
        len: 0,
    };
    let (signal, pc, address) = (signal_name(at.signal), at.pc, at.address);
    let _ = write!(line, "ifunc: {signal} ");
    // SAFETY: the fault came while one ran.
    let invocation = unsafe { gate.invocation() };
    let _ = match invocation {
        Some((entry, source)) => write!(line, "in an invocation of `{}` for source {source}", entry.name),
        None => write!(line, "in an invocation"),
    };
    let code = invocation.map(|(entry, _)| entry.image().debug.code());
    let _ = match code.filter(|code| code.contains(&pc)) {
        Some(code) => write!(line, ", at offset {:#x} of its image", pc - code.start),
        None => write!(line, ", at {pc:#x}"),
    };
    let _ = writeln!(line, ", address {address:#x}: {why}");
    // SAFETY: reads the local.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut() {
        let mut line = Line {
            bytes: [0; LONGEST],
            len: 0,
        };
        for _ in 0..LONGEST {
            write!(line, "{:#x}", 255).unwrap();
        }
        assert_eq!(line.len, LONGEST);
    }
}
