//! Calls by gRPC.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use ifunc_bench_ifuncs::answer;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use super::{Caller, call};
use crate::program::Starter;
use crate::roles::grpc::{self, Answers, runtime};

/// Question and answer: `message Number { fixed64 number = 1; }`
#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(fixed64, tag = "1")]
    number: u64,
}

/// `service Oracle { rpc Do(Number) returns (Number); }`
#[derive(Clone)]
struct Oracle;

impl Answers for Oracle {
    const NAME: &'static str = "bench.Oracle";
    const PATH: &'static str = "/bench.Oracle/Do";
    type Message = Number;

    fn answer(&self, question: &Number) -> Result<Number> {
        let number = answer(question.number);
        Ok(Number { number })
    }
}

pub(in crate::roles) fn target(starter: Starter) -> Result<()> {
    grpc::serve(starter, Oracle, |address| address)
}

struct Tonic {
    runtime: Runtime,
    channel: Channel,
}

/// Sends questions with numbers from `next` up to `end`, one at a time.
async fn ask(channel: Channel, next: Arc<AtomicU64>, end: u64) -> Result<()> {
    let mut client = tonic::client::Grpc::new(channel);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            return Ok(());
        }
        let response = grpc::ask::<Oracle>(&mut client, Number { number }).await?;
        ensure!(response.number == answer(number), "a wrong answer");
    }
}

impl Caller for Tonic {
    fn calls(&mut self, numbers: Range<u64>, in_flight: usize) -> Result<()> {
        let next = Arc::new(AtomicU64::new(numbers.start));
        if in_flight == 1 {
            return self
                .runtime
                .block_on(ask(self.channel.clone(), next, numbers.end));
        }
        let tasks: Vec<_> = (0..in_flight)
            .map(|_| {
                let task = ask(self.channel.clone(), Arc::clone(&next), numbers.end);
                self.runtime.spawn(task)
            })
            .collect();
        self.runtime.block_on(async {
            for task in tasks {
                task.await??;
            }
            Ok(())
        })
    }
}

/// `BENCH_ADDRESS` is the target's address.
pub(in crate::roles) fn source(mut starter: Starter) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS")?;
    let runtime = runtime()?;
    let channel = runtime.block_on(Endpoint::from_shared(address.clone())?.connect())?;
    starter.reply(&address)?;
    call(starter, Tonic { runtime, channel })
}
