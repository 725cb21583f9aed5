//! Answers that are too long for the memory that an invocation is lent, and answers that are written as they are made.

use core::fmt;

use ifunc_abi::context::{MAIN_BAD_ANSWER, MAIN_OK};

use crate::Context;
use crate::payload::{Answer, EncodeError};

/// An answer that an ifunc writes as it goes: see [`Context::answer_writer`].
#[derive(Debug)]
pub struct AnswerWriter<'c, 'a> {
    ctx: &'c mut Context<'a>,
    len: usize,
    /// Bytes that the memory has in which the answer lies.
    capacity: usize,
    /// The memory, if it is not the one that the invocation was lent.
    elsewhere: Option<&'c mut [u8]>,
}

/// An answer has as many bytes as the target gives and the source takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerFull;

impl fmt::Display for AnswerFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is as long as the target and the source allow")
    }
}

impl core::error::Error for AnswerFull {}

impl<'a> Context<'a> {
    /// The length of the longest answer, which the target and the source limit; 0 if no caller waits for one. Beyond
    /// [`answer_capacity`](Self::answer_capacity), the target allocates.
    #[must_use]
    pub fn max_answer(&mut self) -> usize {
        match &mut self.raw {
            // SAFETY: the context is valid.
            Some(raw) if !raw.answer.is_null() => unsafe { imports::max_answer(*raw) },
            _ => 0,
        }
    }

    /// Writes the answer as it is made, for ifuncs that return nothing. What was written when the writer is dropped is the answer, and
    /// replaces an earlier one.
    ///
    /// ```
    /// # #![no_std]
    /// use ifunc::prelude::*;
    ///
    /// /// Answers the records that begin with a prefix, each with a zero byte behind it; as many as fit.
    /// #[ifunc(codec = raw)]
    /// pub fn matching(prefix: &[u8], records: &mut [[u8; 32]; 1024], ctx: &mut Context) {
    ///     let mut answer = ctx.answer_writer();
    ///     for record in records.iter().filter(|record| record.starts_with(prefix)) {
    ///         if answer.remaining() <= record.len() {
    ///             break;
    ///         }
    ///         answer.write(record).and_then(|()| answer.write(&[0])).expect("it fits");
    ///     }
    /// }
    /// # fn main() {}
    /// ```
    pub fn answer_writer(&mut self) -> AnswerWriter<'_, 'a> {
        let capacity = self.answer_capacity();
        if let Some(raw) = &mut self.raw {
            raw.answer_len = 0;
        }
        AnswerWriter {
            ctx: self,
            len: 0,
            capacity,
            elsewhere: None,
        }
    }

    /// Makes the answer `len` bytes long, in memory of the target's. `None`: it is longer than the limits.
    #[cold]
    fn answer_elsewhere<'m>(&mut self, len: usize) -> Option<&'m mut [u8]> {
        let raw = self.raw.as_deref_mut()?;
        // SAFETY: the context is valid.
        let memory = unsafe { imports::answer(raw, len) };
        if memory.is_null() {
            return None;
        }
        // SAFETY: the target gave `len` initialised bytes, which stay until the next call. The callers, all of this module, drop the
        // slice before that.
        Some(unsafe { core::slice::from_raw_parts_mut(memory, len) })
    }

    /// As [`answer_of_len`](Self::answer_of_len), if the answer does not fit into the memory that the invocation was lent.
    #[cold]
    pub(crate) fn answer_long(&mut self, len: usize, write: impl FnOnce(&mut [u8])) {
        if self.raw.as_ref().is_none_or(|raw| raw.answer.is_null()) {
            return;
        }
        match self.answer_elsewhere(len) {
            Some(memory) => write(memory),
            None => {
                if let Some(raw) = &mut self.raw {
                    raw.answer_len = len;
                }
            }
        }
    }
}

/// Ends an `X_main` whose answer did not fit into the memory that it was lent.
#[cold]
#[inline(never)]
pub(crate) fn finish_long<C, A: Answer<C>>(ctx: &mut Context<'_>, answer: &A) -> u32 {
    let max = ctx.max_answer();
    // Without a known length, each attempt has twice the memory of the one before.
    let mut len = match answer.encoded_len() {
        Some(len) => len,
        None => ctx.answer_capacity().saturating_mul(2).min(max),
    };
    loop {
        let Some(memory) = ctx.answer_elsewhere(len) else {
            return MAIN_BAD_ANSWER;
        };
        match answer.encode(memory) {
            Ok(written) => {
                if written < len {
                    ctx.answer_elsewhere(written);
                }
                return MAIN_OK;
            }
            // One byte more is refused: so the target notes why.
            Err(EncodeError::TooLarge) if len >= max => len = max.saturating_add(1),
            Err(EncodeError::TooLarge) => len = len.saturating_mul(2).min(max),
            Err(EncodeError::Refused) => return MAIN_BAD_ANSWER,
        }
    }
}

