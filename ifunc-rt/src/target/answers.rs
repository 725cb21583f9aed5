//! Answers that are larger than a frame: how long they may be, and how much memory those of all connections take.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ifunc_exec::AnswerMemory;

use super::unfinished::Unfinished;

/// The limits of a target's answers.
#[derive(Debug)]
pub(super) struct LongAnswers {
    /// The target's own.
    max_answer: usize,
    /// What sources take that take less, by the numbers of their connections.
    of_sources: Mutex<BTreeMap<u64, usize>>,
    /// One budget with the bodies that arrive.
    unfinished: Arc<Unfinished>,
}

impl LongAnswers {
    pub(super) fn new(max_answer: u64, unfinished: &Arc<Unfinished>) -> Arc<Self> {
        Arc::new(Self {
            max_answer: usize::try_from(max_answer).unwrap_or(usize::MAX),
            of_sources: Mutex::default(),
            unfinished: Arc::clone(unfinished),
        })
    }

    /// A source takes answers of so many bytes, until the result is dropped.
    pub(super) fn taken_by(self: &Arc<Self>, connection: u64, max_answer: u64) -> Option<TakenBySource> {
        let max_answer = usize::try_from(max_answer).unwrap_or(usize::MAX);
        if max_answer >= self.max_answer {
            return None;
        }
        self.with(|sources| sources.insert(connection, max_answer));
        Some(TakenBySource {
            connection,
            of: Arc::clone(self),
        })
    }

    fn with<R>(&self, call: impl FnOnce(&mut BTreeMap<u64, usize>) -> R) -> R {
        call(&mut self.of_sources.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AnswerMemory for LongAnswers {
    fn max_answer(&self, sender: u64) -> usize {
        self.with(|sources| sources.get(&sender).copied())
            .unwrap_or(self.max_answer)
    }

    fn too_long(&self, sender: u64, len: usize) -> String {
        let limit = self.max_answer(sender);
        if limit < self.max_answer {
            format!(
                "an answer of at least {len} bytes, the source takes {limit}; help: `SourceOptions::max_answer` on the source"
            )
        } else {
            format!(
                "an answer of at least {len} bytes, the target's limit is {limit}; help: `answer_bytes` of the quotas in the target's policy"
            )
        }
    }

    fn hold(&self, bytes: usize) -> Result<(), String> {
        self.unfinished.hold_answer(bytes)
    }

    fn release(&self, bytes: usize) {
        self.unfinished.release_answer(bytes);
    }
}

/// While it lives, the limit of a source counts.
#[derive(Debug)]
pub(super) struct TakenBySource {
    connection: u64,
    of: Arc<LongAnswers>,
}

impl Drop for TakenBySource {
    fn drop(&mut self) {
        self.of.with(|sources| sources.remove(&self.connection));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_lower_limit_counts_and_its_setting_is_named() {
        let unfinished = Unfinished::new(100, Duration::from_secs(1));
        let answers = LongAnswers::new(50, &unfinished);
        assert!(answers.taken_by(1, 50).is_none());
        let taken = answers.taken_by(2, 10);
        assert_eq!((answers.max_answer(1), answers.max_answer(2)), (50, 10));
        assert!(answers.too_long(1, 51).contains("`answer_bytes` of the quotas"));
        assert!(answers.too_long(2, 51).contains("SourceOptions::max_answer"));
        drop(taken);
        assert_eq!(answers.max_answer(2), 50);
        answers.hold(60).unwrap();
        assert!(unfinished.interval().is_some());
        let why = answers.hold(60).unwrap_err();
        assert!(why.contains("unfinished_bodies"), "{why}");
        answers.release(60);
        answers.hold(100).unwrap();
    }
}
