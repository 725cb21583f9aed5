//! Nodes: processes that are source and target over one link.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::futures::block_on;
use super::images::{self, Add};
use super::running::{accepting, between_processes, place, unique};
use super::threads::until;
use crate::{Error, Handle, Peers, Serving, Source, TargetBuilder};

fn add(source: &Source) -> Handle<Add> {
    source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap()
}

fn tells(source: &Source) -> Handle<Add> {
    source
        .register_bytes::<Add>(&images::tells().encode().unwrap())
        .unwrap()
}

/// The first node that connected.
fn first(peers: &Peers) -> Source {
    until(|| !peers.list().is_empty());
    peers.list().remove(0).1
}

/// Every transport with a test for each configuration of its rings.
fn everywhere(test: impl Fn(&str, &dyn Fn() -> TargetBuilder)) {
    let smallest = || accepting().credits(2).ring(1 << 16);
    let mut transports = vec!["loopback"];
    transports.extend(between_processes());
    if transports.contains(&"ucx") {
        transports.push("ucx-put");
    }
    for transport in transports {
        test(transport, &accepting);
        test(transport, &smallest);
    }
    test("loopback", &|| accepting().credits(16).ring(1 << 16).shuffle(7));
}

/// Two nodes with a link between them, each served by a thread, and the sources that send over the link: that of the node that
/// connected, and that of the node that accepted.
fn pair(transport: &str, builder: &dyn Fn() -> TargetBuilder) -> ([Serving<u64>; 2], [Source; 2]) {
    let accepts = builder().listen(&listening(transport)).unwrap();
    let (peers, address) = (accepts.peers(), accepts.address());
    let accepts = accepts.spawn(0u64).unwrap();
    let mut connects = builder().listen(&listening(transport)).unwrap();
    let there = connects.connect(&address).unwrap();
    let connects = connects.spawn(0u64).unwrap();
    let here = first(&peers);
    ([accepts, connects], [there, here])
}

fn listening(transport: &str) -> String {
    match transport {
        "ucx-put" => "ucx-put://127.0.0.1:0".into(),
        other => place(other),
    }
}

/// Calls one by one and in groups, with sends between them. The counter at the other side is no other source's.
fn count(source: &Source, calls: u64) {
    let add = add(source);
    let before = add.call(&0).unwrap().wait().unwrap();
    let mut sum = 0;
    while sum < calls {
        let group: Vec<_> = (0..1 + sum % 7).map(|_| add.call(&1).unwrap()).collect();
        for call in group {
            sum += 1;
            assert_eq!(call.wait().unwrap() - before, sum);
        }
        if sum % 5 == 0 {
            add.send(&1).unwrap();
            sum += 1;
        }
    }
    source.flush().unwrap();
}

#[test]
fn calls_go_both_ways_at_once_over_one_link() {
    calls_both_ways(500);
}

#[test]
#[ignore = "nightly: four times as many calls"]
fn many_calls_go_both_ways_at_once_over_one_link() {
    calls_both_ways(2_000);
}

fn calls_both_ways(calls: u64) {
    everywhere(|transport, builder| {
        let ([one, other], [there, here]) = pair(transport, builder);
        thread::scope(|scope| {
            scope.spawn(|| count(&there, calls));
            scope.spawn(|| count(&here, calls));
        });
        assert!(one.stop().unwrap() >= calls, "{transport}");
        assert!(other.stop().unwrap() >= calls, "{transport}");
    });
}

#[test]
fn a_large_payload_and_a_batch_travel_back() {
    everywhere(|transport, builder| {
        let ([one, other], [there, here]) = pair(transport, builder);
        for source in [&there, &here] {
            let add = add(source).aggregated();
            let calls: Vec<_> = (0..500).map(|_| add.call(&2).unwrap()).collect();
            for (n, call) in calls.into_iter().enumerate() {
                assert_eq!(call.wait().unwrap(), 2 * (n as u64 + 1));
            }
            // `add` takes 8 bytes: this one arrives in fragments, and fails.
            let raw = source.load_bytes(&images::add().encode().unwrap()).unwrap();
            let failed = raw.call(&vec![1; 300_000]).unwrap().wait();
            assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?}");
        }
        one.stop().unwrap();
        other.stop().unwrap();
    });
}

