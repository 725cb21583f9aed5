//! gRPC with `tonic`, over a Unix socket or TCP. Each client has a connection of its own.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{Body, BoxFuture, Service, StdError};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic_prost::ProstCodec;

use super::operation::{Answer, Map, Operation};
use super::{Connections, address, clients, work};
use crate::kv::{Kind, Listening};
use crate::program::Starter;
use crate::roles::calls::tonic::{Incoming, listen, runtime};

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

impl Records {
    fn answer(&self, request: &Words) -> Result<Words> {
        let kind = Kind::ALL.get(request.kind as usize).context("no such kind")?;
        let operation = Operation::read(*kind, &request.words)?;
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answer = Words::default();
        operation.run(&mut map).write(|word| answer.words.push(word));
        Ok(answer)
    }
}

struct Do(Records);

impl UnaryService<Words> for Do {
    type Response = Words;
    type Future = Ready<Result<tonic::Response<Words>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Words>) -> Self::Future {
        let answer = self.0.answer(request.get_ref());
        ready(match answer {
            Ok(answer) => Ok(tonic::Response::new(answer)),
            Err(error) => Err(tonic::Status::invalid_argument(error.to_string())),
        })
    }
}

impl NamedService for Records {
    const NAME: &'static str = "bench.Records";
}

impl<B> Service<Request<B>> for Records
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let records = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<Words, Words>::default();
            Ok(tonic::server::Grpc::new(codec).unary(Do(records), request).await)
        })
    }
}

/// Serves at `BENCH_ADDRESS`: `unix:PATH` or HOST:PORT.
pub(in crate::roles) fn server(mut starter: Starter) -> Result<()> {
    let address = address()?;
    runtime()?.block_on(async {
        let records = Records(Arc::new(Mutex::new(Map::new())));
        let server = Server::builder().add_service(records);
        let (address, incoming) = listen(&address).await?;
        starter.reply(&Listening {
            address,
            process: std::process::id(),
        })?;
        starter.wait_for_end()?;
        match incoming {
            Incoming::Unix(incoming) => server.serve_with_incoming(incoming).await?,
            Incoming::Tcp(incoming) => server.serve_with_incoming(incoming).await?,
        }
        anyhow::Ok(())
    })
}

struct Tonic {
    runtime: Runtime,
    channels: Vec<Channel>,
    under_way: JoinSet<Result<(usize, Answer)>>,
}

async fn ask(client: usize, channel: Channel, kind: Kind, words: Words) -> Result<(usize, Answer)> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await?;
    let path = PathAndQuery::from_static("/bench.Records/Do");
    let codec = ProstCodec::<Words, Words>::default();
    let response = grpc.unary(tonic::Request::new(words), path, codec).await?;
    Ok((client, Answer::read(kind, &response.get_ref().words)?))
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
