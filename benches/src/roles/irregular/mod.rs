//! Random updates and reads of a table in several programs, for any transport; [`Part`] and [`Worker`]
//! abstract it.

pub(super) mod bare;
pub(super) mod ifuncs;
pub(super) mod remote;
pub(super) mod ucx;

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ifunc_bench_ifuncs::table::WORDS;

use crate::irregular::{Done, PartSums, Request};
use crate::pair::{Connected, Hello};
use crate::program::Starter;

/// A program with a part of the table.
trait Part {
    fn address(&self) -> Result<String>;

    /// Connects to the worker, if answers need it.
    fn connect(&mut self, address: &str) -> Result<()>;

    /// Processes received messages. Returns whether there were any.
    fn poll(&mut self) -> Result<bool>;

    /// A word of the table.
    fn word(&mut self, at: usize) -> u64;
}

/// The worker.
trait Worker {
    fn address(&self) -> Result<String>;

    /// Connects to all parts.
    fn connect(&mut self, addresses: &[String]) -> Result<()>;

    fn carried_by(&self) -> String;

    /// Sends an update of a word of a part.
    fn update(&mut self, part: usize, at: u64) -> Result<()>;

    /// Requests a word of a part, which must be `expected`.
    fn read(&mut self, part: usize, at: u64, expected: u64) -> Result<()>;

    /// Waits until all updates are applied and all reads are complete.
    fn finish(&mut self) -> Result<()>;
}

/// Polls of the transport between two checks for a request.
const POLLS_PER_CLOCK_READ: u32 = 256;

/// Serves a part until the input is closed.
fn serve(mut starter: Starter, mut part: impl Part) -> Result<()> {
    let address = part.address()?;
    let is_alone = number("BENCH_PARTS")? == 1;
    starter.reply(&Hello { address })?;
    while let Some(request) = starter.next::<Request>()? {
        match request {
            Request::Connect { addresses } => {
                let address = addresses.first().context("the request names no worker")?;
                part.connect(address)?;
            }
            Request::Serve => {}
            Request::Stop | Request::Work { .. } => bail!("unexpected request {request:?}"),
        }
        while !starter.has_request()? {
            for _ in 0..POLLS_PER_CLOCK_READ {
                // Parts share a core. A request to stop may have arrived while another part had it.
                if !part.poll()? && !is_alone {
                    std::thread::yield_now();
                    break;
                }
            }
        }
        let stop = starter.next()?;
        ensure!(
            matches!(stop, Some(Request::Stop)),
            "expected the request to stop instead of {stop:?}"
        );
        starter.reply(&sums(&mut part))?;
    }
    Ok(())
}

fn sums(part: &mut impl Part) -> PartSums {
    sums_of((0..WORDS).map(|at| part.word(at)))
}

fn sums_of(words: impl Iterator<Item = u64>) -> PartSums {
    let sums = |sums: PartSums, (at, word)| sums.with(at, word);
    (0..).zip(words).fold(PartSums::default(), sums)
}

impl PartSums {
    fn with(self, at: u64, word: u64) -> Self {
        Self {
            sum: self.sum.wrapping_add(word),
            weighted: self.weighted.wrapping_add(word.wrapping_mul(at)),
        }
    }
}

/// Runs the worker until the input is closed.
fn work(mut starter: Starter, mut worker: impl Worker) -> Result<()> {
    let reads = reads()?;
    let address = worker.address()?;
    starter.reply(&Hello { address })?;
    let mut random = Random(1);
    let mut expected = Vec::new();
    while let Some(request) = starter.next::<Request>()? {
        match request {
            Request::Connect { addresses } => {
                worker.connect(&addresses)?;
                expected = vec![PartSums::default(); addresses.len()];
                let carried_by = worker.carried_by();
                starter.reply(&Connected { carried_by })?;
            }
            Request::Work { operations } => {
                let (parts, mut again) = (expected.len(), random.clone());
                let started = Instant::now();
                for _ in 0..operations {
                    let (part, at) = random.place(parts);
                    if reads {
                        worker.read(part, at, filled(part, at))?;
                    } else {
                        worker.update(part, at)?;
                    }
                }
                worker.finish()?;
                let ns = started.elapsed().as_nanos() as f64 / operations as f64;
                if !reads {
                    // Not timed: what the parts must hold.
                    for _ in 0..operations {
                        let (part, at) = again.place(parts);
                        expected[part] = expected[part].with(at, 1);
                    }
                }
                let expected = (!reads).then(|| expected.clone());
                starter.reply(&Done { ns, expected })?;
            }
            Request::Serve | Request::Stop => bail!("unexpected request {request:?}"),
        }
    }
    Ok(())
}

/// Whether the workload reads the table; otherwise it updates it.
fn reads() -> Result<bool> {
    match std::env::var("BENCH_WORK").as_deref() {
        Ok("reads") => Ok(true),
        Ok("updates") => Ok(false),
        _ => bail!("BENCH_WORK must be `reads` or `updates`"),
    }
}

/// Whether operations for one part are aggregated.
fn is_aggregated() -> bool {
    std::env::var_os("BENCH_AGGREGATED").is_some()
}

/// `BENCH_PART` is the index of a part, `BENCH_PARTS` their number.
fn number(name: &str) -> Result<usize> {
    let number = std::env::var(name).with_context(|| format!("{name} must be set"))?;
    number.parse().with_context(|| format!("{name} must be a number"))
}

/// The initial words of a part: zeros for updates, known values for reads.
fn initial(part: usize) -> Result<impl Iterator<Item = u64>> {
    let reads = reads()?;
    Ok((0..WORDS as u64).map(move |at| if reads { filled(part, at) } else { 0 }))
}

/// A word of a table for reads.
fn filled(part: usize, at: u64) -> u64 {
    (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part as u64
}

/// Pseudo-random numbers (SplitMix64).
#[derive(Clone)]
struct Random(u64);

impl Random {
    #[inline]
    fn place(&mut self, parts: usize) -> (usize, u64) {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^= value >> 31;
        let part = ((value >> 32) as usize * parts) >> 32;
        (part, value % WORDS as u64)
    }
}
