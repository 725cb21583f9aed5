//! What an invocation may ask of its target beside its target arguments.

use core::fmt;

use ifunc_abi::context as abi;
pub use ifunc_abi::context::Level;

/// The context of one invocation: take it as the third parameter, `ctx: &mut Context`.
#[derive(Debug)]
pub struct Context<'a> {
    raw: Option<&'a mut abi::Context>,
}

impl<'a> Context<'a> {
    /// The context of nobody: no answer goes anywhere, nothing is logged. For unit tests of an ifunc.
    #[must_use]
    pub fn detached() -> Self {
        Self { raw: None }
    }

    /// Wraps what `X_main` got as its fourth argument, for no longer than `scope` lives: borrow a local.
    ///
    /// # Safety
    /// `raw` is null, or points to a context that is valid and nobody else's for `'a`; its answer pointer is null or
    /// points to `answer_capacity` initialised bytes of the same kind.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(scope: &'a (), raw: *mut abi::Context) -> Self {
        // SAFETY: the caller's promise.
        let raw = unsafe { crate::__private::optional_mut(scope, raw) };
        Self { raw }
    }

    /// The connection that the frame came over: a number that the target gives each connection and never gives again.
    /// 0 when [detached](Self::detached).
    #[must_use]
    pub fn sender(&self) -> u64 {
        self.raw.as_ref().map_or(0, |raw| raw.sender)
    }

    /// How many bytes an answer may have; 0 when the source waits for none.
    #[inline]
    #[must_use]
    pub fn answer_capacity(&self) -> usize {
        match &self.raw {
            Some(raw) if !raw.answer.is_null() => raw.answer_capacity,
            _ => 0,
        }
    }

    /// Answers `bytes`, for ifuncs that return nothing. The last answer counts. One that does not
    /// [fit](Self::answer_capacity) ends the invocation as failed when the ifunc returns; where the source waits for
    /// none, nothing happens.
    #[inline]
    pub fn answer(&mut self, bytes: &[u8]) {
        self.answer_with(|space| {
            if let Some(space) = space.get_mut(..bytes.len()) {
                space.copy_from_slice(bytes);
            }
            bytes.len()
        });
    }

    /// Answers what `write` puts into the space it gets; it returns the length of the answer. A length beyond the space
    /// says that the answer did not fit. Not called where the source waits for no answer.
    #[inline]
    pub fn answer_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) {
        let Some(raw) = &mut self.raw else { return };
        if raw.answer.is_null() {
            return;
        }
        // SAFETY: `from_raw` was promised that these bytes are initialised and ours.
        let space = unsafe { core::slice::from_raw_parts_mut(raw.answer, raw.answer_capacity) };
        raw.answer_len = write(space);
    }

    /// Whether the last answer did not fit.
    #[inline]
    pub(crate) fn overflowed(&self) -> bool {
        self.raw
            .as_ref()
            .is_some_and(|raw| raw.answer_len > raw.answer_capacity)
    }

    /// Logs a message at the target, where it arrives in `tracing`.
    pub fn log(&mut self, level: Level, message: &str) {
        if let Some(raw) = &mut self.raw {
            let log = raw.log;
            // SAFETY: the context is valid (`from_raw`), the message lives until the call returns.
            unsafe { log(*raw, level as u32, message.as_ptr(), message.len()) }
        }
    }

    /// Logs a formatted message of at most 512 bytes; what is longer is cut. The macros [`error!`](crate::error),
    /// [`warn!`](crate::warn), [`info!`](crate::info), [`debug!`](crate::debug) and [`trace!`](crate::trace) write it
    /// shorter. A message without arguments brings no formatting code into the image.
    #[inline]
    pub fn log_args(&mut self, level: Level, message: fmt::Arguments<'_>) {
        match message.as_str() {
            Some(message) => self.log(level, message),
            None => self.log_formatted(level, message),
        }
    }

    fn log_formatted(&mut self, level: Level, message: fmt::Arguments<'_>) {
        let mut line = LineBuffer::<512>::new();
        // A full line is cut, not an error.
        let _ = fmt::write(&mut line, message);
        self.log(level, line.as_str());
    }
}

/// A line of bounded length; what does not fit is cut between two characters.
pub(crate) struct LineBuffer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> LineBuffer<N> {
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        // SAFETY: only whole characters of `str`s were copied in, and `len` counts them.
        unsafe { core::str::from_utf8_unchecked(self.bytes.get_unchecked(..self.len)) }
    }
}

impl<const N: usize> fmt::Write for LineBuffer<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = N - self.len;
        let mut take = s.len().min(room);
        while !s.is_char_boundary(take) {
            take -= 1;
        }
        if let (Some(to), Some(from)) = (
            self.bytes.get_mut(self.len..self.len + take),
            s.as_bytes().get(..take),
        ) {
            to.copy_from_slice(from);
            self.len += take;
        }
        if take == s.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Logs at the target that something failed. Takes the context, then what `format!` takes: `error!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! error {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Error, ::core::format_args!($($message)+))
    };
}

/// Logs at the target that something looks wrong. Takes the context, then what `format!` takes: `warn!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! warn {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Warn, ::core::format_args!($($message)+))
    };
}

