//! From pieces of a file to the lines that begin in a range of it.

use alloc::vec::Vec;
use core::ops::ControlFlow;

/// The lines that begin at an offset of a range, made of the pieces of a file. A file can be cut anywhere: each line begins in one range.
#[derive(Debug)]
pub struct Lines {
    /// Offset of the next piece.
    at: u64,
    /// Where lines begin no more.
    to: u64,
    /// The first byte is the last one before the range: what follows it begins a line if it ends one.
    is_inside: bool,
    /// The beginning of a line that a piece did not end.
    part: Vec<u8>,
}

impl Lines {
    /// Those of the range between two offsets.
    #[must_use]
    pub fn from_offset(from: u64, to: u64) -> Self {
        Self {
            at: from.saturating_sub(1),
            to,
            is_inside: from == 0,
            part: Vec::new(),
        }
    }

    /// Where the first piece begins.
    #[must_use]
    pub fn begin(&self) -> u64 {
        self.at
    }

    /// Calls `each` with the lines that the next piece ends. Breaks when there can be no more.
    pub fn add(&mut self, mut piece: &[u8], each: &mut dyn FnMut(&[u8])) -> ControlFlow<()> {
        if !self.is_inside {
            let Some(end) = piece.iter().position(|byte| *byte == b'\n') else {
                self.at += piece.len() as u64;
                return ControlFlow::Continue(());
            };
            self.is_inside = true;
            self.at += end as u64 + 1;
            piece = &piece[end + 1..];
        }
        // `at` is where the next line begins, but for what `part` has of it.
        while self.at - (self.part.len() as u64) < self.to {
            let Some(end) = piece.iter().position(|byte| *byte == b'\n') else {
                self.part.extend_from_slice(piece);
                self.at += piece.len() as u64;
                return ControlFlow::Continue(());
            };
            if self.part.is_empty() {
                each(&piece[..end]);
            } else {
                self.part.extend_from_slice(&piece[..end]);
                each(&self.part);
                self.part.clear();
            }
            self.at += end as u64 + 1;
            piece = &piece[end + 1..];
        }
        ControlFlow::Break(())
    }

    /// Calls `each` with the last line of the file, if nothing ended it.
    pub fn end(&mut self, each: &mut dyn FnMut(&[u8])) {
        if !self.part.is_empty() && self.at - (self.part.len() as u64) < self.to {
            each(&self.part);
            self.part.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    /// The lines of a range, by pieces of so many bytes.
    fn lines(text: &str, from: u64, to: u64, piece: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut each = |line: &[u8]| found.push(String::from_utf8(line.to_vec()).unwrap());
        let mut lines = Lines::from_offset(from, to);
        let rest = text.as_bytes().get(lines.begin() as usize..).unwrap_or_default();
        let mut is_over = false;
        for piece in rest.chunks(piece) {
            if lines.add(piece, &mut each).is_break() {
                is_over = true;
                break;
            }
        }
        if !is_over {
            lines.end(&mut each);
        }
        found
    }

    #[test]
    fn each_line_begins_in_one_range() {
        for text in ["one\ntwo\n\nfour is longer\nfive", "one\n", "", "\n\n", "no end"] {
            let all: Vec<String> = text.lines().map(Into::into).collect();
            let len = text.len() as u64;
            for piece in [1, 2, 3, 7, 100] {
                assert_eq!(lines(text, 0, len, piece), all, "{text:?} {piece}");
                for cut in 0..=len {
                    let mut both = lines(text, 0, cut, piece);
                    both.extend(lines(text, cut, len, piece));
                    assert_eq!(both, all, "{text:?} {piece} {cut}");
                }
            }
        }
    }
}
