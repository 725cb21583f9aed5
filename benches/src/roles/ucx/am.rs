//! UCX active messages, as their users send them: from a buffer of the source's, received by a callback.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use anyhow::{Context, Result};
use ifunc_bench_ifuncs::{Fresh, words};
use ucx_sys::UCP_FEATURE_AM;

use super::{Endpoint, Handler, Request, Worker};
use crate::pair::Count;
use crate::program::Starter;
use crate::roles::exchange::{self, Node, Timeout};
use crate::slots::Payload;

/// The payload is a message's.
const MESSAGE: u16 = 0;
/// The payload is how many messages were sent, which the other one says back when it has them.
const FLUSH: u16 = 1;
/// The other one has them.
const FLUSHED: u16 = 2;

/// As many bytes may be under way: they stay in the second-level cache. One message may always, and another be written
/// meanwhile.
const WINDOW_BYTES: usize = 1 << 20;
/// As many messages may be under way.
const WINDOW: usize = 64;

/// With `BENCH_CODE` every message carries so many bytes more, behind its payload, that are written once and that nobody reads: code that
/// the receiver has.
pub(in crate::roles) fn run(starter: Starter) -> Result<()> {
    exchange::run(starter, Messages::new()?)
}

struct Messages {
    worker: Rc<Worker>,
    endpoint: Option<Endpoint>,
    received: Rc<Received>,
    /// Sends of those before this slot count as well: so many were sent.
    sent: u64,
    size: usize,
    /// Bytes behind each payload.
    code: usize,
    payload: Payload,
    /// What is sent that is not written anew has this sum.
    written: u64,
    window: Window,
}

/// What the callbacks write down.
struct Received {
    /// Whether payloads are read.
    reads: Cell<bool>,
    /// Bytes behind each payload.
    code: usize,
    /// Since the beginning.
    all: Cell<u64>,
    messages: Cell<u64>,
    sum: Cell<u64>,
    /// How many messages the other one waits for to be received.
    asked: Cell<Option<u64>>,
    flushed: Cell<bool>,
}

impl Handler for Received {
    #[inline]
    fn message(&self, payload: &[u8]) {
        if self.reads.get() {
            self.sum.set(
                self.sum
                    .get()
                    .wrapping_add(words(&payload[..payload.len().saturating_sub(self.code)])),
            );
        }
        self.messages.set(self.messages.get() + 1);
        self.all.set(self.all.get() + 1);
    }
}

/// The other one asks whether everything has come.
struct SlotProgram(Rc<Received>);

impl Handler for SlotProgram {
    fn message(&self, payload: &[u8]) {
        let sent = payload.try_into().map_or(u64::MAX, u64::from_le_bytes);
        self.0.asked.set(Some(sent));
    }
}

/// The other one says so.
struct Flushed(Rc<Received>);

impl Handler for Flushed {
    fn message(&self, _: &[u8]) {
        self.0.flushed.set(true);
    }
}

impl Messages {
    fn new() -> Result<Self> {
        let worker = Worker::new(UCP_FEATURE_AM)?;
        let code = std::env::var("BENCH_CODE").map_or(Ok(0), |code| code.parse())?;
        let received = Rc::new(Received {
            reads: Cell::new(true),
            code,
            all: Cell::new(0),
            messages: Cell::new(0),
            sum: Cell::new(0),
            asked: Cell::new(None),
            flushed: Cell::new(false),
        });
        worker.receive(MESSAGE, Rc::clone(&received))?;
        worker.receive(FLUSH, Rc::new(SlotProgram(Rc::clone(&received))))?;
        worker.receive(FLUSHED, Rc::new(Flushed(Rc::clone(&received))))?;
        Ok(Self {
            worker,
            endpoint: None,
            received,
            sent: 0,
            size: 0,
            code,
            payload: Payload::Fresh,
            written: 0,
            window: Window::default(),
        })
    }

    /// Sends what is not measured, and waits until it is out.
    fn say(&self, id: u16, what: u64) -> Result<()> {
        let endpoint = self.endpoint.as_ref().context("the two programs have not met")?;
        let payload = what.to_le_bytes();
        // SAFETY: the payload stays until the request is done, or, after an error, as long as this process uses UCX: it ends.
        let Some(request) = (unsafe { endpoint.send(id, &payload)? }) else {
            return Ok(());
        };
        let mut timeout = Timeout::new();
        while !request.is_done()? {
            self.worker.progress();
            timeout.check()?;
        }
        Ok(())
    }
}

impl Node for Messages {
    fn address(&self) -> Result<String> {
        self.worker.address()
    }

    fn connect(&mut self, address: &str) -> Result<()> {
        self.endpoint = Some(self.worker.connect(address)?);
        self.flush()
    }

    fn carried_by(&self) -> String {
        self.endpoint
            .as_ref()
            .map_or_else(String::new, Endpoint::carried_by)
    }