impl AnswerWriter<'_, '_> {
    /// Appends bytes, all or none.
    ///
    /// # Errors
    /// The answer would be longer than the target or the source allows. What was written before stays.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), AnswerFull> {
        let end = self.len.checked_add(bytes.len()).ok_or(AnswerFull)?;
        if end > self.capacity {
            if !self.is_wanted() {
                return Ok(());
            }
            self.grow(end)?;
        }
        let at = self.len;
        if let Some(out) = self.memory().get_mut(at..end) {
            out.copy_from_slice(bytes);
            self.len = end;
        }
        Ok(())
    }

    /// Whether a caller waits for the answer. If not, what is written is dropped.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.ctx.raw.as_ref().is_some_and(|raw| !raw.answer.is_null())
    }

    /// Bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes may follow. The target may have no memory for so many at this moment: [`write`](Self::write) finds out. 0 if no
    /// caller waits for the answer.
    #[must_use]
    pub fn remaining(&mut self) -> usize {
        self.ctx.max_answer().saturating_sub(self.len)
    }

    fn memory(&mut self) -> &mut [u8] {
        if let Some(memory) = &mut self.elsewhere {
            return memory;
        }
        match &mut self.ctx.raw {
            Some(raw) if !raw.answer.is_null() => {
                // SAFETY: the caller of `Context::from_raw` promised that these bytes are initialised and exclusively the context's.
                unsafe { core::slice::from_raw_parts_mut(raw.answer, raw.answer_capacity) }
            }
            _ => &mut [],
        }
    }

    /// Makes room for `end` bytes.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, end: usize) -> Result<(), AnswerFull> {
        let max = self.ctx.max_answer();
        if end > max {
            return Err(AnswerFull);
        }
        let was_elsewhere = self.elsewhere.take().is_some();
        let capacity = self.capacity.saturating_mul(2).clamp(end, max);
        let memory = match self.ctx.answer_elsewhere(capacity) {
            Some(memory) => memory,
            None => match self.ctx.answer_elsewhere(end) {
                Some(memory) => memory,
                None => {
                    // A refusal changes nothing: the memory is as it was.
                    if was_elsewhere {
                        self.elsewhere = self.ctx.answer_elsewhere(self.capacity);
                    }
                    return Err(AnswerFull);
                }
            },
        };
        if !was_elsewhere {
            let before = self.len;
            let lent = self.memory();
            if let (Some(to), Some(from)) = (memory.get_mut(..before), lent.get(..before)) {
                to.copy_from_slice(from);
            }
        }
        self.capacity = memory.len();
        self.elsewhere = Some(memory);
        Ok(())
    }
}

impl Drop for AnswerWriter<'_, '_> {
    fn drop(&mut self) {
        if self.elsewhere.take().is_some() {
            // It becomes shorter, for which there is memory.
            self.ctx.answer_elsewhere(self.len);
        } else if let Some(raw) = &mut self.ctx.raw {
            raw.answer_len = self.len;
        }
    }
}

/// Text is written as UTF-8. `write!` fails if the answer is full.
impl fmt::Write for AnswerWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes()).map_err(|AnswerFull| fmt::Error)
    }
}

/// The target's functions: see `ifunc_abi::symbols`.
#[cfg(ifunc_image)]
mod imports {
    use ifunc_abi::context::Context;

    unsafe extern "C" {
        fn __ifunc_answer(ctx: *mut Context, size: usize) -> *mut u8;
        fn __ifunc_max_answer(ctx: *mut Context) -> usize;
    }

    #[inline]
    pub(super) unsafe fn answer(ctx: *mut Context, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { __ifunc_answer(ctx, size) }
    }

    #[inline]
    pub(super) unsafe fn max_answer(ctx: *mut Context) -> usize {
        // SAFETY: the caller's promise.
        unsafe { __ifunc_max_answer(ctx) }
    }
}

/// Outside of images, an answer has the memory of its context.
#[cfg(not(ifunc_image))]
mod imports {
    use ifunc_abi::context::Context;

    pub(super) unsafe fn answer(_: *mut Context, _: usize) -> *mut u8 {
        core::ptr::null_mut()
    }

    pub(super) unsafe fn max_answer(ctx: *mut Context) -> usize {
        // SAFETY: the caller's promise.
        unsafe { (*ctx).answer_capacity }
    }
}

#[cfg(test)]
mod tests {
    use core::fmt::Write as _;

    use super::*;
    use crate::context::tests::with;

    #[test]
    fn a_writer_is_full_where_the_answer_ends() {
        let (_, answer, len, _) = with(8, |ctx| {
            let mut writer = ctx.answer_writer();
            assert_eq!(
                (writer.len(), writer.remaining(), writer.is_empty()),
                (0, 8, true)
            );
            writer.write(b"abc").unwrap();
            write!(writer, "{}", 12).unwrap();
            assert_eq!(writer.write(b"long"), Err(AnswerFull));
            assert_eq!((writer.len(), writer.remaining()), (5, 3));
            writer.write(b"def").unwrap();
            assert!(write!(writer, "x").is_err());
        });
        assert_eq!((len, &answer[..]), (8, &b"abc12def"[..]));
    }

    #[test]
    fn what_no_caller_waits_for_is_dropped() {
        let (_, _, len, _) = with(0, |ctx| {
            let mut writer = ctx.answer_writer();
            assert!(!writer.is_wanted());
            assert_eq!((writer.write(b"abc"), writer.remaining()), (Ok(()), 0));
        });
        assert_eq!(len, 0);
        let mut detached = Context::detached();
        assert_eq!(detached.max_answer(), 0);
        assert_eq!(detached.answer_writer().write(b"abc"), Ok(()));
    }
}
