//! Our messages: each of the two programs is both source and target, and sends payloads of an ifunc.

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::{Fresh, Tally, increment, sum, sum_fresh, sum_word, words};
use ifunc_rt::{Driver, Handle, Policy, Source, Target};
use ucx::{Endpoint, Features};

use super::exchange::{self, Node, Timeout};
use super::ucx::{Nothing, Worker};
use crate::images::Images;
use crate::pair::Count;
use crate::program::Starter;
use crate::slots::Payload;

/// Payloads smaller than this are never fetched.
const FETCHED: usize = 4 << 10;

/// Replaces an address: one UCX worker of this program for both directions, as in a program that uses UCX
/// itself.
const LENT: &str = "ucx-lent";
/// The id of our active messages on that worker.
const AM_ID: u16 = 7;

/// `BENCH_ADDRESS` is the address to listen on: `shm:` (with a generated name), `ucx://127.0.0.1:0`, or
/// [`LENT`]. With `BENCH_INCREMENT`, each payload is one byte for an ifunc that increments. With
/// `BENCH_CODE`, every message carries its code, in an image of that many bytes. With `BENCH_COPY_PAYLOADS`,
/// the target copies payloads before use, as it does for other users.
pub(super) fn run(starter: Starter) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS must be the address to listen on")?;
    exchange::run(starter, Ifuncs::listen(&address)?)
}

struct Ifuncs {
    target: Target,
    /// The lent worker, if the program listens on its own.
    lent: Option<ifunc_rt::ucx::Worker>,
    tally: Tally,
    other: Option<Other>,
    increments: bool,
    size: usize,
    payload: Payload,
    /// A static payload and its sum.
    written: (Vec<u8>, u64),
    /// Size of the code that every message carries.
    code: Option<usize>,
    /// The endpoint to the other program from this program's own worker. It is dropped after the source.
    endpoint: Option<Endpoint>,
    /// This program's own worker. It is dropped last.
    worker: Option<Worker<Nothing>>,
}

/// The other program, as this program's target.
struct Other {
    source: Source,
    /// Over networks, a target fetches large payloads with the source's help.
    driver: Option<Driver>,
    fresh: Handle<sum_fresh>,
    written: Handle<sum>,
    increment: Handle<increment>,
    /// For payloads of eight bytes with code: a small ifunc.
    word: Option<Handle<sum_word>>,
}

impl Ifuncs {
    fn listen(address: &str) -> Result<Self> {
        let address = match address {
            "shm:" => format!("shm:ifunc-bench-{}", std::process::id()),
            address => address.to_owned(),
        };
        // SAFETY: the benchmark sends the code of `ifunc-bench-ifuncs`; only processes of this user can reach
        // the address.
        let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
        let copies = std::env::var_os("BENCH_COPY_PAYLOADS").is_some();
        let builder = builder.copy_payloads(copies);
        let (target, lent, worker) = if address == LENT {
            let worker = Worker::new(Features::AM, Nothing)?;
            // SAFETY: the worker has the required feature. Everything that uses it is a field of this role,
            // and the worker is dropped last.
            let lent = unsafe { worker.lend(AM_ID)? };
            (builder.listen_on(&lent)?, Some(lent), Some(worker))
        } else {
            (builder.listen(&address)?, None, None)
        };
        Ok(Self {
            target,
            lent,
            endpoint: None,
            worker,
            tally: Tally::default(),
            other: None,
            increments: std::env::var_os("BENCH_INCREMENT").is_some(),
            size: 0,
            payload: Payload::Fresh,
            written: (Vec::new(), 0),
            code: std::env::var("BENCH_CODE")
                .ok()
                .map(|code| code.parse())
                .transpose()?,
        })
    }

    fn other(&self) -> Result<&Other> {
        self.other.as_ref().context("the two programs are not connected")
    }
}

/// Connects to an address.
fn connect(target: &mut Target, tally: &mut Tally, address: &str) -> Result<Source> {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| Source::connect(address));
        // The other program connects at the same time and needs a target that serves.
        while !connecting.is_finished() {
            target.poll(tally);
            std::thread::yield_now();
        }
        connecting
            .join()
            .map_err(|_| anyhow::anyhow!("connecting panicked"))?
            .with_context(|| format!("connecting to {address}"))
    })
}

