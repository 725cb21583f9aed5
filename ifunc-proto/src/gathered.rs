//! Completions that travel in one frame: those of the entries of batches.

use std::collections::VecDeque;
use std::ops::Range;

use ifunc_abi::batch::{ALIGN, MAX_RUN, RunHead};
use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::status::Status;
use zerocopy::IntoBytes;

use crate::buffer::AlignedBuffer;
use crate::host::Answers;

/// Length from which on no completion is added. A poll's share of small answers is shorter.
const FULL: usize = 8 << 10;
/// Memory for the answers of a run, beside the longest one.
const RUN: usize = 8 << 10;

/// Most entries of a run whose answers are gathered together. Each may need a head of its own.
pub(crate) const MAX_ANSWERS: usize = 256;

/// The bodies of the next `Completions` frames, in private memory. Before completions are added that is less than one full
/// frame; an invocation or a run of entries adds what it answers to that.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// Runs of completions, followed by the capacity for more.
    memory: AlignedBuffer,
    /// End of the last completion. The head of the open run is not written yet, nor the zeros after it.
    len: usize,
    /// Begin of the frame that is filled.
    begin: usize,
    run: OpenRun,
    /// Frames to which no completion is added, in their order, before the one that is filled.
    complete: VecDeque<Complete>,
    /// The answers of a run, before they are added, and their lengths.
    answers: AlignedBuffer,
    lens: Vec<u32>,
    /// Largest body of a frame.
    max_body: usize,
    /// Longest body of a completion.
    max_reply: usize,
}

/// The last run of completions.
#[derive(Clone, Copy, Debug, Default)]
struct OpenRun {
    /// Offset of its head.
    at: usize,
    code: u32,
    len: usize,
    /// Number of its completions; 0: there is no open run.
    count: u32,
    /// Token of the first one.
    token: u64,
}

#[derive(Debug)]
enum Complete {
    /// A frame of runs.
    Runs(Range<usize>),
    /// A completion that needs a frame of its own, and where its body lies.
    Alone(Status, u64, Range<usize>),
    /// As `Alone`, with its body.
    Detail(Status, u64, Vec<u8>),
}

impl Gathered {
    pub(crate) fn new(max_body: usize, max_reply: usize) -> Self {
        Self {
            memory: AlignedBuffer::default(),
            len: 0,
            begin: 0,
            run: OpenRun::default(),
            complete: VecDeque::new(),
            answers: AlignedBuffer::default(),
            lens: Vec::new(),
            max_body,
            max_reply,
        }
    }

    /// Whether frames must be sent before the next invocation or run is processed.
    pub(crate) fn is_full(&self) -> bool {
        // The frame that is filled begins at 0 if it is the only one.
        !self.complete.is_empty() || self.len >= FULL.min(self.max_body)
    }

    /// Makes memory for everything that may be added before it is full. The same size at all times: a buffer that grows is
    /// filled with zeros.
    fn allocate(&mut self) {
        const HEAD: usize = RunHead::SIZE + ALIGN;
        let all = FULL + RUN + self.max_reply + (MAX_ANSWERS + 2) * HEAD;
        self.memory.resize(all.next_multiple_of(64));
    }

    /// Memory for the body of the next completion, which [`push`](Self::push) adds. Not full before.
    pub(crate) fn reserve(&mut self) -> &mut [u8] {
        debug_assert!(!self.is_full(), "a full frame is sent first");
        self.allocate();
        let at = self.next_body();
        &mut self.memory.as_mut_slice()[at..][..self.max_reply]
    }

    /// Where the body of the first completion of a new run lies.
    fn next_body(&self) -> usize {
        self.len.next_multiple_of(ALIGN) + RunHead::SIZE
    }

