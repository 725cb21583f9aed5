//! Answers that are too long for the memory that an invocation is lent: the imports by which it asks for more.
//!
//! An image imports them only if its answers may be long. What asks for no memory pays nothing: the gate is looked at when an
//! invocation ends without an answer in its memory.

use std::fmt;
use std::mem;
use std::ptr;
use std::sync::Arc;

use ifunc_abi::context::{ANSWER_ELSEWHERE, Context};
use ifunc_abi::refusal::{AnswerBytes, Failed};
use ifunc_abi::status::{Failure, Status};

use crate::gate::{Gate, gate_of_invocation};

/// How long answers may be, and how much memory all of them may take.
pub trait AnswerMemory: fmt::Debug + Send + Sync {
    /// Length of the longest answer over the connection `sender`.
    fn max_answer(&self, sender: u64) -> usize;

    /// Why an answer of `len` bytes or more is too long for the connection `sender`, and what to do.
    fn too_long(&self, sender: u64, len: usize) -> String;

    /// Counts `bytes` more.
    ///
    /// # Errors
    /// Why there are too many, and what to do. Nothing is counted.
    fn hold(&self, bytes: usize) -> Result<(), String>;

    /// Does not count `bytes` any longer.
    fn release(&self, bytes: usize);
}

/// An answer in memory of its own, which counts until it is dropped.
#[derive(Debug)]
struct LongAnswer {
    words: Vec<u64>,
    len: usize,
    /// Bytes that count.
    held: usize,
    of: Arc<dyn AnswerMemory>,
}

impl LongAnswer {
    fn new(of: &Arc<dyn AnswerMemory>) -> Self {
        Self {
            words: Vec::new(),
            len: 0,
            held: 0,
            of: Arc::clone(of),
        }
    }

    /// Sets the length. Added bytes are zero, or what was there before.
    fn resize(&mut self, len: usize) -> Result<(), String> {
        let count = len.div_ceil(size_of::<u64>());
        if count > self.words.len() {
            let more = (count - self.words.len()) * size_of::<u64>();
            self.of.hold(more)?;
            if self.words.try_reserve_exact(count - self.words.len()).is_err() {
                self.of.release(more);
                return Err(format!("the target has no memory for an answer of {len} bytes"));
            }
            self.held += more;
            self.words.resize(count, 0);
        }
        self.len = len;
        Ok(())
    }
}

impl AnswerBytes for LongAnswer {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the words have at least as many bytes, and each is initialised.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }
}

/// An answer of `len` bytes in memory of its own, which `fill` writes; or why there is none.
pub(crate) fn long_answer(
    of: &Arc<dyn AnswerMemory>,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Box<Failed> {
    let mut answer = LongAnswer::new(of);
    if let Err(why) = answer.resize(len) {
        return Box::new(Failed::new(Status::Failed(Failure::Answer), why.into_bytes()));
    }
    // SAFETY: the words have at least as many bytes, and each is initialised.
    fill(unsafe { std::slice::from_raw_parts_mut(answer.words.as_mut_ptr().cast(), len) });
    Box::new(Failed::answered(Box::new(answer)))
}

impl Drop for LongAnswer {
    fn drop(&mut self) {
        self.of.release(self.held);
    }
}

/// What the invocations of one thread have of long answers.
#[derive(Debug, Default)]
pub(crate) struct LongAnswers {
    /// Counts the passage of the gate in which the rest was made.
    passage: u64,
    answer: Option<LongAnswer>,
    /// Why the last request for memory was refused.
    refused: Option<String>,
}

/// What an invocation made of a long answer.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The answer, if it lies elsewhere.
    pub(crate) answer: Option<Box<dyn AnswerBytes>>,
    /// Why the last request for memory was refused.
    pub(crate) refused: Option<String>,
}

impl LongAnswers {
    /// Those of the invocation that runs.
    fn current(&mut self, passage: u64) -> &mut Self {
        if self.passage != passage {
            *self = Self {
                passage,
                ..Self::default()
            };
        }
        self
    }

    /// What the invocation made that ended last, which left `len` in its context. It was begun at the passage before `passage`.
    pub(crate) fn take(&mut self, passage: u64, len: usize) -> Made {
        let made = mem::take(self);
        if made.passage.wrapping_add(1) != passage {
            return Made::default();
        }
        let answer = made.answer.filter(|_| len == ANSWER_ELSEWHERE);
        Made {
            answer: answer.map(|answer| -> Box<dyn AnswerBytes> { Box::new(answer) }),
            refused: made.refused,
        }
    }

    fn resize(&mut self, of: &Arc<dyn AnswerMemory>, sender: u64, len: usize) -> *mut u8 {
        if len > of.max_answer(sender) {
            self.refused = Some(of.too_long(sender, len));
            return ptr::null_mut();
        }
        let answer = self.answer.get_or_insert_with(|| LongAnswer::new(of));
        match answer.resize(len) {
            Ok(()) => {
                self.refused = None;
                answer.words.as_mut_ptr().cast()
            }
            Err(why) => {
                self.refused = Some(why);
                ptr::null_mut()
            }
        }
    }
}

/// `__ifunc_answer`.
///
/// # Safety
/// `ctx` is null or the context of the invocation that runs.
pub(crate) unsafe extern "C" fn answer(ctx: *mut Context, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    let Some(ctx) = (unsafe { ctx.as_mut() }) else {
        return ptr::null_mut();
    };
    if ctx.answer.is_null() {
        return ptr::null_mut();
    }
    let sender = ctx.sender;
    let memory = with(|gate, of| {
        let mut long = gate.long_answers.borrow_mut();
        let passage = gate.passages.within().unwrap_or_default();
        long.current(passage).resize(of, sender, size)
    });
    let memory = memory.unwrap_or(ptr::null_mut());
    if !memory.is_null() {
        ctx.answer_len = ANSWER_ELSEWHERE;
    }
    memory
}

/// `__ifunc_max_answer`.
///
/// # Safety
/// As for [`answer`].
pub(crate) unsafe extern "C" fn max_answer(ctx: *mut Context) -> usize {
    // SAFETY: the caller's promise.
    let Some(ctx) = (unsafe { ctx.as_ref() }) else {
        return 0;
    };
    if ctx.answer.is_null() {
        return 0;
    }
    let (sender, room) = (ctx.sender, ctx.answer_capacity);
    with(|_, of| of.max_answer(sender)).unwrap_or(room)
}

/// Calls with the gate of the invocation that called this import, on the host's side. `None`: its target gives no long answers.
fn with<R>(call: impl FnOnce(&Gate, &Arc<dyn AnswerMemory>) -> R) -> Option<R> {
    let gate = gate_of_invocation()?;
    let of = gate.answers.as_ref()?;
    Some(ifunc::host::through_gate(|| call(gate, of)))
}
