//! Iterates over lines in constant memory, independent of the length of the text and of its lines.

use alloc::vec;
use alloc::vec::Vec;

use memchr::memchr;

use crate::{MAX_SHOWN, Match, Page, Position};

/// Bytes per read.
const CHUNK: usize = 128 << 10;
/// Bytes searched per page: a page ends with the line that exceeds the budget, so that the target can serve
/// other sources and the source gets progress.
const BUDGET: u64 = 256 << 20;
/// Encoded size of a page without its matches, and of a match without its text: numbers of at most ten bytes
/// each.
const PAGE: usize = 5 * 10 + 1;
const MATCH: usize = 4 * 10;

/// The decision about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Selected, regardless of the rest of the line.
    Yes,
    /// Not selected, regardless of the rest of the line.
    No,
    /// Depends on the rest of the line.
    Open,
}

/// Selects lines. It gets a line in parts, so that a line may have any length.
pub(crate) trait Predicate {
    /// A line begins.
    fn begin(&mut self);
    /// Consumes the next part of the line. Not called again after a verdict other than [`Verdict::Open`].
    fn part(&mut self, part: &[u8]) -> Verdict;
    /// Decides at the end of an open line.
    fn end(&mut self) -> bool;
}

/// The progress of a search.
struct Progress {
    /// The current line.
    line: Position,
    /// The verdict on the current line.
    verdict: Verdict,
    page: Page,
    /// Bytes left for matches.
    space: usize,
}

/// The selected lines from `from` on, as many as fit into an answer of `capacity` bytes. `read` reads from an
/// offset on and returns the number of bytes, 0 at the end.
pub(crate) fn choose(
    read: impl Fn(u64, &mut [u8]) -> usize,
    from: Position,
    capacity: usize,
    predicate: &mut impl Predicate,
) -> Page {
    // The source expects no answer.
    if capacity == 0 {
        return Page::default();
    }
    assert!(
        capacity > PAGE + MATCH,
        "an answer may have too few bytes for a line"
    );
    let mut now = Progress {
        line: from,
        verdict: Verdict::Open,
        page: Page::default(),
        space: capacity - PAGE,
    };
    let mut chunk = vec![0; CHUNK];
    let mut offset = from.offset;
    predicate.begin();
    loop {
        let len = read(offset, &mut chunk);
        let bytes = &chunk[..len];
        if bytes.is_empty() {
            // The last line of a text may lack a line end.
            if offset > now.line.offset && !now.take(&read, predicate, offset, (offset, bytes)) {
                return now.stopped(from);
            }
            now.page.searched = offset - from.offset;
            return now.page;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest);
            let part = &rest[..end.unwrap_or(rest.len())];
            if now.verdict == Verdict::Open {
                now.verdict = predicate.part(part);
            }
            let Some(end) = end else { break };
            rest = &rest[end + 1..];
            let next = offset + (len - rest.len()) as u64;
            if !now.take(&read, predicate, next - 1, (offset, bytes)) {
                return now.stopped(from);
            }
            now.line = Position {
                offset: next,
                line: now.line.line + 1,
            };
            now.verdict = Verdict::Open;
            predicate.begin();
        }
        offset += len as u64;
        if offset - from.offset >= BUDGET && now.line != from {
            return now.stopped(from);
        }
    }
}

impl Progress {
    /// Ends the line at `end`, and adds it if it is selected. `chunk` is the last read and its offset.
    /// Returns `false` if the page is full.
    fn take(
        &mut self,
        read: impl Fn(u64, &mut [u8]) -> usize,
        predicate: &mut impl Predicate,
        end: u64,
        chunk: (u64, &[u8]),
    ) -> bool {
        let chosen = match self.verdict {
            Verdict::Yes => true,
            Verdict::No => false,
            Verdict::Open => predicate.end(),
        };
        if !chosen {
            return true;
        }
        let len = end - self.line.offset;
        let mut shown = usize::try_from(len).map_or(MAX_SHOWN, |len| len.min(MAX_SHOWN));
        if self.page.matches.is_empty() {
            // A page without a line would repeat forever.
            shown = shown.min(self.space - MATCH);
        }
        let Some(left) = self.space.checked_sub(MATCH + shown) else {
            return false;
        };
        self.space = left;
        self.page.matches.push(Match {
            at: self.line,
            len,
            text: text(read, self.line.offset, shown, chunk),
        });
        true
    }

    /// The page that ends before the current line.
    fn stopped(mut self, from: Position) -> Page {
        self.page.searched = self.line.offset - from.offset;
        self.page.next = Some(self.line);
        self.page
    }
}

