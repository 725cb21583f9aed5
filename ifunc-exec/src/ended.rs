//! What the end of an invocation means, and what it logs.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

use ifunc_abi::context::{self, Context};
use ifunc_abi::image::EntryFlags;
use ifunc_abi::refusal::Failed;
use ifunc_abi::status::{Failure, FaultDetail, PanicDetail, Status};

use crate::InstalledEntry;
use crate::contain::{code_name, signal_name};
use crate::gate::{Escape, Interruption};
use crate::session::Session;

/// The outcome of an invocation that did not return [`MAIN_OK`](context::MAIN_OK) with an answer of `len` bytes in its `room`. An answer
/// that lies elsewhere is in the `Failed`.
#[cold]
#[inline(never)]
pub(crate) fn end(
    session: &mut Session<'_>,
    entry: &InstalledEntry,
    (size, sender): (usize, u64),
    code: u32,
    len: usize,
    room: Option<usize>,
) -> Result<usize, Box<Failed>> {
    let ended = |why, detail: Vec<u8>| {
        let status = Status::Failed(why);
        Err(Box::new(Failed::new(status, detail)))
    };
    let failed = |why, detail: &str| ended(why, detail.as_bytes().to_vec());
    let made = session.take_long_answer(len);
    let too_long = || {
        match &made.refused {
        Some(why) => Some(failed(Failure::Answer, why)),
        None => room.filter(|room| len > *room).map(|room| {
            failed(
                Failure::Answer,
                &format!("the ifunc states an answer of {len} bytes and was lent {room}; help: `ctx.answer(..)`, or `ctx.answer_writer()`"),
            )
        }),
    }
    };
    let escape = session.take_escape();
    session.drop_held();
    if escape.is_some() {
        // SAFETY: that is what it means.
        unsafe { session.free_allocations() };
    }
    let is_ignored = entry.flags.contains(EntryFlags::IGNORE_RESULT);
    let code = if is_ignored { context::MAIN_OK } else { code };
    let escape = match escape.map_or(Ok(code), Err) {
        Ok(context::MAIN_OK) => {
            // No caller waits for it.
            let Some(room) = room else { return Ok(0) };
            return match made.answer {
                Some(answer) => Err(Box::new(Failed::answered(answer))),
                None if len <= room => Ok(len),
                None => too_long().unwrap_or(Ok(len)),
            };
        }
        Ok(context::MAIN_BAD_PAYLOAD) => {
            return failed(
                Failure::Payload,
                &format!("{size} bytes that are no value of the payload's type"),
            );
        }
        // No caller waits for it.
        Ok(context::MAIN_BAD_ANSWER) if room.is_none() => return Ok(0),
        Ok(context::MAIN_BAD_ANSWER) => {
            return too_long().unwrap_or_else(|| failed(Failure::Answer, "the answer does not encode"));
        }
        Ok(code) => {
            return failed(
                Failure::UnknownResult,
                &format!("code {code}; help: return 0, or declare the function without a result"),
            );
        }
        Err(escape) => escape,
    };
    match *escape {
        Escape::Panic {
            message,
            file,
            line,
            column,
            stack,
            trail,
        } => {
            let debug = &entry.image().debug;
            let words = if trail.is_empty() {
                debug.calls(session.left_behind(stack))
            } else {
                debug.calls(trail.into_iter())
            };
            // The source chooses how often this happens and what the texts hold: so the level is not shown by default, texts are
            // escaped, and the function is looked up only for a reader.
            if tracing::enabled!(target: crate::LOG, tracing::Level::DEBUG) {
                let place = debug.describe(&entry.name, &words);
                tracing::debug!(
                    target: crate::LOG, ifunc = %entry.name, source = sender, ?file, line, column, ?place, says = ?message,
                    "panicked"
                );
            }
            let calls: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let detail = PanicDetail {
                line,
                column,
                file: &file,
                message: &message,
                calls: &calls,
            };
            ended(Failure::Panic, detail.encode())
        }
        Escape::StackLow => failed(Failure::StackLow, "help: `Policy::stack(..)` gives more"),
        Escape::HostPanic(message) => failed(Failure::HostPanic, &message),
        Escape::Interrupted { at, trail } => {
            let stack = at.stack.next_multiple_of(align_of::<usize>());
            let left: Vec<usize> = match trail.is_empty() {
                true => session.left_behind(stack).take(MAX_STACK_WORDS).collect(),
                false => trail,
            };
            let limit = session.limit();
            interrupted(entry, sender, &at, &left, limit)
        }
        Escape::Overdue => {
            let text = overdue(session.limit()) + "; it ended when a function of the host returned to it";
            let detail = FaultDetail {
                is_placed: false,
                calls: &[],
                text: &text,
            };
            ended(Failure::Deadline, detail.encode())
        }
    }
}

/// Most words of the stack that a report of a fault is made of.
const MAX_STACK_WORDS: usize = 8192;

