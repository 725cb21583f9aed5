//! Many sources of one target, all in one program: each sends whenever it has credit.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::{counters, increment};
use ifunc_rt::{Error, Handle, Source};

use crate::program::Starter;
use crate::scale::{Sent, Work};

/// Messages that a source sends before the next one has its turn.
const TURN: u64 = 16;
/// Timeout of a slot.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `BENCH_ADDRESS` is the target's address, `BENCH_SOURCES` how many there are.
pub(super) fn sources(mut starter: Starter) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS")?;
    let number: usize = std::env::var("BENCH_SOURCES").context("BENCH_SOURCES")?.parse()?;
    let mut sources = Vec::with_capacity(number);
    let mut handles: Vec<Handle<increment>> = Vec::with_capacity(number);
    for at in 0..number {
        let source = Source::connect(&address).with_context(|| format!("source {at} of {number}"))?;
        handles.push(source.register()?);
        sources.push(source);
    }
    let first = sources.first().context("there are sources")?;
    let counters = first.register::<counters>()?;
    starter.reply(&first.transport())?;
    let mut all = 0;
    while let Some(work) = starter.next::<Work>()? {
        let began = Instant::now();
        let each = send(&handles, work.messages)?;
        for source in &sources {
            source.flush()?;
        }
        let ns = began.elapsed().as_nanos() as f64 / work.messages as f64;
        all += work.messages;
        let received = counters.call(&0)?.wait()?;
        ensure!(received == all, "sent {all} messages, {received} were received");
        starter.reply(&Sent {
            ns,
            slowest: each.iter().copied().min().unwrap_or(0),
            fastest: each.iter().copied().max().unwrap_or(0),
        })?;
    }
    Ok(())
}

/// Sends so many messages in total, by whichever sources have credit. Returns how many each has sent.
fn send(handles: &[Handle<increment>], messages: u64) -> Result<Vec<u64>> {
    let mut each = vec![0; handles.len()];
    let mut left = messages;
    let mut last = Instant::now();
    while left > 0 {
        let before = left;
        for (handle, sent) in handles.iter().zip(&mut each) {
            for _ in 0..TURN.min(left) {
                match handle.try_send(&1) {
                    Ok(()) => {}
                    Err(Error::WouldBlock { .. }) => break,
                    Err(error) => return Err(error.into()),
                }
                *sent += 1;
                left -= 1;
            }
        }
        if left < before {
            last = Instant::now();
        }
        ensure!(
            last.elapsed() < TIMEOUT,
            "no source has had credit for {} s",
            TIMEOUT.as_secs()
        );
    }
    Ok(each)
}
