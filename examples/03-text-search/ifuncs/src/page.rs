//! Lines, one behind the other, in memory that does not grow with the text nor with a line.

use alloc::vec;
use alloc::vec::Vec;

use memchr::memchr;

use crate::{MAX_SHOWN, Match, Page, Position};

/// How much is read at once.
const CHUNK: usize = 128 << 10;
/// A page ends with the line in which so much was looked at: a target has other sources, too, and a source its patience.
const BUDGET: u64 = 256 << 20;
/// What a page takes beside its matches, and a match beside its text: numbers of at most ten bytes each.
const PAGE: usize = 5 * 10 + 1;
const MATCH: usize = 4 * 10;

/// Whether a line is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Whatever follows in the line.
    Yes,
    /// Whatever follows in the line.
    No,
    /// What follows in the line decides.
    Open,
}

/// Chooses lines. It sees a line in parts, however long the line is.
pub(crate) trait Predicate {
    /// A line begins.
    fn begin(&mut self);
    /// The next part of the line; not called again once the answer was not [`Verdict::Open`].
    fn part(&mut self, part: &[u8]) -> Verdict;
    /// The line ends, and is still open.
    fn end(&mut self) -> bool;
}

/// Where we are.
struct Progress {
    /// The line that we are in.
    line: Position,
    /// What is known of it.
    verdict: Verdict,
    page: Page,
    /// What is left for matches, in bytes.
    room: usize,
}

/// The chosen lines from `from` on, as many as an answer of `capacity` bytes holds. `read` reads from an offset on and
/// answers how much that is, 0 at the end.
pub(crate) fn choose(
    read: impl Fn(u64, &mut [u8]) -> usize,
    from: Position,
    capacity: usize,
    predicate: &mut impl Predicate,
) -> Page {
    // Nobody waits for an answer.
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
        room: capacity - PAGE,
    };
    let mut chunk = vec![0; CHUNK];
    let mut offset = from.offset;
    predicate.begin();
    loop {
        let len = read(offset, &mut chunk);
        let bytes = &chunk[..len];
        if bytes.is_empty() {
            // The last line of a text need not end.
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
    /// The line ends at `end`: takes it if it is chosen. `chunk` is what was read last, and where that begins. `false` if
    /// there is no room left.
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
            // A page of no line would be the next one, too.
            shown = shown.min(self.room - MATCH);
        }
        let Some(left) = self.room.checked_sub(MATCH + shown) else {
            return false;
        };
        self.room = left;
        self.page.matches.push(Match {
            at: self.line,
            len,
            text: text(read, self.line.offset, shown, chunk),
        });
        true
    }

    /// The page, when the line that we are in is left to the next.
    fn stopped(mut self, from: Position) -> Page {
        self.page.searched = self.line.offset - from.offset;
        self.page.next = Some(self.line);
        self.page
    }
}

/// The first bytes of a line: from the chunk, or where the line began in an earlier one, read once more.
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
            // The text has become shorter meanwhile.
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

    /// Every page of a search for `needle`, each no larger than `capacity`.
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

    /// The same, as simply as can be.
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
    fn pages_are_the_whole() {
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
    fn a_line_may_be_longer_than_what_is_read_at_once() {
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
    fn lines_end_or_do_not() {
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
