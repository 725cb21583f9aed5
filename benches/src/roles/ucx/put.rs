//! UCX puts, as their users write a ping-pong with them: the payload is put, a fence follows, then a word that says that it is
//! there, which the other one looks at. One message is under way in each direction.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::{Fresh, words};
use ucx::{Features, Operations, Request, Started};

use super::am::finished;
use super::memory::{Memory, Remote};
use super::{Nothing, Worker};
use crate::pair::Count;
use crate::program::Starter;
use crate::roles::exchange::{self, Node, Timeout};
use crate::slots::Payload;

/// Offsets in what a program lets the other one write to: the word that says how many messages have come, one by which the
/// other one asks whether this one is there, and one by which it answers.
const ARRIVED: usize = 0;
const ASKED: usize = 64;
const ANSWERED: usize = 128;
/// And then the payload.
const PAYLOAD: usize = 4096;
/// The largest.
const LARGEST: usize = 1 << 20;

pub(in crate::roles) fn run(starter: Starter) -> Result<()> {
    let mut worker = Worker::new(Features::RMA, Nothing)?;
    let node = Puts {
        memory: Memory::new(&mut worker, PAYLOAD + LARGEST)?,
        out: vec![0; LARGEST],
        worker,
        other: None,
        size: 0,
        payload: Payload::Fresh,
        written: 0,
        words: [(); 3].map(|()| vec![0; 8]),
        answered: 0,
        questions: 0,
        sent: 0,
        before: 0,
        received: Count::default(),
        under_way: Vec::new(),
    };
    exchange::run(starter, node)
}

struct Puts {
    memory: Memory,
    other: Option<Remote>,
    /// Where payloads are put from.
    out: Vec<u8>,
    size: usize,
    payload: Payload,
    /// The sum of what is sent that is not written anew.
    written: u64,
    /// Where words are put from: of messages, questions, answers.
    words: [Vec<u8>; 3],
    /// The last question that was answered.
    answered: u64,
    questions: u64,
    /// Messages since the beginning.
    sent: u64,
    /// Messages that had come before this slot.
    before: u64,
    received: Count,
    under_way: Vec<UnderWay>,
    /// The last to go: requests give their memory back to it.
    worker: Worker<Nothing>,
}

/// A put that is under way: of the payload, or of one of the words.
enum UnderWay {
    Payload(Request),
    Word(Request, usize),
}

impl UnderWay {
    fn is_done(&self, worker: &Worker<Nothing>) -> bool {
        match self {
            Self::Payload(request) => request.is_done(&worker.0),
            Self::Word(request, _) => request.is_done(&worker.0),
        }
    }
}

/// What is said where the other program is not known yet.
const NOT_MET: &str = "the two programs have not met";

impl Puts {
    /// One that the other one puts.
    #[inline]
    fn word(&self, offset: usize) -> u64 {
        self.memory.word(offset).load(Ordering::Acquire)
    }

    /// Puts one of the words.
    #[inline]
    fn say(&mut self, which: usize, offset: usize, value: u64) -> Result<()> {
        let other = self.other.as_ref().context(NOT_MET)?;
        let mut word = std::mem::take(&mut self.words[which]);
        word.copy_from_slice(&value.to_ne_bytes());
        match other.put(&mut self.worker, word, 8, offset)? {
            Started::Done(word) => self.words[which] = word.into_vec(),
            Started::UnderWay(request) => self.under_way.push(UnderWay::Word(request, which)),
        }
        Ok(())
    }

    /// Waits until UCX is done with what was put.
    #[inline]
    fn settle(&mut self) -> Result<()> {
        let mut timeout = Timeout::new();
        while let Some(last) = self.under_way.pop() {
            if !last.is_done(&self.worker) {
                self.under_way.push(last);
                self.worker.progress();
                timeout.check()?;
                continue;
            }
            match last {
                UnderWay::Payload(request) => self.out = finished(request, &mut self.worker.0)?.into_vec(),
                UnderWay::Word(request, which) => {
                    self.words[which] = finished(request, &mut self.worker.0)?.into_vec()
                }
            }
        }
        Ok(())
    }
}

impl Node for Puts {
    fn address(&self) -> Result<String> {
        self.memory.address(&self.worker)
    }

    fn connect(&mut self, address: &str) -> Result<()> {
        self.other = Some(Remote::connect(&mut self.worker, address)?);
        self.flush()
    }

    fn carried_by(&self) -> String {
        let other = self.other.as_ref();
        other.map_or_else(String::new, |other| other.carried_by(&self.worker))
    }

    fn begin(&mut self, size: usize, payload: Payload) -> Result<()> {
        ensure!(size <= LARGEST, "no more than {LARGEST} bytes are put");
        self.settle()?;
        (self.size, self.payload) = (size, payload);
        self.before += self.received.messages;
        self.received = Count::default();
        Fresh { len: size, seed: 1 }.write(&mut self.out[..size]);
        self.written = words(&self.out[..size]);
        Ok(())
    }

    #[inline]
    fn send(&mut self, seed: u64) -> Result<()> {
        self.settle()?;
        let size = self.size;
        if self.payload == Payload::Fresh {
            Fresh { len: size, seed }.write(&mut self.out[..size]);
        }
        let other = self.other.as_ref().context(NOT_MET)?;
        match other.put(&mut self.worker, std::mem::take(&mut self.out), size, PAYLOAD)? {
            Started::Done(out) => self.out = out.into_vec(),
            Started::UnderWay(request) => self.under_way.push(UnderWay::Payload(request)),
        }
        self.worker.0.fence()?;
        self.sent += 1;
        self.say(0, ARRIVED, self.sent)
    }

    #[inline]
    fn sum(&self, seed: u64) -> u64 {
        self.payload.sum(self.size, seed, self.written)
    }

    #[inline]
    fn poll(&mut self) -> Result<()> {
        if self.word(ARRIVED) > self.before + self.received.messages {
            // SAFETY: the memory is given back with `self`, and holds the largest payload. The other one puts the next payload when
            // this one is answered.
            let payload = unsafe { std::slice::from_raw_parts(self.memory.at(PAYLOAD), self.size) };
            self.received.messages += 1;
            if self.payload != Payload::Untouched {
                self.received.sum = self.received.sum.wrapping_add(words(payload));
            }
            return Ok(());
        }
        self.worker.progress();
        let asked = self.word(ASKED);
        if asked != self.answered && self.other.is_some() {
            self.settle()?;
            self.answered = asked;
            self.say(2, ANSWERED, asked)?;
        }
        Ok(())
    }

    #[inline]
    fn received(&mut self) -> Count {
        self.received
    }

    fn flush(&mut self) -> Result<()> {
        self.settle()?;
        self.questions += 1;
        let question = self.questions;
        self.say(1, ASKED, question)?;
        let mut timeout = Timeout::new();
        while self.word(ANSWERED) != question {
            self.poll()?;
            timeout.check()?;
        }
        self.settle()
    }
}