    /// Adds a completion whose body is the first `len` bytes of [`reserve`](Self::reserve).
    pub(crate) fn push(&mut self, token: u64, status: Status, len: usize) {
        let from = self.next_body();
        if self.room(status.code(), token, len) > 0 {
            let to = self.begin_entries(status.code(), token, len, 1);
            if from != to {
                self.memory.as_mut_slice().copy_within(from..from + len, to);
            }
            return;
        }
        self.complete_frame();
        // It lies where the first completion of a frame does, unless it fits into none.
        if self.room(status.code(), token, len) > 0 {
            self.begin_entries(status.code(), token, len, 1);
            return;
        }
        self.complete
            .push_back(Complete::Alone(status, token, from..from + len));
        self.len = (from + len).next_multiple_of(ALIGN);
        self.begin = self.len;
    }

    /// Adds a failure of the run whose answers were added last. It may be full.
    pub(crate) fn push_failure(&mut self, token: u64, status: Status, detail: &[u8]) {
        let detail = &detail[..detail.len().min(self.max_reply)];
        if !self.is_full() {
            self.reserve()[..detail.len()].copy_from_slice(detail);
            return self.push(token, status, detail.len());
        }
        self.complete_frame();
        self.complete
            .push_back(Complete::Detail(status, token, detail.to_vec()));
    }

