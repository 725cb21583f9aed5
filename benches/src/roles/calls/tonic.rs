//! Calls by gRPC with `tonic`, over a Unix socket or TCP. The generated code is written by hand, so that no
//! protocol buffer compiler is needed. Each side runs tokio's single-threaded executor on its own core.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, ensure};
use ifunc_bench_ifuncs::answer;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::Runtime;
use tokio_stream::Stream;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::tokio_stream::StreamExt as _;
use tonic::codegen::{Body, BoxFuture, Service, StdError};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic_prost::ProstCodec;

use super::{Caller, call};
use crate::program::Starter;

/// Question and answer: `message Number { fixed64 number = 1; }`
#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(fixed64, tag = "1")]
    number: u64,
}

/// `service Oracle { rpc Ask(Number) returns (Number); }`
#[derive(Clone)]
struct Oracle;

struct Ask;

impl UnaryService<Number> for Ask {
    type Response = Number;
    type Future = Ready<Result<tonic::Response<Number>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Number>) -> Self::Future {
        let number = answer(request.get_ref().number);
        ready(Ok(tonic::Response::new(Number { number })))
    }
}

impl NamedService for Oracle {
    const NAME: &'static str = "bench.Oracle";
}

impl<B> Service<Request<B>> for Oracle
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
        Box::pin(async move {
            let codec = ProstCodec::<Number, Number>::default();
            Ok(tonic::server::Grpc::new(codec).unary(Ask, request).await)
        })
    }
}

pub(in crate::roles) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting tokio")
}

/// A listener's connections.
pub(in crate::roles) enum Incoming {
    Unix(UnixListenerStream),
    Tcp(Pin<Box<dyn Stream<Item = std::io::Result<TcpStream>> + Send>>),
}

/// Listens at `unix:PATH` or HOST:PORT. Returns what a client connects to.
pub(in crate::roles) async fn listen(address: &str) -> Result<(String, Incoming)> {
    if let Some(path) = address.strip_prefix("unix:") {
        let listener = UnixListener::bind(path).with_context(|| format!("listening at {path}"))?;
        return Ok((address.into(), Incoming::Unix(UnixListenerStream::new(listener))));
    }
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listening at {address}"))?;
    let address = format!("http://{}", listener.local_addr()?);
    let nodelay = TcpListenerStream::new(listener)
        .map(|stream| stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)));
    Ok((address, Incoming::Tcp(Box::pin(nodelay))))
}

/// `BENCH_ADDRESS` is the address to listen on.
pub(in crate::roles) fn target(mut starter: Starter) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS")?;
    runtime()?.block_on(async {
        let server = Server::builder().add_service(Oracle);
        let (address, incoming) = listen(&address).await?;
        starter.reply(&address)?;
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
        client.ready().await?;
        let path = PathAndQuery::from_static("/bench.Oracle/Ask");
        let codec = ProstCodec::<Number, Number>::default();
        let response = client
            .unary(tonic::Request::new(Number { number }), path, codec)
            .await?;
        ensure!(response.get_ref().number == answer(number), "a wrong answer");
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
