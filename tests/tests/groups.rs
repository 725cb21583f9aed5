//! Code that travels through a group of nodes: it is sent to one node, goes on to others, and answers its source.

mod common;
#[path = "groups/eight.rs"]
mod eight;
#[path = "groups/finish.rs"]
mod finish;
#[path = "groups/flood.rs"]
mod flood;
#[path = "groups/program.rs"]
mod program;
#[path = "groups/shared.rs"]
mod shared;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use ifunc_rt::group::{Group, Nodes};
use ifunc_rt::keys::{SecretKey, Signatures};
use ifunc_rt::{
    Error, Grant, Handle, Policy, Rejection, Scope, Serving, Source, SourceOptions, Target, TargetBuilder,
};
use ifunc_tests_ifuncs::State;
use ifunc_tests_ifuncs::answers::t_fill_there;
use ifunc_tests_ifuncs::travel::{
    Count, Spread, Tour, t_answers_twice, t_count_on, t_count_up, t_relay, t_spread, t_tour, t_tour_panics,
};

use common::{Process, connect, libraries, library, over_there, unique, unique_within};

fn accepting() -> TargetBuilder {
    // SAFETY: the ifuncs of these tests.
    Target::builder().policy(unsafe { Policy::trust_every_peer() })
}

fn state() -> State {
    State {
        counter: 0,
        changes: 0,
    }
}

/// A node that serves on a thread of its own.
struct Node {
    address: String,
    nodes: Nodes,
    serving: Serving<State>,
}

/// A group whose nodes serve.
fn start(size: u32, builder: impl Fn() -> TargetBuilder + Sync) -> Vec<Node> {
    libraries();
    let targets: Vec<Target> = (0..size)
        .map(|_| builder().listen(&unique_within()).unwrap())
        .collect();
    let addresses: Vec<String> = targets.iter().map(Target::address).collect();
    thread::scope(|scope| {
        let joining: Vec<_> = (0..)
            .zip(targets)
            .map(|(number, mut target)| {
                let addresses = &addresses;
                scope.spawn(move || {
                    let group = (0..)
                        .zip(addresses)
                        .fold(Group::new(number), |group, (other, address)| {
                            group.node(other, address).unwrap()
                        });
                    let nodes = target.join(group).unwrap();
                    Node {
                        address: target.address(),
                        nodes,
                        serving: target.spawn(state()).unwrap(),
                    }
                })
            })
            .collect();
        joining.into_iter().map(|joined| joined.join().unwrap()).collect()
    })
}

/// Stops the nodes, and returns how many invocations each has run.
fn stop(nodes: Vec<Node>) -> Vec<u64> {
    let stop = |node: Node| node.serving.stop().unwrap().changes;
    nodes.into_iter().map(stop).collect()
}

/// Nodes that are processes, and find each other by a directory.
struct Processes {
    meeting: tempfile::TempDir,
    nodes: BTreeMap<u32, (String, Process)>,
    /// For the first node.
    address: Option<String>,
}

impl Processes {
    fn new(address: String) -> Self {
        libraries();
        Self {
            meeting: tempfile::tempdir().unwrap(),
            nodes: BTreeMap::new(),
            address: Some(address),
        }
    }

    /// Starts nodes, each of which has a link to all nodes with numbers below `size` when this returns.
    fn start(&mut self, numbers: Range<u32>, size: u32) {
        for number in numbers.clone() {
            let address = self.address.take().or_else(unique).unwrap();
            let mut command = over_there(env!("CARGO_BIN_EXE_e2e-node"));
            command.arg(&address).arg(self.meeting.path());
            command.args([number.to_string(), size.to_string()]);
            self.nodes.insert(number, (address, Process::start(&mut command)));
        }
        for number in numbers {
            if let Some((address, node)) = self.nodes.get_mut(&number) {
                node.wait_for(&format!("ifunc: ready {address}"));
            }
        }
    }

    fn address(&self, node: u32) -> &str {
        &self.nodes[&node].0
    }

    fn kill(&mut self, node: u32) {
        self.nodes.remove(&node).unwrap().1.kill();
    }
}

fn sum(first: u32, route: &[u32]) -> u64 {
    u64::from(first + route.iter().sum::<u32>())
}

