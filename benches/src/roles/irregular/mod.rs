//! Random updates and reads of a table that lies in several programs, whatever carries them: [`Part`] and [`Worker`] are what
//! differs.

pub(super) mod ifuncs;
pub(super) mod remote;
pub(super) mod ucx;

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ifunc_bench_ifuncs::table::WORDS;

use crate::irregular::{Done, PartSums, Request};
use crate::pair::{Connected, Hello};
use crate::program::Starter;

/// A program that has a part of the table.
trait Part {
    fn address(&self) -> Result<String>;

    /// Connects to the one that works, where answers need it.
    fn connect(&mut self, address: &str) -> Result<()>;

    /// Lets happen what has come. Whether something had.
    fn poll(&mut self) -> Result<bool>;

    /// A word of the table.
    fn word(&self, at: usize) -> u64;
}

/// The program that works.
trait Worker {
    fn address(&self) -> Result<String>;

    /// Connects to all parts.
    fn connect(&mut self, addresses: &[String]) -> Result<()>;

    fn carried_by(&self) -> String;

    /// Sends an update of a word of a part.
    fn update(&mut self, part: usize, at: u64) -> Result<()>;

    /// Asks for a word of a part, which must be `expected`.
    fn read(&mut self, part: usize, at: u64, expected: u64) -> Result<()>;

    /// Waits until all updates are in the tables, and everything that was asked for is here.
    fn finish(&mut self) -> Result<()>;
}

/// Looks at the transport between two at the starter.
const POLLS_PER_CLOCK_READ: u32 = 256;

/// Has a part, until the starter has no more questions.
fn serve(mut starter: Starter, mut part: impl Part) -> Result<()> {
    let address = part.address()?;
    let is_alone = number("BENCH_PARTS")? == 1;
    starter.reply(&Hello { address })?;
    while let Some(request) = starter.next::<Request>()? {
        match request {
            Request::Connect { addresses } => {
                let address = addresses.first().context("there is one to meet")?;
                part.connect(address)?;
            }
            Request::Serve => {}
            Request::Stop | Request::Work { .. } => bail!("told {request:?}, and does not serve"),
        }
        while !starter.has_request()? {
            for _ in 0..POLLS_PER_CLOCK_READ {
                // Parts share a core. Who gave it away may have been told to stop meanwhile.
                if !part.poll()? && !is_alone {
                    std::thread::yield_now();
                    break;
                }
            }
        }
        let stop = starter.next()?;
        ensure!(
            matches!(stop, Some(Request::Stop)),
            "told {stop:?} instead of to stop"
        );
        starter.reply(&sums(&part))?;
    }
    Ok(())
}

fn sums(part: &impl Part) -> PartSums {
    (0..WORDS).fold(PartSums::default(), |sums, at| {
        sums.with(at as u64, part.word(at))
    })
}

impl PartSums {
    fn with(self, at: u64, word: u64) -> Self {
        Self {
            sum: self.sum.wrapping_add(word),
            weighted: self.weighted.wrapping_add(word.wrapping_mul(at)),
        }
    }
}

/// Works, until the starter has no more questions.
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
                let started = Instant::now();
                for _ in 0..operations {
                    let (part, at) = random.place(expected.len());
                    if reads {
                        worker.read(part, at, filled(part, at))?;
                    } else {
                        worker.update(part, at)?;
                        expected[part] = expected[part].with(at, 1);
                    }
                }
                worker.finish()?;
                let ns = started.elapsed().as_nanos() as f64 / operations as f64;
                let expected = (!reads).then(|| expected.clone());
                starter.reply(&Done { ns, expected })?;
            }
            Request::Serve | Request::Stop => bail!("told {request:?}, and has no part"),
        }
    }
    Ok(())
}

/// Whether the table is read; otherwise it is updated.
fn reads() -> Result<bool> {
    match std::env::var("BENCH_WORK").as_deref() {
        Ok("reads") => Ok(true),
        Ok("updates") => Ok(false),
        _ => bail!("BENCH_WORK is `reads` or `updates`"),
    }
}

/// Whether what goes to one part travels together.
fn is_aggregated() -> bool {
    std::env::var_os("BENCH_AGGREGATED").is_some()
}

/// `BENCH_PART`: which part a program has; `BENCH_PARTS`: of how many.
fn number(name: &str) -> Result<usize> {
    let number = std::env::var(name).with_context(|| format!("{name} is needed"))?;
    number.parse().with_context(|| format!("{name} is a number"))
}

/// What a part's table holds in the beginning: nothing, or what is read.
fn initial(part: usize) -> Result<impl Iterator<Item = u64>> {
    let reads = reads()?;
    Ok((0..WORDS as u64).map(move |at| if reads { filled(part, at) } else { 0 }))
}

/// What stands in a table that is read.
fn filled(part: usize, at: u64) -> u64 {
    (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part as u64
}

/// Numbers without an order (splitmix64).
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