/// The failure of an invocation that a signal ended. `left` are the words of its stack.
fn interrupted(
    entry: &InstalledEntry,
    sender: u64,
    at: &Interruption,
    left: &[usize],
    limit: Option<Duration>,
) -> Result<usize, Box<Failed>> {
    let debug = &entry.image().debug;
    let code = debug.code();
    let is_placed = code.contains(&at.pc);
    // As a return address is: after the instruction.
    let first = at.pc.wrapping_add(1);
    let words = debug.calls(std::iter::once(first).chain(at.link).chain(left.iter().copied()));
    let why = match at.signal {
        0 => Failure::Deadline,
        _ => Failure::Fault,
    };
    let mut text = match at.signal {
        0 => overdue(limit),
        signal => fault(signal, at),
    };
    // Writing to a string does not fail.
    let _ = match is_placed {
        true => write!(text, ", at offset {:#x} of the image", at.pc - code.start),
        false => write!(text, ", outside of the image"),
    };
    if tracing::enabled!(target: crate::LOG, tracing::Level::DEBUG) {
        let place = debug.describe_fault(&entry.name, &words, is_placed);
        tracing::debug!(
            target: crate::LOG, ifunc = %entry.name, source = sender, %why, ?place, says = %text, "ended early"
        );
    }
    let calls: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let detail = FaultDetail {
        is_placed,
        calls: &calls,
        text: &text,
    };
    let (status, detail) = (Status::Failed(why), detail.encode());
    Err(Box::new(Failed::new(status, detail)))
}

fn overdue(limit: Option<Duration>) -> String {
    limit.map_or_else(String::new, |limit| format!("it ran for longer than {limit:?}"))
}

/// A fault in words.
fn fault(signal: i32, at: &Interruption) -> String {
    let (name, address) = (signal_name(signal), at.address);
    if at.is_overflow {
        return format!("stack overflow ({name}, address {address:#x})");
    }
    match (signal, code_name(signal, at.code)) {
        (libc::SIGSEGV | libc::SIGBUS, "") => format!("{name}, address {address:#x}"),
        // The processor does not report the address.
        (libc::SIGSEGV, why) if at.code == libc::SI_KERNEL => format!("{name} ({why})"),
        (libc::SIGSEGV | libc::SIGBUS, why) => format!("{name} ({why}), address {address:#x}"),
        (_, "") => name.to_owned(),
        (_, why) => format!("{name} ({why})"),
    }
}

/// A message of an ifunc for the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogMessage<'a> {
    /// As in [`Level`](ifunc_abi::context::Level).
    pub(crate) level: u32,
    pub(crate) text: &'a str,
}

/// Where messages go instead of the log of this process.
static FORWARD: OnceLock<fn(&LogMessage<'_>)> = OnceLock::new();

/// Sends the messages of ifuncs elsewhere from now on: a runner process has no log.
pub(crate) fn forward_logs(forward: fn(&LogMessage<'_>)) {
    let _ = FORWARD.set(forward);
}

/// Writes a message of an ifunc to the log.
pub(crate) fn log_message(ifunc: &str, source: u64, message: &LogMessage<'_>) {
    let LogMessage { level, text } = *message;
    let message = OneLine(text);
    match level {
        1 => tracing::error!(target: "ifunc", ifunc, source, "{message}"),
        2 => tracing::warn!(target: "ifunc", ifunc, source, "{message}"),
        3 => tracing::info!(target: "ifunc", ifunc, source, "{message}"),
        4 => tracing::debug!(target: "ifunc", ifunc, source, "{message}"),
        _ => tracing::trace!(target: "ifunc", ifunc, source, "{message}"),
    }
}

/// `Context::log`.
pub(crate) unsafe extern "C" fn log(ctx: *mut Context, level: u32, message: *const u8, len: usize) {
    ifunc::host::through_gate(|| {
        if message.is_null() || len > isize::MAX as usize {
            return;
        }
        // SAFETY: injected code passes the context it was called with, whose `host` is the entry of its invocation, and a
        // message of `len` bytes.
        let (entry, source, message) = unsafe {
            let Some(ctx) = ctx.as_ref() else { return };
            let entry = &*ctx.host.cast::<InstalledEntry>();
            (entry, ctx.sender, std::slice::from_raw_parts(message, len))
        };
        let text = String::from_utf8_lossy(message);
        let message = LogMessage { level, text: &text };
        match FORWARD.get() {
            Some(forward) => forward(&message),
            None => log_message(&entry.name, source, &message),
        }
    });
}

/// Escapes what does not print: a message of an ifunc neither adds a line to a log nor removes one.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '"' | '\'' | '\\' => f.write_char(c),
            c => write!(f, "{}", c.escape_debug()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_reported_with_what_the_kernel_knows() {
        let text = |signal, code| {
            let at = Interruption {
                signal,
                code,
                address: 0x40,
                ..Interruption::default()
            };
            fault(signal, &at)
        };
        assert_eq!(text(libc::SIGSEGV, 1), "SIGSEGV (not mapped), address 0x40");
        assert_eq!(text(libc::SIGBUS, 1), "SIGBUS (misaligned), address 0x40");
        assert_eq!(text(libc::SIGBUS, libc::SI_KERNEL), "SIGBUS, address 0x40");
        assert_eq!(text(libc::SIGSEGV, 99), "SIGSEGV, address 0x40");
        assert_eq!(
            text(libc::SIGSEGV, libc::SI_KERNEL),
            "SIGSEGV (no canonical address, or a privileged instruction)"
        );
        assert_eq!(text(libc::SIGFPE, 2), "SIGFPE (integer overflow)");
        assert_eq!(text(libc::SIGFPE, 99), "SIGFPE");
        let overflow = Interruption {
            address: 0x40,
            is_overflow: true,
            ..Interruption::default()
        };
        assert_eq!(
            fault(libc::SIGSEGV, &overflow),
            "stack overflow (SIGSEGV, address 0x40)"
        );
    }

    #[test]
    fn a_message_of_an_ifunc_stays_on_its_line() {
        let shown = super::OneLine("café \"x\" \n\x1b[2J \u{202e}").to_string();
        assert_eq!(shown, "café \"x\" \\n\\u{1b}[2J \\u{202e}");
    }
}
