//! Case-insensitive substring search with the algorithm of Knuth, Morris and Pratt: it reads each byte of a
//! line once and keeps nothing of the line.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::page::{Predicate, Verdict};

/// The representative of `c` among its case variants, if the mapping is one character to one: `ß`, whose
/// uppercase is two characters, represents itself; `σ` represents `ς` and `Σ`.
#[must_use]
pub fn fold(c: char) -> char {
    let single = |mut all: core::char::ToUppercase| all.next().filter(|_| all.next().is_none());
    let upper = single(c.to_uppercase()).unwrap_or(c);
    let mut lower = upper.to_lowercase();
    lower.next().filter(|_| lower.next().is_none()).unwrap_or(upper)
}

/// The text with each character folded.
#[must_use]
pub fn folded(text: &str) -> String {
    text.chars().map(fold).collect()
}

/// The state of a case-insensitive search within a line.
pub(crate) struct Folded<'n> {
    needle: &'n [u8],
    /// For each prefix of the needle, the length of its longest border: a proper prefix that is also its
    /// suffix.
    borders: Vec<usize>,
    /// Number of bytes of the needle matched at this point of the line.
    matched: usize,
    /// The first bytes of an incomplete multi-byte character.
    pending: Pending,
}

#[derive(Clone, Copy, Default)]
struct Pending {
    bytes: [u8; 4],
    len: usize,
}

impl Pending {
    fn drop_front(&mut self, n: usize) {
        self.bytes.copy_within(n..self.len, 0);
        self.len -= n;
    }
}

impl<'n> Folded<'n> {
    /// Takes a folded needle.
    pub(crate) fn new(needle: &'n str) -> Self {
        let needle = needle.as_bytes();
        let mut borders = vec![0; needle.len()];
        let mut border = 0;
        for i in 1..needle.len() {
            while border > 0 && needle[i] != needle[border] {
                border = borders[border - 1];
            }
            border += usize::from(needle[i] == needle[border]);
            borders[i] = border;
        }
        Self {
            needle,
            borders,
            matched: 0,
            pending: Pending::default(),
        }
    }

    fn is_found(&self) -> bool {
        self.matched == self.needle.len()
    }

    /// Consumes a byte of the folded line.
    fn step(&mut self, byte: u8) {
        while !self.is_found() {
            if self.needle[self.matched] == byte {
                self.matched += 1;
                return;
            }
            match self.matched {
                0 => return,
                n => self.matched = self.borders[n - 1],
            }
        }
    }

    /// Consumes a byte of a multi-byte character, or an invalid byte.
    fn wide(&mut self, byte: u8) {
        self.pending.bytes[self.pending.len] = byte;
        self.pending.len += 1;
        while self.pending.len > 0 {
            let Pending { bytes, len } = self.pending;
            match core::str::from_utf8(&bytes[..len]) {
                Ok(text) => {
                    for c in text.chars() {
                        let mut buffer = [0; 4];
                        fold(c)
                            .encode_utf8(&mut buffer)
                            .bytes()
                            .for_each(|byte| self.step(byte));
                    }
                    self.pending.len = 0;
                }
                // Invalid bytes represent themselves.
                Err(error) => match error.error_len() {
                    Some(wrong) => {
                        bytes[..wrong].iter().for_each(|&byte| self.step(byte));
                        self.pending.drop_front(wrong);
                    }
                    None => return,
                },
            }
        }
    }
}

impl Predicate for Folded<'_> {
    fn begin(&mut self) {
        self.matched = 0;
        self.pending.len = 0;
    }

    fn part(&mut self, part: &[u8]) -> Verdict {
        for &byte in part {
            if byte.is_ascii() && self.pending.len == 0 {
                self.step(byte.to_ascii_lowercase());
            } else {
                self.wide(byte);
            }
            if self.is_found() {
                return Verdict::Yes;
            }
        }
        Verdict::Open
    }

    fn end(&mut self) -> bool {
        let Pending { bytes, len } = self.pending;
        bytes[..len].iter().for_each(|&byte| self.step(byte));
        self.is_found()
    }
}
