//! The source's two ways without ifuncs: a get per entry, and an active message that the servers pass on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use example_servers::Failure;
use ucx::{
    Begun, Buffer, Callback, Endpoint, Features, Flags, Handler, Library, Message, Operation, Operations,
    Remote, RemoteMemory, Status, Worker,
};

use crate::description::Description;
use crate::measure::{Chaser, Ended};
use crate::peer::{ANSWER, CHASE, Walk};
use crate::permutation::Cut;
use crate::waiting::{Spin, Waiting};

/// The source's worker, connected to all servers.
pub struct Client {
    worker: Worker<Events>,
    waiting: Waiting,
    cut: Cut,
    depth: u64,
    servers: Vec<(Endpoint, RemoteMemory)>,
    /// When something happened last.
    last: Instant,
}

/// Longest time in which nothing happens: without peer error mode, UCX does not report that a server is gone.
const SILENCE: Duration = Duration::from_secs(30);

/// What has happened.
#[derive(Default)]
struct Events {
    ended: VecDeque<Ended>,
    /// Gets that have ended.
    got: VecDeque<(Buffer<Walk>, Result<(), Status>)>,
}

impl Handler for Events {
    type Tag = Walk;

    fn message(&mut self, _: &mut Callback<'_, Self>, message: Message<'_>) {
        if let Some(walk) = Walk::decode(&message) {
            self.ended.push_back((walk.slot as usize, walk.at));
        }
    }

    fn completed(&mut self, _: &mut Callback<'_, Self>, buffer: Buffer<Walk>, result: Result<(), Status>) {
        self.got.push_back((buffer, result));
    }
}

impl Client {
    /// A worker that is not connected yet, and its description.
    ///
    /// # Errors
    /// There is no UCX, or it refuses a worker.
    pub fn new(cut: Cut, depth: u64, spin: Spin) -> Result<(Self, Description), Failure> {
        let ucx = Library::load()?;
        // Endpoints have no peer error mode, which would make UCX slower.
        let context = ucx.context(&ucx.config()?, Features::AM | Features::RMA | Features::WAKEUP)?;
        let mut worker = context.worker(Events::default())?;
        worker.receive(ANSWER)?;
        let description = Description {
            worker: worker.address()?,
            ..Description::default()
        };
        let client = Self {
            worker,
            waiting: Waiting::new(spin.source),
            cut,
            depth,
            servers: Vec::new(),
            last: Instant::now(),
        };
        Ok((client, description))
    }

    /// Connects to the servers.
    ///
    /// # Errors
    /// UCX finds no transport to one of them.
    pub fn connect(&mut self, servers: &[Description]) -> Result<(), Failure> {
        for server in servers {
            // SAFETY: the address of a server of this run, as it said.
            let endpoint = unsafe {
                self.worker
                    .connect_to_worker(&server.worker, Default::default())?
            };
            // SAFETY: the server's memory, which it has until its end.
            let memory = unsafe {
                self.worker
                    .unpack(&endpoint, &server.key, server.address, server.len as usize)?
            };
            self.servers.push((endpoint, memory));
        }
        Ok(())
    }

    /// What carries the messages to the first server, by UCX's own account.
    #[must_use]
    pub fn carried_by(&self) -> String {
        let lanes = self
            .servers
            .first()
            .map(|(endpoint, _)| self.worker.lanes(endpoint));
        lanes.unwrap_or_default().join(" ")
    }

    fn wait(&mut self) -> Result<(), Failure> {
        if self.waiting.progress(&mut self.worker)? {
            self.last = Instant::now();
        } else if self.last.elapsed() > SILENCE {
            return Err(format!("no server has answered for {} s", SILENCE.as_secs()).into());
        }
        Ok(())
    }
}

/// The source reads each entry by a one-sided get.
pub struct Get<'a> {
    client: &'a mut Client,
    buffers: Vec<Buffer<Walk>>,
}

impl<'a> Get<'a> {
    /// Chases by gets.
    pub fn new(client: &'a mut Client) -> Self {
        client.last = Instant::now();
        Self {
            client,
            buffers: Vec::new(),
        }
    }

    /// Begins the get of the next entry.
    fn get(&mut self, buffer: Buffer<Walk>) -> Result<(), Failure> {
        let (owner, place) = self.client.cut.place(buffer.tag().at);
        let (endpoint, memory) = &self.client.servers[owner as usize];
        let from = Remote {
            endpoint,
            memory,
            offset: place * 8,
        };
        let get = Operation::Get { from, data: 0..8 };
        if let Begun::Done(buffer) = self.client.worker.post(get, buffer)? {
            self.client.worker.handler().got.push_back((buffer, Ok(())));
        }
        Ok(())
    }
}

impl Chaser for Get<'_> {
    fn begin(&mut self, slot: usize, at: u64) -> Result<(), Failure> {
        let mut buffer = self
            .buffers
            .pop()
            .unwrap_or_else(|| Buffer::new(8, Walk::default()));
        *buffer.tag_mut() = Walk {
            at,
            left: self.client.depth,
            slot: slot as u64,
        };
        self.get(buffer)
    }

    fn wait(&mut self) -> Result<Ended, Failure> {
        loop {
            let Some((mut buffer, result)) = self.client.worker.handler().got.pop_front() else {
                self.client.wait()?;
                continue;
            };
            result?;
            let [entry, ..] = *buffer.as_chunks::<8>().0 else {
                return Err("a buffer without an entry".into());
            };
            let walk = buffer.tag_mut();
            walk.at = u64::from_le_bytes(entry);
            walk.left -= 1;
            if walk.left == 0 {
                let ended = (walk.slot as usize, walk.at);
                self.buffers.push(buffer);
                return Ok(ended);
            }
            self.get(buffer)?;
        }
    }
}

/// The source sends an active message, which the servers pass on.
pub struct ActiveMessage<'a>(&'a mut Client);

impl<'a> ActiveMessage<'a> {
    /// Chases by active messages.
    pub fn new(client: &'a mut Client) -> Self {
        client.last = Instant::now();
        Self(client)
    }
}

impl Chaser for ActiveMessage<'_> {
    fn begin(&mut self, slot: usize, at: u64) -> Result<(), Failure> {
        let walk = Walk {
            at,
            left: self.0.depth,
            slot: slot as u64,
        };
        let send = Operation::Message {
            endpoint: &self.0.servers[self.0.cut.place(at).0 as usize].0,
            id: CHASE,
            header: 0..0,
            data: 0..Walk::LEN,
            flags: Flags::EAGER,
        };
        // The worker keeps the bytes of a send that is under way.
        drop(self.0.worker.start(send, walk.encode())?);
        Ok(())
    }

    fn wait(&mut self) -> Result<Ended, Failure> {
        loop {
            if let Some(ended) = self.0.worker.handler().ended.pop_front() {
                return Ok(ended);
            }
            self.0.wait()?;
        }
    }
}
