//! gRPC. Each client has a connection of its own.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use super::operation::{Answer, Operation};
use super::pages::Map;
use super::{Connections, address, clients, work};
use crate::kv::{Kind, Listening};
use crate::program::Starter;
use crate::roles::grpc::{self, Answers, runtime};

/// Of an operation or an answer: `message Words { uint32 kind = 1; repeated fixed64 words = 2; }`
#[derive(Clone, PartialEq, prost::Message)]
struct Words {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(fixed64, repeated, tag = "2")]
    words: Vec<u64>,
}

/// `service Records { rpc Do(Words) returns (Words); }`
#[derive(Clone)]
struct Records(Arc<Mutex<Map>>);

impl Answers for Records {
    const NAME: &'static str = "bench.Records";
    const PATH: &'static str = "/bench.Records/Do";
    type Message = Words;

    fn answer(&self, request: &Words) -> Result<Words> {
        let kind = Kind::ALL.get(request.kind as usize).context("no such kind")?;
        let operation = Operation::read(*kind, &request.words)?;
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answer = Words::default();
        operation.run(&mut map).write(|word| answer.words.push(word));
        Ok(answer)
    }
}

pub(in crate::roles) fn server(starter: Starter) -> Result<()> {
    let records = Records(Arc::new(Mutex::new(Map::new())));
    grpc::serve(starter, records, |address| Listening {
        address,
        process: std::process::id(),
    })
}

struct Tonic {
    runtime: Runtime,
    channels: Vec<Channel>,
    under_way: JoinSet<Result<(usize, Answer)>>,
}

async fn ask(client: usize, channel: Channel, kind: Kind, words: Words) -> Result<(usize, Answer)> {
    let mut grpc = tonic::client::Grpc::new(channel);
    let answer = grpc::ask::<Records>(&mut grpc, words).await?;
    Ok((client, Answer::read(kind, &answer.words)?))
}

impl Connections for Tonic {
    fn start(&mut self, client: usize, operation: &Operation) -> Result<()> {
        let kind = operation.kind();
        let mut words = Words {
            kind: kind as u32,
            words: Vec::new(),
        };
        operation.write(|word| words.words.push(word));
        let channel = self.channels[client].clone();
        let task = ask(client, channel, kind, words);
        self.under_way.spawn_on(task, self.runtime.handle());
        Ok(())
    }

    fn answers(&mut self, into: &mut Vec<(usize, Answer)>) -> Result<()> {
        let answer = self.runtime.block_on(self.under_way.join_next());
        into.push(answer.context("nothing is under way")???);
        while let Some(answer) = self.under_way.try_join_next() {
            into.push(answer??);
        }
        Ok(())
    }
}

/// Connects to the server at `BENCH_ADDRESS`.
pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    let address = address()?;
    let runtime = runtime()?;
    let channels = (0..clients()?).map(|_| {
        let endpoint = Endpoint::from_shared(address.clone())?;
        Ok(runtime.block_on(endpoint.connect())?)
    });
    let channels = channels.collect::<Result<Vec<_>>>()?;
    starter.reply(&address)?;
    let under_way = JoinSet::new();
    work(
        starter,
        Tonic {
            runtime,
            channels,
            under_way,
        },
    )
}
