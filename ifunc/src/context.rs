//! The services that a target offers to an invocation, and the result of `X_main`.

use core::fmt;

use ifunc_abi::context as abi;
pub use ifunc_abi::context::Level;
use ifunc_abi::context::{ANSWER_ELSEWHERE, MAIN_BAD_ANSWER, MAIN_OK};

use crate::payload::Answer;

/// The context of one invocation. An ifunc takes it as its third parameter, `ctx: &mut Context`.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) raw: Option<&'a mut abi::Context>,
}

impl<'a> Context<'a> {
    /// A context without a target: it drops answers and logs. For unit tests of an ifunc.
    #[must_use]
    pub fn detached() -> Self {
        Self { raw: None }
    }

    /// Wraps the fourth argument of `X_main`. The context lives no longer than `scope`: borrow a local.
    ///
    /// # Safety
    /// `raw` is null, or points to a context that is valid and exclusively the caller's for `'a`. Its answer pointer is null or
    /// points to `answer_capacity` initialised bytes with the same guarantees.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(scope: &'a (), raw: *mut abi::Context) -> Self {
        // SAFETY: the caller's promise.
        let raw = unsafe { crate::__private::optional_mut(scope, raw) };
        Self { raw }
    }

    /// The connection that the frame arrived on: a number that the target assigns to each connection and
    /// never reuses. 0 when [detached](Self::detached).
    #[must_use]
    pub fn sender(&self) -> u64 {
        self.raw.as_ref().map_or(0, |raw| raw.sender)
    }

    /// Bytes that the answer may have without further memory; 0 if the source expects none. Longer answers are copied once more:
    /// see [`max_answer`](Self::max_answer).
    #[inline]
    #[must_use]
    pub fn answer_capacity(&self) -> usize {
        match &self.raw {
            Some(raw) if !raw.answer.is_null() => raw.answer_capacity,
            _ => 0,
        }
    }

    /// Answers `bytes`, for ifuncs that return nothing. The last answer counts. If it is longer than the target or the source
    /// [allows](Self::max_answer), the invocation fails when the ifunc returns. If the source expects no
    /// answer, the call has no effect.
    #[inline]
    pub fn answer(&mut self, bytes: &[u8]) {
        self.answer_of_len(bytes.len(), |space| {
            // Always so. An image that knows it has no message of a panic.
            if space.len() == bytes.len() {
                space.copy_from_slice(bytes);
            }
        });
    }

    /// Lets `write` write the answer into the buffer it receives; it returns the answer's length. A length
    /// beyond the buffer means that the answer did not fit. If the source expects no answer, `write` is not
    /// called.
    #[inline]
    pub fn answer_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) {
        let Some(raw) = &mut self.raw else { return };
        if raw.answer.is_null() {
            return;
        }
        // SAFETY: the caller of `from_raw` promised that these bytes are initialised and exclusively the context's.
        let space = unsafe { core::slice::from_raw_parts_mut(raw.answer, raw.answer_capacity) };
        raw.answer_len = write(space);
    }

    /// Lets `write` write an answer of `len` bytes, for ifuncs that return nothing. Bytes that it does not write are arbitrary. If the answer is
    /// longer than the target or the source [allows](Self::max_answer), `write` is not called, and the invocation fails when the ifunc
    /// returns. Nor is it called if the source expects no answer.
    ///
    /// ```
    /// # #![no_std]
    /// use ifunc::prelude::*;
    ///
    /// /// Answers the squares of numbers.
    /// #[ifunc]
    /// pub fn squares(numbers: &[u64], _state: &(), ctx: &mut Context) {
    ///     ctx.answer_of_len(size_of_val(numbers), |answer| {
    ///         for (square, number) in answer.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
    ///             *square = number.wrapping_mul(*number).to_le_bytes();
    ///         }
    ///     });
    /// }
    /// # fn main() {}
    /// ```
    #[inline]
    pub fn answer_of_len(&mut self, len: usize, write: impl FnOnce(&mut [u8])) {
        if len <= self.answer_capacity() {
            self.answer_with(|space| {
                write(&mut space[..len]);
                len
            });
        } else {
            self.answer_long(len, write);
        }
    }

    /// Whether the last answer did not fit.
    #[inline]
    fn overflowed(&self) -> bool {
        self.raw
            .as_ref()
            .is_some_and(|raw| raw.answer_len > raw.answer_capacity && raw.answer_len != ANSWER_ELSEWHERE)
    }

    /// Logs a message at the target, which emits it as a `tracing` event.
    pub fn log(&mut self, level: Level, message: &str) {
        if let Some(raw) = &mut self.raw {
            let log = raw.log;
            // SAFETY: the context is valid (`from_raw`), the message lives until the call returns.
            unsafe { log(*raw, level as u32, message.as_ptr(), message.len()) }
        }
    }

    /// Logs a formatted message, truncated to 512 bytes. The macros [`error!`](crate::error),
    /// [`warn!`](crate::warn), [`info!`](crate::info), [`debug!`](crate::debug) and [`trace!`](crate::trace)
    /// are shorthands. A message without arguments adds no formatting code to the image.
    #[inline]
    pub fn log_args(&mut self, level: Level, message: fmt::Arguments<'_>) {
        match message.as_str() {
            Some(message) => self.log(level, message),
            None => self.log_formatted(level, message),
        }
    }

    fn log_formatted(&mut self, level: Level, message: fmt::Arguments<'_>) {
        let mut line = LineBuffer::<512>::new();
        // A full buffer truncates the message; that is not an error.
        let _ = fmt::write(&mut line, message);
        self.log(level, line.as_str());
    }
}