/// The first bytes of a line, from the chunk, or read again if the line began in an earlier one.
fn text(
    read: impl Fn(u64, &mut [u8]) -> usize,
    offset: u64,
    len: usize,
    (start, chunk): (u64, &[u8]),
) -> Vec<u8> {
    if let Some(begin) = offset.checked_sub(start)
        && let Some(text) = chunk.get(begin as usize..begin as usize + len)
    {
        return text.into();
    }
    let mut text = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match read(offset + filled as u64, &mut text[filled..]) {
            // The text was truncated meanwhile.
            0 => break,
            more => filled += more,
        }
    }
    text.truncate(filled);
    text
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::string::String;

    use ifunc::Answer;
    use ifunc::codec::Postcard;

    use super::*;
    use crate::fold::{Folded, folded};

    /// All pages of a search for `needle`, each at most `capacity` long.
    fn all(text: &[u8], needle: &str, capacity: usize) -> Vec<Match> {
        let read = |offset: u64, into: &mut [u8]| {
            let rest = text.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(into.len());
            into[..len].copy_from_slice(&rest[..len]);
            len
        };
        let needle = folded(needle);
        let mut found = Vec::new();
        let (mut next, mut searched) = (Some(Position::START), 0);
        let mut answer = vec![0; capacity];
        while let Some(from) = next {
            let page = choose(read, from, capacity, &mut Folded::new(&needle));
            Answer::<Postcard>::encode(&page, &mut answer).expect("a page that fits");
            assert!(
                page.next.is_none_or(|next| next.offset > from.offset),
                "no page twice"
            );
            searched += page.searched;
            found.extend(page.matches);
            next = page.next;
        }
        assert_eq!(searched, text.len() as u64);
        found
    }

    /// The same result by a naive search.
    fn simply(text: &[u8], needle: &str) -> Vec<(u64, u64, Vec<u8>)> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let mut offset = 0;
        let mut found = Vec::new();
        for (line, bytes) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            if folded(&String::from_utf8_lossy(bytes)).contains(&folded(needle)) {
                found.push((line, offset, bytes.into()));
            }
            offset += bytes.len() as u64 + 1;
        }
        found
    }

    fn compare(text: &[u8], needle: &str, capacity: usize) -> usize {
        let expected = simply(text, needle);
        let found = all(text, needle, capacity);
        assert_eq!(found.len(), expected.len());
        for (found, (line, offset, bytes)) in found.iter().zip(&expected) {
            assert_eq!((found.at.line, found.at.offset), (*line, *offset));
            assert_eq!(found.len, bytes.len() as u64);
            assert!(bytes.starts_with(&found.text));
            assert!(capacity < 2 * MAX_SHOWN || found.text.len() == bytes.len().min(MAX_SHOWN));
        }
        found.len()
    }

    #[test]
    fn pages_cover_the_whole_text() {
        let mut text = Vec::new();
        for n in 0..40_000 {
            let word = [
                "Straße",
                "STRASSE",
                "straße\r",
                "\u{212A}elvin",
                "\u{3c3}\u{3a3}\u{3c2}",
                "",
            ][n % 6];
            text.extend(format!("{n} {word}\n").bytes());
            if n % 1000 == 7 {
                text.extend(b"\xff\xc3stra\xc3\x9fe\xe2\x82\n");
            }
        }
        for capacity in [100, 1000, 64 << 10] {
            assert_eq!(compare(&text, "STRAßE", capacity), 2 * 6667 + 40);
            assert_eq!(compare(&text, "KELVIN", capacity), 6667);
            assert_eq!(compare(&text, "\u{3c2}\u{3c2}\u{3c2}", capacity), 6666);
        }
        assert_eq!(compare(&text, "39999", 64 << 10), 1);
    }

    #[test]
    fn a_line_may_be_longer_than_a_read() {
        let mut text = vec![b'a'; 3 * CHUNK];
        text.extend(b"Needle\nneedle\n");
        text.extend(vec![b'a'; CHUNK]);
        text.extend("neEdle".bytes());
        for capacity in [200, 64 << 10] {
            assert_eq!(compare(&text, "needle", capacity), 3);
            assert_eq!(compare(&text, "aab", capacity), 0);
            assert_eq!(compare(&text, &"a".repeat(CHUNK + 1), capacity), 1);
        }
    }

    #[test]
    fn the_last_line_may_lack_a_line_end() {
        for text in ["a", "a\n", "a\nb", "\n", "\n\n", "b\na\n"] {
            compare(text.as_bytes(), "a", 1000);
            compare(text.as_bytes(), "", 1000);
        }
        assert_eq!(all(b"", "", 1000), []);
        assert_eq!(
            choose(|_, _| panic!("read"), Position::START, 0, &mut Folded::new("")),
            Page::default()
        );
    }
}
