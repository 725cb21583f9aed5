//! UCX puts, as their users write a ping-pong with them: the payload is put, a fence follows, then a word that says that it is
//! there, which the other one looks at. One message is under way in each direction.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::{Fresh, words};
use ucx_sys::UCP_FEATURE_RMA;

use super::memory::{Memory, Remote};
use super::{Request, Worker};
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
    let worker = Worker::new(UCP_FEATURE_RMA)?;
    let node = Puts {
        memory: Memory::new(&worker, PAYLOAD + LARGEST)?,
        out: vec![0; LARGEST],
        worker,
        other: None,
        size: 0,
        payload: Payload::Fresh,
        written: 0,
        words: [0; 3],
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
    worker: Rc<Worker>,
    other: Option<Remote>,
    /// Where payloads are put from.
    out: Vec<u8>,
    size: usize,
    payload: Payload,
    /// The sum of what is sent that is not written anew.
    written: u64,
    /// Where words are put from: of messages, questions, answers.
    words: [u64; 3],
    questions: u64,
    /// Messages since the beginning.
    sent: u64,
    /// Messages that had come before this slot.
    before: u64,
    received: Count,
    under_way: Vec<Request>,
}

impl Puts {
    fn other(&self) -> Result<&Remote> {
        self.other.as_ref().context("the two programs have not met")
    }

    /// One that the other one puts.
    #[inline]
    fn word(&self, offset: usize) -> u64 {
        self.memory.word(offset).load(Ordering::Acquire)
    }

    /// Puts one of the words.
    #[inline]
    fn say(&mut self, which: usize, offset: usize, value: u64) -> Result<()> {
        self.words[which] = value;
        let from = (&raw const self.words[which]).cast();
        // SAFETY: the word is not written again before `settle`, and stays where it is as long as this process uses UCX.
        if let Some(request) = unsafe { self.other()?.put(from, 8, offset)? } {
            self.under_way.push(request);
        }
        Ok(())
    }

    /// Waits until UCX is done with what was put.
    #[inline]
    fn settle(&mut self) -> Result<()> {
        let mut timeout = Timeout::new();
        while let Some(last) = self.under_way.last() {
            if last.is_done()? {
                self.under_way.pop();
                continue;
            }
            self.worker.progress();
            timeout.check()?;
        }
        Ok(())
    }
}

impl Node for Puts {
    fn address(&self) -> Result<String> {
        self.memory.address()
    }

    fn connect(&mut self, address: &str) -> Result<()> {
        self.other = Some(Remote::connect(&self.worker, address)?);
        self.flush()
    }

    fn carried_by(&self) -> String {
        self.other.as_ref().map_or_else(String::new, Remote::carried_by)
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
        let from = self.out.as_ptr().cast();
        // SAFETY: the payload is not written again before `settle`, and stays where it is as long as this process uses UCX.
        if let Some(request) = unsafe { self.other()?.put(from, size, PAYLOAD)? } {
            self.under_way.push(request);
        }
        self.worker.fence()?;
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
        if asked != self.words[2] && self.other.is_some() {
            self.settle()?;
            self.say(2, ANSWERED, asked)?;
        }
        Ok(())
    }

    #[inline]
    fn received(&self) -> Count {
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
