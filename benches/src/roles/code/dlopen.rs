//! The peer of code that arrives: writes the bytes of a shared library to a memfd, opens it with the dynamic
//! loader, and looks up and calls its function.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::Tally;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use rustix::fs::MemfdFlags;

use crate::program::Starter;
use crate::slots::{Sample, Slot, median, quantile};

/// The mark before the library's number: see `c/count.c`.
const MARK: [u64; 2] = [0x5eed_c0de_0dd5_0a4b, 0x1f0c_5a1e_7a57_e9d3];

type Count = unsafe extern "C" fn(*const u64, usize, *mut Tally) -> u64;

/// `BENCH_LIBRARY` is the library; each iteration changes its number. The time is that from its bytes to the
/// return of its function.
pub(in crate::roles) fn plain(starter: Starter) -> Result<()> {
    run(starter, |_| true)
}

/// As [`plain`], but compares the BLAKE3 hash of the bytes with the expected one, as a loader of code from
/// elsewhere does.
pub(in crate::roles) fn hashed(starter: Starter) -> Result<()> {
    let mut id = None;
    run(starter, move |bytes| match bytes {
        Bytes::Sent(bytes) => {
            id = Some(blake3::hash(bytes));
            true
        }
        Bytes::Received(bytes) => id == Some(blake3::hash(bytes)),
    })
}

/// The bytes to check.
enum Bytes<'a> {
    /// As sent.
    Sent(&'a [u8]),
    /// As received.
    Received(&'a [u8]),
}

fn run(mut starter: Starter, mut are_right: impl FnMut(Bytes<'_>) -> bool) -> Result<()> {
    let path = std::env::var("BENCH_LIBRARY").context("BENCH_LIBRARY must be the library")?;
    let mut bytes = std::fs::read(path)?;
    let mark: Vec<u8> = MARK.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = bytes.windows(mark.len()).position(|window| window == mark);
    let number = at.context("the library has no number")? + mark.len();
    let mut tally = Tally::default();
    while let Some(slot) = starter.next::<Slot>()? {
        let mut took = Vec::with_capacity(slot.operations as usize);
        for _ in 0..slot.operations {
            let expected = tally.count + 1;
            bytes[number..number + 8].copy_from_slice(&expected.to_le_bytes());
            are_right(Bytes::Sent(&bytes));
            let begin = Instant::now();
            ensure!(
                are_right(Bytes::Received(&bytes)),
                "the library's bytes are not those that were sent"
            );
            let (library, file) = open(&bytes)?;
            // SAFETY: `c/count.c` defines the function with this type.
            let counted = unsafe {
                let count: Symbol<Count> = library.get(b"count\0")?;
                count(&1, 8, &raw mut tally)
            };
            took.push(begin.elapsed().as_nanos() as f64);
            ensure!(
                counted == expected,
                "the library counted {counted}, not {expected}"
            );
            drop((library, file));
        }
        starter.reply(&Sample {
            ns: median(took.clone()),
            percentiles: Some([0.5, 0.99, 0.999].map(|at| quantile(took.clone(), at))),
        })?;
    }
    Ok(())
}

fn open(bytes: &[u8]) -> Result<(Library, File)> {
    let mut file = File::from(rustix::fs::memfd_create("ifunc-bench", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the library was compiled from `c/count.c`, which has no constructors.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL)? };
    Ok((library, file))
}