/// Logs at the target what happens. Takes the context, then what `format!` takes: `info!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! info {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Info, ::core::format_args!($($message)+))
    };
}

/// Logs at the target, for the author. Takes the context, then what `format!` takes: `debug!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! debug {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Debug, ::core::format_args!($($message)+))
    };
}

/// Logs at the target, for the author, in detail. Takes the context, then what `format!` takes: `trace!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! trace {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Trace, ::core::format_args!($($message)+))
    };
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;
    use std::string::String;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::__private::{MAIN_BAD_ANSWER, MAIN_OK, finish, finish_by_context};
    use crate::codec::Zerocopy;

    /// A target's side of a context: an answer buffer and a log.
    fn with<R>(
        capacity: usize,
        run: impl FnOnce(&mut Context<'_>) -> R,
    ) -> (R, Vec<u8>, usize, Vec<(u32, String)>) {
        unsafe extern "C" fn log(ctx: *mut abi::Context, level: u32, message: *const u8, len: usize) {
            // SAFETY: `host` is the log below; the message is what `Context::log` passed.
            let (log, message) = unsafe {
                (
                    &mut *(*ctx).host.cast::<Vec<(u32, String)>>(),
                    core::slice::from_raw_parts(message, len),
                )
            };
            log.push((level, String::from_utf8(message.into()).unwrap()));
        }
        let mut lines = Vec::<(u32, String)>::new();
        let mut answer = std::vec![0; capacity];
        let mut raw = abi::Context {
            version: 1,
            size: size_of::<abi::Context>() as u32,
            sender: 7,
            answer: if capacity == 0 {
                core::ptr::null_mut()
            } else {
                answer.as_mut_ptr()
            },
            answer_capacity: capacity,
            answer_len: 0,
            log,
            host: (&raw mut lines).cast::<c_void>(),
        };
        let scope = ();
        // SAFETY: valid for the call, the buffer initialised.
        let result = run(&mut unsafe { Context::from_raw(&scope, &mut raw) });
        let len = raw.answer_len;
        (result, answer, len, lines)
    }

    #[test]
    fn answers_are_written_in_place() {
        let (result, answer, len, _) = with(9, |ctx| finish::<Zerocopy, _>(ctx, &0x0102_u64));
        assert_eq!((result, len, &answer[..2]), (MAIN_OK, 8, &[2, 1][..]));
        let (result, answer, len, _) = with(7, |ctx| finish::<Zerocopy, _>(ctx, &u64::MAX));
        assert_eq!((result, len, answer), (MAIN_BAD_ANSWER, 8, std::vec![0; 7]));
        let (result, _, len, _) = with(0, |ctx| finish::<Zerocopy, _>(ctx, &u64::MAX));
        assert_eq!((result, len), (MAIN_OK, 0), "nobody waits for it");
        assert_eq!(finish::<Zerocopy, _>(&mut Context::detached(), &1_u8), MAIN_OK);
    }

    #[test]
    fn the_last_answer_counts() {
        let (result, answer, len, _) = with(4, |ctx| {
            assert_eq!((ctx.sender(), ctx.answer_capacity()), (7, 4));
            ctx.answer(b"too long");
            let first = finish_by_context(ctx);
            ctx.answer(b"ok");
            (first, finish_by_context(ctx))
        });
        assert_eq!(
            (result, len, &answer[..2]),
            ((MAIN_BAD_ANSWER, MAIN_OK), 2, &b"ok"[..])
        );
    }

    #[test]
    fn logs_reach_the_host() {
        let (_, _, _, lines) = with(0, |ctx| {
            crate::info!(ctx, "plain");
            crate::error!(ctx, "{} of {}", 1, 2);
            crate::trace!(ctx, "{}", "é".repeat(300));
        });
        assert_eq!(
            lines[..2],
            [(3, String::from("plain")), (1, String::from("1 of 2"))]
        );
        assert_eq!(lines[2], (5, "é".repeat(256)), "cut between two characters");
        crate::warn!(Context::detached(), "nobody listens");
        crate::debug!(Context::detached(), "nobody listens");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lines_hold_a_prefix(parts in prop::collection::vec(".{0,12}", 0..8)) {
            let mut line = LineBuffer::<16>::new();
            let whole = parts.concat();
            let fits = parts.iter().try_for_each(|part| fmt::Write::write_str(&mut line, part)).is_ok();
            prop_assert!(whole.starts_with(line.as_str()));
            prop_assert_eq!(fits, line.as_str().len() == whole.len());
        }
    }
}
