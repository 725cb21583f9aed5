//! UCX active messages: an update is a message, or one of many in a message; a read is a question with a place for its answer
//! and, as it comes, one of many, too. Batches are made by hand, as users of active messages make them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::table::WORDS;
use ucx_sys::UCP_FEATURE_AM;

use super::{Part, Worker as Works, initial, is_aggregated, number, serve, work};
use crate::program::Starter;
use crate::roles::exchange::Timeout;
use crate::roles::ucx::am::Window;
use crate::roles::ucx::{Endpoint, Handler, Worker};
use crate::slots::Payload;

/// Words to increment.
const UPDATE: u16 = 0;
/// Pairs: the place of an answer, and the word to read.
const READ: u16 = 1;
/// Pairs: the place of an answer, and the word.
const ANSWER: u16 = 2;
/// How many updates were sent, which the other one says back when it has them.
const FLUSH: u16 = 3;
const FLUSHED: u16 = 4;

/// Bytes of a message that holds many: as many as ours.
const BATCH: usize = 8 << 10;
/// Reads that are under way, each by itself and in batches: as many as ours.
const WINDOW: [usize; 2] = [64, 2048];

pub(in crate::roles) fn target(starter: Starter) -> Result<()> {
    let worker = Worker::new(UCP_FEATURE_AM)?;
    let table = Rc::new(Served {
        words: initial(number("BENCH_PART")?)?.map(Cell::new).collect(),
        updates: Cell::new(0),
        answers: RefCell::default(),
        asked: Cell::new(None),
    });
    worker.receive(UPDATE, Rc::new(Update(Rc::clone(&table))))?;
    worker.receive(READ, Rc::new(Read(Rc::clone(&table))))?;
    worker.receive(FLUSH, Rc::new(Flush(Rc::clone(&table))))?;
    let answers = Sender::new(&worker, ANSWER, BATCH);
    let flushed = Sender::new(&worker, FLUSHED, 8);
    serve(
        starter,
        Messages {
            worker,
            table,
            answers,
            flushed,
        },
    )
}

/// What the callbacks work on, and write down.
struct Served {
    words: Vec<Cell<u64>>,
    updates: Cell<u64>,
    /// Pairs to be sent back, of one message after another, each with its length before it.
    answers: RefCell<Vec<u64>>,
    /// How many updates the other one waits for.
    asked: Cell<Option<u64>>,
}

struct Update(Rc<Served>);
struct Read(Rc<Served>);
struct Flush(Rc<Served>);

impl Handler for Update {
    #[inline]
    fn message(&self, payload: &[u8]) {
        let places = payload.as_chunks::<8>().0;
        for at in places {
            let word = &self.0.words[u64::from_le_bytes(*at) as usize % WORDS];
            word.set(word.get().wrapping_add(1));
        }
        self.0.updates.set(self.0.updates.get() + places.len() as u64);
    }
}

impl Handler for Read {
    #[inline]
    fn message(&self, payload: &[u8]) {
        let words = payload.as_chunks::<8>().0;
        let mut answers = self.0.answers.borrow_mut();
        answers.push(words.len() as u64);
        for pair in words.as_chunks::<2>().0 {
            let [place, at] = pair.map(u64::from_le_bytes);
            answers.extend([place, self.0.words[at as usize % WORDS].get()]);
        }
    }
}

impl Handler for Flush {
    fn message(&self, payload: &[u8]) {
        self.0.asked.set(payload.try_into().ok().map(u64::from_le_bytes));
    }
}

struct Messages {
    worker: Rc<Worker>,
    table: Rc<Served>,
    answers: Sender,
    flushed: Sender,
}

impl Part for Messages {
    fn address(&self) -> Result<String> {
        self.worker.address()
    }

    fn connect(&mut self, address: &str) -> Result<()> {
        let endpoint = Rc::new(self.worker.connect(address)?);
        self.answers.endpoint = Some(Rc::clone(&endpoint));
        self.flushed.endpoint = Some(endpoint);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool> {
        let happened = self.worker.progress();
        if !self.table.answers.borrow().is_empty() {
            // To send may let more come.
            let answers = self.table.answers.take();
            let mut left = answers.as_slice();
            while let [len, rest @ ..] = left {
                let (message, rest) = rest.split_at(*len as usize);
                for word in message {
                    self.answers.put([*word])?;
                }
                self.answers.send()?;
                left = rest;
            }
        }
        if let Some(asked) = self.table.asked.get()
            && self.table.updates.get() >= asked
        {
            self.table.asked.set(None);
            self.flushed.put([asked])?;
            self.flushed.send()?;
        }
        Ok(happened)
    }

    fn word(&self, at: usize) -> u64 {
        self.table.words[at].get()
    }
}

/// Words for one other program, in messages of so many bytes at most.
struct Sender {
    worker: Rc<Worker>,
    endpoint: Option<Rc<Endpoint>>,
    id: u16,
    size: usize,
    window: Window,
    /// The place of the message that is being written, and how much of it is.
    open: Option<(usize, usize)>,
}

impl Sender {
    fn new(worker: &Rc<Worker>, id: u16, size: usize) -> Self {
        Self {
            worker: Rc::clone(worker),
            endpoint: None,
            id,
            size,
            window: Window::of(size, Payload::Fresh),
            open: None,
        }
    }

    /// Puts words into the message, and sends it when it is full.
    #[inline]
    fn put<const N: usize>(&mut self, words: [u64; N]) -> Result<()> {
        let (at, mut filled) = match self.open.take() {
            Some(open) => open,
            None => (self.window.place(&self.worker)?, 0),
        };
        let buffer = self.window.buffer(at);
        for word in words {
            buffer[filled..filled + 8].copy_from_slice(&word.to_le_bytes());
            filled += 8;
        }
        self.open = Some((at, filled));
        if filled + 8 * N > self.size {
            self.send()?;
        }
        Ok(())
    }

