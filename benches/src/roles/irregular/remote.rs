//! One-sided UCX: an update is an atomic addition, a read is a get. UCX cannot aggregate them in one message;
//! the peer gets as many in flight as ours.

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

/// Largest number of reads in flight, as for ours, without and with aggregation.
const WINDOW: [usize; 2] = [64, 2048];
/// Largest number of additions in flight that the transport did not complete at once.
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

    /// Without mapped memory, UCX performs the operations here.
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
    // Leaked, because UCX may write to them until the process ends.
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
    /// Buffers of reads, used in turn.
    words: &'static [Cell<u64>],
    next: usize,
    /// Reads in flight, oldest first: the request, the buffer's index and the expected word.
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
        // SAFETY: the buffers live forever and are used in turn. The oldest read in flight does not use this
        // buffer, so no read does.
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
    /// Waits for the oldest read.
    #[inline]
    fn complete_oldest(&mut self) -> Result<()> {
        if let Some((request, place, expected)) = self.pending.pop_front() {
            self.wait(&request)?;
            check_word(self.words[place].get(), expected)?;
        }
        Ok(())
    }

    /// Waits for the oldest addition.
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
    ensure!(word == expected, "read {word:#x} instead of {expected:#x}");
    Ok(())
}
