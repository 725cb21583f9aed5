//! Two processes, one of which is killed. The other process is this test's executable again.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::library;
use ucx::{
    Callback, Endpoint, EndpointId, ErrorMode, Features, Flags, Handler, Message, Operation, Operations,
    Started, Status, Worker,
};

const MESSAGE: u16 = 1;
const ADDRESS: &str = "UCX_TEST_ADDRESS";
/// Within which the end of a peer must be noticed, on a machine that is busy with other things. The fault matrix measures how soon.
const NOTICE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Events {
    messages: Vec<Vec<u8>>,
    failed: Vec<(EndpointId, Status)>,
}

impl Handler for Events {
    type Tag = ();

    fn message(&mut self, _: &mut Callback<'_, Self>, message: Message<'_>) {
        let mut data = vec![0; message.len()];
        message.copy_to(&mut data);
        self.messages.push(data);
    }

    fn endpoint_failed(&mut self, endpoint: EndpointId, why: Status) {
        self.failed.push((endpoint, why));
    }
}

fn worker() -> Option<Worker<Events>> {
    let ucx = library()?;
    let mut config = ucx.config().unwrap();
    // Without it UCX uses no shared memory for peers that it watches.
    config.set("", "MM_ERROR_HANDLING", "y").unwrap();
    config.set("", "KEEPALIVE_INTERVAL", "1s").unwrap();
    config.set("", "NET_DEVICES", "lo").unwrap();
    let context = ucx.context(&config, Features::AM).unwrap();
    let mut worker = context.worker(Events::default()).unwrap();
    worker.receive(MESSAGE).unwrap();
    Some(worker)
}

fn say(worker: &mut Worker<Events>, endpoint: &Endpoint, what: &'static [u8]) -> Result<(), Status> {
    let message = Operation::Message {
        endpoint,
        id: MESSAGE,
        header: 0..0,
        data: 0..what.len(),
        flags: Flags::EAGER,
    };
    match worker.start(message, what) {
        Ok(Started::Done(_)) => Ok(()),
        Ok(Started::UnderWay(request)) => {
            while !request.is_done(worker) {
                worker.progress();
            }
            request.finish(worker).expect("it is done").1
        }
        Err(status) => Err(status),
    }
}

fn wait_for<T>(worker: &mut Worker<Events>, mut look: impl FnMut(&mut Worker<Events>) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        worker.progress();
        if let Some(found) = look(worker) {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::yield_now();
    }
}

/// The other process: connects, says where its worker is, and waits to be killed.
#[test]
#[ignore = "role: started by the other test"]
fn child() {
    let Ok(to) = std::env::var(ADDRESS) else { return };
    let (pairs, _) = to.as_bytes().as_chunks::<2>();
    let to = Vec::from_iter(pairs.iter().map(|pair| {
        let digits = std::str::from_utf8(pair).unwrap();
        u8::from_str_radix(digits, 16).unwrap()
    }));
    let mut worker = worker().expect("the other process found UCX");
    // SAFETY: the address of the test's worker.
    let endpoint = unsafe { worker.connect_to_worker(&to, ErrorMode::Peer) }.unwrap();
    let own = worker.address().unwrap();
    say(&mut worker, &endpoint, own.leak()).unwrap();
    wait_for(&mut worker, |worker| worker.handler().messages.pop());
    println!("\nready");
    std::io::stdout().flush().unwrap();
    loop {
        worker.progress();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_peer_that_is_killed_fails_its_endpoint_and_no_other() {
    let Some(mut worker) = worker() else { return };
    let digits: String = worker
        .address()
        .unwrap()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut others = [(); 2].map(|()| {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ADDRESS, &digits)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let its = wait_for(&mut worker, |worker| worker.handler().messages.pop());
        // SAFETY: the address of the other process's worker.
        let endpoint = unsafe { worker.connect_to_worker(&its, ErrorMode::Peer) }.unwrap();
        say(&mut worker, &endpoint, b"welcome").unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || out.lines().any(|line| line.unwrap().contains("ready")));
        wait_for(&mut worker, |_| reader.is_finished().then_some(()));
        assert!(reader.join().unwrap(), "the other process ended");
        (child, Some(endpoint))
    });
    let (victim, other) = others.split_at_mut(1);
    let (victim, other) = (&mut victim[0], &mut other[0]);
    victim.0.kill().unwrap();
    victim.0.wait().unwrap();
    let began = Instant::now();
    let (failed, why) = wait_for(&mut worker, |worker| worker.handler().failed.pop());
    assert!(began.elapsed() < NOTICE, "{:?}: {why}", began.elapsed());
    assert_eq!(Some(failed), victim.1.as_ref().map(Endpoint::id));
    drop(victim.1.take());
    // The other one is heard and served.
    let endpoint = other.1.as_ref().unwrap();
    say(&mut worker, endpoint, b"well").unwrap();
    assert!(worker.handler().failed.is_empty());
    let endpoint = &mut other.1;
    let close = Operation::Close {
        endpoint,
        force: true,
    };
    drop(worker.start(close, vec![]).unwrap());
    other.0.kill().unwrap();
    other.0.wait().unwrap();
    drop(worker);
}
