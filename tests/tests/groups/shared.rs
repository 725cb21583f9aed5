//! Nodes that serve on several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ifunc_rt::group::Group;
use ifunc_rt::{Serving, Target};
use ifunc_tests_ifuncs::travel::{Count, Spread, Tour, t_shared_count, t_shared_spread, t_shared_tour};

use super::common::{connect, libraries, unique_within};
use super::{accepting, sum};

const THREADS: usize = 4;
const SOURCES: usize = 3;

/// A group whose nodes serve on four threads each.
fn start(size: u32) -> (Vec<String>, Vec<Serving<Arc<AtomicU64>>>) {
    libraries();
    let targets: Vec<Target> = (0..size)
        .map(|_| accepting().listen(&unique_within()).unwrap())
        .collect();
    let addresses: Vec<String> = targets.iter().map(Target::address).collect();
    let nodes = thread::scope(|scope| {
        let joining: Vec<_> = (0..)
            .zip(targets)
            .map(|(number, mut target)| {
                let others = (0..).zip(&addresses);
                let group = others.fold(Group::new(number), |group, (other, address)| {
                    group.node(other, address).unwrap()
                });
                scope.spawn(move || {
                    target.join(group).unwrap();
                    target.spawn_shared(Arc::new(AtomicU64::new(0)), THREADS).unwrap()
                })
            })
            .collect();
        joining.into_iter().map(|joined| joined.join().unwrap()).collect()
    });
    (addresses, nodes)
}

fn stop(nodes: Vec<Serving<Arc<AtomicU64>>>) -> u64 {
    let visits = |node: Serving<Arc<AtomicU64>>| node.stop().unwrap().load(Ordering::Relaxed);
    nodes.into_iter().map(visits).sum()
}

/// Sources at every node, on threads of their own.
fn from_everywhere(addresses: &[String], run: impl Fn(u32, ifunc_rt::Source) + Sync) {
    thread::scope(|scope| {
        for (node, address) in (0..).zip(addresses) {
            for _ in 0..SOURCES {
                let run = &run;
                scope.spawn(move || run(node, connect(address)));
            }
        }
    });
}

#[test]
fn four_threads_forward() {
    const ROUNDS: u64 = 8;
    const AT_ONCE: u64 = 30;
    let (addresses, nodes) = start(3);
    let route = [1, 2, 2, 0, 1, 0, 0, 2];
    from_everywhere(&addresses, |node, source| {
        let tour = source.register::<t_shared_tour>().unwrap();
        for _ in 0..ROUNDS {
            let calls: Vec<_> = (0..AT_ONCE)
                .map(|_| tour.call(&Tour::new(&route)).unwrap())
                .collect();
            for call in calls {
                assert_eq!(call.wait().unwrap(), sum(node, &route));
            }
            // Alone: every thread of every node goes to sleep between two of them, or is about to.
            assert_eq!(
                tour.call(&Tour::new(&route)).unwrap().wait().unwrap(),
                sum(node, &route)
            );
        }
    });
    let calls = 3 * SOURCES as u64 * ROUNDS * (AT_ONCE + 1);
    assert_eq!(stop(nodes), calls * (route.len() as u64 + 1));
}

#[test]
fn four_threads_answer_in_parts() {
    const PARTS: u64 = 100;
    let (addresses, nodes) = start(3);
    from_everywhere(&addresses, |_, source| {
        let count = source.register::<t_shared_count>().unwrap();
        let payload = Count { from: 0, to: PARTS };
        let streams = [(); 2].map(|()| count.call_stream(&payload).unwrap());
        let [one, other] = streams;
        for (n, (one, other)) in (0..).zip(one.zip(other)) {
            assert_eq!((one.unwrap(), other.unwrap()), (n, n));
            assert!(n < PARTS);
        }
    });
    stop(nodes);
}

#[test]
fn scopes_end_while_four_threads_send() {
    let (addresses, nodes) = start(3);
    from_everywhere(&addresses, |_, source| {
        let spread = source.register::<t_shared_spread>().unwrap();
        for (depth, fan, all) in [(0, 0, 1), (3, 3, 40), (2, 8, 73)] {
            let finished = source
                .finish(|scope| scope.send(&spread, &Spread { depth, fan }))
                .unwrap();
            assert_eq!((finished.executed, finished.failed), (all, 0), "{finished:?}");
        }
    });
    assert_eq!(stop(nodes), 3 * SOURCES as u64 * (1 + 40 + 73));
}
