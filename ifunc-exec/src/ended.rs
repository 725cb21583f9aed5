//! What the end of an invocation means, and what it logs.

use std::fmt::{self, Write as _};

use ifunc_abi::context::{self, Context};
use ifunc_abi::image::EntryFlags;
use ifunc_abi::refusal::Failed;
use ifunc_abi::status::{Failure, PanicDetail, Status};

use crate::InstalledEntry;
use crate::gate::Escape;
use crate::in_process::Session;

/// The outcome of an invocation that did not return [`MAIN_OK`](context::MAIN_OK) with an answer of `len` bytes in its `room`.
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
        Err(Box::new(Failed { status, detail }))
    };
    let failed = |why, detail: &str| ended(why, detail.as_bytes().to_vec());
    let too_long = room.filter(|room| len > *room).map(|room| {
        failed(
            Failure::Answer,
            &format!("an answer of {len} bytes, the limit is {room}"),
        )
    });
    let escape = session.take_escape();
    let is_ignored = entry.flags.contains(EntryFlags::IGNORE_RESULT);
    let code = if is_ignored { context::MAIN_OK } else { code };
    let escape = match escape.map_or(Ok(code), Err) {
        Ok(context::MAIN_OK) => return too_long.unwrap_or(Ok(room.map_or(0, |_| len))),
        Ok(context::MAIN_BAD_PAYLOAD) => {
            return failed(
                Failure::Payload,
                &format!("{size} bytes that are no value of the payload's type"),
            );
        }
        // No caller waits for it.
        Ok(context::MAIN_BAD_ANSWER) if room.is_none() => return Ok(0),
        Ok(context::MAIN_BAD_ANSWER) => {
            return too_long.unwrap_or_else(|| failed(Failure::Answer, "the answer does not encode"));
        }
        Ok(code) => return failed(Failure::UnknownResult, &format!("code {code}")),
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
        Escape::StackLow => failed(
            Failure::StackLow,
            "help: `Target::builder().stack(..)` gives more",
        ),
        Escape::HostPanic(message) => failed(Failure::HostPanic, &message),
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
        let message = String::from_utf8_lossy(message);
        let message = OneLine(&message);
        let ifunc = &*entry.name;
        match level {
            1 => tracing::error!(target: "ifunc", ifunc, source, "{message}"),
            2 => tracing::warn!(target: "ifunc", ifunc, source, "{message}"),
            3 => tracing::info!(target: "ifunc", ifunc, source, "{message}"),
            4 => tracing::debug!(target: "ifunc", ifunc, source, "{message}"),
            _ => tracing::trace!(target: "ifunc", ifunc, source, "{message}"),
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
    #[test]
    fn a_message_of_an_ifunc_stays_on_its_line() {
        let shown = super::OneLine("café \"x\" \n\x1b[2J \u{202e}").to_string();
        assert_eq!(shown, "café \"x\" \\n\\u{1b}[2J \\u{202e}");
    }
}