    /// Memory for the answers of a run of at most [`MAX_ANSWERS`] entries, which [`push_run`](Self::push_run) adds. Not full before.
    pub(crate) fn reserve_run(&mut self, max_answer: usize) -> Answers<'_> {
        debug_assert!(!self.is_full(), "a full frame is sent first");
        self.answers.resize(RUN + max_answer);
        self.lens.resize(MAX_ANSWERS, 0);
        Answers {
            memory: self.answers.as_mut_slice(),
            max_answer,
            lens: &mut self.lens,
        }
    }

    /// Adds the first `count` answers of [`reserve_run`](Self::reserve_run), with consecutive tokens.
    pub(crate) fn push_run(&mut self, token: u64, count: usize) {
        self.allocate();
        let (answers, lens) = (std::mem::take(&mut self.answers), std::mem::take(&mut self.lens));
        let mut left = &lens[..count];
        let (mut token, mut bytes) = (token, answers.as_slice());
        while let Some(&len) = left.first() {
            // Most often all are alike. The first loop has no branch, so that the processor compares several at once.
            let alike = match left.iter().fold(0, |differ, other| differ | (other ^ len)) {
                0 => left.len(),
                _ => left.iter().take_while(|&&other| other == len).count(),
            };
            self.push_alike(token, len as usize, alike, bytes);
            left = &left[alike..];
            // The token after the last one that there is, is not used.
            token = token.wrapping_add(alike as u64);
            let used = alike * (len as usize).next_multiple_of(ALIGN);
            bytes = &bytes[used.min(bytes.len())..];
        }
        (self.answers, self.lens) = (answers, lens);
    }

    /// Adds `count` answers of `len` bytes each, which lie in `bytes`.
    fn push_alike(&mut self, mut token: u64, len: usize, mut count: usize, mut bytes: &[u8]) {
        let code = Status::Executed.code();
        let distance = len.next_multiple_of(ALIGN);
        while count > 0 {
            let mut fits = self.room(code, token, len).min(count);
            if fits == 0 {
                self.complete_frame();
                fits = self.room(code, token, len).min(count);
            }
            let (taken, rest) = bytes.split_at((fits.max(1) * distance).min(bytes.len()));
            if fits == 0 {
                let body = self.next_body()..self.next_body() + len;
                self.memory.as_mut_slice()[body.clone()].copy_from_slice(&taken[..len]);
                self.len = body.end.next_multiple_of(ALIGN);
                self.begin = self.len;
                self.complete
                    .push_back(Complete::Alone(Status::Executed, token, body));
            } else {
                let to = self.begin_entries(code, token, len, fits);
                let to = &mut self.memory.as_mut_slice()[to..][..fits * len];
                if len == distance {
                    to.copy_from_slice(taken);
                } else {
                    let each = to.chunks_exact_mut(len).zip(taken.chunks(distance));
                    each.for_each(|(to, from)| to.copy_from_slice(&from[..len]));
                }
            }
            bytes = rest;
            token = token.wrapping_add(fits.max(1) as u64);
            count -= fits.max(1);
        }
    }

    /// Whether a completion joins the open run.
    fn joins(&self, code: u32, token: u64, len: usize) -> bool {
        let run = &self.run;
        run.count > 0
            && run.count < MAX_RUN
            && (run.code, run.len) == (code, len)
            && run.token.checked_add(run.count.into()) == Some(token)
    }

    /// How many completions of `len` bytes fit into the frame that is filled.
    fn room(&self, code: u32, token: u64, len: usize) -> usize {
        let (at, most) = if self.joins(code, token, len) {
            (self.len, MAX_RUN - self.run.count)
        } else {
            (self.next_body(), MAX_RUN)
        };
        let end = self.begin + self.max_body / ALIGN * ALIGN;
        match end.checked_sub(at) {
            Some(left) => left.checked_div(len).unwrap_or(usize::MAX).min(most as usize),
            None => 0,
        }
    }

    /// Adds `count` completions that fit into the frame. Returns where their bodies lie, which the caller writes.
    fn begin_entries(&mut self, code: u32, token: u64, len: usize, count: usize) -> usize {
        let to = if self.joins(code, token, len) {
            self.run.count += count as u32;
            self.len
        } else {
            let to = self.next_body();
            self.seal();
            self.run = OpenRun {
                at: to - RunHead::SIZE,
                code,
                len,
                count: count as u32,
                token,
            };
            to
        };
        self.len = to + count * len;
        to
    }

    /// Writes the head of the open run and the zeros after it.
    fn seal(&mut self) {
        let run = std::mem::take(&mut self.run);
        if run.count == 0 {
            return;
        }
        let end = self.len.next_multiple_of(ALIGN);
        let memory = self.memory.as_mut_slice();
        let head = RunHead::new(run.code, run.token, run.len as u32, run.len as u32, run.count);
        memory[run.at..run.at + RunHead::SIZE].copy_from_slice(head.as_bytes());
        memory[self.len..end].fill(0);
        self.len = end;
    }

    /// The next completion begins another frame.
    fn complete_frame(&mut self) {
        self.seal();
        if self.len > self.begin {
            self.complete.push_back(Complete::Runs(self.begin..self.len));
            self.begin = self.len;
        }
    }

    /// The next frame to send.
    pub(crate) fn next(&mut self) -> Option<(Header, &[u8])> {
        self.seal();
        let runs = Header::new(Kind::Completions, 0, 0);
        let alone = |status: &Status, token: u64| Header::new(Kind::Completion, status.code(), token);
        let memory = self.memory.as_slice();
        match self.complete.front() {
            Some(Complete::Runs(range)) => Some((runs, &memory[range.clone()])),
            Some(Complete::Alone(status, token, range)) => {
                Some((alone(status, *token), &memory[range.clone()]))
            }
            Some(Complete::Detail(status, token, detail)) => Some((alone(status, *token), detail)),
            None if self.len > self.begin => Some((runs, &memory[self.begin..self.len])),
            None => None,
        }
    }

    /// Removes the frame that [`next`](Self::next) returned.
    pub(crate) fn sent(&mut self) {
        if self.complete.pop_front().is_none() {
            self.len = self.begin;
        }
        if self.complete.is_empty() {
            // There is no open run: `next` wrote its head.
            self.memory.as_mut_slice().copy_within(self.begin..self.len, 0);
            self.len -= self.begin;
            self.begin = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(gathered: &mut Gathered, token: u64, body: &[u8]) {
        gathered.reserve().fill(0xa5);
        gathered.reserve()[..body.len()].copy_from_slice(body);
        gathered.push(token, Status::Executed, body.len());
    }

    fn head(token: u64, len: u32, count: u32) -> Vec<u8> {
        let code = Status::Executed.code();
        RunHead::new(code, token, len, len, count).as_bytes().to_vec()
    }

    /// Sends everything. Checks that frames are no longer than allowed, and returns tokens, statuses and bodies.
    fn drain(gathered: &mut Gathered, max_body: usize) -> Vec<(u64, u32, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some((header, body)) = gathered.next() {
            assert!(body.len() <= max_body);
            if header.kind == Kind::Completion {
                all.push((header.token, header.handle, body.to_vec()));
            }
            let mut rest = body;
            while header.kind == Kind::Completions && !rest.is_empty() {
                use zerocopy::FromBytes;
                let (head, entries) = RunHead::read_from_prefix(rest).unwrap();
                let size = head.run_len().unwrap();
                assert_eq!(head.len, head.stride);
                for i in 0..head.count.get() as usize {
                    let len = head.len.get() as usize;
                    let token = head.token.get() + i as u64;
                    all.push((token, head.code.get(), entries[i * len..][..len].to_vec()));
                }
                let used = head.len.get() as usize * head.count.get() as usize;
                assert!(entries[used..size - RunHead::SIZE].iter().all(|&byte| byte == 0));
                rest = &rest[size..];
            }
            gathered.sent();
        }
        assert_eq!((gathered.len, gathered.begin), (0, 0));
        all
    }

    /// A peer chooses the tokens of its requests.
    #[test]
    fn the_last_tokens_that_there_are_are_answered() {
        let mut gathered = Gathered::new(88, 80);
        push(&mut gathered, u64::MAX, b"abc");
        push(&mut gathered, 1, b"abc");
        let answered = drain(&mut gathered, 88);
        assert_eq!(
            answered.iter().map(|all| all.0).collect::<Vec<_>>(),
            [u64::MAX, 1]
        );
        let lens = gathered.reserve_run(8).lens;
        lens[..3].copy_from_slice(&[2, 2, 1]);
        gathered.push_run(u64::MAX - 2, 3);
        let answered = drain(&mut gathered, 88);
        let expected = [u64::MAX - 2, u64::MAX - 1, u64::MAX];
        assert_eq!(answered.iter().map(|all| all.0).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn small_completions_share_a_frame_and_a_large_one_follows_in_its_own() {
        let mut gathered = Gathered::new(88, 80);
        push(&mut gathered, 1, b"abc");
        push(&mut gathered, 2, b"");
        assert!(!gathered.is_full());
        push(&mut gathered, 3, &[7; 70]);
        assert!(gathered.is_full());
        let (header, body) = gathered.next().unwrap();
        assert_eq!(header, Header::new(Kind::Completions, 0, 0));
        let expected = [head(1, 3, 1), b"abc\0\0\0\0\0".to_vec(), head(2, 0, 1)].concat();
        assert_eq!(body, expected);
        gathered.sent();
        let (header, body) = gathered.next().unwrap();
        assert_eq!(header, Header::new(Kind::Completion, Status::Executed.code(), 3));
        assert_eq!(body, [7; 70]);
        gathered.sent();
        assert!(gathered.next().is_none());
        // Its head and body together exceed a frame.
        push(&mut gathered, 4, &[8; 80]);
        assert_eq!(gathered.next().unwrap().0.kind, Kind::Completion);
    }

    #[test]
    fn alike_completions_with_consecutive_tokens_share_a_head() {
        let mut gathered = Gathered::new(1 << 16, 64);
        for token in 10..15 {
            push(&mut gathered, token, &[token as u8; 3]);
        }
        push(&mut gathered, 16, &[16; 3]);
        let (_, body) = gathered.next().unwrap();
        assert_eq!(body[..24], head(10, 3, 5));
        assert_eq!(body.len(), 24 + 16 + 24 + 8);
        let tokens: Vec<u64> = drain(&mut gathered, 1 << 16)
            .iter()
            .map(|(token, ..)| *token)
            .collect();
        assert_eq!(tokens, [10, 11, 12, 13, 14, 16]);
    }

    #[test]
    fn a_run_of_answers_is_cut_into_frames() {
        for max_body in [32, 40, 64, 100, 1000, 1 << 16] {
            let max_reply = 90.min(max_body);
            let mut gathered = Gathered::new(max_body, max_reply);
            let mut expected = Vec::new();
            push(&mut gathered, 99, &[9; 8]);
            expected.push((99, Status::Executed.code(), vec![9; 8]));
            let mut token = 100;
            for lens in [&[8; 50][..], &[0; 3], &[1, 2, 2, 30, 8, 8], &[90, 90, 1]] {
                while gathered.is_full() {
                    all_sent(&mut gathered, &mut expected, max_body);
                }
                let answers = gathered.reserve_run(max_reply);
                let mut at = 0;
                for (i, &len) in lens.iter().enumerate() {
                    let len = len.min(max_reply);
                    answers.memory[at..at + len].fill(i as u8);
                    answers.lens[i] = len as u32;
                    at += len.next_multiple_of(8);
                    let body = vec![i as u8; len];
                    expected.push((token + i as u64, Status::Executed.code(), body));
                }
                gathered.push_run(token, lens.len());
                token += lens.len() as u64;
                let status = Status::Failed(ifunc_abi::status::Failure::Payload);
                gathered.push_failure(token, status, b"why");
                expected.push((token, status.code(), b"why".to_vec()));
                token += 1;
            }
            all_sent(&mut gathered, &mut expected, max_body);
            assert!(expected.is_empty());
        }
    }

    fn all_sent(gathered: &mut Gathered, expected: &mut Vec<(u64, u32, Vec<u8>)>, max_body: usize) {
        let all = drain(gathered, max_body);
        assert_eq!(all, expected.drain(..all.len()).collect::<Vec<_>>());
    }

    #[test]
    fn memory_is_bounded_by_a_full_frame_and_what_one_run_answers() {
        let mut gathered = Gathered::new(1 << 20, 100_000);
        let mut count = 0;
        while !gathered.is_full() {
            push(&mut gathered, count, &[1; 1000]);
            count += 1;
        }
        assert_eq!(count, 9);
        drain(&mut gathered, 1 << 20);
        push(&mut gathered, 0, &[1; 1]);
        push(&mut gathered, 1, &[1; 100_000]);
        assert!(gathered.is_full());
        assert_eq!(drain(&mut gathered, 1 << 20).len(), 2);
        let most = FULL + RUN + 100_000 + (MAX_ANSWERS + 2) * 32;
        assert_eq!(gathered.memory.len(), most.next_multiple_of(64));
        assert_eq!(gathered.reserve_run(90).memory.len(), RUN + 90);
    }

    #[test]
    fn what_a_full_frame_has_no_room_for_begins_the_next_one() {
        let mut gathered = Gathered::new(88, 80);
        push(&mut gathered, 1, &[1; 40]);
        push(&mut gathered, 3, &[3; 41]);
        for (token, len) in [(1, 40_usize), (3, 41)] {
            let (header, body) = gathered.next().unwrap();
            assert_eq!(header, Header::new(Kind::Completions, 0, 0));
            let zeros = vec![0; len.next_multiple_of(8) - len];
            let expected = [head(token, len as u32, 1), vec![token as u8; len], zeros].concat();
            assert_eq!(body, expected);
            gathered.sent();
        }
        assert!(gathered.next().is_none());
    }

    #[test]
    fn a_head_states_no_more_completions_than_it_can() {
        let mut gathered = Gathered::new(1 << 10, 80);
        push(&mut gathered, 1, b"");
        gathered.run.count = MAX_RUN - 3;
        let first = u64::from(MAX_RUN) - 2;
        push(&mut gathered, first, b"");
        gathered.reserve_run(8).lens[..5].fill(0);
        gathered.push_run(first + 1, 5);
        push(&mut gathered, first + 6, b"");
        let (_, body) = gathered.next().unwrap();
        let expected = [head(1, 0, MAX_RUN), head(first + 3, 0, 4)].concat();
        assert_eq!(body, expected);
        // One is full when the next one comes alone.
        push(&mut gathered, first + 9, b"");
        gathered.run.count = MAX_RUN;
        push(&mut gathered, first + 9 + u64::from(MAX_RUN), b"");
        let last = head(first + 9 + u64::from(MAX_RUN), 0, 1);
        assert_eq!(
            gathered.next().unwrap().1[48..],
            [head(first + 9, 0, MAX_RUN), last].concat()
        );
    }
}
