//! UCX active messages, as their users send them: from a buffer of the source's, received by a callback.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, Result, bail};
use ifunc_bench_ifuncs::{Fresh, words};
use ucx::{Bytes, Callback, Endpoint, Features, Operations, Request, Started};

use super::{Handler, Receiver, Worker, message};
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

/// With `BENCH_CODE` every message carries so many bytes more, after its payload, that are written once and never read: code that
/// the receiver has.
pub(in crate::roles) fn run(starter: Starter) -> Result<()> {
    exchange::run(starter, Messages::new()?)
}

struct Messages {
    endpoint: Option<Endpoint>,
    /// Sends of those before this slot count as well: so many were sent.
    sent: u64,
    size: usize,
    /// Bytes behind each payload.
    code: usize,
    payload: Payload,
    /// What is sent that is not written anew has this sum.
    written: u64,
    window: Window,
    /// With `BENCH_UCX_WORKERS=2`, what is sent has a worker of its own, as it has where one part of a program sends and another receives.
    sending: Option<Worker<Received>>,
    /// The last to go, with `sending`: requests give their memory back to them.
    worker: Worker<Received>,
}

/// What the callbacks write down.
struct Received {
    /// Whether payloads are read.
    reads: bool,
    /// Bytes behind each payload.
    code: usize,
    /// Since the beginning.
    all: u64,
    messages: u64,
    sum: u64,
    /// How many messages the other one waits for to be received.
    asked: Option<u64>,
    flushed: bool,
}

impl Received {
    fn new(code: usize) -> Self {
        Self {
            reads: true,
            code,
            all: 0,
            messages: 0,
            sum: 0,
            asked: None,
            flushed: false,
        }
    }
}

impl Handler for Received {
    #[inline]
    fn message(&mut self, _: &mut Callback<'_, Receiver<Self>>, id: u16, payload: &[u8]) {
        match id {
            MESSAGE => {
                if self.reads {
                    let payload = &payload[..payload.len().saturating_sub(self.code)];
                    self.sum = self.sum.wrapping_add(words(payload));
                }
                self.messages += 1;
                self.all += 1;
            }
            // The other one asks whether everything has come.
            FLUSH => self.asked = Some(payload.try_into().map_or(u64::MAX, u64::from_le_bytes)),
            // The other one says so.
            _ => self.flushed = true,
        }
    }
}

impl Messages {
    fn new() -> Result<Self> {
        let code = std::env::var("BENCH_CODE").map_or(Ok(0), |code| code.parse())?;
        let sending = match std::env::var("BENCH_UCX_WORKERS").as_deref() {
            Ok("2") => Some(Worker::new(Features::AM, Received::new(code))?),
            Ok(other) => bail!("BENCH_UCX_WORKERS is `2`, or not there; not `{other}`"),
            Err(_) => None,
        };
        let mut worker = Worker::new(Features::AM, Received::new(code))?;
        for id in [MESSAGE, FLUSH, FLUSHED] {
            worker.0.receive(id)?;
        }
        Ok(Self {
            worker,
            sending,
            endpoint: None,
            sent: 0,
            size: 0,
            code,
            payload: Payload::Fresh,
            written: 0,
            window: Window::default(),
        })
    }

    /// The worker that sends.
    #[inline]
    fn sending(&mut self) -> &mut Worker<Received> {
        self.sending.as_mut().unwrap_or(&mut self.worker)
    }

    /// Lets UCX receive, and send what is under way.
    #[inline]
    fn progress(&mut self) {
        self.worker.progress();
        if let Some(sending) = &mut self.sending
            && !self.window.under_way.is_empty()
        {
            sending.progress();
        }
    }

    /// As [`progress`](Self::progress), also where nothing that is measured is under way: the two programs meet, each by what both workers of
    /// the other one do.
    fn progress_all(&mut self) {
        self.worker.progress();
        if let Some(sending) = &mut self.sending {
            sending.progress();
        }
    }

    /// Whether everything is out.
    fn is_idle(&mut self) -> Result<bool> {
        let worker = self.sending.as_mut().unwrap_or(&mut self.worker);
        self.window.is_idle(worker)
    }

