//! A worker of UCX that counts messages, and the operations that it has under way.

use ucx::{
    Buffer, Callback, Endpoint, EndpointId, ErrorMode, Features, Flags, Handler, Library, Message, Operation,
    Operations, Status,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::Result;

/// The active message.
const MESSAGE: u16 = 1;
/// That by which a source says where its worker is.
const ADDRESS: u16 = 2;

/// What happened.
#[derive(Default)]
pub(super) struct Events {
    /// The addresses of the workers of sources that connect.
    pub(super) sources: Vec<Vec<u8>>,
    pub(super) failed: Vec<EndpointId>,
    pub(super) messages: u64,
}

impl Handler for Events {
    type Tag = ();

    fn message(&mut self, worker: &mut Callback<'_, Self>, message: Message<'_>) {
        if message.id() == ADDRESS {
            let mut address = vec![0; message.len()];
            message.copy_to(&mut address);
            return self.sources.push(address);
        }
        self.messages += 1;
        if let Ok(message) = message.rendezvous() {
            let (len, buffer) = (message.len(), Buffer::new(message.len(), ()));
            // A sender that is killed meanwhile leaves an error.
            let _ = worker.post(
                Operation::Fetch {
                    message,
                    data: 0..len,
                },
                buffer,
            );
        }
    }

    fn endpoint_failed(&mut self, endpoint: EndpointId, _: Status) {
        self.failed.push(endpoint);
    }
}

/// A worker, of this program's own.
pub(super) struct Worker(pub(super) ucx::Worker<Events>);

impl Worker {
    pub(super) fn new() -> Result<Self> {
        let ucx = Library::load()?;
        let context = ucx.context(&ucx.config()?, Features::AM | Features::WAKEUP)?;
        let mut worker = context.worker(Events::default())?;
        worker.receive(MESSAGE)?;
        worker.receive(ADDRESS)?;
        Ok(Self(worker))
    }

    /// Progresses UCX; whether it did anything.
    pub(super) fn progress(&mut self) -> bool {
        self.0.progress()
    }

    /// Sleeps until there is something to do, or for this long.
    pub(super) fn sleep(&mut self, milliseconds: i64) {
        if !matches!(self.0.arm(), Ok(true)) {
            return;
        }
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: milliseconds * 1_000_000,
        };
        if let Ok(fd) = self.0.event_fd() {
            let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time));
        }
    }

    /// How many operations are under way.
    pub(super) fn under_way(&self) -> usize {
        self.0.under_way()
    }

    /// An endpoint to the worker of this address.
    pub(super) fn connect(&mut self, address: &[u8]) -> Result<Endpoint> {
        // SAFETY: the address of a worker of this program, as UCX returned it there.
        Ok(unsafe { self.0.connect_to_worker(address, ErrorMode::Peer) }?)
    }

    /// Says where this worker is.
    pub(super) fn introduce(&mut self, endpoint: &Endpoint) -> Result {
        let address = self.0.address()?;
        let mut buffer = Buffer::new(address.len(), ());
        buffer[..address.len()].copy_from_slice(&address);
        let message = Operation::Message {
            endpoint,
            id: ADDRESS,
            header: 0..0,
            data: 0..address.len(),
            flags: Flags::EAGER,
        };
        self.begin(message, buffer)
    }

    /// Sends a message.
    pub(super) fn send(&mut self, endpoint: &Endpoint, len: usize) -> Result {
        let mut buffer = Buffer::new(len, ());
        buffer.fill(7);
        let message = Operation::Message {
            endpoint,
            id: MESSAGE,
            header: 0..0,
            data: 0..len,
            flags: Flags::REPLY,
        };
        self.begin(message, buffer)
    }

    /// Closes an endpoint: by force, or when everything has arrived.
    pub(super) fn close(&mut self, endpoint: Endpoint, force: bool) {
        let endpoint = &mut Some(endpoint);
        let _ = self.begin(Operation::Close { endpoint, force }, Buffer::new(0, ()));
    }

    fn begin(&mut self, operation: Operation<'_>, buffer: Buffer<()>) -> Result {
        Ok(self.0.post(operation, buffer).map(drop)?)
    }
}
