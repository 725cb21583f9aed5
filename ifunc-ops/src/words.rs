//! Reading and changing words by their indices.

use ifunc::prelude::*;

use crate::Words;

/// Answers the words at these indices, in their order, each as eight bytes: `call(..)?.wait_bytes()?`.
#[ifunc(idempotent)]
pub fn gather(indices: &[u64], words: &mut dyn Words, ctx: &mut Context) {
    let words = words.words();
    ctx.answer_of_len(size_of_val(indices), |answer| {
        for (word, &index) in answer.as_chunks_mut::<8>().0.iter_mut().zip(indices) {
            *word = words[place(index, words.len())].to_le_bytes();
        }
    });
}

/// A word to be stored.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where.
    pub index: u64,
    /// What.
    pub value: u64,
}

/// Stores words at their indices, in their order, and answers their number.
#[ifunc(idempotent)]
pub fn scatter(stores: &[Store], words: &mut dyn Words) -> u64 {
    let words = words.words();
    for store in stores {
        place(store.index, words.len());
    }
    for store in stores {
        words[place(store.index, words.len())] = store.value;
    }
    stores.len() as u64
}

/// The payload of [`fetch_add`](fn@fetch_add).
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchAdd {
    /// Which word.
    pub index: u64,
    /// What is added, modulo 2^64.
    pub value: u64,
}

/// Adds to a word, and answers what it was before.
#[ifunc]
pub fn fetch_add(add: FetchAdd, words: &mut dyn Words) -> u64 {
    let word = word(words.words(), add.index);
    let before = *word;
    *word = before.wrapping_add(add.value);
    before
}

/// The payload of [`compare_swap`](fn@compare_swap).
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompareSwap {
    /// Which word.
    pub index: u64,
    /// The value that it must have.
    pub expected: u64,
    /// The value that it gets then.
    pub new: u64,
}

/// Stores a word if it has the expected value, and answers what it was before.
#[ifunc]
pub fn compare_swap(swap: CompareSwap, words: &mut dyn Words) -> u64 {
    let word = word(words.words(), swap.index);
    let before = *word;
    if before == swap.expected {
        *word = swap.new;
    }
    before
}

fn word(words: &mut [u64], index: u64) -> &mut u64 {
    let len = words.len();
    &mut words[place(index, len)]
}

/// The place of a word; fails the invocation beyond the end.
fn place(index: u64, len: usize) -> usize {
    match usize::try_from(index) {
        Ok(at) if at < len => at,
        _ => panic!("word {index} is beyond the end of {len} words"),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    struct Memory(Vec<u64>);

    impl Words for Memory {
        fn words(&mut self) -> &mut [u64] {
            &mut self.0
        }
    }

    fn memory() -> Memory {
        Memory([1, 2, 3].into())
    }

    #[test]
    fn words_are_stored_all_or_none() {
        let mut memory = memory();
        let store = |index, value| Store { index, value };
        assert_eq!(
            scatter(&[store(2, 30), store(0, 10), store(2, 31)], &mut memory),
            3
        );
        assert_eq!(memory.0, [10, 2, 31]);
        let beyond = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scatter(&[store(0, 0), store(3, 0)], &mut memory)
        }));
        assert!(beyond.is_err());
        assert_eq!(memory.0, [10, 2, 31]);
    }

    #[test]
    fn atomics_answer_what_was_there() {
        let mut memory = memory();
        assert_eq!(
            fetch_add(
                FetchAdd {
                    index: 0,
                    value: u64::MAX
                },
                &mut memory
            ),
            1
        );
        let swap = |memory: &mut Memory, expected, new| {
            compare_swap(
                CompareSwap {
                    index: 1,
                    expected,
                    new,
                },
                memory,
            )
        };
        assert_eq!(swap(&mut memory, 7, 8), 2);
        assert_eq!(swap(&mut memory, 2, 9), 2);
        assert_eq!(memory.0, [0, 9, 3]);
    }

    #[test]
    #[should_panic = "word 3 is beyond the end of 3 words"]
    fn memory_ends() {
        fetch_add(FetchAdd { index: 3, value: 1 }, &mut memory());
    }
}