#[test]
fn a_node_that_ends_sends_its_open_batch() {
    for transport in ["loopback", "shm"] {
        let accepts = accepting().listen(&listening(transport)).unwrap();
        let (address, stats) = (accepts.address(), accepts.stats_handle());
        let accepts = accepts.spawn(0u64).unwrap();
        let mut connects = accepting().listen(&listening(transport)).unwrap();
        let there = connects.connect(&address).unwrap();
        let add = add(&there).aggregated();
        (0..3).for_each(|_| add.send(&2).unwrap());
        drop(connects);
        until(|| stats.read().total.executed == 3);
        assert_eq!(accepts.stop().unwrap(), 6);
    }
}

#[test]
fn an_invocation_sends_back_over_its_own_link_and_never_waits_for_itself() {
    const HOPS: u32 = 100;
    everywhere(|transport, builder| {
        let ([one, other], [there, here]) = pair(transport, &|| builder().credits(64));
        // From invocation to invocation, in both directions.
        let ways = [tells(&there), tells(&here)];
        let landed = Arc::new(AtomicU32::new(0));
        let next: Arc<std::sync::OnceLock<[u64; 2]>> = Arc::default();
        let hop = |back: &Handle<Add>, at: usize| {
            let (back, next, landed) = (back.clone(), Arc::clone(&next), Arc::clone(&landed));
            images::when_told(move |left| match left.checked_sub(1) {
                Some(left) => back.send(&(next.get().unwrap()[at] + u64::from(left))).unwrap(),
                None => _ = landed.fetch_add(1, Ordering::Relaxed),
            })
        };
        // What runs at `one` sends by `here`, and the other way round.
        let messages = [hop(&ways[1], 1), hop(&ways[0], 0)];
        next.set(messages).unwrap();
        ways[0].send(&(messages[0] + u64::from(HOPS))).unwrap();
        ways[1].send(&(messages[1] + u64::from(HOPS))).unwrap();
        until(|| landed.load(Ordering::Relaxed) == 2);
        // A wait for an answer is an error at once.
        let itself = ways[1].clone();
        let (report, reported) = mpsc::channel();
        let idle = images::when_told(|_| {});
        let waits = images::when_told(move |_| {
            let began = Instant::now();
            let waited = itself.call(&idle).and_then(crate::Call::wait);
            report.send((waited, began.elapsed())).unwrap();
        });
        assert_eq!(ways[0].call(&waits).unwrap().wait().unwrap(), waits);
        let (waited, took) = reported.recv().unwrap();
        let error = waited.map(drop).unwrap_err();
        assert!(matches!(error, Error::Serving { .. }), "{error:?}");
        assert!(
            error.to_string().contains("which serves the connection; help: "),
            "{error}"
        );
        assert!(took < Duration::from_secs(10));
        drop((ways, there, here));
        one.stop().unwrap();
        other.stop().unwrap();
    });
}

#[test]
fn a_thread_that_polls_by_itself_waits_by_polling() {
    everywhere(|transport, builder| {
        let one = builder().listen(&listening(transport)).unwrap();
        let (peers, address, stats) = (one.peers(), one.address(), one.stats_handle());
        let one = one.spawn(0u64).unwrap();
        let mut other = builder().listen(&listening(transport)).unwrap();
        let there = other.connect(&address).unwrap();
        let mut counter = 0u64;
        let here = loop {
            other.poll(&mut counter);
            if let Some((_, source)) = peers.list().pop() {
                break source;
            }
        };
        let back = thread::spawn(move || {
            (1..=100).for_each(|n| assert_eq!(add(&here).call(&1).unwrap().wait().unwrap(), n))
        });
        let ours = add(&there);
        for n in 1..=100 {
            // Answers to the other side take credit too, and a wait for credit would be one for this thread.
            let mut call = loop {
                match ours.call(&1) {
                    Err(Error::Serving { .. }) => _ = other.poll(&mut counter),
                    call => break call.unwrap(),
                }
            };
            let answer = loop {
                match call.try_wait() {
                    Some(answer) => break answer.unwrap(),
                    None => _ = other.poll(&mut counter),
                }
            };
            assert_eq!(answer, n);
        }
        while !back.is_finished() {
            other.poll(&mut counter);
        }
        back.join().unwrap();
        // A payload that the window is too small for is accepted once, and the next polls send the rest. It is too long for
        // `add`, which fails.
        let raw = there.load_bytes(&images::add().encode().unwrap()).unwrap();
        let mut call = loop {
            match raw.call(&vec![1; 300_000]) {
                Err(Error::Serving { .. }) => _ = other.poll(&mut counter),
                call => break call.unwrap(),
            }
        };
        let failed = loop {
            match call.try_wait() {
                Some(answer) => break answer,
                None => _ = other.poll(&mut counter),
            }
        };
        assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?}");
        assert_eq!(stats.read().total.failed.total(), 1, "{transport}");
        let refused = there.flush();
        assert!(
            matches!(refused, Ok(()) | Err(Error::Serving { .. })),
            "{refused:?}"
        );
        let waited = ours.call(&1).and_then(crate::Call::wait);
        assert!(matches!(waited, Ok(_) | Err(Error::Serving { .. })), "{waited:?}");
        drop((ours, raw, call, there));
        until(|| {
            other.poll(&mut counter);
            other.connections() == 0 && peers.list().is_empty()
        });
        one.stop().unwrap();
    });
}

