//! gRPC with `tonic`, over a Unix socket or TCP. The generated code is written by hand, so that no protocol buffer compiler is
//! needed. Each side runs tokio's single-threaded executor on its own core.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::Runtime;
use tokio_stream::Stream;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::tokio_stream::StreamExt as _;
use tonic::codegen::{Body, BoxFuture, Service, StdError};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Server};
use tonic_prost::ProstCodec;

use crate::program::Starter;

/// A service with one method, `Do`, whose question and answer are the same message.
pub(super) trait Answers: Clone + Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    /// The path of the method.
    const PATH: &'static str;
    type Message: prost::Message + Default + 'static;

    fn answer(&self, question: &Self::Message) -> Result<Self::Message>;
}

#[derive(Clone)]
struct Served<A>(A);

impl<A: Answers> UnaryService<A::Message> for Served<A> {
    type Response = A::Message;
    type Future = Ready<Result<tonic::Response<A::Message>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<A::Message>) -> Self::Future {
        let answer = self.0.answer(request.get_ref());
        ready(match answer {
            Ok(answer) => Ok(tonic::Response::new(answer)),
            Err(error) => Err(tonic::Status::invalid_argument(error.to_string())),
        })
    }
}

impl<A: Answers> NamedService for Served<A> {
    const NAME: &'static str = A::NAME;
}

impl<A, B> Service<Request<B>> for Served<A>
where
    A: Answers,
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
        let served = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<A::Message, A::Message>::default();
            Ok(tonic::server::Grpc::new(codec).unary(served, request).await)
        })
    }
}

pub(super) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting tokio")
}

/// A listener's connections.
enum Incoming {
    Unix(UnixListenerStream),
    Tcp(Pin<Box<dyn Stream<Item = std::io::Result<TcpStream>> + Send>>),
}

/// Listens at `unix:PATH` or HOST:PORT. Returns what a client connects to.
async fn listen(address: &str) -> Result<(String, Incoming)> {
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

/// Serves at `BENCH_ADDRESS`, `unix:PATH` or HOST:PORT, until the input is closed. `says` makes the first reply from what clients
/// connect to.
pub(super) fn serve<S: Serialize>(
    mut starter: Starter,
    service: impl Answers,
    says: impl FnOnce(String) -> S,
) -> Result<()> {
    let address = std::env::var("BENCH_ADDRESS").context("BENCH_ADDRESS")?;
    runtime()?.block_on(async {
        let server = Server::builder().add_service(Served(service));
        let (address, incoming) = listen(&address).await?;
        starter.reply(&says(address))?;
        starter.wait_for_end()?;
        match incoming {
            Incoming::Unix(incoming) => server.serve_with_incoming(incoming).await?,
            Incoming::Tcp(incoming) => server.serve_with_incoming(incoming).await?,
        }
        anyhow::Ok(())
    })
}

/// Asks once.
pub(super) async fn ask<A: Answers>(
    client: &mut tonic::client::Grpc<Channel>,
    question: A::Message,
) -> Result<A::Message> {
    client.ready().await?;
    let path = PathAndQuery::from_static(A::PATH);
    let codec = ProstCodec::<A::Message, A::Message>::default();
    let response = client.unary(tonic::Request::new(question), path, codec).await?;
    Ok(response.into_inner())
}
