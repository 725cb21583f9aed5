//! UCX without a program at the other end, or so it seems to its user: an update is an atomic addition, a read a get. UCX has
//! no way to send several in one message; it is given as many as ours is.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::table::WORDS;
use ucx::{Bytes, Features, Operation, Operations, Request, Started};

use super::{Part, Worker as Works, initial, is_aggregated, number, serve, work};
use crate::program::Starter;
use crate::roles::exchange::Timeout;
use crate::roles::ucx::am::finished;
use crate::roles::ucx::memory::{Memory, Remote};
use crate::roles::ucx::{Nothing, Worker};

/// Reads that are under way, beside ours, each by itself and in batches: as many as ours.
const WINDOW: [usize; 2] = [64, 2048];
/// Additions of which UCX says that they are under way: those that its transport did not take at once.
const WAITING: usize = 64;

pub(in crate::roles) fn target(starter: Starter) -> Result<()> {
    let mut worker = Worker::new(Features::RMA | Features::ATOMIC64, Nothing)?;
    let memory = Memory::new(&mut worker, 8 * WORDS)?;
    for (at, word) in initial(number("BENCH_PART")?)?.enumerate() {
        memory.word(8 * at).store(word, Ordering::Relaxed);
    }
    serve(starter, Served { memory, worker })
}

struct Served {
    memory: Memory,
    /// The last to go: requests give their memory back to it.
    worker: Worker<Nothing>,
}

impl Part for Served {
    fn address(&self) -> Result<String> {
        self.memory.address(&self.worker)
    }

    fn connect(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    /// Where UCX has no memory that both map, it does here what was asked for.
    #[inline]
    fn poll(&mut self) -> Result<bool> {
        Ok(self.worker.progress())
    }

    fn word(&mut self, at: usize) -> u64 {
        self.memory.word(8 * at).load(Ordering::Relaxed)
    }
}

pub(in crate::roles) fn source(starter: Starter) -> Result<()> {
    let places = WINDOW[usize::from(is_aggregated())];
    work(
        starter,
        Accesses {
            worker: Worker::new(Features::RMA | Features::ATOMIC64, Nothing)?,
            parts: Vec::new(),
            words: (0..places).map(|_| vec![0; 8]).collect(),
            next: 0,
            asked: VecDeque::with_capacity(places),
            waiting: VecDeque::with_capacity(WAITING),
        },
    )
}

struct Accesses {
    parts: Vec<Remote>,
    /// Places of what is read, used in turn.
    words: Vec<Vec<u8>>,
    next: usize,
    /// Reads that are under way, the first one first: where the word will be, and what it must be.
    asked: VecDeque<(Request, usize, u64)>,
    waiting: VecDeque<Request>,
    /// The last to go: requests give their memory back to it.
    worker: Worker<Nothing>,
}

impl Works for Accesses {
    fn address(&self) -> Result<String> {
        Ok(String::new())
    }

    fn connect(&mut self, addresses: &[String]) -> Result<()> {
        for address in addresses {
            self.parts.push(Remote::connect(&mut self.worker, address)?);
        }
        self.finish()
    }

    fn carried_by(&self) -> String {
        let first = self.parts.first();
        first.map_or_else(String::new, |part| part.carried_by(&self.worker))
    }

    #[inline]
    fn update(&mut self, part: usize, at: u64) -> Result<()> {
        let started = self.parts[part].increment(&mut self.worker, 8 * at as usize)?;
        if let Started::UnderWay(request) = started {
            self.waiting.push_back(request);
            if self.waiting.len() >= WAITING {
                self.take()?;
            }
        }
        Ok(())
    }

    #[inline]
    fn read(&mut self, part: usize, at: u64, expected: u64) -> Result<()> {
        let place = self.next;
        if self.asked.front().is_some_and(|(_, first, _)| *first == place) {
            self.hear()?;
        }
        self.next = (place + 1) % self.words.len();
        // Used in turn: as the first read that is under way is not to this place, none is.
        let into = std::mem::take(&mut self.words[place]);
        match self.parts[part].get(&mut self.worker, into, 8 * at as usize)? {
            Started::UnderWay(request) => self.asked.push_back((request, place, expected)),
            Started::Done(word) => {
                judge(&word, expected)?;
                self.words[place] = word.into_vec();
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while !self.asked.is_empty() {
            self.hear()?;
        }
        while !self.waiting.is_empty() {
            self.take()?;
        }
        let flushed = self.worker.0.start(Operation::FlushWorker, vec![]);
        match flushed.context("a flush")? {
            Started::UnderWay(request) => self.wait(request).map(drop),
            Started::Done(_) => Ok(()),
        }
    }
}

impl Accesses {
    /// Waits for the read that was asked for first.
    #[inline]
    fn hear(&mut self) -> Result<()> {
        if let Some((request, place, expected)) = self.asked.pop_front() {
            let word = self.wait(request)?;
            judge(&word, expected)?;
            self.words[place] = word.into_vec();
        }
        Ok(())
    }

    /// Waits for the addition that has waited longest.
    fn take(&mut self) -> Result<()> {
        match self.waiting.pop_front() {
            Some(request) => self.wait(request).map(drop),
            None => Ok(()),
        }
    }

    #[inline]
    fn wait(&mut self, request: Request) -> Result<Bytes> {
        let mut timeout = Timeout::new();
        while !request.is_done(&self.worker.0) {
            self.worker.progress();
            timeout.check()?;
        }
        finished(request, &mut self.worker.0)
    }
}

#[inline]
fn judge(word: &[u8], expected: u64) -> Result<()> {
    let word = word.try_into().map_or(!expected, u64::from_ne_bytes);
    ensure!(word == expected, "{word:#x} was read, {expected:#x} stands there");
    Ok(())
}