    /// Sends what is not measured, and waits until it is out.
    fn say(&mut self, id: u16, what: u64) -> Result<()> {
        let endpoint = self.endpoint.as_ref().context("the two programs have not met")?;
        let payload = what.to_le_bytes().to_vec();
        let sending = self.sending.as_mut().unwrap_or(&mut self.worker);
        let started = sending
            .0
            .start(message(endpoint, id, 0..8), payload)
            .context("sending an active message")?;
        let Started::UnderWay(request) = started else {
            return Ok(());
        };
        let mut timeout = Timeout::new();
        while !request.is_done(&self.sending().0) {
            self.progress_all();
            timeout.check()?;
        }
        finished(request, &mut self.sending().0).map(drop)
    }
}

/// The buffer of a request that is done.
pub(in crate::roles) fn finished<H: ucx::Handler>(
    request: Request,
    worker: &mut impl Operations<H>,
) -> Result<Bytes> {
    let Ok((buffer, result)) = request.finish(worker) else {
        bail!("a request that is done is under way");
    };
    result.context("what UCX had under way")?;
    Ok(buffer)
}

impl Node for Messages {
    fn address(&self) -> Result<String> {
        self.worker.address()
    }

    fn connect(&mut self, address: &str) -> Result<()> {
        self.endpoint = Some(self.sending().connect(address)?);
        self.flush()
    }

    fn carried_by(&self) -> String {
        let endpoint = self.endpoint.as_ref();
        let worker = self.sending.as_ref().unwrap_or(&self.worker);
        endpoint.map_or_else(String::new, |endpoint| worker.carried_by(endpoint))
    }

    fn begin(&mut self, size: usize, payload: Payload) -> Result<()> {
        (self.size, self.payload) = (size, payload);
        // What is under way is sent from the window that goes.
        let mut timeout = Timeout::new();
        while !self.is_idle()? {
            self.progress();
            timeout.check()?;
        }
        self.window = Window::of(size + self.code, payload);
        self.written = match payload {
            Payload::Untouched => 0,
            Payload::Fresh | Payload::Static => words(&self.window.bytes()[..size]),
        };
        self.worker.with(|received| {
            received.reads = payload != Payload::Untouched;
            (received.messages, received.sum) = (0, 0);
        });
        Ok(())
    }

    #[inline]
    fn send(&mut self, seed: u64) -> Result<()> {
        let Some(endpoint) = &self.endpoint else {
            anyhow::bail!("the two programs have not met")
        };
        let worker = self.sending.as_mut().unwrap_or(&mut self.worker);
        let at = self.window.place(worker)?;
        if self.payload == Payload::Fresh {
            let payload = &mut self.window.buffer(at)[..self.size];
            Fresh { len: self.size, seed }.write(payload);
        }
        self.window
            .send(worker, endpoint, MESSAGE, at, self.size + self.code)?;
        self.sent += 1;
        Ok(())
    }

    #[inline]
    fn sum(&self, seed: u64) -> u64 {
        self.payload.sum(self.size, seed, self.written)
    }

    #[inline]
    fn poll(&mut self) -> Result<()> {
        self.progress();
        let has_all = self
            .worker
            .with(|received| received.asked.take_if(|asked| received.all >= *asked).is_some());
        if has_all {
            self.say(FLUSHED, 0)?;
        }
        Ok(())
    }

    #[inline]
    fn received(&mut self) -> Count {
        self.worker.with(|received| Count {
            messages: received.messages,
            sum: received.sum,
        })
    }

    fn flush(&mut self) -> Result<()> {
        self.worker.with(|received| received.flushed = false);
        self.say(FLUSH, self.sent)?;
        let mut timeout = Timeout::new();
        while !self.worker.with(|received| received.flushed) || !self.is_idle()? {
            self.progress_all();
            self.poll()?;
            timeout.check()?;
        }
        Ok(())
    }
}

/// Buffers that are sent from. One that UCX was done with at once is used again at once.
#[derive(Default)]
pub(in crate::roles) struct Window {
    /// One for each message that may be under way; none if all are sent from `fixed`.
    buffers: Vec<Buffer>,
    /// What is sent by every message, and never written.
    fixed: &'static [u8],
    free: Vec<usize>,
    under_way: VecDeque<(Request, usize)>,
}

