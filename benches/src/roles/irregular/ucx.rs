//! UCX active messages: an update is a message, or one of many in a message; a read is a question with a place for its answer
//! and, as it comes, one of many, too. Batches are made by hand, as users of active messages make them.

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::table::WORDS;
use ucx::{Callback, Endpoint, Features};

use super::{Part, Worker as Works, initial, is_aggregated, number, serve, work};
use crate::program::Starter;
use crate::roles::exchange::Timeout;
use crate::roles::ucx::am::Window;
use crate::roles::ucx::{Handler, Receiver, Worker};
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
    let table = Served {
        words: initial(number("BENCH_PART")?)?.collect(),
        updates: 0,
        answers: Vec::new(),
        asked: None,
    };
    let mut worker = Worker::new(Features::AM, table)?;
    for id in [UPDATE, READ, FLUSH] {
        worker.0.receive(id)?;
    }
    serve(
        starter,
        Messages {
            worker,
            endpoint: None,
            answers: Sender::new(ANSWER, BATCH),
            flushed: Sender::new(FLUSHED, 8),
        },
    )
}

/// What the callbacks work on, and write down.
struct Served {
    words: Vec<u64>,
    updates: u64,
    /// Pairs to be sent back, of one message after another, each with its length before it.
    answers: Vec<u64>,
    /// How many updates the other one waits for.
    asked: Option<u64>,
}

impl Handler for Served {
    #[inline]
    fn message(&mut self, _: &mut Callback<'_, Receiver<Self>>, id: u16, payload: &[u8]) {
        let words = payload.as_chunks::<8>().0;
        match id {
            UPDATE => {
                for at in words {
                    let word = &mut self.words[u64::from_le_bytes(*at) as usize % WORDS];
                    *word = word.wrapping_add(1);
                }
                self.updates += words.len() as u64;
            }
            READ => {
                self.answers.push(words.len() as u64);
                for pair in words.as_chunks::<2>().0 {
                    let [place, at] = pair.map(u64::from_le_bytes);
                    self.answers.extend([place, self.words[at as usize % WORDS]]);
                }
            }
            _ => self.asked = payload.try_into().ok().map(u64::from_le_bytes),
        }
    }
}

struct Messages {
    endpoint: Option<Endpoint>,
    answers: Sender,
    flushed: Sender,
    /// The last to go: requests give their memory back to it.
    worker: Worker<Served>,
}

impl Part for Messages {
    fn address(&self) -> Result<String> {
        self.worker.address()
    }

    fn connect(&mut self, address: &str) -> Result<()> {
        self.endpoint = Some(self.worker.connect(address)?);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool> {
        let happened = self.worker.progress();
        let (answers, asked) = self.worker.with(|table| {
            let asked = table.asked.take_if(|asked| table.updates >= *asked);
            (std::mem::take(&mut table.answers), asked)
        });
        if answers.is_empty() && asked.is_none() {
            return Ok(happened);
        }
        let endpoint = self.endpoint.as_ref().context("the programs have not met")?;
        // To send may let more come.
        let mut left = answers.as_slice();
        while let [len, rest @ ..] = left {
            let (message, rest) = rest.split_at(*len as usize);
            for word in message {
                self.answers.put(&mut self.worker, endpoint, [*word])?;
            }
            self.answers.send(&mut self.worker, endpoint)?;
            left = rest;
        }
        if let Some(asked) = asked {
            self.flushed.put(&mut self.worker, endpoint, [asked])?;
            self.flushed.send(&mut self.worker, endpoint)?;
        }
        Ok(happened)
    }

    fn word(&mut self, at: usize) -> u64 {
        self.worker.with(|table| table.words[at])
    }
}

/// Words for one other program, in messages of so many bytes at most.
struct Sender {
    id: u16,
    size: usize,
    window: Window,
    /// The place of the message that is being written, and how much of it is.
    open: Option<(usize, usize)>,
}

impl Sender {
    fn new(id: u16, size: usize) -> Self {
        Self {
            id,
            size,
            window: Window::of(size, Payload::Fresh),
            open: None,
        }
    }

    /// Puts words into the message, and sends it when it is full.
    #[inline]
    fn put<H: Handler, const N: usize>(
        &mut self,
        worker: &mut Worker<H>,
        endpoint: &Endpoint,
        words: [u64; N],
    ) -> Result<()> {
        let (at, mut filled) = match self.open.take() {
            Some(open) => open,
            None => (self.window.place(worker)?, 0),
        };
        let buffer = self.window.buffer(at);
        for word in words {
            buffer[filled..filled + 8].copy_from_slice(&word.to_le_bytes());
            filled += 8;
        }
        self.open = Some((at, filled));
        if filled + 8 * N > self.size {
            self.send(worker, endpoint)?;
        }
        Ok(())
    }

