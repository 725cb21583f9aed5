//! The outcome of a case with one input, and the comparison of two outcomes.

use std::fmt;

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The case ran to its end.
    Ran {
        /// Its answer.
        answer: Vec<u8>,
        /// The state that it left in the world.
        left: Vec<u8>,
    },
    /// The case panicked.
    Panicked {
        message: String,
        file: String,
        line: u32,
        left: Vec<u8>,
    },
    /// An outcome that no case should have.
    Lost(String),
}

impl Outcome {
    /// The difference between the sent and the called case, if any.
    pub(crate) fn difference(&self, direct: &Self) -> Option<String> {
        match (self, direct) {
            (
                Self::Ran { answer, left },
                Self::Ran {
                    answer: expected,
                    left: expected_left,
                },
            ) => bytes("the answer", answer, expected).or_else(|| bytes("the world", left, expected_left)),
            (
                Self::Panicked {
                    message,
                    file,
                    line,
                    left,
                },
                Self::Panicked {
                    message: expected_message,
                    file: expected_file,
                    line: expected_line,
                    left: expected_left,
                },
            ) if message == expected_message && line == expected_line && same_file(file, expected_file) => {
                bytes("the world", left, expected_left)
            }
            _ => Some(format!("{self}; called directly, {direct}")),
        }
    }
}

/// Paths in images omit the prefix of the build directory.
fn same_file(sent: &str, called: &str) -> bool {
    let called = called.trim_start_matches('/');
    let sent = sent.trim_start_matches('/');
    !sent.is_empty() && (called.ends_with(sent) || sent.ends_with(called))
}

fn bytes(what: &str, sent: &[u8], called: &[u8]) -> Option<String> {
    if sent == called {
        return None;
    }
    let at = sent.iter().zip(called).position(|(a, b)| a != b);
    Some(match at {
        Some(at) => format!(
            "{what} differs at byte {at}: {:#04x}, called directly {:#04x}",
            sent[at], called[at]
        ),
        None => format!(
            "{what} has {} bytes, called directly {}",
            sent.len(),
            called.len()
        ),
    })
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ran { answer, left } => {
                write!(f, "it answered {} bytes and left {}", answer.len(), left.len())
            }
            Self::Panicked {
                message, file, line, ..
            } => write!(f, "it panicked at {file}:{line}: {message}"),
            Self::Lost(why) => f.write_str(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    fn ran(answer: &[u8], left: &[u8]) -> Outcome {
        Outcome::Ran {
            answer: answer.into(),
            left: left.into(),
        }
    }

    fn panicked(file: &str, line: u32) -> Outcome {
        Outcome::Panicked {
            message: "why".into(),
            file: file.into(),
            line,
            left: vec![1],
        }
    }

    #[test]
    fn every_difference_is_reported() {
        assert_eq!(ran(b"ab", b"c").difference(&ran(b"ab", b"c")), None);
        for (other, text) in [
            (
                ran(b"ax", b"c"),
                "the answer differs at byte 1: 0x62, called directly 0x78",
            ),
            (ran(b"abc", b"c"), "the answer has 2 bytes, called directly 3"),
            (ran(b"ab", b"d"), "the world differs at byte 0"),
            (panicked("a.rs", 1), "called directly, it panicked at a.rs:1: why"),
        ] {
            let difference = ran(b"ab", b"c").difference(&other).unwrap();
            assert!(difference.contains(text), "{difference}");
        }
        let here = panicked("lib/src/a.rs", 3);
        assert_eq!(here.difference(&panicked("/somewhere/lib/src/a.rs", 3)), None);
        assert!(here.difference(&panicked("lib/src/a.rs", 4)).is_some());
        assert!(here.difference(&panicked("lib/src/b.rs", 3)).is_some());
    }
}