impl Node for Ifuncs {
    fn address(&self) -> Result<String> {
        match &self.worker {
            Some(worker) => worker.address(),
            None => Ok(self.target.address()),
        }
    }

    fn connect(&mut self, address: &str) -> Result<()> {
        let source = match (&self.lent, &mut self.worker) {
            (Some(lent), Some(worker)) => {
                let endpoint = worker.connect(address)?;
                let options = ifunc_rt::SourceOptions::default();
                // SAFETY: the endpoint is of the lent worker, and is dropped after the source.
                let mut connecting = unsafe { lent.call(endpoint.as_raw(), options)? };
                self.endpoint = Some(endpoint);
                loop {
                    if let Some(source) = connecting.poll()? {
                        break source;
                    }
                    self.target.poll(&mut self.tally);
                }
            }
            _ => connect(&mut self.target, &mut self.tally, address)?,
        };
        // The poll of a shared worker drives both directions.
        let needs_driver = self.lent.is_none() && !address.starts_with("shm:");
        let mut fresh = source.register()?;
        let mut word = None;
        if let Some(code) = self.code {
            fresh = carrying(&source, code)?;
            word = Some(carrying(&source, code)?);
        }
        self.other = Some(Other {
            driver: needs_driver.then(|| source.driver()).transpose()?,
            fresh,
            written: source.register()?,
            increment: source.register()?,
            word,
            source,
        });
        let mut timeout = Timeout::new();
        while self.target.connections() == 0 {
            self.poll()?;
            timeout.check()?;
        }
        Ok(())
    }

    fn carried_by(&self) -> String {
        let all: Vec<_> = self
            .target
            .transports()
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        all.join(", ")
    }

    fn begin(&mut self, size: usize, payload: Payload) -> Result<()> {
        ensure!(payload != Payload::Untouched, "our target reads every payload");
        ensure!(!self.increments || size == 1, "an increment is a byte");
        (self.size, self.payload, self.tally) = (size, payload, Tally::default());
        if payload == Payload::Static && self.written.0.len() != size {
            let mut bytes = vec![0; size];
            Fresh { len: size, seed: 1 }.write(&mut bytes);
            let sum = words(&bytes);
            self.written = (bytes, sum);
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, seed: u64) -> Result<()> {
        let Some(other) = &self.other else {
            return self.other().map(drop);
        };
        match self.payload {
            Payload::Fresh
                if self.size == 8
                    && let Some(word) = &other.word =>
            {
                word.send(&seed)?
            }
            Payload::Fresh if self.increments => other.increment.send(&(seed as u8))?,
            Payload::Fresh => other.fresh.send(&Fresh { len: self.size, seed })?,
            Payload::Static | Payload::Untouched => other.written.send(&self.written.0)?,
        }
        Ok(())
    }

    #[inline]
    fn sum(&self, seed: u64) -> u64 {
        self.payload.sum(self.size, seed, self.written.1)
    }

    #[inline]
    fn poll(&mut self) -> Result<()> {
        let came = self.target.poll(&mut self.tally);
        if came == 0
            && self.size >= FETCHED
            && let Some(Other {
                driver: Some(driver), ..
            }) = &self.other
        {
            driver.progress();
        }
        Ok(())
    }

    #[inline]
    fn received(&mut self) -> Count {
        Count {
            messages: self.tally.count,
            sum: self.tally.sum,
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.other()?.source.flush()?;
        Ok(())
    }
}

/// An ifunc in an image of `code` bytes (or its own size, if larger), which travels with every message.
fn carrying<F: ifunc::payload::Ifunc>(source: &Source, code: usize) -> Result<Handle<F>> {
    let known = source.register::<F>()?;
    let image = Images::of(known.image(), 0)?.next(code.max(known.image().len() + 8))?;
    Ok(source.register_bytes::<F>(&image)?.carrying_code())
}