    /// Sends what is written.
    #[inline]
    fn send<H: Handler>(&mut self, worker: &mut Worker<H>, endpoint: &Endpoint) -> Result<()> {
        match self.open.take() {
            Some((at, filled)) => self.window.send(worker, endpoint, self.id, at, filled),
            None => Ok(()),
        }
    }
}

pub(in crate::roles) fn source(starter: Starter) -> Result<()> {
    let aggregated = is_aggregated();
    let places = WINDOW[usize::from(aggregated)];
    let asks = Asks {
        expected: vec![0; places],
        free: (0..places).rev().collect(),
        wrong: None,
        flushed: 0,
    };
    let mut worker = Worker::new(Features::AM, asks)?;
    worker.0.receive(ANSWER)?;
    worker.0.receive(FLUSHED)?;
    work(
        starter,
        Asker {
            worker,
            aggregated,
            parts: Vec::new(),
        },
    )
}

/// What is asked for, by the places of the answers.
struct Asks {
    expected: Vec<u64>,
    free: Vec<usize>,
    /// What was read, and what stands there.
    wrong: Option<[u64; 2]>,
    /// How many parts have all their updates.
    flushed: usize,
}

impl Handler for Asks {
    #[inline]
    fn message(&mut self, _: &mut Callback<'_, Receiver<Self>>, id: u16, payload: &[u8]) {
        if id == FLUSHED {
            self.flushed += 1;
            return;
        }
        for pair in payload.as_chunks::<8>().0.as_chunks::<2>().0 {
            let [place, word] = pair.map(u64::from_le_bytes);
            let place = place as usize;
            let expected = self.expected.get(place).copied().unwrap_or(!word);
            if word != expected {
                self.wrong = Some([word, expected]);
            }
            self.free.push(place);
        }
    }
}

struct Asker {
    aggregated: bool,
    parts: Vec<To>,
    /// The last to go: requests give their memory back to it.
    worker: Worker<Asks>,
}

/// What goes to a part.
struct To {
    endpoint: Endpoint,
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
            let endpoint = self.worker.connect(address)?;
            let size = |alone| if self.aggregated { BATCH } else { alone };
            self.parts.push(To {
                endpoint,
                updates: Sender::new(UPDATE, size(8)),
                reads: Sender::new(READ, size(16)),
                flushes: Sender::new(FLUSH, size(8)),
                sent: 0,
            });
        }
        self.finish()
    }

    fn carried_by(&self) -> String {
        let first = self.parts.first();
        first.map_or_else(String::new, |part| self.worker.carried_by(&part.endpoint))
    }

    #[inline]
    fn update(&mut self, part: usize, at: u64) -> Result<()> {
        let To {
            endpoint,
            updates,
            sent,
            ..
        } = &mut self.parts[part];
        *sent += 1;
        updates.put(&mut self.worker, endpoint, [at])
    }

    #[inline]
    fn read(&mut self, part: usize, at: u64, expected: u64) -> Result<()> {
        let place = self.place()?;
        self.worker.with(|asks| asks.expected[place] = expected);
        let To { endpoint, reads, .. } = &mut self.parts[part];
        reads.put(&mut self.worker, endpoint, [place as u64, at])
    }

    fn finish(&mut self) -> Result<()> {
        self.worker.with(|asks| asks.flushed = 0);
        for part in &mut self.parts {
            let (worker, endpoint) = (&mut self.worker, &part.endpoint);
            part.updates.send(worker, endpoint)?;
            part.reads.send(worker, endpoint)?;
            part.flushes.put(worker, endpoint, [part.sent])?;
            part.flushes.send(worker, endpoint)?;
        }
        let parts = self.parts.len();
        let mut timeout = Timeout::new();
        while self
            .worker
            .with(|asks| asks.flushed < parts || asks.free.len() < asks.expected.len())
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
        match self.worker.with(|asks| asks.free.pop()) {
            Some(place) => Ok(place),
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&mut self) -> Result<usize> {
        // An answer may be to what was not sent.
        for part in &mut self.parts {
            part.reads.send(&mut self.worker, &part.endpoint)?;
        }
        let mut timeout = Timeout::new();
        loop {
            self.worker.progress();
            self.judge()?;
            if let Some(place) = self.worker.with(|asks| asks.free.pop()) {
                return Ok(place);
            }
            timeout.check()?;
        }
    }

    fn judge(&mut self) -> Result<()> {
        let wrong = self.worker.with(|asks| asks.wrong);
        let [word, expected] = wrong.unwrap_or_default();
        ensure!(wrong.is_none(), "{word:#x} was read, {expected:#x} stands there");
        Ok(())
    }
}
