//! The application: UCX, and nothing of ifunc.

use ucx::{
    Bytes, Callback, Endpoint, Features, Flags, Handler, Library, Message, Operation, Operations, Request,
    Single, Started, Status, Worker,
};

type Failure = Box<dyn std::error::Error>;

/// The id of its active messages.
const MESSAGE: u16 = 5;
const TAG: u64 = 0x00a9_9000;
const DONE: u64 = 0x00d0_4e00;
/// Bytes of a message; every seventh is so large that it is fetched.
const SMALL: usize = 64;
const LARGE: usize = 200_000;

/// The active messages that have arrived. Only eager ones come: the sender says so.
#[derive(Default)]
struct Arrived(Vec<Vec<u8>>);

impl Handler for Arrived {
    type Tag = ();

    fn message(&mut self, _: &mut Callback<'_, Self>, message: Message<'_>) {
        let mut data = vec![0; message.len()];
        message.copy_to(&mut data);
        self.0.push(data);
    }
}

/// A worker of one thread, an endpoint, and what the application counts.
pub(crate) struct Application {
    worker: Worker<Arrived, Single>,
    endpoint: Option<Endpoint>,
    pub(crate) tags_received: u64,
    pub(crate) messages_received: u64,
    receiving: Option<Started>,
    done: Option<Started>,
    sending: Vec<Request>,
}

fn content(n: u64, salt: u8) -> Vec<u8> {
    let len = if n % 7 == 6 { LARGE } else { SMALL };
    let mut bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ salt).collect();
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

impl Application {
    pub(crate) fn new(wakeup: bool) -> Result<Self, Failure> {
        let ucx = Library::load()?;
        let mut features = Features::AM | Features::TAG;
        if wakeup {
            features = features | Features::WAKEUP;
        }
        let context = ucx.context(&ucx.config()?, features)?;
        let mut worker = context.worker(Arrived::default())?;
        worker.receive(MESSAGE)?;
        Ok(Self {
            worker,
            endpoint: None,
            tags_received: 0,
            messages_received: 0,
            receiving: None,
            done: None,
            sending: Vec::new(),
        })
    }

    /// What ifunc attaches to.
    pub(crate) fn worker(&self) -> (ucx::raw::ucp_context_h, ucx::raw::ucp_worker_h) {
        self.worker.as_raw()
    }

    /// The endpoint that ifunc connects over.
    pub(crate) fn endpoint(&self) -> ucx::raw::ucp_ep_h {
        self.connected().as_raw()
    }

    fn connected(&self) -> &Endpoint {
        self.endpoint.as_ref().expect("the application is connected")
    }

    /// The worker's, as hexadecimal digits.
    pub(crate) fn address(&self) -> Result<String, ucx::Error> {
        let address = self.worker.address()?;
        Ok(address.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub(crate) fn connect(&mut self, peer: &str) -> Result<(), Failure> {
        let bytes = (0..peer.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&peer[at..at + 2], 16))
            .collect::<Result<Vec<u8>, _>>()?;
        // SAFETY: the address was printed by this program, in another process.
        let endpoint = unsafe { self.worker.connect_to_worker(&bytes, Default::default())? };
        self.endpoint = Some(endpoint);
        self.receiving = Some(self.receive(TAG, LARGE));
        self.done = Some(self.receive(DONE, SMALL));
        Ok(())
    }

    fn receive(&mut self, tag: u64, len: usize) -> Started {
        let mask = u64::MAX;
        let receive = Operation::ReceiveTagged {
            tag,
            mask,
            data: 0..len,
        };
        self.worker.start(receive, vec![0; len]).expect("a receive")
    }

    fn start(&mut self, bytes: Vec<u8>, operation: impl Fn(&Endpoint, usize) -> Operation<'_>) {
        let endpoint = self.endpoint.as_ref().expect("the application is connected");
        let operation = operation(endpoint, bytes.len());
        if let Started::UnderWay(request) = self.worker.start(operation, bytes).expect("a send") {
            self.sending.push(request);
        }
    }

    fn send_tag(&mut self, tag: u64, bytes: Vec<u8>) {
        self.start(bytes, |endpoint, len| Operation::SendTagged {
            endpoint,
            tag,
            data: 0..len,
        });
    }

    /// The `n`th message of each kind.
    pub(crate) fn send(&mut self, n: u64) {
        self.send_tag(TAG, content(n, 1));
        self.start(content(n, 2), |endpoint, len| Operation::Message {
            endpoint,
            id: MESSAGE,
            header: 0..0,
            data: 0..len,
            flags: Flags::EAGER,
        });
    }

    pub(crate) fn tell_done(&mut self) {
        self.send_tag(DONE, vec![7; SMALL]);
    }

    pub(crate) fn is_told_done(&mut self) -> bool {
        self.done.as_ref().is_none_or(|done| self.has_ended(done)) && self.is_idle()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.sending.len() < 16
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sending.is_empty()
    }

    fn has_ended(&self, started: &Started) -> bool {
        match started {
            Started::Done(_) => true,
            Started::UnderWay(request) => request.is_done(&self.worker),
        }
    }

    /// The bytes of a receive that has ended.
    fn received(&mut self, started: Started) -> Result<Bytes, Status> {
        match started {
            Started::Done(bytes) => Ok(bytes),
            Started::UnderWay(request) => {
                let (bytes, result) = request.finish(&mut self.worker).expect("it has ended");
                result.map(|()| bytes)
            }
        }
    }

    /// Progress, and what came of it.
    pub(crate) fn progress(&mut self) {
        self.worker.progress();
        for request in std::mem::take(&mut self.sending) {
            match request.finish(&mut self.worker) {
                Ok((_, result)) => result.expect("a send"),
                Err(request) => self.sending.push(request),
            }
        }
        while let Some(receiving) = self.receiving.take() {
            if !self.has_ended(&receiving) {
                self.receiving = Some(receiving);
                break;
            }
            let bytes = self.received(receiving).expect("a message by tag");
            let expected = content(self.tags_received, 1);
            assert!(
                bytes[..expected.len()] == expected[..],
                "message {} by tag",
                self.tags_received
            );
            self.tags_received += 1;
            self.receiving = Some(self.receive(TAG, LARGE));
        }
        let arrived = std::mem::take(&mut self.worker.handler().0);
        for message in arrived {
            assert!(
                message == content(self.messages_received, 2),
                "active message {}",
                self.messages_received
            );
            self.messages_received += 1;
        }
    }

    /// A last message both ways: the worker still works.
    pub(crate) fn goodbye(&mut self) {
        self.done = Some(self.receive(DONE + 1, SMALL));
        self.send_tag(DONE + 1, vec![8; SMALL]);
        while !self.is_told_done() {
            self.progress();
        }
    }

    /// Ends what is under way and closes the endpoint; worker and context go with the application.
    pub(crate) fn end(mut self) {
        for started in self.receiving.take().into_iter().chain(self.done.take()) {
            if let Started::UnderWay(request) = &started
                && !request.is_done(&self.worker)
            {
                request.cancel(&mut self.worker);
            }
            while !self.has_ended(&started) {
                self.worker.progress();
            }
            // One that was cancelled has no bytes.
            let _ = self.received(started);
        }
        let close = Operation::Close {
            endpoint: &mut self.endpoint,
            force: false,
        };
        if let Ok(Started::UnderWay(request)) = self.worker.start(close, vec![]) {
            while !request.is_done(&self.worker) {
                self.worker.progress();
            }
            let _ = request.finish(&mut self.worker);
        }
    }
}