    fn begin(&mut self, size: usize, payload: Payload) -> Result<()> {
        (self.size, self.payload) = (size, payload);
        // What is under way is sent from the window that goes.
        let mut timeout = Timeout::new();
        while !self.window.is_idle()? {
            self.worker.progress();
            timeout.check()?;
        }
        self.window = Window::of(size + self.code, payload);
        self.written = match payload {
            Payload::Untouched => 0,
            Payload::Fresh | Payload::Static => words(&self.window.buffer(0)[..size]),
        };
        self.received.reads.set(payload != Payload::Untouched);
        self.received.messages.set(0);
        self.received.sum.set(0);
        Ok(())
    }

    #[inline]
    fn send(&mut self, seed: u64) -> Result<()> {
        let Some(endpoint) = &self.endpoint else {
            anyhow::bail!("the two programs have not met")
        };
        let at = self.window.place(&self.worker)?;
        let buffer = self.window.buffer(at);
        if self.payload == Payload::Fresh {
            let payload = &mut buffer[..self.size];
            Fresh { len: self.size, seed }.write(payload);
        }
        // SAFETY: the window does not lend the buffer again before the request is done.
        let request = unsafe { endpoint.send(MESSAGE, buffer)? };
        self.window.sent(at, request);
        self.sent += 1;
        Ok(())
    }

    #[inline]
    fn sum(&self, seed: u64) -> u64 {
        self.payload.sum(self.size, seed, self.written)
    }

    #[inline]
    fn poll(&mut self) -> Result<()> {
        self.worker.progress();
        if let Some(asked) = self.received.asked.get()
            && self.received.all.get() >= asked
        {
            self.received.asked.set(None);
            self.say(FLUSHED, 0)?;
        }
        Ok(())
    }

    #[inline]
    fn received(&self) -> Count {
        Count {
            messages: self.received.messages.get(),
            sum: self.received.sum.get(),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.received.flushed.set(false);
        self.say(FLUSH, self.sent)?;
        let mut timeout = Timeout::new();
        while !self.received.flushed.get() || !self.window.is_idle()? {
            self.poll()?;
            timeout.check()?;
        }
        Ok(())
    }
}

/// Buffers that are sent from. One that UCX was done with at once is used again at once.
#[derive(Default)]
pub(in crate::roles) struct Window {
    /// One for each that may be under way; a single one if nobody writes to it.
    buffers: Vec<Buffer>,
    free: Vec<usize>,
    under_way: VecDeque<(Request, usize)>,
}

impl Window {
    pub(in crate::roles) fn of(size: usize, payload: Payload) -> Self {
        let most = (WINDOW_BYTES / size.max(1)).clamp(2, WINDOW);
        let buffers = if payload == Payload::Fresh { most } else { 1 };
        Self {
            buffers: (0..buffers).map(|_| Buffer::new(size)).collect(),
            free: (0..most).rev().collect(),
            under_way: VecDeque::with_capacity(most),
        }
    }

    /// A place for one more.
    #[inline]
    pub(in crate::roles) fn place(&mut self, worker: &Worker) -> Result<usize> {
        match self.free.pop() {
            Some(at) => Ok(at),
            None => self.wait(worker),
        }
    }

    #[cold]
    fn wait(&mut self, worker: &Worker) -> Result<usize> {
        let mut timeout = Timeout::new();
        loop {
            self.reap()?;
            if let Some(at) = self.free.pop() {
                return Ok(at);
            }
            worker.progress();
            timeout.check()?;
        }
    }

    /// The buffer of a place.
    #[inline]
    pub(in crate::roles) fn buffer(&mut self, at: usize) -> &mut [u8] {
        let at = if self.buffers.len() == 1 { 0 } else { at };
        self.buffers[at].bytes()
    }

    #[inline]
    pub(in crate::roles) fn sent(&mut self, at: usize, request: Option<Request>) {
        match request {
            None => self.free.push(at),
            Some(request) => self.under_way.push_back((request, at)),
        }
    }

    /// Takes back the places that UCX is done with.
    fn reap(&mut self) -> Result<()> {
        while let Some((request, at)) = self.under_way.front() {
            if !request.is_done()? {
                break;
            }
            self.free.push(*at);
            self.under_way.pop_front();
        }
        Ok(())
    }

    pub(in crate::roles) fn is_idle(&mut self) -> Result<bool> {
        self.reap()?;
        Ok(self.under_way.is_empty())
    }
}

/// Bytes that begin a cache line, and were written.
struct Buffer {
    memory: Vec<u8>,
    from: usize,
    size: usize,
}

impl Buffer {
    fn new(size: usize) -> Self {
        let memory = vec![0; size + 64];
        let from = memory.as_ptr().align_offset(64);
        let mut buffer = Self { memory, from, size };
        Fresh { len: size, seed: 1 }.write(buffer.bytes());
        buffer
    }

    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..][..self.size]
    }
}
