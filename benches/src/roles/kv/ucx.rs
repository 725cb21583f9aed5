//! UCX active messages. The operations are compiled into the server, or (`BENCH_HANDLER=wasm`) are a WebAssembly module that the
//! server runs. Each client has an endpoint of its own; the answers share the way back.

use anyhow::{Context, Result, bail, ensure};
use ucx::{Callback, Features};

use super::operation::{Answer, Operation};
use super::pages::Map;
use super::{Connections, address, clients, work};
use crate::kv::{Kind, Listening, Turn};
use crate::program::Starter;
use crate::roles::exchange::Timeout;
use crate::roles::ucx::outbox::Outbox;
use crate::roles::ucx::{Handler, Receiver, Worker};

/// Answers have this id; an operation has that of its kind.
const ANSWER: u16 = Kind::ALL.len() as u16;
/// The address of the clients' worker.
const HELLO: u16 = ANSWER + 1;

/// Polls of the server between two looks for a request.
const POLLS: u32 = 1024;

/// Words of an operation or an answer, with the client's number before them.
const WORDS: usize = 16;

/// A message: the client's number, and words.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    #[inline]
    fn of(&mut self, client: u64, write: impl FnOnce(&mut dyn FnMut(u64))) -> &[u8] {
        self.bytes.clear();
        self.bytes.extend(client.to_le_bytes());
        write(&mut |word| self.bytes.extend(word.to_le_bytes()));
        &self.bytes
    }

    /// The client's number and the words of a message that arrived.
    #[inline]
    fn read(payload: &[u8], into: &mut [u64; WORDS]) -> Result<(u64, usize)> {
        let (words, rest) = payload.as_chunks::<8>();
        let Some((client, words)) = words.split_first().filter(|(_, words)| words.len() <= WORDS) else {
            bail!("a message of {} bytes", payload.len())
        };
        ensure!(rest.is_empty(), "a message of {} bytes", payload.len());
        for (into, word) in into.iter_mut().zip(words) {
            *into = u64::from_le_bytes(*word);
        }
        Ok((u64::from_le_bytes(*client), words.len()))
    }
}

/// What runs the operations.
enum Engine {
    CompiledIn(Map),
    #[cfg(feature = "wasm")]
    Wasm(Box<super::wasm::Engine>),
}

impl Engine {
    fn new() -> Result<Self> {
        match std::env::var("BENCH_HANDLER").as_deref() {
            Err(_) => Ok(Self::CompiledIn(Map::new())),
            #[cfg(feature = "wasm")]
            Ok("wasm") => Ok(Self::Wasm(Box::new(super::wasm::Engine::new()?))),
            Ok(other) => bail!("BENCH_HANDLER=`{other}`: this program has no such handler"),
        }
    }

    #[inline]
    fn run(&mut self, kind: Kind, words: &[u64], answer: &mut dyn FnMut(u64)) -> Result<()> {
        match self {
            Self::CompiledIn(map) => Operation::read(kind, words)?.run(map).write(answer),
            #[cfg(feature = "wasm")]
            Self::Wasm(engine) => engine.run(kind, words, answer)?,
        }
        Ok(())
    }
}

struct Server {
    engine: Engine,
    answer: Message,
    /// The way back, once the clients have said where they are.
    outbox: Option<Outbox>,
    /// The address of the clients.
    hello: Option<Vec<u8>>,
}

impl Server {
    #[inline]
    fn operation(
        &mut self,
        worker: &mut Callback<'_, Receiver<Self>>,
        kind: Kind,
        payload: &[u8],
    ) -> Result<()> {
        let mut words = [0; WORDS];
        let (client, len) = Message::read(payload, &mut words)?;
        let mut result = Ok(());
        let bytes = self.answer.of(client, |word| {
            result = self.engine.run(kind, &words[..len], word);
        });
        result?;
        let outbox = self.outbox.as_mut().context("an operation before the hello")?;
        outbox.send(worker, ANSWER, bytes)
    }
}

impl Handler for Server {
    #[inline]
    fn message(&mut self, worker: &mut Callback<'_, Receiver<Self>>, id: u16, payload: &[u8]) {
        match Kind::ALL.get(usize::from(id)) {
            Some(kind) => {
                // The answer is missing: the run fails.
                if let Err(error) = self.operation(worker, *kind, payload) {
                    eprintln!("the server does not answer: {error:#}");
                }
            }
            None => self.hello = Some(payload.to_vec()),
        }
    }
}