#[test]
fn a_thread_that_polled_may_wait_once_another_one_serves() {
    for transport in between_processes() {
        let one = accepting().listen(&place(transport)).unwrap();
        let address = one.address();
        let one = one.spawn(0u64).unwrap();
        let mut other = accepting().listen(&place(transport)).unwrap();
        let there = other.connect(&address).unwrap();
        let waited = add(&there);
        other.poll(&mut 0u64);
        let other = other.spawn(0u64).unwrap();
        assert_eq!(waited.call(&1).unwrap().wait().unwrap(), 1);
        one.stop().unwrap();
        other.stop().unwrap();
    }
}

#[test]
fn a_node_whose_answers_wait_for_credit_does_not_sleep_on_what_has_arrived() {
    for transport in ["loopback", "shm"] {
        let small = || accepting().credits(2).ring(1 << 16);
        let (mut one_sum, mut other_sum) = (0u64, 0u64);
        let mut one = small().listen(&unique(transport)).unwrap();
        let peers = one.peers();
        let mut other = small().listen(&unique(transport)).unwrap();
        let there = other.connect(&one.address()).unwrap();
        while peers.list().is_empty() {
            one.poll(&mut one_sum);
        }
        let (to_other, to_one) = (add(&first(&peers)), add(&there));
        // The images are there, and nothing is under way.
        for handle in [&to_other, &to_one] {
            while handle.try_send(&0).is_err() {
                one.poll(&mut one_sum);
                other.poll(&mut other_sum);
            }
        }
        while one.poll(&mut one_sum) + other.poll(&mut other_sum) > 0 {}
        // The answer of `one` finds no credit.
        let mut answered = to_one.call(&1).unwrap();
        while to_other.try_send(&1).is_ok() {}
        while one.poll(&mut one_sum) > 0 {}
        assert_eq!(one_sum, 1);
        // This arrives after the last poll.
        to_one.try_send(&1).unwrap();
        assert!(!one.arm(), "{transport}: there is something to run");
        one.disarm();
        while one.poll(&mut one_sum) > 0 {}
        assert_eq!(one_sum, 2);
        assert!(one.arm(), "{transport}: the answer waits for credit");
        one.disarm();
        until(|| {
            other.poll(&mut other_sum);
            one.poll(&mut one_sum);
            answered.try_wait().is_some_and(|answer| answer.unwrap() == 1)
        });
    }
}

#[test]
fn futures_and_deadlines_hold_over_a_link_that_is_served() {
    everywhere(|transport, builder| {
        let ([one, other], [there, here]) = pair(transport, builder);
        for source in [&there, &here] {
            let add = add(source);
            block_on(async {
                for n in 1..=50 {
                    assert_eq!(add.call_async(&1).await.unwrap(), n);
                }
                drop(add.call(&0).unwrap());
                source.flush_async().await.unwrap();
            });
        }
        // An invocation that does not end: the others reach their deadlines.
        let (end, ended) = mpsc::channel::<()>();
        let ended = std::sync::Mutex::new(ended);
        let stays = images::when_told(move |_| _ = ended.lock().unwrap().recv());
        let held = tells(&there).call(&stays).unwrap();
        let late = add(&there).with_timeout(Duration::from_millis(50));
        let waited = late.call(&1).and_then(crate::Call::wait);
        assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
        let late_future = block_on(late.call_async(&1));
        assert!(
            matches!(late_future, Err(Error::Timeout { .. })),
            "{late_future:?}"
        );
        drop(end);
        assert_eq!(held.wait().unwrap(), stays);
        there.flush().unwrap();
        one.stop().unwrap();
        other.stop().unwrap();
    });
}