/// A string of at most `N` bytes. Writing truncates at a character boundary.
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
        let free = N - self.len;
        let mut take = s.len().min(free);
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

/// Ends an `X_main` whose ifunc returned a value.
#[inline]
pub fn finish<C, A: Answer<C>>(ctx: &mut Context<'_>, answer: &A) -> u32 {
    let mut result = MAIN_OK;
    ctx.answer_with(|space| match answer.encode(space) {
        Ok(len) => len,
        Err(_) => {
            result = MAIN_BAD_ANSWER;
            space.len() + 1
        }
    });
    if !A::IS_SHORT && result != MAIN_OK {
        return crate::answer::finish_long::<C, A>(ctx, answer);
    }
    result
}

/// Ends an `X_main` whose ifunc returned nothing and may have answered through the context.
#[inline]
#[must_use]
pub fn finish_by_context(ctx: &Context<'_>) -> u32 {
    if ctx.overflowed() {
        MAIN_BAD_ANSWER
    } else {
        MAIN_OK
    }
}

/// Logs an error at the target. Takes the context, then the arguments of `format!`: `error!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! error {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Error, ::core::format_args!($($message)+))
    };
}

/// Logs a warning at the target. Takes the context, then the arguments of `format!`: `warn!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! warn {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Warn, ::core::format_args!($($message)+))
    };
}

/// Logs progress at the target. Takes the context, then the arguments of `format!`: `info!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! info {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Info, ::core::format_args!($($message)+))
    };
}

/// Logs details at the target. Takes the context, then the arguments of `format!`: `debug!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! debug {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Debug, ::core::format_args!($($message)+))
    };
}

/// Logs fine details at the target. Takes the context, then the arguments of `format!`: `trace!(ctx, "{n} records")`.
///
/// See [`Context::log_args`](crate::Context::log_args).
#[macro_export]
macro_rules! trace {
    ($ctx:expr, $($message:tt)+) => {
        $ctx.log_args($crate::Level::Trace, ::core::format_args!($($message)+))
    };
}

#[cfg(test)]
pub(crate) mod tests {
    use core::ffi::c_void;
    use std::string::String;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::codec::Zerocopy;

    /// Runs `run` on a context with an answer buffer and a log.
    pub(crate) fn with<R>(
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
        assert_eq!((result, len), (MAIN_OK, 0), "the source expects no answer");
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
        crate::warn!(Context::detached(), "dropped");
        crate::debug!(Context::detached(), "dropped");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_line_buffer_holds_a_prefix(parts in prop::collection::vec(".{0,12}", 0..8)) {
            let mut line = LineBuffer::<16>::new();
            let whole = parts.concat();
            let fits = parts.iter().try_for_each(|part| fmt::Write::write_str(&mut line, part)).is_ok();
            prop_assert!(whole.starts_with(line.as_str()));
            prop_assert_eq!(fits, line.as_str().len() == whole.len());
        }
    }
}
