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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Notes what is counted, and refuses more than a kilobyte at once, unless it is absurd.
    #[derive(Debug, Default)]
    struct Noting(Mutex<Vec<isize>>);

    impl AnswerMemory for Noting {
        fn max_answer(&self, sender: u64) -> usize {
            sender as usize
        }

        fn too_long(&self, sender: u64, len: usize) -> String {
            format!("{len} of {sender}")
        }

        fn hold(&self, bytes: usize) -> Result<(), String> {
            if (1025..1 << 40).contains(&bytes) {
                return Err(format!("no {bytes}"));
            }
            self.0.lock().unwrap().push(bytes as isize);
            Ok(())
        }

        fn release(&self, bytes: usize) {
            self.0.lock().unwrap().push(-(bytes as isize));
        }
    }

    fn noting() -> (Arc<Noting>, Arc<dyn AnswerMemory>) {
        let noting = Arc::<Noting>::default();
        (Arc::clone(&noting), noting)
    }

    #[test]
    fn the_memory_of_an_answer_counts_until_it_is_dropped() {
        let (noting, of) = noting();
        let counted = || noting.0.lock().unwrap().clone();
        let mut answer = LongAnswer::new(&of);
        for (len, words, expected) in [
            (0, 0, &[][..]),
            (1, 1, &[8][..]),
            (8, 1, &[8][..]),
            (17, 3, &[8, 16][..]),
            (2, 3, &[8, 16][..]),
            (24, 3, &[8, 16][..]),
            (49, 7, &[8, 16, 32][..]),
        ] {
            answer.resize(len).unwrap();
            assert_eq!((answer.bytes().len(), answer.words.capacity()), (len, words));
            assert_eq!(counted(), expected, "{len}");
        }
        assert_eq!(answer.resize(2000).unwrap_err(), "no 1944");
        let absurd = isize::MAX as usize;
        let why = answer.resize(absurd).unwrap_err();
        assert_eq!(
            why,
            format!("the target has no memory for an answer of {absurd} bytes")
        );
        let more = absurd as isize - 55;
        assert_eq!(counted()[3..], [more, -more]);
        assert_eq!(answer.bytes(), [0; 49]);
        drop(answer);
        assert_eq!(counted()[5..], [-56]);
    }

    #[test]
    fn a_long_answer_is_of_the_invocation_that_asked_for_it() {
        let (noting, of) = noting();
        let mut long = LongAnswers::default();
        assert!(long.current(1).resize(&of, 100, 101).is_null());
        assert_eq!(long.refused.as_deref(), Some("101 of 100"));
        let memory = long.current(1).resize(&of, 100, 100);
        assert!(!memory.is_null() && long.refused.is_none());
        // SAFETY: 100 bytes.
        unsafe { memory.write_bytes(7, 100) };
        let made = long.take(2, ANSWER_ELSEWHERE);
        assert_eq!(made.answer.unwrap().bytes(), [7; 100]);
        // An invocation that states another length answers in the memory that it was lent.
        assert!(!long.current(3).resize(&of, 100, 1).is_null());
        assert!(long.take(4, 1).answer.is_none());
        // One that asks for no memory has none of an earlier one, nor its refusal.
        assert!(!long.current(5).resize(&of, 4000, 1).is_null());
        assert!(long.current(5).resize(&of, 4000, 4000).is_null());
        let made = long.take(8, ANSWER_ELSEWHERE);
        assert!(made.answer.is_none() && made.refused.is_none());
        assert!(!long.current(9).resize(&of, 4000, 1).is_null());
        assert!(long.current(11).answer.is_none());
        assert_eq!(noting.0.lock().unwrap().iter().sum::<isize>(), 0);
        assert_eq!(
            long_answer(&of, 3, |bytes| bytes.fill(5)).answer.unwrap().bytes(),
            [5; 3]
        );
        let failed = long_answer(&of, 3000, |_| unreachable!());
        assert_eq!(
            (failed.status, &failed.detail[..]),
            (Status::Failed(Failure::Answer), &b"no 3000"[..])
        );
    }
}
