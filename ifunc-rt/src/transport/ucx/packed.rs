//! Packed messages: frames with short bodies, and notices, one after the other in one active message without a header of UCX's.
//!
//! UCX 1.13 sends what has only data, or only a header, by its shortest way. All words are little-endian.
//!
//! ```text
//! packed   name (u64) entry+
//! entry    first word, words that its flags announce, body; zeros up to a multiple of 8 if another entry follows
//! ```
//!
//! | bits of the first word | |
//! |---|---|
//! | 0–15 | low half of the sequence, which the receiver completes: it is less than a window ahead |
//! | 16–28 | length of the body |
//! | 29, 30, 31 | a word follows: word 1 of the frame; word 2; credits, as [`pack`] has them |
//! | 32–47 | low 16 bits of word 1, if it does not follow: kind and flags, or that it is a notice, and which |
//! | 48–63 | bits 32–47 of word 1, if it does not follow: the handle or the status; its other bits are 0 |
//!
//! Word 1 follows where the 32 bits do not hold it, word 2 where it is not 0, and credits where there are many new ones. So a frame for which no
//! completion is expected has 16 bytes of header, and most others 24; the first entry of a message has the name, and others have not.

use std::ops::Range;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::header::{Head, MAX_PACKED_BODY, Name, pack, unpack};
use crate::transport::RingSize;
use crate::transport::window::Credits;

/// Length of a word.
const WORD: usize = size_of::<u64>();
/// Where the first entry begins.
pub(super) const NAME: usize = WORD;
/// The longest header of an entry.
const MAX_HEAD: usize = 4 * WORD;
/// The longest header of a message with one entry.
pub(super) const MAX_FIRST: usize = NAME + MAX_HEAD;
/// Lengths of messages. UCX's transports over TCP and shared memory, whose segments have 8 KiB, take the longest in one piece.
pub(super) const LENGTHS: Range<usize> = NAME + WORD..MAX_FIRST + MAX_PACKED_BODY + 1;
/// Longest message that gathering fills.
pub(super) const MAX_GATHERED: usize = 4096;
/// Most entries of a message: each takes a buffer of its receiver.
pub(super) const MAX_ENTRIES: usize = 128;

const LEN_BITS: u32 = 13;
const _: () = assert!(MAX_PACKED_BODY < 1 << LEN_BITS);
const HAS_FIRST: u64 = 1 << 29;
const HAS_SECOND: u64 = 1 << 30;
const HAS_CREDITS: u64 = 1 << 31;
/// The bits of word 1 that the first word of an entry holds.
const NARROW: u64 = 0x0000_ffff_0000_ffff;

/// The header of an entry, whose sequence is to be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The low half of the sequence.
    pub(super) number: u16,
    pub(super) len: u16,
    pub(super) words: [u64; 2],
    pub(super) credits: Option<Credits>,
}

/// Memory for a header, which is at its end.
pub(super) type HeaderWords = [U64; MAX_FIRST / WORD];

/// Adds a word before `at`, where the header begins.
#[inline(always)]
fn push_front(words: &mut HeaderWords, at: &mut usize, word: u64) {
    *at -= 1;
    words[*at] = word.into();
}

impl Entry {
    /// Of a frame or a notice whose body is short.
    #[inline]
    pub(super) fn of(head: &Head) -> Self {
        Self {
            number: head.sequence as u16,
            len: head.len as u16,
            words: head.words,
            credits: head.credits,
        }
    }

    /// The header of a frame or notice to this connection, of which `next` is the next frame's sequence.
    pub(super) fn complete(&self, next: u32, to: Name) -> Head {
        // It is ahead of its turn by less than a window.
        const { assert!(RingSize::MAX_SLOTS <= 1 << u16::BITS) };
        let ahead = self.number.wrapping_sub(next as u16);
        Head {
            sequence: next.wrapping_add(ahead.into()),
            len: self.len.into(),
            words: self.words,
            credits: self.credits,
            to,
        }
    }

    /// Writes its header, behind the name if the entry is the first of its message. Returns the length.
    #[inline(always)]
    pub(super) fn encode(&self, first_to: Option<Name>, words: &mut HeaderWords) -> usize {
        debug_assert!(self.len < 1 << LEN_BITS);
        let mut at = words.len();
        let [first, second] = self.words;
        let is_narrow = first & !NARROW == 0;
        let mut word = u64::from(self.number) | u64::from(self.len) << 16;
        if let Some(credits) = self.credits {
            word |= HAS_CREDITS;
            push_front(words, &mut at, pack(credits));
        }
        if second != 0 {
            word |= HAS_SECOND;
            push_front(words, &mut at, second);
        }
        if is_narrow {
            word |= (first & 0xffff) << 32 | (first >> 32) << 48;
        } else {
            word |= HAS_FIRST;
            push_front(words, &mut at, first);
        }
        push_front(words, &mut at, word);
        if let Some(to) = first_to {
            push_front(words, &mut at, to.0);
        }
        (words.len() - at) * WORD
    }
}

