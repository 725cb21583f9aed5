//! What ends, and when: `finish` when everything in its scope has ended, not before, at a small price in frames, and when a node
//! dies; a call that its source drops, at once.

use std::thread;
use std::time::{Duration, Instant};

use ifunc_rt::group::Group;
use ifunc_rt::stats::GroupStats;
use ifunc_rt::{Error, Policy, Serving, Source, SourceOptions, StatsHandle, Target};
use ifunc_tests_ifuncs::State;
use ifunc_tests_ifuncs::travel::{Count, Spread, Tour, t_count_on, t_spread, t_tour, t_tour_slow};

use super::common::{self, Process, libraries, over_there, unique, unique_within};

/// A node that serves on a thread of its own.
struct Node {
    address: String,
    stats: StatsHandle,
    serving: Serving<State>,
}

/// A group of 4 nodes that serve, each with room for what a scope spreads.
fn start(outbox: usize) -> Vec<Node> {
    libraries();
    let targets: Vec<Target> = (0..4)
        .map(|_| {
            // SAFETY: the ifuncs of these tests.
            let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
            builder.outbox(outbox).listen(&unique_within()).unwrap()
        })
        .collect();
    let addresses: Vec<String> = targets.iter().map(Target::address).collect();
    thread::scope(|scope| {
        let start = |(number, mut target): (u32, Target)| {
            let addresses = &addresses;
            scope.spawn(move || {
                let all = (0..).zip(addresses);
                let group = all.fold(Group::new(number), |group, (other, address)| {
                    group.node(other, address).unwrap()
                });
                target.join(group).unwrap();
                let state = State {
                    counter: 0,
                    changes: 0,
                };
                Node {
                    address: target.address(),
                    stats: target.stats_handle(),
                    serving: target.spawn(state).unwrap(),
                }
            })
        };
        let joining: Vec<_> = (0..).zip(targets).map(start).collect();
        joining.into_iter().map(|joined| joined.join().unwrap()).collect()
    })
}

/// Lets an invocation send `fan` others, each of which sends as many, `depth` times, in a scope. The scope ends when the last one has
/// ended: each node counts its own.
fn spreads(depth: u32, fan: u32, outbox: usize) {
    let nodes = start(outbox);
    let options = SourceOptions::default().timeout(Duration::from_secs(900));
    let source = Source::connect_with(&nodes[0].address, options).unwrap();
    let spread = source.register::<t_spread>().unwrap();
    let all: u64 = (0..=depth).map(|generation| u64::from(fan).pow(generation)).sum();

    let began = Instant::now();
    let finished = source
        .finish(|scope| scope.send(&spread, &Spread { depth, fan }))
        .unwrap();
    // At this moment all have run: it did not end early.
    let ran: Vec<u64> = nodes
        .iter()
        .map(|node| node.stats.read().total.executed)
        .collect();
    let took = began.elapsed();
    assert_eq!(ran.iter().sum::<u64>(), all, "{ran:?}");
    assert_eq!((finished.executed, finished.failed), (all, 0), "{finished:?}");

    let mut sent = GroupStats::default();
    for node in &nodes {
        let group = node.stats.read().group.expect("it is a node");
        assert_eq!((group.linked, group.scopes, group.slots), (3, 0, 0));
        sent.invocations += group.invocations;
        sent.weights += group.weights;
        sent.replies += group.replies;
        sent.others += group.others;
    }
    println!(
        "{all} invocations in {took:?}; between the nodes {} frames were invocations, {} bookkeeping",
        sent.invocations,
        sent.weights + sent.others
    );
    assert!(sent.invocations > all / 2, "{sent:?}");
    assert_eq!(sent.replies, 0);
    let bookkeeping = sent.weights + sent.others;
    // A small scope on a busy machine waits often, and returns weight each time.
    let share = if all > 1_000_000 { 100 } else { 10 };
    assert!(bookkeeping * share <= sent.invocations + bookkeeping, "{sent:?}");
    let changes: u64 = nodes
        .into_iter()
        .map(|node| node.serving.stop().unwrap().changes)
        .sum();
    assert_eq!(changes, all);
}

#[test]
fn a_scope_ends_after_all_that_it_spreads() {
    // 1 + 6 + 36 + … + 6^5
    spreads(5, 6, 16 << 20);
}