/// Serves in its turns, until the input is closed.
pub(in crate::roles) fn server(mut starter: Starter) -> Result<()> {
    let server = Server {
        engine: Engine::new()?,
        answer: Message::default(),
        outbox: None,
        hello: None,
    };
    let mut worker = Worker::new(Features::AM, server)?;
    for id in (0..ANSWER).chain([HELLO]) {
        worker.0.receive(id)?;
    }
    starter.reply(&Listening {
        address: worker.address()?,
        process: std::process::id(),
    })?;
    while let Some(turn) = starter.next::<Turn>()? {
        ensure!(turn == Turn::Begin, "a turn ends that has not begun");
        while !starter.has_request()? {
            for _ in 0..POLLS {
                worker.progress();
            }
            if let Some(address) = worker.with(|server| server.hello.take()) {
                let endpoint = worker.connect(std::str::from_utf8(&address)?)?;
                let mut outbox = Outbox::new(endpoint);
                outbox.send(&mut worker.0, HELLO, &[])?;
                worker.with(|server| server.outbox = Some(outbox));
            }
        }
        let _: Option<Turn> = starter.next()?;
        starter.reply(&())?;
    }
    Ok(())
}

/// What has come.
#[derive(Default)]
struct Answered {
    /// What each client waits for.
    kinds: Vec<Kind>,
    answers: Vec<(usize, Answer)>,
    is_met: bool,
    wrong: Option<anyhow::Error>,
}

impl Answered {
    #[inline]
    fn answer(&mut self, payload: &[u8]) -> Result<()> {
        let mut words = [0; WORDS];
        let (client, len) = Message::read(payload, &mut words)?;
        let client = client as usize;
        let kind = self.kinds.get(client).context("an answer to no client")?;
        self.answers.push((client, Answer::read(*kind, &words[..len])?));
        Ok(())
    }
}

impl Handler for Answered {
    #[inline]
    fn message(&mut self, _: &mut Callback<'_, Receiver<Self>>, id: u16, payload: &[u8]) {
        match id {
            HELLO => self.is_met = true,
            _ => self.wrong = self.answer(payload).err().or(self.wrong.take()),
        }
    }
}

struct Messages {
    outboxes: Vec<Outbox>,
    message: Message,
    /// The last to go: requests give their memory back to it.
    worker: Worker<Answered>,
}

impl Connections for Messages {
    #[inline]
    fn start(&mut self, client: usize, operation: &Operation) -> Result<()> {
        let kind = operation.kind();
        self.worker.with(|answered| answered.kinds[client] = kind);
        let bytes = self.message.of(client as u64, |word| operation.write(word));
        self.outboxes[client].send(&mut self.worker.0, kind as u16, bytes)
    }

    #[inline]
    fn answers(&mut self, into: &mut Vec<(usize, Answer)>) -> Result<()> {
        let mut timeout = Timeout::new();
        while into.is_empty() {
            self.worker.progress();
            self.worker.with(|answered| {
                into.append(&mut answered.answers);
                answered.wrong.take().map_or(Ok(()), Err)
            })?;
            timeout.check()?;
        }
        Ok(())
    }
}

/// Connects to the server at `BENCH_ADDRESS`.
pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    let mut worker = Worker::new(Features::AM, Answered::default())?;
    for id in [ANSWER, HELLO] {
        worker.0.receive(id)?;
    }
    let (server, all) = (address()?, clients()?);
    let outboxes = (0..all).map(|_| Ok(Outbox::new(worker.connect(&server)?)));
    let mut outboxes = outboxes.collect::<Result<Vec<_>>>()?;
    let own = worker.address()?;
    let first = outboxes.first_mut().context("there are clients")?;
    first.send(&mut worker.0, HELLO, own.as_bytes())?;
    let mut timeout = Timeout::new();
    while !worker.with(|answered| answered.is_met) {
        worker.progress();
        timeout.check()?;
    }
    worker.with(|answered| answered.kinds = vec![Kind::Get; all]);
    starter.reply(&worker.carried_by(outboxes[0].endpoint()))?;
    let message = Message::default();
    work(
        starter,
        Messages {
            outboxes,
            message,
            worker,
        },
    )
}
