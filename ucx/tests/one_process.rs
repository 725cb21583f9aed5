//! Two workers of one process. Without UCX on the machine there is nothing to test; `IFUNC_REQUIRE_UCX` says that there must be.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::library;
use ucx::{
    Buffer, Bytes, Callback, Endpoint, Features, Flags, Handler, Kept, Library, Message, Operation,
    Operations, Posted, Remote, Serialized, Started, Status, Worker,
};

/// The id of what is received.
const MESSAGE: u16 = 3;
/// The id of messages that the handler answers with [`MESSAGE`].
const QUESTION: u16 = 4;
/// The id of messages that make the handler panic.
const PANIC: u16 = 5;

/// What happened.
#[derive(Default)]
struct Events {
    messages: Vec<(Vec<u8>, Vec<u8>)>,
    kept: Vec<Kept>,
    completed: Vec<(Buffer<u32>, Result<(), Status>)>,
    /// Keeps data that can be kept.
    keeps: bool,
    /// Where questions are answered.
    back: Option<Endpoint>,
    /// How deep the handler is in itself.
    depth: u32,
}

impl Handler for Events {
    type Tag = u32;

    fn message(&mut self, worker: &mut Callback<'_, Self>, message: Message<'_>) {
        self.depth += 1;
        assert_eq!(self.depth, 1, "the handler was entered again");
        assert_ne!(message.id(), PANIC, "as the message asked");
        let mut header = vec![0; message.header_len()];
        message.copy_header(&mut header);
        if message.id() == QUESTION {
            let endpoint = self.back.as_ref().expect("a way back");
            let answer = message_to(endpoint, MESSAGE, 0..0, 0..6);
            drop(worker.start(answer, b"answer").expect("an answer"));
        } else {
            let message = match message.rendezvous() {
                Ok(message) => {
                    let (len, buffer) = (message.len(), Buffer::new(message.len(), 77));
                    let fetch = Operation::Fetch {
                        message,
                        data: 0..len,
                    };
                    match worker.post(fetch, buffer) {
                        Ok(Posted::Done(buffer)) => self.completed.push((buffer, Ok(()))),
                        Ok(Posted::UnderWay(_)) => {}
                        Err(status) => self.completed.push((Buffer::new(0, 0), Err(status))),
                    }
                    self.depth -= 1;
                    return;
                }
                Err(message) => message,
            };
            let mut data = vec![0; message.len()];
            message.copy_to(&mut data);
            self.messages.push((header, data));
            if self.keeps
                && let Ok(kept) = message.keep()
            {
                self.kept.push(kept);
            }
        }
        self.depth -= 1;
    }

    fn completed(&mut self, _: &mut Callback<'_, Self>, buffer: Buffer<u32>, result: Result<(), Status>) {
        self.completed.push((buffer, result));
    }
}

type Node = Worker<Events, Serialized>;

fn message_to(
    endpoint: &Endpoint,
    id: u16,
    header: std::ops::Range<usize>,
    data: std::ops::Range<usize>,
) -> Operation<'_> {
    Operation::Message {
        endpoint,
        id,
        header,
        data,
        flags: Flags::default(),
    }
}

fn node(ucx: Library, features: Features) -> Node {
    let context = ucx.context(&ucx.config().unwrap(), features).unwrap();
    context.am_alignment(64).worker(Events::default()).unwrap()
}

/// Two workers, and an endpoint from the first to the second.
fn pair(ucx: Library, features: Features) -> (Node, Node, Endpoint) {
    let (mut here, there) = (node(ucx, features), node(ucx, features));
    let endpoint = connect(&mut here, &there);
    (here, there, endpoint)
}

fn connect(from: &mut Node, to: &Node) -> Endpoint {
    let address = to.address().unwrap();
    // SAFETY: the address of a worker of this process.
    unsafe { from.connect_to_worker(&address, Default::default()) }.unwrap()
}

/// Lets both work until there is something.
fn wait_for<T>(
    here: &mut Node,
    there: &mut Node,
    mut look: impl FnMut(&mut Node, &mut Node) -> Option<T>,
) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        here.progress();
        there.progress();
        if let Some(found) = look(here, there) {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain");
    }
}