#[test]
fn an_invocation_goes_on_over_nodes_and_the_last_one_answers() {
    let nodes = start(3, accepting);
    let source = connect(&nodes[0].address);
    let tour = source.register::<t_tour>().unwrap();
    // Nowhere, to another node and back, to itself, around.
    let routes: [&[u32]; 5] = [&[], &[1], &[2, 0, 1], &[0, 0, 1, 1], &[1, 2, 0, 1, 2, 0, 1, 2]];
    for route in routes {
        let answer = tour.call(&Tour::new(route)).unwrap().wait().unwrap();
        assert_eq!(answer, sum(0, route), "{route:?}");
    }
    // Many at once.
    let route = [1, 2, 0, 2];
    let calls: Vec<_> = (0..500).map(|_| tour.call(&Tour::new(&route)).unwrap()).collect();
    for call in calls {
        assert_eq!(call.wait().unwrap(), sum(0, &route));
    }
    // In C.
    // SAFETY: a library of these tests.
    let in_c = unsafe { source.load_path(library("t_c_tour")).unwrap() };
    let payload = Tour::new(&[2, 1]);
    let bytes = ifunc::zerocopy::IntoBytes::as_bytes(&payload);
    let answer = in_c.call(bytes).unwrap().wait().unwrap();
    assert_eq!(answer, 3u64.to_le_bytes());
    let ran = stop(nodes);
    assert_eq!(
        ran.iter().sum::<u64>(),
        1 + 2 + 4 + 5 + 9 + 500 * 5 + 3,
        "{ran:?}"
    );
}

#[test]
fn what_fails_on_the_way_is_reported_with_its_node() {
    let nodes = start(3, accepting);
    let source = connect(&nodes[0].address);
    let error = |error: Result<u64, Error>| error.unwrap_err().to_string();

    let panics = source.register::<t_tour_panics>().unwrap();
    let panicked = error(panics.call(&Tour::new(&[1, 2])).unwrap().wait());
    assert!(
        panicked.contains("node 2") && panicked.contains("lost on node 2"),
        "{panicked}"
    );
    let here = error(panics.call(&Tour::new(&[])).unwrap().wait());
    assert!(here.contains("lost on node 0"), "{here}");

    let tour = source.register::<t_tour>().unwrap();
    let nowhere = error(tour.call(&Tour::new(&[1, 9])).unwrap().wait());
    assert!(
        nowhere.contains("node 1") && nowhere.contains("to node 9: the group has no such node"),
        "{nowhere}"
    );
    let far = tour.with_hop_limit(2);
    assert_eq!(far.call(&Tour::new(&[1, 2])).unwrap().wait().unwrap(), 3);
    let too_far = error(far.call(&Tour::new(&[1, 2, 0])).unwrap().wait());
    assert!(too_far.contains("hop limit"), "{too_far}");

    let twice = source.register::<t_answers_twice>().unwrap();
    let answered = error(twice.call(&1).unwrap().wait());
    assert!(answered.contains("answered it, too"), "{answered}");
    stop(nodes);
}

/// Answers of other nodes travel in fragments. One has at most a quarter of the outbox; the errors name the settings.
#[test]
fn another_node_answers_at_length() {
    let outbox = Mutex::new([1 << 20, 4 << 20].into_iter());
    // What goes to the source itself counts against no outbox: node 0 has the smaller one.
    let nodes = start(2, || accepting().outbox(outbox.lock().unwrap().next().unwrap()));
    let source = connect(&nodes[0].address);
    let call = |source: &Source, node: u64, len: usize| {
        let payload = [node, len as u64].map(u64::to_le_bytes).concat();
        let fill = source.register::<t_fill_there>().unwrap();
        fill.call(&payload).unwrap().wait()
    };
    // Each kibibyte holds its number in every word.
    let is_right = |answer: &[u8], len: usize| {
        let mut words = (0u64..).zip(answer.chunks(1024));
        answer.len() == len
            && words.all(|(n, bytes)| bytes.starts_with(&n.to_le_bytes()[..bytes.len().min(8)]))
    };
    for len in [0, 1, 70_000, (256 << 10) + 1, 1 << 20] {
        let answer = call(&source, 1, len).unwrap_or_else(|error| panic!("{len}: {error}"));
        assert!(is_right(&answer, len), "{len}");
    }
    let error = call(&source, 1, (1 << 20) + 1).unwrap_err().to_string();
    assert!(
        error.contains("1048577 bytes")
            && error.contains("the limit is 1048576")
            && error.contains("outbox(..)"),
        "{error}"
    );
    // A source that takes less.
    let mut options = SourceOptions::default();
    options.max_answer = 100_000;
    let small = Source::connect_with(&nodes[0].address, options).unwrap();
    assert!(is_right(&call(&small, 1, 100_000).unwrap(), 100_000));
    let error = call(&small, 1, 100_001).unwrap_err().to_string();
    assert!(error.contains("SourceOptions::max_answer"), "{error}");
    stop(nodes);
}

