//! UCX without a program at the other end, or so it seems to who uses it: an update is an atomic addition, a read a get. UCX has
//! no way to send several in one message; it is given as many as ours is.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use ifunc_bench_ifuncs::table::WORDS;
use ucx_sys::{UCP_FEATURE_AMO64, UCP_FEATURE_RMA};

use super::{Part, Worker as Works, initial, is_aggregated, number, serve, work};
use crate::program::Starter;
use crate::roles::exchange::Timeout;
use crate::roles::ucx::memory::{Memory, Remote};
use crate::roles::ucx::{Request, Worker};

/// Reads that are under way, beside ours, each by itself and in batches: as many as ours.
const WINDOW: [usize; 2] = [64, 2048];
/// Additions of which UCX says that they are under way: those that its transport did not take at once.
const WAITING: usize = 64;

pub(in crate::roles) fn target(starter: Starter) -> Result<()> {
    let worker = Worker::new(UCP_FEATURE_RMA | UCP_FEATURE_AMO64)?;
    let memory = Memory::new(&worker, 8 * WORDS)?;
    for (at, word) in initial(number("BENCH_PART")?)?.enumerate() {
        memory.word(8 * at).store(word, Ordering::Relaxed);
    }
    serve(starter, Served { memory, worker })
}

struct Served {
    memory: Memory,
    worker: Rc<Worker>,
}

impl Part for Served {
    fn address(&self) -> Result<String> {
        self.memory.address()
    }

    fn connect(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    /// Where UCX has no memory that both map, it does here what was asked for.
    #[inline]
    fn poll(&mut self) -> Result<bool> {
        Ok(self.worker.progress())
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.word(8 * at).load(Ordering::Relaxed)
    }
}

pub(in crate::roles) fn source(starter: Starter) -> Result<()> {
    let places = WINDOW[usize::from(is_aggregated())];
    // They stay as long as the process: UCX may write to them.
    let words: &'static [Cell<u64>] = Box::leak(vec![Cell::new(0); places].into_boxed_slice());
    work(
        starter,
        Accesses {
            worker: Worker::new(UCP_FEATURE_RMA | UCP_FEATURE_AMO64)?,
            parts: Vec::new(),
            words,
            next: 0,
            pending: VecDeque::with_capacity(places),
            waiting: VecDeque::with_capacity(WAITING),
        },
    )
}

struct Accesses {
    worker: Rc<Worker>,
    parts: Vec<Remote>,
    /// Places of what is read, used in turn.
    words: &'static [Cell<u64>],
    next: usize,
    /// Reads that are under way, the first one first: where the word will be, and what it must be.
    pending: VecDeque<(Request, usize, u64)>,
    waiting: VecDeque<Request>,
}

impl Works for Accesses {
    fn address(&self) -> Result<String> {
        Ok(String::new())
    }

    fn connect(&mut self, addresses: &[String]) -> Result<()> {
        for address in addresses {
            self.parts.push(Remote::connect(&self.worker, address)?);
        }
        self.finish()
    }

    fn carried_by(&self) -> String {
        self.parts.first().map_or_else(String::new, Remote::carried_by)
    }

    #[inline]
    fn update(&mut self, part: usize, at: u64) -> Result<()> {
        if let Some(request) = self.parts[part].increment(8 * at as usize)? {
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
        if self.pending.front().is_some_and(|(_, first, _)| *first == place) {
            self.complete_oldest()?;
        }
        self.next = (place + 1) % self.words.len();
        let into = self.words[place].as_ptr();
        // SAFETY: the places stay, and are used in turn: as the first read that is under way is not to this one, none is.
        match unsafe { self.parts[part].get(into, 8 * at as usize)? } {
            Some(request) => self.pending.push_back((request, place, expected)),
            None => check_word(self.words[place].get(), expected)?,
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while !self.pending.is_empty() {
            self.complete_oldest()?;
        }
        while !self.waiting.is_empty() {
            self.take()?;
        }
        match self.worker.flush()? {
            Some(request) => self.wait(&request),
            None => Ok(()),
        }
    }
}

impl Accesses {
    /// Waits for the read that was asked for first.
    #[inline]
    fn complete_oldest(&mut self) -> Result<()> {
        if let Some((request, place, expected)) = self.pending.pop_front() {
            self.wait(&request)?;
            check_word(self.words[place].get(), expected)?;
        }
        Ok(())
    }

    /// Waits for the addition that has waited longest.
    fn take(&mut self) -> Result<()> {
        match self.waiting.pop_front() {
            Some(request) => self.wait(&request),
            None => Ok(()),
        }
    }

    #[inline]
    fn wait(&self, request: &Request) -> Result<()> {
        let mut timeout = Timeout::new();
        while !request.is_done()? {
            self.worker.progress();
            timeout.check()?;
        }
        Ok(())
    }
}

#[inline]
fn check_word(word: u64, expected: u64) -> Result<()> {
    ensure!(word == expected, "{word:#x} was read, {expected:#x} stands there");
    Ok(())
}
