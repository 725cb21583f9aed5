//! The last lines of an output: what the summary repeats of a step that failed.

use std::collections::VecDeque;
use std::fmt;

/// How many lines are kept.
const LINES: usize = 50;
/// Where Rust's test harness begins to print what its failed tests printed.
const FAILURES: &str = "failures:";

/// The last lines of what it was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    lines: VecDeque<String>,
    dropped: usize,
}

impl Tail {
    /// Takes a line.
    pub(crate) fn push(&mut self, line: &str) {
        if self.lines.len() == LINES {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line.to_owned());
    }

    /// What a test program says of its failures: from the first that the harness lists, or the last lines of a program that did
    /// not get there.
    pub(crate) fn of_failures(output: &str) -> Self {
        let all: Vec<&str> = output.lines().collect();
        let mut tail = Self::default();
        match all.iter().position(|line| line.trim_end() == FAILURES) {
            Some(first) => {
                let end = all.len().min(first + LINES);
                tail.lines = all[first..end].iter().map(|line| (*line).to_owned()).collect();
                // The harness ends with the names.
                let names = all.iter().rposition(|line| line.trim_end() == FAILURES);
                for line in &all[names.unwrap_or(end).max(end)..] {
                    tail.lines.push_back((*line).to_owned());
                }
                tail.dropped = first;
            }
            None => all.iter().for_each(|line| tail.push(line)),
        }
        tail
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dropped > 0 {
            write!(f, "\n    … {} lines before", self.dropped)?;
        }
        self.lines.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{LINES, Tail};

    #[test]
    fn the_last_lines_are_kept() {
        let mut tail = Tail::default();
        assert_eq!(tail.to_string(), "");
        (0..LINES + 2).for_each(|n| tail.push(&format!("line {n}")));
        let text = tail.to_string();
        assert!(text.starts_with("\n    … 2 lines before\n    line 2\n"), "{text}");
        assert!(text.ends_with(&format!("line {}", LINES + 1)));
    }

    #[test]
    fn failures_are_told_from_the_first_to_the_names() {
        let many = "more\n".repeat(2 * LINES);
        let output = format!(
            "running 2 tests\npanicked, as it should\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\nwhy\n{many}\nfailures:\n    a\n\ntest result: FAILED."
        );
        let text = Tail::of_failures(&output).to_string();
        assert!(!text.contains("as it should"), "{text}");
        assert!(text.contains("---- a stdout ----\n    why\n"), "{text}");
        assert!(text.contains("\n    failures:\n        a\n"), "{text}");
        assert!(text.ends_with("test result: FAILED."), "{text}");
        // A program that a signal ended lists nothing.
        assert_eq!(
            Tail::of_failures("running 1 test\nlast words").to_string(),
            "\n    running 1 test\n    last words"
        );
    }
}