/// A message that ends within an entry, or has more than there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The entries of a message with where their bodies are. Ends with the first that is malformed.
pub(super) struct Entries<R> {
    /// Copies the word at an offset: once, as the peer may still be able to write the message.
    read: R,
    at: usize,
    len: usize,
    left: usize,
}

impl<R: Fn(usize) -> u64> Entries<R> {
    /// Of a message of `len` bytes.
    #[inline]
    pub(super) fn new(len: usize, read: R) -> Self {
        Self {
            read,
            at: NAME,
            len,
            left: MAX_ENTRIES,
        }
    }

    /// Whether there are no more.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.at == self.len
    }

    #[inline(always)]
    fn word(&mut self) -> Result<u64, Malformed> {
        let at = self.at;
        if at + WORD > self.len {
            return Err(Malformed);
        }
        self.at += WORD;
        Ok((self.read)(at))
    }

    #[inline(always)]
    fn entry(&mut self) -> Result<(Entry, Range<usize>), Malformed> {
        self.left = self.left.checked_sub(1).ok_or(Malformed)?;
        let word = self.word()?;
        let follows = |bit: u64, this: &mut Self| match word & bit {
            0 => Ok(None),
            _ => this.word().map(Some),
        };
        let first = follows(HAS_FIRST, self)?;
        let second = follows(HAS_SECOND, self)?;
        let credits = follows(HAS_CREDITS, self)?;
        let narrow = word >> 32 & 0xffff | word >> 48 << 32;
        let len = (word >> 16) as usize & ((1 << LEN_BITS) - 1);
        let body = self.at..self.at + len;
        if body.end > self.len {
            return Err(Malformed);
        }
        self.at = match body.end == self.len {
            true => self.len,
            false => body.end.next_multiple_of(WORD),
        };
        let entry = Entry {
            number: word as u16,
            len: len as u16,
            words: [first.unwrap_or(narrow), second.unwrap_or(0)],
            credits: credits.map(unpack),
        };
        Ok((entry, body))
    }
}

impl<R: Fn(usize) -> u64> Iterator for Entries<R> {
    type Item = Result<(Entry, Range<usize>), Malformed>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.at = self.len;
        }
        Some(entry)
    }
}

/// Appends an entry to a message of which `end` bytes are there, the name at least, and which has room for `message.len()`. Returns the new
/// end; `None`: there is no room for the entry.
pub(super) fn append(message: &mut [u8], end: usize, head: &Head, body: &[u8]) -> Option<usize> {
    let mut words = HeaderWords::default();
    let len = Entry::of(head).encode(None, &mut words);
    let header = &words.as_bytes()[MAX_FIRST - len..];
    let at = end.next_multiple_of(WORD);
    let body_at = at + header.len();
    let new_end = body_at + body.len();
    if new_end > message.len() {
        return None;
    }
    // The buffer had another use before.
    message[end..at].fill(0);
    message[at..body_at].copy_from_slice(header);
    message[body_at..new_end].copy_from_slice(body);
    Some(new_end)
}

/// The header of an entry.
#[cfg(test)]
pub(super) fn encoded(entry: &Entry, first_to: Option<Name>) -> Vec<u8> {
    let mut words = HeaderWords::default();
    let len = entry.encode(first_to, &mut words);
    words.as_bytes()[MAX_FIRST - len..].to_vec()
}

#[cfg(test)]
mod tests {
    use ifunc_abi::frame::{FrameFlags, Header, Kind};
    use proptest::prelude::*;

    use super::super::header::Notice;
    use super::*;

    fn word_of(bytes: &[u8]) -> impl Fn(usize) -> u64 + '_ {
        |at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    fn frame(sequence: u32, len: usize, words: [u64; 2], credits: Option<Credits>) -> Head {
        Head {
            sequence,
            len: len as u32,
            words,
            credits,
            to: Name(7),
        }
    }