    /// Sends what is written.
    #[inline]
    fn send(&mut self) -> Result<()> {
        let Some((at, filled)) = self.open.take() else {
            return Ok(());
        };
        let endpoint = self.endpoint.as_ref().context("the programs have not met")?;
        // SAFETY: the window does not lend the buffer again before the request is done.
        let request = unsafe { endpoint.send(self.id, &self.window.buffer(at)[..filled])? };
        self.window.sent(at, request);
        Ok(())
    }
}

pub(in crate::roles) fn source(starter: Starter) -> Result<()> {
    let worker = Worker::new(UCP_FEATURE_AM)?;
    let aggregated = is_aggregated();
    let places = WINDOW[usize::from(aggregated)];
    let asks = Rc::new(Asks {
        expected: (0..places).map(|_| Cell::new(0)).collect(),
        free: RefCell::new((0..places).rev().collect()),
        wrong: Cell::new(None),
        flushed: Cell::new(0),
    });
    worker.receive(ANSWER, Rc::new(Answer(Rc::clone(&asks))))?;
    worker.receive(FLUSHED, Rc::new(Flushed(Rc::clone(&asks))))?;
    work(
        starter,
        Asker {
            worker,
            aggregated,
            parts: Vec::new(),
            asks,
        },
    )
}

/// What is asked for, by the places of the answers.
struct Asks {
    expected: Vec<Cell<u64>>,
    free: RefCell<Vec<usize>>,
    /// What was read, and what stands there.
    wrong: Cell<Option<[u64; 2]>>,
    /// How many parts have all their updates.
    flushed: Cell<usize>,
}

struct Answer(Rc<Asks>);
struct Flushed(Rc<Asks>);

impl Handler for Answer {
    #[inline]
    fn message(&self, payload: &[u8]) {
        let mut free = self.0.free.borrow_mut();
        for pair in payload.as_chunks::<8>().0.as_chunks::<2>().0 {
            let [place, word] = pair.map(u64::from_le_bytes);
            let place = place as usize;
            let expected = self.0.expected.get(place).map_or(!word, Cell::get);
            if word != expected {
                self.0.wrong.set(Some([word, expected]));
            }
            free.push(place);
        }
    }
}

impl Handler for Flushed {
    fn message(&self, _: &[u8]) {
        self.0.flushed.set(self.0.flushed.get() + 1);
    }
}

struct Asker {
    worker: Rc<Worker>,
    aggregated: bool,
    parts: Vec<To>,
    asks: Rc<Asks>,
}

/// What goes to a part.
struct To {
    endpoint: Rc<Endpoint>,
    updates: Sender,
    reads: Sender,
    flushes: Sender,
    /// Updates, since the beginning.
    sent: u64,
}

impl Works for Asker {
    fn address(&self) -> Result<String> {
        self.worker.address()
    }

    fn connect(&mut self, addresses: &[String]) -> Result<()> {
        for address in addresses {
            let endpoint = Rc::new(self.worker.connect(address)?);
            let sender = |id, alone| {
                let size = if self.aggregated { BATCH } else { alone };
                let endpoint = Some(Rc::clone(&endpoint));
                Sender {
                    endpoint,
                    ..Sender::new(&self.worker, id, size)
                }
            };
            self.parts.push(To {
                updates: sender(UPDATE, 8),
                reads: sender(READ, 16),
                flushes: sender(FLUSH, 8),
                sent: 0,
                endpoint,
            });
        }
        self.finish()
    }

    fn carried_by(&self) -> String {
        let first = self.parts.first();
        first.map_or_else(String::new, |part| part.endpoint.carried_by())
    }

    #[inline]
    fn update(&mut self, part: usize, at: u64) -> Result<()> {
        let part = &mut self.parts[part];
        part.sent += 1;
        part.updates.put([at])
    }

    #[inline]
    fn read(&mut self, part: usize, at: u64, expected: u64) -> Result<()> {
        let place = self.place()?;
        self.asks.expected[place].set(expected);
        self.parts[part].reads.put([place as u64, at])
    }

    fn finish(&mut self) -> Result<()> {
        self.asks.flushed.set(0);
        for part in &mut self.parts {
            part.updates.send()?;
            part.reads.send()?;
            part.flushes.put([part.sent])?;
            part.flushes.send()?;
        }
        let mut timeout = Timeout::new();
        while self.asks.flushed.get() < self.parts.len()
            || self.asks.free.borrow().len() < self.asks.expected.len()
        {
            self.worker.progress();
            timeout.check()?;
        }
        self.judge()
    }
}

impl Asker {
    /// A place for an answer.
    #[inline]
    fn place(&mut self) -> Result<usize> {
        let free = self.asks.free.borrow_mut().pop();
        match free {
            Some(place) => Ok(place),
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&mut self) -> Result<usize> {
        // An answer may be to what was not sent.
        for part in &mut self.parts {
            part.reads.send()?;
        }
        let mut timeout = Timeout::new();
        loop {
            self.worker.progress();
            self.judge()?;
            if let Some(place) = self.asks.free.borrow_mut().pop() {
                return Ok(place);
            }
            timeout.check()?;
        }
    }

    fn judge(&self) -> Result<()> {
        let wrong = self.asks.wrong.get();
        let [word, expected] = wrong.unwrap_or_default();
        ensure!(wrong.is_none(), "{word:#x} was read, {expected:#x} stands there");
        Ok(())
    }
}