#[test]
fn code_travels_with_its_signature() {
    let key = SecretKey::from_seed([1; 32], "tests");
    // SAFETY: the ifuncs of these tests.
    let policy = || unsafe { Policy::new().accept_key("tests", key.public(), Grant::new()) };
    let nodes = start(3, || Target::builder().policy(policy()));
    let source = connect(&nodes[0].address);
    let route = [1, 2, 0, 1];
    let call = |tour: &Handle<t_tour>| tour.call(&Tour::new(&route)).unwrap().wait();
    let unsigned = source.register::<t_tour>().unwrap();
    let id = *unsigned.id();
    let refused = call(&unsigned);
    assert!(
        matches!(
            refused,
            Err(Error::Rejected {
                why: Rejection::Signature,
                ..
            })
        ),
        "{refused:?}"
    );
    drop(unsigned);
    let mut signatures = Signatures::default();
    signatures.add(key.sign(&id));
    source.add_signatures(&signatures);
    let tour = source.register::<t_tour>().unwrap();
    assert_eq!(call(&tour).unwrap(), sum(0, &route));
    assert_eq!(stop(nodes).iter().sum::<u64>(), 5);
}

#[test]
fn a_target_without_a_group_says_so() {
    libraries();
    let mut target = accepting().listen(&unique_within()).unwrap();
    let address = target.address();
    let stop = target.stop_handle();
    let serving = thread::spawn(move || target.serve(&mut state()).unwrap());
    let tour = connect(&address).register::<t_tour>().unwrap();
    assert_eq!(tour.call(&Tour::new(&[])).unwrap().wait().unwrap(), 1000);
    let alone = tour
        .call(&Tour::new(&[1]))
        .unwrap()
        .wait()
        .unwrap_err()
        .to_string();
    assert!(alone.contains("not a node of a group"), "{alone}");
    stop.stop();
    serving.join().unwrap();
}