/// Sends, and waits until the buffer is back.
fn send(here: &mut Node, there: &mut Node, operation: Operation<'_>, bytes: impl Into<Bytes>) -> Bytes {
    let started = here.start(operation, bytes).unwrap();
    let Started::UnderWay(request) = started else {
        let Started::Done(buffer) = started else {
            unreachable!()
        };
        return buffer;
    };
    wait_for(here, there, |here, _| request.is_done(here).then_some(()));
    let (buffer, result) = request.finish(here).expect("it is done");
    result.unwrap();
    buffer
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn messages_of_all_sizes_arrive_with_their_headers() {
    let Some(ucx) = library() else { return };
    let (mut here, mut there, endpoint) = pair(ucx, Features::AM);
    there.receive(MESSAGE).unwrap();
    for len in (0..=17).chain([64, 5000, 8000]) {
        let bytes = content(len + 8);
        let operation = message_to(&endpoint, MESSAGE, 0..8, 8..8 + len);
        let back = send(&mut here, &mut there, operation, bytes.clone());
        assert_eq!(*back, *bytes);
        let (header, data) = wait_for(&mut here, &mut there, |_, there| there.handler().messages.pop());
        assert!(header == bytes[..8] && data == bytes[8..], "{len} bytes");
    }
    // So large that it is fetched.
    let bytes = content(400_000);
    let operation = message_to(&endpoint, MESSAGE, 0..0, 0..bytes.len());
    let started = here.start(operation, bytes.clone()).unwrap();
    let (buffer, result) = wait_for(&mut here, &mut there, |_, there| there.handler().completed.pop());
    assert_eq!((result, *buffer.tag()), (Ok(()), 77));
    assert!(buffer[..bytes.len()] == *bytes);
    drop(started);
    assert!(!here.lanes(&endpoint).is_empty());
}

#[test]
fn operations_that_are_posted_give_their_buffers_back() {
    let Some(ucx) = library() else { return };
    let (mut here, mut there, endpoint) = pair(ucx, Features::AM);
    there.receive(MESSAGE).unwrap();
    for len in [10, 400_000] {
        let mut buffer = Buffer::new(len, len as u32);
        buffer[..len].copy_from_slice(&content(len));
        assert!(buffer.as_ptr().addr().is_multiple_of(64));
        let id = buffer.id();
        let back = match here
            .post(message_to(&endpoint, MESSAGE, 0..0, 0..len), buffer)
            .unwrap()
        {
            Posted::Done(buffer) => buffer,
            Posted::UnderWay(of) => {
                assert!(of == id && here.under_way() == 1);
                let find = |here: &mut Node, _: &mut Node| here.handler().completed.pop();
                let (buffer, result) = wait_for(&mut here, &mut there, find);
                result.unwrap();
                buffer
            }
        };
        assert_eq!((back.id(), *back.tag(), here.under_way()), (id, len as u32, 0));
    }
    let closed = here.post(
        Operation::Close {
            endpoint: &mut Some(endpoint),
            force: false,
        },
        Buffer::new(0, 1),
    );
    if let Posted::UnderWay(_) = closed.unwrap() {
        let find = |here: &mut Node, _: &mut Node| here.handler().completed.pop();
        let (_, result) = wait_for(&mut here, &mut there, find);
        result.unwrap();
    }
}

#[test]
fn a_worker_ends_with_everything_under_way() {
    let Some(ucx) = library() else { return };
    let (mut here, there, endpoint) = pair(ucx, Features::AM | Features::TAG);
    for _ in 0..3 {
        let send = message_to(&endpoint, MESSAGE, 0..0, 0..1 << 20);
        drop(here.post(send, Buffer::new(1 << 20, 1)).unwrap());
        let send = message_to(&endpoint, MESSAGE, 0..0, 0..1 << 20);
        drop(here.start(send, vec![1; 1 << 20]).unwrap());
    }
    let everything = Operation::ReceiveTagged {
        tag: 0,
        mask: 0,
        data: 0..100,
    };
    let waits = here.start(everything, vec![0; 100]).unwrap();
    drop(here);
    drop((waits, endpoint));
    drop(there);
}

#[test]
fn a_handler_may_answer_and_is_not_entered_again() {
    let Some(ucx) = library() else { return };
    let mut node = node(ucx, Features::AM);
    node.receive(MESSAGE).unwrap();
    node.receive(QUESTION).unwrap();
    let address = node.address().unwrap();
    // To itself: what the handler sends arrives in the call that sends it.
    // SAFETY: the address of a worker of this process.
    let [endpoint, back] =
        [(); 2].map(|()| unsafe { node.connect_to_worker(&address, Default::default()) }.unwrap());
    node.handler().back = Some(back);
    for _ in 0..3 {
        drop(
            node.start(message_to(&endpoint, QUESTION, 0..0, 0..1), b"?")
                .unwrap(),
        );
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while node.handler().messages.len() < 3 {
        node.progress();
        assert!(Instant::now() < deadline, "waited in vain");
    }
    assert!(node.handler().messages.iter().all(|(_, data)| data == b"answer"));
    node.handler().back = None;
}

#[test]
fn a_panic_of_the_handler_goes_on_when_ucx_has_returned() {
    let Some(ucx) = library() else { return };
    let (mut here, mut there, endpoint) = pair(ucx, Features::AM);
    there.receive(MESSAGE).unwrap();
    there.receive(PANIC).unwrap();
    drop(
        here.start(message_to(&endpoint, PANIC, 0..0, 0..1), b"!")
            .unwrap(),
    );
    let panic = catch_unwind(AssertUnwindSafe(|| {
        wait_for(&mut here, &mut there, |_, _| None::<()>);
    }));
    let panic = panic.unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("as the message asked"), "{said}");
    there.handler().depth = 0;
    drop(
        here.start(message_to(&endpoint, MESSAGE, 0..0, 0..1), b"x")
            .unwrap(),
    );
    wait_for(&mut here, &mut there, |_, there| there.handler().messages.pop());
}

#[test]
fn data_are_kept_until_they_are_released() {
    let Some(ucx) = library() else { return };
    let (mut here, mut there, endpoint) = pair(ucx, Features::AM);
    there.receive(MESSAGE).unwrap();
    there.handler().keeps = true;
    let bytes = content(4000);
    for _ in 0..20 {
        let operation = message_to(&endpoint, MESSAGE, 0..0, 0..bytes.len());
        send(&mut here, &mut there, operation, bytes.clone());
    }
    let is_all = |_: &mut Node, there: &mut Node| (there.handler().messages.len() == 20).then_some(());
    wait_for(&mut here, &mut there, is_all);
    let kept = std::mem::take(&mut there.handler().kept);
    for kept in kept {
        // SAFETY: not released yet; the peer has sent it, and writes nothing.
        let data = unsafe { &*kept.as_ptr() };
        assert!(data == bytes);
        there.release(kept);
    }
}

#[test]
fn memory_is_put_got_and_added_to() {
    let Some(ucx) = library() else { return };
    let (mut here, mut there, endpoint) = pair(ucx, Features::RMA | Features::ATOMIC64);
    let memory = there.allocate(1 << 16).unwrap();
    (0..memory.len())
        .step_by(8)
        .for_each(|at| memory.word(at).store(0, Ordering::Relaxed));
    // SAFETY: of memory that exists until the end of this test.
    let remote = unsafe { here.unpack(&endpoint, memory.key(), memory.address(), memory.len()) }.unwrap();
    let flush = |here: &mut Node, there: &mut Node| {
        send(here, there, Operation::FlushWorker, vec![]);
    };
    let at = |offset| Remote {
        endpoint: &endpoint,
        memory: &remote,
        offset,
    };
    let put = |offset, data| Operation::Put { to: at(offset), data };
    send(&mut here, &mut there, put(4096, 0..5000), content(5000));
    here.fence().unwrap();
    send(&mut here, &mut there, put(8, 0..8), 7u64.to_le_bytes().to_vec());
    static THREE: [u8; 8] = 3u64.to_le_bytes();
    flush(&mut here, &mut there);
    for _ in 0..10 {
        let add = Operation::Add {
            to: at(8),
            operand: 0..8,
        };
        send(&mut here, &mut there, add, &THREE);
    }
    flush(&mut here, &mut there);
    assert_eq!(memory.word(8).load(Ordering::Acquire), 37);
    let get = Operation::Get {
        from: at(4096),
        data: 0..5000,
    };
    let got = match here.start(get, vec![0; 5000]).unwrap() {
        Started::Done(got) => got,
        Started::UnderWay(request) => {
            wait_for(&mut here, &mut there, |here, _| {
                request.is_done(here).then_some(())
            });
            request.finish(&mut here).unwrap().0
        }
    };
    assert!(*got == *content(5000));
    let beyond = catch_unwind(AssertUnwindSafe(|| {
        drop(here.start(put(memory.len() - 4, 0..8), vec![0; 8]));
    }));
    assert!(beyond.is_err(), "a put beyond the memory");
    // In any order.
    drop(memory);
    drop(there);
    drop(here);
    drop(remote);
}

/// Why `SECURITY.md` says that whoever reaches a worker is trusted with the process's memory. A peer needs the key of any memory that
/// UCX gave out. Over TCP the worker that is written to does not compare the address with what was registered.
#[test]
fn a_peer_with_one_key_writes_memory_that_was_never_registered() {
    static NEVER_REGISTERED: AtomicU64 = AtomicU64::new(1);
    let Some(ucx) = library() else { return };
    let over_tcp = || {
        let mut config = ucx.config().unwrap();
        config.set("", "TLS", "tcp").unwrap();
        let context = ucx.context(&config, Features::RMA).unwrap();
        context.worker(Events::default()).unwrap()
    };
    let (mut here, mut there): (Node, Node) = (over_tcp(), over_tcp());
    let endpoint = connect(&mut here, &there);
    let registered = there.allocate(4096).unwrap();
    let address = NEVER_REGISTERED.as_ptr().expose_provenance() as u64;
    // SAFETY: not what `unpack` asks for, which is what is shown: the address is of another object of this process. That object is
    // an atomic that lives for ever, and UCX writes it in `progress`, on this thread.
    let remote = unsafe { here.unpack(&endpoint, registered.key(), address, 8) }.unwrap();
    let to = Remote {
        endpoint: &endpoint,
        memory: &remote,
        offset: 0,
    };
    let bytes = 0x5eed_u64.to_le_bytes().to_vec();
    send(&mut here, &mut there, Operation::Put { to, data: 0..8 }, bytes);
    send(&mut here, &mut there, Operation::FlushWorker, vec![]);
    assert_eq!(NEVER_REGISTERED.load(Ordering::Acquire), 0x5eed);
}

#[test]
fn messages_are_matched_by_tag_and_receives_are_cancelled() {
    let Some(ucx) = library() else { return };
    let (mut here, mut there, endpoint) = pair(ucx, Features::TAG);
    let receive = |there: &mut Node, tag| {
        let tagged = Operation::ReceiveTagged {
            tag,
            mask: u64::MAX,
            data: 0..100,
        };
        match there.start(tagged, vec![0; 100]).unwrap() {
            Started::UnderWay(request) => request,
            Started::Done(_) => panic!("nothing was sent"),
        }
    };
    let (one, other) = (receive(&mut there, 1), receive(&mut there, 2));
    let tagged = Operation::SendTagged {
        endpoint: &endpoint,
        tag: 2,
        data: 0..5,
    };
    send(&mut here, &mut there, tagged, b"hello");
    wait_for(&mut here, &mut there, |_, there| {
        other.is_done(there).then_some(())
    });
    let (data, result) = other.finish(&mut there).unwrap();
    assert!(result.is_ok() && data.starts_with(b"hello"));
    let one = one.finish(&mut there).unwrap_err();
    one.cancel(&mut there);
    wait_for(&mut here, &mut there, |_, there| one.is_done(there).then_some(()));
    let (_, result) = one.finish(&mut there).unwrap();
    assert_eq!(result.unwrap_err().code, ucx::code::UCS_ERR_CANCELED);
}

#[test]
fn a_key_of_another_worker_panics() {
    let Some(ucx) = library() else { return };
    let (_here, mut there, endpoint) = pair(ucx, Features::AM);
    let wrong = |send: &mut dyn FnMut()| {
        let panic = catch_unwind(AssertUnwindSafe(send)).unwrap_err();
        panic
            .downcast_ref::<String>()
            .unwrap()
            .contains("another worker than its own")
    };
    assert!(wrong(&mut || {
        drop(there.start(message_to(&endpoint, MESSAGE, 0..0, 0..1), b"x"));
    }));
}

#[test]
fn a_worker_may_be_slept_on_and_be_sent_to_another_thread() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some(ucx) = library() else { return };
    let mut worker = node(ucx, Features::AM | Features::WAKEUP);
    let worker = std::thread::spawn(move || {
        worker.progress();
        worker
    });
    let mut worker = worker.join().unwrap();
    while !worker.arm().unwrap() {
        worker.progress();
    }
    let is_readable = |worker: &Node| {
        let fd = worker.event_fd().unwrap();
        poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&Timespec::default()),
        )
        .unwrap()
            == 1
    };
    assert!(!is_readable(&worker));
    worker.signal().unwrap();
    assert!(is_readable(&worker));
}