#[test]
fn the_side_that_accepted_reports_the_end_and_the_other_one_reconnects() {
    everywhere(|transport, builder| {
        if transport.starts_with("ucx") || transport == "tls" {
            // A port is not free again at once, or not known before.
            return;
        }
        let address = unique(transport);
        let one = builder().listen(&address).unwrap();
        let peers = one.peers();
        let one = one.spawn(0u64).unwrap();
        let mut other = builder().listen(&listening(transport)).unwrap();
        let there = other.connect(&address).unwrap();
        let other = other.spawn(0u64).unwrap();
        let here = first(&peers);
        let back = add(&here);
        assert_eq!(back.call(&1).unwrap().wait().unwrap(), 1);
        one.stop().unwrap();
        let gone = back.call(&1).and_then(crate::Call::wait);
        assert!(matches!(gone, Err(Error::PeerGone { .. })), "{gone:?}");
        assert!(peers.list().is_empty());
        let one = builder().listen(&address).unwrap();
        let peers = one.peers();
        let one = one.spawn(10u64).unwrap();
        assert_eq!(add(&there).call(&1).unwrap().wait().unwrap(), 11);
        assert_eq!(add(&first(&peers)).call(&1).unwrap().wait().unwrap(), 2);
        // A target takes its links with it.
        other.stop().unwrap();
        let gone = add(&there).call(&1).and_then(crate::Call::wait);
        assert!(matches!(gone, Err(Error::PeerGone { .. })), "{gone:?}");
        until(|| peers.list().is_empty());
        one.stop().unwrap();
    });
}

#[test]
fn a_plain_source_is_no_peer_and_a_dropped_source_ends_its_link() {
    let target = accepting().listen(&unique("shm")).unwrap();
    let (peers, address) = (target.peers(), target.address());
    let target = target.spawn(0u64).unwrap();
    let plain = Source::connect(&address).unwrap();
    assert_eq!(add(&plain).call(&1).unwrap().wait().unwrap(), 1);
    let mut node = accepting().listen(&unique("shm")).unwrap();
    let there = node.connect(&address).unwrap();
    let node = node.spawn(0u64).unwrap();
    assert_eq!(add(&there).call(&1).unwrap().wait().unwrap(), 2);
    assert_eq!(peers.list().len(), 1);
    let (info, _) = peers.list().remove(0);
    assert!(peers.source(info.connection).is_some() && peers.source(u64::MAX).is_none());
    drop(there);
    until(|| peers.list().is_empty());
    node.stop().unwrap();
    assert_eq!(target.stop().unwrap(), 2);
}

#[test]
fn several_threads_serve_a_node() {
    served_by_several_threads(500);
}

#[test]
#[ignore = "nightly: four times as many calls"]
fn several_threads_serve_a_node_for_long() {
    served_by_several_threads(2_000);
}

fn served_by_several_threads(calls: u64) {
    for transport in between_processes() {
        let counter = || Arc::new(std::sync::atomic::AtomicU64::new(0));
        let one = accepting().listen(&place(transport)).unwrap();
        let (peers, address) = (one.peers(), one.address());
        let one = one.spawn_shared(counter(), 2).unwrap();
        let mut other = accepting().listen(&place(transport)).unwrap();
        let there = other.connect(&address).unwrap();
        let other = other.spawn_shared(counter(), 2).unwrap();
        let here = first(&peers);
        let image = images::adds_shared().encode().unwrap();
        thread::scope(|scope| {
            for source in [&there, &here] {
                let image = &image;
                scope.spawn(move || {
                    let add = source.load_bytes(image).unwrap();
                    for n in 1..=calls {
                        let answer = add.call(&1u64.to_le_bytes()).unwrap().wait().unwrap();
                        assert_eq!(answer, n.to_le_bytes());
                    }
                    // What sleeps in between is woken.
                    thread::sleep(Duration::from_millis(20));
                    add.call(&1u64.to_le_bytes()).unwrap().wait().unwrap();
                });
            }
        });
        one.stop().unwrap();
        other.stop().unwrap();
    }
}

const ROLE: &str = "IFUNC_TEST_NODE";

/// Another process that is a node. Killed when it is dropped.
struct Other(Child);

impl Other {
    /// Starts one that connects to `address`, and calls so often.
    fn start(address: &str, calls: u64) -> Self {
        Self::with_role(&format!("{calls} {address}")).0
    }

