//! A source with new code: images that the target does not have, each run once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::count;
use ifunc_rt::keys::{SecretKey, Signatures};
use ifunc_rt::{Handle, Source};

use crate::images::Images;
use crate::program::Starter;
use crate::slots::{Sample, Slot, median, quantile};

/// Environment variable of both sides: images are signed, and the target knows the key.
pub(super) const SIGNED: &str = "BENCH_SIGNED";

/// The key that signs them.
pub(super) fn key() -> SecretKey {
    SecretKey::from_seed(*b"a key of the benchmark, no other", "bench")
}

/// Number of images built before the first of them is sent. The target can hold many more.
pub(super) const BATCH: u64 = 64;

/// Whether the source waits for each image to run before it sends the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// It waits. The result is the duration of a call with new code minus that of one with installed code.
    Calls,
    /// It does not wait. The result is the time per message.
    Stream,
}

/// `BENCH_ADDRESS` is the target's address. The `size` of a slot is that of the images.
pub(in crate::roles) fn calls(starter: Starter) -> Result<()> {
    run(starter, Pace::Calls)
}

/// As [`calls`], without waiting.
pub(in crate::roles) fn stream(starter: Starter) -> Result<()> {
    run(starter, Pace::Stream)
}

fn run(mut starter: Starter, pace: Pace) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS must be the target's address")?;
    let source = Source::connect(&address)?;
    let installed = source.register::<count>()?;
    let mut arrivals = Arrivals {
        images: Images::of(installed.image(), std::process::id())?,
        counted: installed.call(&0)?.wait()?,
        source,
        installed,
        key: std::env::var_os(SIGNED).map(|_| key()),
    };
    while let Some(slot) = starter.next::<Slot>()? {
        let mut took = Vec::with_capacity(slot.operations as usize);
        let mut left = slot.operations;
        while left > 0 {
            let batch = left.min(BATCH);
            arrivals.batch(pace, slot.size, batch, &mut took)?;
            left -= batch;
        }
        let ns = median(took.clone());
        let percentiles =
            (pace == Pace::Calls).then(|| [0.5, 0.99, 0.999].map(|at| quantile(took.clone(), at)));
        starter.reply(&Sample { ns, percentiles })?;
    }
    Ok(())
}

struct Arrivals {
    source: Source,
    images: Images,
    /// The installed ifunc.
    installed: Handle<count>,
    /// Signs each image, if there is one.
    key: Option<SecretKey>,
    /// The target's expected counter.
    counted: u64,
}

impl Arrivals {
    /// Builds images and runs each of them; appends the nanoseconds of each to `took`.
    fn batch(&mut self, pace: Pace, size: usize, images: u64, took: &mut Vec<f64>) -> Result<()> {
        let fresh = (0..images)
            .map(|_| {
                let image = self.images.next(size)?;
                if let Some(key) = &self.key {
                    let mut signatures = Signatures::default();
                    signatures.add(key.sign(blake3::hash(&image).as_bytes()));
                    self.source.add_signatures(&signatures);
                }
                Ok(self.source.register_bytes::<count>(&image)?)
            })
            .collect::<Result<Vec<_>>>()?;
        match pace {
            Pace::Calls => {
                let there = (0..images)
                    .map(|_| Ok(self.call(|this| &this.installed)?.as_nanos() as f64))
                    .collect::<Result<Vec<_>>>()?;
                let there = median(there);
                for fresh in &fresh {
                    took.push(self.call(|_| fresh)?.as_nanos() as f64 - there);
                }
            }
            Pace::Stream => {
                let begin = Instant::now();
                for fresh in &fresh {
                    fresh.send(&1)?;
                }
                self.source.flush()?;
                took.push(begin.elapsed().as_nanos() as f64 / images as f64);
                self.counted += images;
                self.call(|this| &this.installed)?;
            }
        }
        Ok(())
    }

    fn call<'a>(&'a mut self, which: impl FnOnce(&'a Self) -> &'a Handle<count>) -> Result<Duration> {
        let expected = self.counted + 1;
        self.counted = expected;
        let which = which(self);
        let begin = Instant::now();
        let counted = which.call(&1)?.wait()?;
        let took = begin.elapsed();
        ensure!(
            counted == expected,
            "the target counted {counted}, not {expected}"
        );
        Ok(took)
    }
}