    #[test]
    fn headers_are_as_short_as_what_they_say() {
        let credits = Some(Credits {
            frames: 3,
            data: 1 << 31,
        });
        let head = |header: Header, credits| Entry::of(&frame(1, 8, header.words(), credits));
        let send = Header::new(Kind::Exec, 5, 0);
        let call = Header::new(Kind::Exec, 5, 1 << 40);
        let wide = Header::new(Kind::Exec, 1 << 16, 1);
        let flagged = Header {
            flags: FrameFlags::ASSEMBLED,
            ..send
        };
        for (header, credits, len) in [
            (send, None, 16),
            (flagged, None, 16),
            (call, None, 24),
            (send, credits, 24),
            (call, credits, 32),
            (wide, credits, 40),
        ] {
            let entry = head(header, credits);
            let mut message = encoded(&entry, Some(Name(7)));
            assert_eq!(message.len(), len, "{header:?}");
            assert_eq!(message[NAME..], encoded(&entry, None));
            message.extend([9; 8]);
            assert_eq!(word_of(&message)(0), 7);
            let entries: Vec<_> = Entries::new(message.len(), word_of(&message)).collect();
            assert_eq!(entries, [Ok((entry, len..len + 8))]);
        }
        let notice = Head::notice(Notice::Fin, 12, 0, Credits::default());
        let entry = Entry::of(&notice);
        let message = encoded(&entry, Some(Name(7)));
        let mut entries = Entries::new(message.len(), word_of(&message));
        let (decoded, _) = entries.next().unwrap().unwrap();
        assert_eq!(decoded, entry);
        assert!(entries.next().is_none());
    }

    #[test]
    fn a_message_has_no_more_entries_and_bytes_than_it_may() {
        let mut message = vec![0xff; MAX_GATHERED];
        let mut end = NAME;
        for n in 0..=MAX_ENTRIES {
            let head = frame(n as u32, 0, [1, 0], None);
            end = append(&mut message, end, &head, &[]).unwrap();
        }
        let entries: Vec<_> = Entries::new(end, word_of(&message)).collect();
        assert_eq!(entries.len(), MAX_ENTRIES + 1);
        assert!(entries[..MAX_ENTRIES].iter().all(Result::is_ok));
        assert_eq!(entries[MAX_ENTRIES], Err(Malformed));
        // To the byte, in a buffer that is long enough and in one that is not.
        let largest = MAX_GATHERED - NAME - WORD;
        let body = vec![5; largest + 1];
        let fits = |buffer: &mut [u8], len: usize| {
            let head = frame(1, len, [1, 0], None);
            append(buffer, NAME, &head, &body[..len])
        };
        assert_eq!(fits(&mut message, largest), Some(MAX_GATHERED));
        assert_eq!(fits(&mut message, largest + 1), None);
        assert_eq!(fits(&mut [0; 100], 84), Some(100));
        assert_eq!(fits(&mut [0; 100], 85), None);
    }

    #[test]
    fn what_lies_between_two_entries_is_not_the_buffers_past() {
        let mut message = [0xee; 100];
        let end = append(&mut message, NAME, &frame(1, 3, [1, 0], None), b"abc").unwrap();
        assert_eq!(end, 19);
        append(&mut message, end, &frame(2, 1, [1, 0], None), b"d").unwrap();
        assert_eq!(message[16..24], *b"abc\0\0\0\0\0");
    }

    /// Any word 1, nearly always one that is narrow.
    fn any_head() -> impl Strategy<Value = (Head, Vec<u8>)> {
        let word = prop_oneof![any::<u64>().prop_map(|word| word & NARROW), any::<u64>()];
        let second = prop_oneof![Just(0), any::<u64>()];
        let credits = prop_oneof![Just(None), any::<u64>().prop_map(|word| Some(unpack(word)))];
        let body = prop::collection::vec(any::<u8>(), 0..200);
        (any::<u32>(), word, second, credits, body).prop_map(|(sequence, first, second, credits, body)| {
            (frame(sequence, body.len(), [first, second], credits), body)
        })
    }

    proptest! {
        #[test]
        fn entries_are_decoded_as_they_were_encoded(heads in prop::collection::vec(any_head(), 1..20)) {
            let mut message = vec![0xaa; MAX_GATHERED];
            let mut end = NAME;
            let mut taken = 0;
            for (head, body) in &heads {
                let Some(next) = append(&mut message, end, head, body) else { break };
                (end, taken) = (next, taken + 1);
            }
            prop_assert!(LENGTHS.contains(&end) && taken > 0);
            let mut decoded = 0;
            for (entry, (head, body)) in Entries::new(end, word_of(&message)).zip(&heads) {
                let (entry, at) = entry.unwrap();
                prop_assert_eq!(entry, Entry::of(head));
                prop_assert_eq!(&message[at], &body[..]);
                decoded += 1;
            }
            prop_assert_eq!(decoded, taken);
        }

        #[test]
        fn any_bytes_are_validated(bytes in prop::collection::vec(any::<u8>(), 16..600), cut in 0usize..64) {
            let len = bytes.len() - cut.min(bytes.len() - 16);
            let mut last = NAME;
            for entry in Entries::new(len, word_of(&bytes[..len])) {
                let Ok((entry, body)) = entry else { break };
                prop_assert!(body.start >= last + WORD && body.end <= len && usize::from(entry.len) == body.len());
                last = body.end;
            }
        }
    }
}
