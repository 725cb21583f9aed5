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

    /// Wraps what `X_main` got as its fourth argument.
    ///
    /// # Safety
    /// `raw` is null, or points to a context that is valid and nobody else's for `'a`; its answer pointer is null or
    /// points to `answer_capacity` initialised bytes of the same kind.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(raw: *mut abi::Context) -> Self {
        // SAFETY: the caller's promise.
        let raw = unsafe { raw.as_mut() };
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
        let mut line = Line::<512>::new();
        // A full line is cut, not an error.
        let _ = fmt::write(&mut line, message);
        self.log(level, line.as_str());
    }
}

/// A line of bounded length; what does not fit is cut between two characters.
pub(crate) struct Line<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Line<N> {
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

impl<const N: usize> fmt::Write for Line<N> {
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
