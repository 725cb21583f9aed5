//! UCX as its users use it: a context and a worker of one thread, endpoints, and active messages that are received by a
//! callback. Everything that is not said here is UCX's default, or what the environment says (`UCX_TLS`, …).

pub(super) mod am;
pub(crate) mod dropin;
pub(super) mod memory;
pub(super) mod outbox;
pub(super) mod put;
pub(super) mod put_ring;

use std::fmt::Write as _;
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use ifunc_abi::frame::BODY_ALIGN;
use ucx::{
    Buffer, Callback, Endpoint, ErrorMode, Features, Flags, Library, Message, Operation, Operations, Posted,
    Single, Status,
};

/// What active messages are received by.
pub(super) trait Handler: Sized + 'static {
    /// A message arrived. `payload` is read in place where UCX has it, or fetched before this.
    fn message(&mut self, worker: &mut Callback<'_, Receiver<Self>>, id: u16, payload: &[u8]);
}

/// Of a worker that receives nothing.
pub(super) struct Nothing;

impl Handler for Nothing {
    fn message(&mut self, _: &mut Callback<'_, Receiver<Self>>, _: u16, _: &[u8]) {}
}

/// What UCX's callbacks have: the handler, and memory for messages that are fetched. The buffer used last, which is in the
/// caches, is used next.
pub(super) struct Receiver<H> {
    handler: H,
    buffers: Vec<Buffer<Fetch>>,
    /// With `BENCH_UCX_COPIES=1`: a message that UCX does not let its receiver keep is copied before it is handled, as by a program
    /// that handles messages outside of UCX's callbacks.
    copies: bool,
}

/// A message that is being fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    id: u16,
    len: usize,
}

impl<H: Handler> Receiver<H> {
    fn buffer(&mut self, fetch: Fetch) -> Buffer<Fetch> {
        match self.buffers.pop() {
            Some(mut buffer) if buffer.len() >= fetch.len => {
                *buffer.tag_mut() = fetch;
                buffer
            }
            _ => Buffer::new(fetch.len, fetch),
        }
    }

    fn fetched(&mut self, worker: &mut Callback<'_, Self>, buffer: Buffer<Fetch>) {
        let Fetch { id, len } = *buffer.tag();
        self.handler.message(worker, id, &buffer[..len]);
        self.buffers.push(buffer);
    }
}

impl<H: Handler> ucx::Handler for Receiver<H> {
    type Tag = Fetch;

    #[inline]
    fn message(&mut self, worker: &mut Callback<'_, Self>, message: Message<'_>) {
        let (id, len) = (message.id(), message.len());
        let message = match message.rendezvous() {
            Ok(message) => message,
            Err(message) if self.copies && !message.may_be_kept() => {
                let mut buffer = self.buffer(Fetch { id, len });
                message.copy_to(&mut buffer[..len]);
                return self.fetched(worker, buffer);
            }
            Err(message) => {
                // SAFETY: the peers are the programs of this run, which do not write what they have sent.
                return self.handler.message(worker, id, unsafe { message.as_slice() });
            }
        };
        let buffer = self.buffer(Fetch { id, len });
        match worker.post(
            Operation::Fetch {
                message,
                data: 0..len,
            },
            buffer,
        ) {
            Ok(Posted::Done(buffer)) => self.fetched(worker, buffer),
            Ok(Posted::UnderWay(_)) => {}
            // The message is missing from what was received: the run fails.
            Err(status) => eprintln!("UCX does not fetch a message: {status}"),
        }
    }

    fn completed(
        &mut self,
        worker: &mut Callback<'_, Self>,
        buffer: Buffer<Fetch>,
        result: Result<(), Status>,
    ) {
        match result {
            Ok(()) => self.fetched(worker, buffer),
            Err(status) => eprintln!("UCX did not fetch a message: {status}"),
        }
    }
}

/// A context and a worker of it, of this thread.
pub(super) struct Worker<H: Handler>(pub(super) ucx::Worker<Receiver<H>, Single>);

impl<H: Handler> Worker<H> {
    pub(super) fn new(features: Features, handler: H) -> Result<Self> {
        let ucx = Library::load()?;
        let context = ucx.context(&ucx.config()?, features)?.am_alignment(BODY_ALIGN);
        let receiver = Receiver {
            handler,
            buffers: Vec::new(),
            copies: std::env::var_os("BENCH_UCX_COPIES").is_some(),
        };
        Ok(Self(context.worker(receiver)?))
    }

    /// The handler.
    #[inline]
    pub(super) fn with<T>(&mut self, what: impl FnOnce(&mut H) -> T) -> T {
        what(&mut self.0.handler().handler)
    }

    /// The address, as hexadecimal digits.
    pub(super) fn address(&self) -> Result<String> {
        Ok(hexadecimal(&self.0.address()?))
    }

    /// An endpoint to the worker of this address. With `BENCH_UCX_ERRORS=peer` it is told when the other one dies, as those of
    /// `ifunc-rt` are.
    pub(super) fn connect(&mut self, address: &str) -> Result<Endpoint> {
        let errors = match std::env::var("BENCH_UCX_ERRORS").as_deref() {
            Ok("peer") => ErrorMode::Peer,
            Ok(other) => bail!("BENCH_UCX_ERRORS is `peer`, or not there; not `{other}`"),
            Err(_) => ErrorMode::None,
        };
        // SAFETY: the address is that of a worker of this run.
        unsafe { self.0.connect_to_worker(&bytes(address)?, errors) }.context("making an endpoint of UCX")
    }

    /// The transports and devices that an endpoint uses, by UCX's own account.
    pub(super) fn carried_by(&self, endpoint: &Endpoint) -> String {
        self.0.lanes(endpoint).join(" ")
    }

    /// Lets UCX work: what has come is received, what is under way goes on. Whether anything happened.
    #[inline]
    pub(super) fn progress(&mut self) -> bool {
        self.0.progress()
    }

    /// Lends it to ifunc, with an id of active messages.
    ///
    /// # Safety
    /// Its context must have [`Features::AM`], and what is made of it must go before the worker.
    pub(super) unsafe fn lend(&self, am_id: u16) -> Result<ifunc_rt::ucx::Worker> {
        let options = ifunc_rt::ucx::WorkerOptions::new(am_id);
        let (context, worker) = self.0.as_raw();
        // SAFETY: both are alive, of this process's UCX, and of this thread; the rest is the caller's promise.
        Ok(unsafe { ifunc_rt::ucx::Worker::from_raw(context, worker, options)? })
    }
}

/// An active message of part of a buffer.
pub(super) fn message(endpoint: &Endpoint, id: u16, data: Range<usize>) -> Operation<'_> {
    Operation::Message {
        endpoint,
        id,
        header: 0..0,
        data,
        flags: Flags::default(),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(digits: &str) -> Result<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    ensure!(rest.is_empty(), "an odd number of hexadecimal digits");
    pairs
        .iter()
        .map(|pair| {
            let pair = std::str::from_utf8(pair).context("not hexadecimal digits")?;
            u8::from_str_radix(pair, 16).context("not hexadecimal digits")
        })
        .collect()
}