impl Window {
    pub(in crate::roles) fn of(size: usize, payload: Payload) -> Self {
        let most = (WINDOW_BYTES / size.max(1)).clamp(2, WINDOW);
        let is_fresh = payload == Payload::Fresh;
        Self {
            buffers: if is_fresh {
                (0..most).map(|_| Buffer::new(size)).collect()
            } else {
                Vec::new()
            },
            fixed: if is_fresh { &[] } else { fixed(size) },
            free: (0..most).rev().collect(),
            under_way: VecDeque::with_capacity(most),
        }
    }

    /// A place for one more.
    #[inline]
    pub(in crate::roles) fn place<H: Handler>(&mut self, worker: &mut Worker<H>) -> Result<usize> {
        match self.free.pop() {
            Some(at) => Ok(at),
            None => self.wait(worker),
        }
    }

    #[cold]
    fn wait<H: Handler>(&mut self, worker: &mut Worker<H>) -> Result<usize> {
        let mut timeout = Timeout::new();
        loop {
            self.reap(worker)?;
            if let Some(at) = self.free.pop() {
                return Ok(at);
            }
            worker.progress();
            timeout.check()?;
        }
    }

    /// The buffer of a place, to be written.
    #[inline]
    pub(in crate::roles) fn buffer(&mut self, at: usize) -> &mut [u8] {
        self.buffers[at].bytes_mut()
    }

    /// What is sent first.
    fn bytes(&self) -> &[u8] {
        self.buffers.first().map_or(self.fixed, Buffer::bytes)
    }

    /// Sends the first `len` bytes of a place.
    #[inline]
    pub(in crate::roles) fn send<H: Handler>(
        &mut self,
        worker: &mut Worker<H>,
        endpoint: &Endpoint,
        id: u16,
        at: usize,
        len: usize,
    ) -> Result<()> {
        let (data, bytes) = match self.buffers.get_mut(at) {
            Some(buffer) => (
                buffer.from..buffer.from + len,
                Bytes::from(std::mem::take(&mut buffer.memory)),
            ),
            None => (0..len, Bytes::from(self.fixed)),
        };
        let started = worker.0.start(message(endpoint, id, data), bytes);
        let request = match started.context("sending an active message")? {
            Started::Done(bytes) => {
                self.give_back(at, bytes);
                return Ok(());
            }
            Started::UnderWay(request) => request,
        };
        self.under_way.push_back((request, at));
        Ok(())
    }

    #[inline]
    fn give_back(&mut self, at: usize, bytes: Bytes) {
        if let Bytes::Owned(memory) = bytes {
            self.buffers[at].memory = memory;
        }
        self.free.push(at);
    }

    /// Takes back the places that UCX is done with.
    fn reap<H: Handler>(&mut self, worker: &mut Worker<H>) -> Result<()> {
        while let Some((request, at)) = self
            .under_way
            .pop_front_if(|(request, _)| request.is_done(&worker.0))
        {
            let bytes = finished(request, &mut worker.0)?;
            self.give_back(at, bytes);
        }
        Ok(())
    }

    pub(in crate::roles) fn is_idle<H: Handler>(&mut self, worker: &mut Worker<H>) -> Result<bool> {
        self.reap(worker)?;
        Ok(self.under_way.is_empty())
    }
}

/// Bytes of this length that are never written again, nor freed: UCX may have them under way at any time.
fn fixed(size: usize) -> &'static [u8] {
    thread_local! {
        static BY_SIZE: RefCell<BTreeMap<usize, &'static [u8]>> = const { RefCell::new(BTreeMap::new()) };
    }
    BY_SIZE.with_borrow_mut(|by_size| {
        *by_size.entry(size).or_insert_with(|| {
            let Buffer { memory, from, size } = Buffer::new(size);
            &memory.leak()[from..][..size]
        })
    })
}

/// Bytes that begin a cache line, and were written. The memory is elsewhere while it is sent.
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
        Fresh { len: size, seed: 1 }.write(buffer.bytes_mut());
        buffer
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.from..][..self.size]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..][..self.size]
    }
}
