//! The sockets that peers leave. One test, alone in its process: it counts the process's sockets.

mod common;

use std::time::{Duration, Instant};

use common::library;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ucx::{
    Buffer, Callback, Endpoint, ErrorMode, Features, Flags, Handler, Library, Message, Operation,
    Operations as _, Started, Worker,
};

const MESSAGE: u16 = 1;
/// Within which everything must have happened, on a machine that is busy with other things.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Count(usize);

impl Handler for Count {
    type Tag = ();

    fn message(&mut self, _: &mut Callback<'_, Self>, _: Message<'_>) {
        self.0 += 1;
    }
}

fn worker(ucx: Library) -> Worker<Count> {
    let mut config = ucx.config().unwrap();
    config.set("", "TLS", "tcp,self").unwrap();
    config.set("", "NET_DEVICES", "lo").unwrap();
    // It wakes the worker now and then, and UCX sees then what it had missed.
    config.set("", "KEEPALIVE_INTERVAL", "inf").unwrap();
    let context = ucx.context(&config, Features::AM | Features::WAKEUP).unwrap();
    let mut worker = context.worker(Count::default()).unwrap();
    worker.receive(MESSAGE).unwrap();
    worker
}

/// Connects the first to the second, and sends one message.
fn connect(from: &mut Worker<Count>, to: &mut Worker<Count>) -> Endpoint {
    let (address, came) = (to.address().unwrap(), to.handler().0);
    // SAFETY: the address of a worker of this process.
    let endpoint = unsafe { from.connect_to_worker(&address, ErrorMode::Peer) }.unwrap();
    let message = Operation::Message {
        endpoint: &endpoint,
        id: MESSAGE,
        header: 0..0,
        data: 0..1,
        flags: Flags::default(),
    };
    let started = from.start(message, b"x").unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        from.progress();
        to.progress();
        let is_sent = match &started {
            Started::Done(_) => true,
            Started::UnderWay(request) => request.is_done(from),
        };
        if is_sent && to.handler().0 > came {
            return endpoint;
        }
        assert!(Instant::now() < deadline, "the message does not arrive");
    }
}

/// How many this process has, whose other descriptors UCX opens as it goes.
fn sockets() -> usize {
    let is_socket = |file: std::io::Result<std::fs::DirEntry>| {
        let link = std::fs::read_link(file.unwrap().path());
        link.is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
    };
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    files.map(is_socket).filter(|is| *is).count()
}

/// Progresses until nothing happens, arms, and repeats that until the worker is armed.
fn arm(worker: &mut Worker<Count>) {
    loop {
        while worker.progress() {}
        if worker.arm().unwrap() {
            return;
        }
    }
}

/// When the last endpoint over a transport is closed, UCX takes the transport out of what the worker sleeps on, and watches it by other
/// means from the next round of progress on in which nothing happens. It lets itself be armed before that round.
#[test]
fn a_worker_that_progresses_until_nothing_happens_is_woken_by_a_peer_that_leaves() {
    let Some(ucx) = library() else { return };
    let mut there = worker(ucx);
    let before = sockets();
    for _ in 0..5 {
        let mut here = worker(ucx);
        let to = connect(&mut here, &mut there);
        let back = connect(&mut there, &mut here);
        for _ in 0..20 {
            here.progress();
            there.progress();
        }
        arm(&mut there);
        let close = Operation::Close {
            endpoint: &mut Some(back),
            force: true,
        };
        drop(there.post(close, Buffer::new(0, ())).unwrap());
        // In this round it is closed.
        there.progress();
        arm(&mut there);
        drop((to, here));
        assert!(sockets() > before, "the peer has no socket here");
        while sockets() > before {
            let fd = there.event_fd().unwrap();
            let timeout = Timespec::try_from(TIMEOUT).unwrap();
            let woken = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)).unwrap();
            assert_eq!(woken, 1, "it sleeps on, with the socket of a peer that left");
            arm(&mut there);
        }
    }
}
