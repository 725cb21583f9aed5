//! A key-value server and its clients, for any kind of calls; [`Connections`] abstracts it. One program is all clients: each has a
//! connection and one operation under way, works on keys of its own, and checks every answer.

mod expected;
pub(super) mod ifunc;
mod operation;
mod pages;
pub(super) mod redis;
#[cfg(feature = "tonic")]
pub(super) mod tonic;
pub(super) mod ucx;
#[cfg(feature = "wasm")]
mod wasm;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use self::expected::Client;
use self::operation::{Answer, Operation};
use crate::kv::Work;
use crate::program::Starter;
use crate::slots::Sample;

/// The connections of the clients.
trait Connections {
    /// Sends an operation of a client that has none under way.
    fn start(&mut self, client: usize, operation: &Operation) -> Result<()>;

    /// Waits for at least one answer.
    fn answers(&mut self, into: &mut Vec<(usize, Answer)>) -> Result<()>;
}

/// The number of clients.
fn clients() -> Result<usize> {
    let clients = std::env::var("BENCH_CLIENTS").context("BENCH_CLIENTS must be set")?;
    clients.parse().context("BENCH_CLIENTS must be a number")
}

/// The address of the server.
fn address() -> Result<String> {
    std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS must be set")
}

/// Works as requested, until the input is closed.
fn work(mut starter: Starter, mut connections: impl Connections) -> Result<()> {
    let all = clients()?;
    let mut clients: Vec<Client> = (0..all).map(|client| Client::new(client, all)).collect();
    while let Some(work) = starter.next::<Work>()? {
        let began = Instant::now();
        let took = one_slot(&work, &mut clients, &mut connections)?;
        let ns = began.elapsed().as_nanos() as f64 / work.operations as f64;
        let percentiles = took.map(|took| [0.5, 0.99, 0.999].map(|part| took.value_at_quantile(part) as f64));
        starter.reply(&Sample { ns, percentiles })?;
    }
    Ok(())
}

/// Lets the clients work. Returns the times of single operations, if they are timed.
fn one_slot(
    work: &Work,
    clients: &mut [Client],
    connections: &mut impl Connections,
) -> Result<Option<Histogram<u64>>> {
    let mut took = work.timed.then(|| Histogram::new(3)).transpose()?;
    let mut begun = vec![Instant::now(); clients.len()];
    let mut idle: Vec<usize> = (0..clients.len()).collect();
    let mut answers = Vec::with_capacity(clients.len());
    let (mut left, mut under_way) = (work.operations, 0);
    while left + under_way > 0 {
        for client in idle.drain(..).take(left as usize) {
            left -= 1;
            under_way += 1;
            if work.timed {
                begun[client] = Instant::now();
            }
            connections.start(client, &clients[client].next(work.kind))?;
        }
        connections.answers(&mut answers)?;
        for (client, answer) in answers.drain(..) {
            if let Some(took) = &mut took {
                took.record(begun[client].elapsed().as_nanos() as u64)?;
            }
            ensure!(
                clients[client].expects(&answer),
                "client {client} was answered {answer:?}"
            );
            under_way -= 1;
            idle.push(client);
        }
    }
    Ok(took)
}