#[test]
fn a_node_that_joins_later_gets_the_code_from_its_peer() {
    let mut nodes = start(2, accepting);
    let mut late = accepting().listen(&unique_within()).unwrap();
    let group = Group::new(2)
        .node(0, &nodes[0].address)
        .unwrap()
        .node(1, &nodes[1].address)
        .unwrap();
    let joined = late.join(group).unwrap();
    let late = Node {
        address: late.address(),
        nodes: joined,
        serving: late.spawn(state()).unwrap(),
    };
    let source = connect(&nodes[0].address);
    let tour = source.register::<t_tour>().unwrap();
    let deadline = Instant::now() + common::TIMEOUT;
    while nodes.iter().any(|node| node.nodes.linked().len() < 2) {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    assert_eq!(tour.call(&Tour::new(&[1, 2])).unwrap().wait().unwrap(), 3);

    // It leaves: those that are left say so.
    assert_eq!(late.serving.stop().unwrap().changes, 1);
    while nodes[1].nodes.source(2).is_some() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    let gone = tour
        .call(&Tour::new(&[1, 2]))
        .unwrap()
        .wait()
        .unwrap_err()
        .to_string();
    assert!(gone.contains("node 2"), "{gone}");
    assert_eq!(tour.call(&Tour::new(&[1])).unwrap().wait().unwrap(), 1);
    nodes.push(late_again(&nodes));
    assert_eq!(tour.call(&Tour::new(&[2, 1])).unwrap().wait().unwrap(), 3);
    stop(nodes);
}

/// Node 2 joins again.
fn late_again(nodes: &[Node]) -> Node {
    let mut target = accepting().listen(&unique_within()).unwrap();
    let group = (0..).zip(nodes).fold(Group::new(2), |group, (number, node)| {
        group.node(number, &node.address).unwrap()
    });
    let joined = target.join(group).unwrap();
    let deadline = Instant::now() + common::TIMEOUT;
    let node = Node {
        address: target.address(),
        nodes: joined,
        serving: target.spawn(state()).unwrap(),
    };
    while nodes.iter().any(|node| node.nodes.source(2).is_none()) {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    node
}

#[test]
fn invocations_of_other_entries_go_on_over_nodes_that_know_the_code_from_their_peers() {
    let nodes = start(3, accepting);
    // The source is connected to node 0 alone, which sends the code on.
    let source = connect(&nodes[0].address);
    let relay = source.register::<t_relay>().unwrap();
    let route = [1, 2, 1, 0, 2];
    // The last entry answers twice the sum; one without nodes to visit answers itself.
    assert_eq!(relay.call(&Tour::new(&[])).unwrap().wait().unwrap(), 0);
    let calls: Vec<_> = (0..50).map(|_| relay.call(&Tour::new(&route)).unwrap()).collect();
    for call in calls {
        assert_eq!(call.wait().unwrap(), 2 * sum(0, &route));
    }
    // The notes are invocations of their own: those of a scope have ended when it has.
    let finished = source
        .finish(|scope| scope.send(&relay, &Tour::new(&route)))
        .unwrap();
    assert_eq!(
        (finished.executed, finished.failed),
        (1 + 5 + 5, 0),
        "{finished:?}"
    );
    // In C.
    // SAFETY: a library of these tests.
    let in_c = unsafe { source.load_path(library("t_c_relay")).unwrap() };
    let payload = Tour::new(&route);
    let bytes = ifunc::zerocopy::IntoBytes::as_bytes(&payload);
    for _ in 0..10 {
        let answer = in_c.call(bytes).unwrap().wait().unwrap();
        assert_eq!(answer, (2 * sum(0, &route)).to_le_bytes());
    }
    // Every note of the first 51 and of the 10 in C was kept, once it has arrived: the sums before each hop.
    let notes: u64 = (0..route.len()).map(|n| sum(0, &route[..n])).sum();
    let deadline = Instant::now() + common::TIMEOUT;
    let expected = notes * 61;
    let noted = source.register::<ifunc_tests_ifuncs::travel::t_noted>().unwrap();
    let count = || {
        let all = noted.call_stream(&Count { from: 0, to: 3 }).unwrap();
        all.map(Result::unwrap).sum::<u64>()
    };
    while count() != expected {
        assert!(Instant::now() < deadline, "{} of {expected}", count());
        thread::yield_now();
    }
    stop(nodes);
}

#[test]
fn a_node_that_knows_only_its_peer_runs_nothing_that_it_could_not_answer() {
    libraries();
    // A chain: 0 and 1 know each other, and 1 and 2.
    let chain: Vec<(u32, Target)> = (0..)
        .zip((0..3).map(|_| accepting().listen(&unique_within()).unwrap()))
        .collect();
    let addresses: Vec<String> = chain.iter().map(|(_, target)| target.address()).collect();
    let nodes: Vec<Node> = chain
        .into_iter()
        .map(|(number, mut target)| {
            let group = match number {
                0 => Group::new(0),
                _ => Group::new(number)
                    .node(number - 1, &addresses[number as usize - 1])
                    .unwrap(),
            };
            let nodes = target.join(group.on_demand()).unwrap();
            let address = target.address();
            let serving = target.spawn(state()).unwrap();
            Node {
                address,
                nodes,
                serving,
            }
        })
        .collect();
    nodes[0].nodes.add(1, &addresses[1]).unwrap();
    nodes[1].nodes.add(2, &addresses[2]).unwrap();
    let source = connect(&nodes[0].address);
    let tour = source.register::<t_tour>().unwrap();
    assert_eq!(tour.call(&Tour::new(&[1])).unwrap().wait().unwrap(), 1);
    let unknown = tour
        .call(&Tour::new(&[1, 2]))
        .unwrap()
        .wait()
        .unwrap_err()
        .to_string();
    let teaches = "on node 2: node 0; help: add node 0 to its group";
    assert!(
        unknown.contains("does not know") && unknown.contains(teaches),
        "{unknown}"
    );
    let in_scope = source
        .finish(|scope| scope.send(&tour, &Tour::new(&[1, 2])))
        .unwrap();
    assert_eq!((in_scope.executed, in_scope.failed), (2, 1), "{in_scope:?}");
    // A source of node 1 is answered: 1 and 2 know each other.
    let second = connect(&nodes[1].address).register::<t_tour>().unwrap();
    assert_eq!(second.call(&Tour::new(&[2])).unwrap().wait().unwrap(), 3);
    nodes[2].nodes.add(0, &addresses[0]).unwrap();
    assert_eq!(tour.call(&Tour::new(&[1, 2])).unwrap().wait().unwrap(), 3);
    let ran = stop(nodes);
    assert_eq!(ran, [4, 5, 2]);
}

#[test]
fn a_call_is_answered_in_parts() {
    let nodes = start(2, accepting);
    let source = connect(&nodes[0].address);
    let few = source.register::<t_count_up>().unwrap();
    let parts: Vec<u64> = few.call_stream(&50).unwrap().map(Result::unwrap).collect();
    assert_eq!(parts, (0..=50).collect::<Vec<_>>());
    // More than may be sent ahead, one stream beside the other.
    let many = source.register::<t_count_on>().unwrap();
    let count = Count { from: 0, to: 1000 };
    let [one, other] = [(); 2].map(|()| many.call_stream(&count).unwrap());
    for (n, (one, other)) in (0..).zip(one.zip(other)) {
        assert_eq!((one.unwrap(), other.unwrap()), (n, n));
        assert!(n < 1000);
    }
    // One that is not taken to its end.
    let first: Vec<_> = many
        .call_stream(&count)
        .unwrap()
        .take(3)
        .map(Result::unwrap)
        .collect();
    assert_eq!(first, [0, 1, 2]);
    // A call that takes one answer gets no parts.
    let refused = few.call(&1).unwrap().wait().unwrap_err().to_string();
    assert!(refused.contains("window is closed"), "{refused}");
    stop(nodes);
}

#[test]
fn a_scope_ends_after_everything_in_it() {
    let nodes = start(4, accepting);
    let source = connect(&nodes[0].address);
    let spread = source.register::<t_spread>().unwrap();
    for (depth, fan, all) in [(0, 0, 1), (1, 5, 6), (4, 3, 121)] {
        let spread_out = |scope: &Scope<'_>| scope.send(&spread, &Spread { depth, fan });
        let finished = source.finish(spread_out).unwrap();
        assert_eq!((finished.executed, finished.failed), (all, 0), "{finished:?}");
    }
    assert_eq!(source.finish(|_| Ok(())).unwrap().executed, 0);
    // Failures are counted and named.
    let panics = source.register::<t_tour_panics>().unwrap();
    let finished = source
        .finish(|scope| scope.send(&panics, &Tour::new(&[1])))
        .unwrap();
    assert_eq!(finished.failed, 1, "{finished:?}");
    assert!(finished.failures[0].contains("node 1"), "{finished:?}");
    let ran: u64 = stop(nodes).iter().sum();
    assert_eq!(ran, 1 + 6 + 121 + 2);
}

#[test]
fn every_call_ends_when_a_node_is_killed() {
    let Some(address) = unique() else { return };
    let mut nodes = Processes::new(address);
    nodes.start(0..3, 3);
    let timeout = Duration::from_secs(5);
    let options = SourceOptions::default().timeout(timeout);
    let source = Source::connect_with(nodes.address(0), options).unwrap();
    let tour = source.register::<t_tour>().unwrap();
    let route: Vec<u32> = (0..30).map(|n| 1 + n % 2).collect();
    assert_eq!(
        tour.call(&Tour::new(&route)).unwrap().wait().unwrap(),
        sum(0, &route)
    );

    let calls: Vec<_> = (0..300).map(|_| tour.call(&Tour::new(&route)).unwrap()).collect();
    let killed = Instant::now();
    nodes.kill(2);
    let mut failed = 0;
    for call in calls {
        match call.wait() {
            Ok(answer) => assert_eq!(answer, sum(0, &route)),
            Err(error) => {
                failed += 1;
                let text = error.to_string();
                assert!(
                    text.contains("node 2") || text.contains("no answer came") && text.contains(": 2"),
                    "{text}"
                );
            }
        }
        assert!(
            killed.elapsed() < timeout + Duration::from_secs(5),
            "{failed} failed"
        );
    }
    // The others go on.
    assert_eq!(tour.call(&Tour::new(&[1, 0, 1])).unwrap().wait().unwrap(), 2);
    let gone = tour
        .call(&Tour::new(&[1, 2]))
        .unwrap()
        .wait()
        .unwrap_err()
        .to_string();
    assert!(gone.contains("node 2"), "{gone}");
}