#[test]
#[ignore = "nightly: a million invocations"]
fn a_scope_ends_after_a_million() {
    // 1 + 10 + 100 + … + 10^6
    spreads(6, 10, 1 << 30);
}

/// A group whose nodes are processes of their own, and a source of its first one. `None`, which is said, over a transport within
/// one process.
fn processes(size: usize) -> Option<(Vec<Process>, Source)> {
    let first = unique()?;
    libraries();
    let meeting = tempfile::tempdir().unwrap();
    let addresses: Vec<String> = std::iter::once(first)
        .chain(std::iter::repeat_with(|| unique().unwrap()))
        .take(size)
        .collect();
    let start = |(number, address): (usize, &String)| {
        let mut command = over_there(env!("CARGO_BIN_EXE_e2e-node"));
        command.arg(address).arg(meeting.path());
        command.args([number.to_string(), size.to_string()]);
        Process::start(&mut command)
    };
    let mut nodes: Vec<Process> = addresses.iter().enumerate().map(start).collect();
    for (node, address) in nodes.iter_mut().zip(&addresses) {
        node.wait_for(&format!("ifunc: ready {address}"));
    }
    let options = SourceOptions::default().timeout(2 * common::TIMEOUT);
    let source = Source::connect_with(&addresses[0], options).unwrap();
    Some((nodes, source))
}

#[test]
fn a_dropped_call_gives_back_what_its_first_target_holds() {
    let Some((mut nodes, source)) = processes(2) else {
        return;
    };
    let held = || {
        let group = source.target_stats(common::TIMEOUT).unwrap().group.unwrap();
        (group.slots, group.outbox_bytes)
    };
    let deadline = Instant::now() + common::TIMEOUT / 2;
    let gives_back = || {
        while held() != (0, 0) {
            assert!(Instant::now() < deadline, "{:?}", held());
        }
    };
    // A stream whose invocation waits for its window.
    let count = source.register::<t_count_on>().unwrap();
    let mut parts = count.call_stream(&Count { from: 0, to: 1 << 20 }).unwrap();
    assert_eq!(parts.next().unwrap().unwrap(), 0);
    assert_eq!(held().0, 1);
    drop(parts);
    gives_back();
    // A call that another node runs, for longer than this test waits.
    let slow = source.register::<t_tour_slow>().unwrap();
    let call = slow.call(&Tour::new(&[1])).unwrap();
    nodes[1].wait_for("taking 60000 ms");
    assert_eq!(held(), (1, 0));
    drop(call);
    gives_back();
}

#[test]
fn a_scope_names_the_node_that_was_killed() {
    let Some((mut nodes, source)) = processes(4) else {
        return;
    };
    let tour = source.register::<t_tour>().unwrap();
    let slow = source.register::<t_tour_slow>().unwrap();

    let mut killed = Instant::now();
    let incomplete = source
        .finish(|scope| {
            for route in [&[1, 2][..], &[2, 1], &[2, 0, 1]] {
                scope.send(&tour, &Tour::new(route))?;
            }
            // Node 3 is in the middle of it.
            scope.send(&slow, &Tour::new(&[1, 3]))?;
            nodes[3].wait_for("taking 60000 ms");
            nodes[3].kill();
            killed = Instant::now();
            Ok(())
        })
        .unwrap_err();
    let took = killed.elapsed();
    let (lost, executed, failed) = match incomplete {
        Error::Incomplete {
            lost,
            executed,
            failed,
            ..
        } => (lost, executed, failed),
        other => panic!("{other}"),
    };
    println!("the scope was reported as incomplete {took:?} after node 3 was killed");
    assert_eq!((lost, failed), (vec![3], 0));
    // The tours over other nodes, and the way of the slow one.
    assert!((1..=3 + 3 + 4 + 2).contains(&executed), "{executed}");
    // A second without a return, and however long a busy machine takes to notice the death.
    assert!(took < common::TIMEOUT, "{took:?}");

    // The other nodes go on.
    let finished = source
        .finish(|scope| scope.send(&tour, &Tour::new(&[1, 2, 0])))
        .unwrap();
    assert_eq!((finished.executed, finished.failed), (4, 0), "{finished:?}");
}