    /// Starts one that listens, and calls the first node that connects to it. Returns its address.
    fn listening(transport: &str) -> (Self, String) {
        Self::with_role(&format!("listen {transport}"))
    }

    fn with_role(role: &str) -> (Self, String) {
        let test = concat!(module_path!(), "::child").split_once("::").unwrap().1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.unwrap().split_once("ready ")?.1.to_owned()));
        (Self(child), address.unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other process does: calls, then ends with success when its standard input does.
#[test]
#[ignore = "role: a part of the other tests here"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (calls, address) = role.split_once(' ').unwrap();
    if calls == "listen" {
        let node = accepting().credits(64).listen(&listening(address)).unwrap();
        let peers = node.peers();
        println!("ready {}", node.address());
        std::io::stdout().flush().unwrap();
        let _node = node.spawn(0u64).unwrap();
        return count(&first(&peers), u64::MAX);
    }
    let mut node = accepting()
        .listen(&listening(address.split(':').next().unwrap()))
        .unwrap();
    let there = node.connect(address).unwrap();
    let node = node.spawn(0u64).unwrap();
    println!("ready {}", node.address());
    std::io::stdout().flush().unwrap();
    let calls: u64 = calls.parse().unwrap();
    count(&there, calls);
    let _ = std::io::stdin().lines().next();
    assert!(node.stop().unwrap() >= calls);
    // The harness's own report goes to a pipe that is closed.
    std::process::exit(0);
}

#[test]
fn two_processes_call_each_other_over_one_link() {
    call_each_other(1_000);
}

#[test]
#[ignore = "nightly: half a million calls in each direction take a minute"]
fn two_processes_call_each_other_for_long() {
    call_each_other(100_000);
}

fn call_each_other(calls: u64) {
    for transport in between_processes() {
        for credits in [2, 64, 4096] {
            let calls = if credits == 2 { calls.min(5_000) } else { calls };
            let one = accepting().credits(credits).listen(&place(transport)).unwrap();
            let (peers, address) = (one.peers(), one.address());
            let one = one.spawn(0u64).unwrap();
            let mut other = Other::start(&address, calls);
            count(&first(&peers), calls);
            drop(other.0.stdin.take());
            assert!(other.0.wait().unwrap().success(), "{transport}");
            assert!(one.stop().unwrap() >= calls);
        }
    }
}

#[test]
fn every_call_ends_when_a_node_is_killed() {
    for transport in between_processes() {
        // The side that accepted lives on.
        let one = accepting().credits(64).listen(&place(transport)).unwrap();
        let (peers, address) = (one.peers(), one.address());
        let one = one.spawn(0u64).unwrap();
        for round in 0..4u64 {
            let other = Other::start(&address, u64::MAX);
            let here = first(&peers);
            let calls = thread::spawn(move || lost(&here));
            thread::sleep(Duration::from_millis(20 + 15 * round));
            drop(other);
            calls.join().unwrap();
            until(|| peers.list().is_empty());
        }
        one.stop().unwrap();
    }
}

#[test]
fn every_call_ends_when_the_node_is_killed_that_listens() {
    for transport in between_processes() {
        for round in 0..4u64 {
            let (other, address) = Other::listening(transport);
            let mut node = accepting().credits(64).listen(&place(transport)).unwrap();
            let options = crate::SourceOptions::default().reconnect(Duration::from_millis(50));
            let there = node.connect_with(&address, options).unwrap();
            let node = node.spawn(0u64).unwrap();
            let calls = thread::spawn(move || lost(&there));
            thread::sleep(Duration::from_millis(20 + 15 * round));
            drop(other);
            calls.join().unwrap();
            node.stop().unwrap();
        }
    }
}

/// Calls until one is lost. Every call ends: with its answer, as indeterminate, or as not sent.
fn lost(source: &Source) {
    let add = add(source);
    let mut sum = 0;
    let mut is_lost = false;
    while !is_lost {
        let group: Vec<_> = (0..16).map(|_| add.call(&1)).collect();
        for call in group {
            match call.and_then(crate::Call::wait) {
                Ok(answer) => {
                    sum += 1;
                    assert!(!is_lost && answer == sum);
                }
                Err(Error::Indeterminate { .. } | Error::PeerGone { .. }) => is_lost = true,
                Err(error) => panic!("{error}"),
            }
        }
    }
    let gone = add.call(&1).and_then(crate::Call::wait);
    assert!(matches!(gone, Err(Error::PeerGone { .. })), "{gone:?}");
}
