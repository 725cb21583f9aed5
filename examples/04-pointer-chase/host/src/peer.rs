//! A server by UCX alone, for comparison: memory that others read by one-sided gets, and a chaser that was compiled in, as the
//! handler of an active message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use example_servers::Failure;
use ucx::{
    Callback, Endpoint, Features, Flags, Handler, Library, Memory, Message, Operation, Operations, Worker,
};

use crate::description::{Description, decode_all};
use crate::permutation::Cut;
use crate::waiting::{Spin, Waiting};

/// The active messages: a chase that goes on, and one that has ended.
pub const CHASE: u16 = 1;
/// See [`CHASE`].
pub const ANSWER: u16 = 2;

/// What is known of a chase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The entry that it has come to.
    pub at: u64,
    /// Steps that are left.
    pub left: u64,
    /// Its number at the source.
    pub slot: u64,
}

impl Walk {
    /// Bytes on the wire.
    pub const LEN: usize = 24;

    /// The bytes of a message.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        [self.at, self.left, self.slot].map(u64::to_le_bytes).concat()
    }

    /// Reads a message.
    #[must_use]
    pub fn decode(message: &Message<'_>) -> Option<Self> {
        let mut bytes = [0; Self::LEN];
        if message.len() != bytes.len() || message.is_rendezvous() {
            return None;
        }
        message.copy_to(&mut bytes);
        let [at, left, slot] = [0, 1, 2]
            .map(|word| bytes.as_chunks::<8>().0[word])
            .map(u64::from_le_bytes);
        Some(Self { at, left, slot })
    }
}

/// The handle of the thread that progresses a server's worker.
#[derive(Debug)]
pub struct Peer {
    memory: Arc<Memory>,
    description: Vec<u8>,
    connect: Sender<Request>,
}

/// Descriptions to connect to, and where the result goes.
type Request = (Vec<u8>, Sender<Result<(), Failure>>);

impl Peer {
    /// Starts the thread, with memory for `len` entries; `None` without UCX.
    ///
    /// # Errors
    /// UCX refuses a worker or memory.
    pub fn start(cut: Cut, rank: u32, len: usize, spin: Spin) -> Result<Option<Self>, Failure> {
        let Ok(ucx) = Library::load() else { return Ok(None) };
        let (connect, requests) = channel();
        let (made, result) = channel();
        thread::Builder::new().name("ucx".into()).spawn(move || {
            let mut serving = match Serving::new(ucx, cut, rank, len, spin) {
                Ok((serving, memory, description)) => {
                    let _ = made.send(Ok((memory, description)));
                    serving
                }
                Err(why) => return drop(made.send(Err(why))),
            };
            if let Err(why) = serving.run(&requests) {
                eprintln!("error: server {rank} by UCX: {why}");
            }
        })?;
        let (memory, description) = result.recv().map_err(|_| "the thread for UCX panicked")??;
        Ok(Some(Self {
            memory,
            description,
            connect,
        }))
    }

    /// The entries.
    #[must_use]
    pub fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// How other processes reach worker and memory.
    #[must_use]
    pub fn description(&self) -> &[u8] {
        &self.description
    }

    /// Connects to the processes of these descriptions, the source last.
    ///
    /// # Errors
    /// UCX does not connect, or the thread has ended.
    pub fn connect(&self, all: &[u8]) -> Result<(), Failure> {
        let (done, result) = channel();
        self.connect.send((all.to_vec(), done))?;
        result.recv()?
    }
}

/// A worker, on its thread.
struct Serving {
    worker: Worker<Chaser>,
    waiting: Waiting,
}

/// The chaser that was compiled in.
struct Chaser {
    cut: Cut,
    rank: u32,
    /// Set when the worker has made it.
    entries: Option<Arc<Memory>>,
    /// Endpoints to the servers, and one to the source.
    to: Vec<Endpoint>,
}

impl Handler for Chaser {
    type Tag = ();

    fn message(&mut self, worker: &mut Callback<'_, Self>, message: Message<'_>) {
        // Peers are connected after the entries were made.
        let (Some(mut walk), Some(entries)) = (Walk::decode(&message), &self.entries) else {
            return;
        };
        let entries: &[AtomicU64] = (**entries).as_ref();
        let Some(mut next) = self.to.len().checked_sub(1) else {
            return;
        };
        while walk.left > 0 {
            let (owner, place) = self.cut.place(walk.at);
            if owner != self.rank {
                next = owner as usize;
                break;
            }
            walk.at = entries[place].load(Ordering::Relaxed);
            walk.left -= 1;
        }
        let send = Operation::Message {
            endpoint: &self.to[next],
            id: if walk.left > 0 { CHASE } else { ANSWER },
            header: 0..0,
            data: 0..Walk::LEN,
            flags: Flags::EAGER,
        };
        // The worker keeps the bytes of a send that is under way.
        if let Err(why) = worker.start(send, walk.encode()) {
            eprintln!("error: server {} by UCX: {why}", self.rank);
        }
    }
}

impl Serving {
    fn new(
        ucx: Library,
        cut: Cut,
        rank: u32,
        len: usize,
        spin: Spin,
    ) -> Result<(Self, Arc<Memory>, Vec<u8>), Failure> {
        let context = ucx.context(&ucx.config()?, Features::AM | Features::RMA | Features::WAKEUP)?;
        let mut worker = context.worker(Chaser {
            cut,
            rank,
            entries: None,
            to: Vec::new(),
        })?;
        let memory = Arc::new(worker.allocate(len.max(1) * 8)?);
        worker.handler().entries = Some(Arc::clone(&memory));
        worker.receive(CHASE)?;
        let description = Description {
            worker: worker.address()?,
            key: memory.key().to_vec(),
            address: memory.address(),
            len: memory.len() as u64,
        };
        let serving = Self {
            worker,
            waiting: Waiting::new(spin.server),
        };
        Ok((serving, memory, description.encode()))
    }

    /// Progresses the worker until the part of the table is gone.
    fn run(&mut self, requests: &Receiver<Request>) -> Result<(), Failure> {
        loop {
            self.waiting.progress(&mut self.worker)?;
            match requests.try_recv() {
                Ok((all, done)) => drop(done.send(self.connect(&all))),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn connect(&mut self, all: &[u8]) -> Result<(), Failure> {
        let mut to = Vec::new();
        for process in decode_all(all)? {
            // SAFETY: the address of a worker of this run: servers and source trust each other with their code.
            to.push(unsafe {
                self.worker
                    .connect_to_worker(&process.worker, Default::default())?
            });
        }
        self.worker.handler().to = to;
        Ok(())
    }
}
