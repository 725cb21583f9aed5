//! Groups: nodes that connect to each other at the same time, later, and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::images::{self, Add};
use super::running::{accepting, between_processes, place, unique};
use super::threads::until;
use crate::group::{Group, GroupError, Nodes};
use crate::rendezvous::Rendezvous;
use crate::{Serving, Source, Target};

/// Every transport.
fn transports() -> Vec<&'static str> {
    let mut transports = vec!["loopback"];
    transports.extend(between_processes());
    if transports.contains(&"ucx") {
        transports.push("ucx-put");
    }
    transports
}

fn listen(transport: &str) -> Target {
    let address = match transport {
        "ucx-put" => "ucx-put://127.0.0.1:0".into(),
        other => place(other),
    };
    accepting().listen(&address).unwrap()
}

fn call(source: &Source, delta: u64) -> u64 {
    let image = images::add().encode().unwrap();
    let add = source.register_bytes::<Add>(&image).unwrap();
    add.call(&delta).unwrap().wait().unwrap()
}

/// A group that is built by hand.
pub(super) fn group(number: u32, addresses: &[String]) -> Group {
    let nodes = (0..).zip(addresses);
    nodes.fold(Group::new(number), |group, (number, address)| {
        group.node(number, address).unwrap()
    })
}

/// Joins a group on a thread for each target, and serves.
pub(super) fn start(targets: Vec<Target>, group: impl Fn(u32) -> Group + Sync) -> Vec<(Serving<u64>, Nodes)> {
    thread::scope(|scope| {
        let group = &group;
        let joining: Vec<_> = (0..)
            .zip(targets)
            .map(|(number, mut target)| {
                scope.spawn(move || {
                    let nodes = target.join(group(number)).unwrap();
                    (target.spawn(0u64).unwrap(), nodes)
                })
            })
            .collect();
        joining.into_iter().map(|joined| joined.join().unwrap()).collect()
    })
}

/// Each node of the group calls each other one.
fn all_to_all(nodes: &[(Serving<u64>, Nodes)]) {
    for (_, from) in nodes {
        for to in from.others() {
            assert!(call(&from.source(to).unwrap(), 1) >= 1);
        }
    }
}

#[test]
fn targets_that_connect_to_each_other_before_any_of_them_serves() {
    for transport in transports() {
        let targets: Vec<_> = (0..3).map(|_| listen(transport)).collect();
        let addresses: Vec<_> = targets.iter().map(Target::address).collect();
        let all_are_linked = Barrier::new(3);
        thread::scope(|scope| {
            for (number, mut target) in targets.into_iter().enumerate() {
                let (addresses, all_are_linked) = (&addresses, &all_are_linked);
                scope.spawn(move || {
                    let others = (0..3).filter(|&other| other != number);
                    let sources: Vec<_> = others
                        .map(|other| target.connect(&addresses[other]).unwrap())
                        .collect();
                    let serving = target.spawn(0u64).unwrap();
                    for source in &sources {
                        assert!(call(source, 1) >= 1, "{transport}");
                    }
                    all_are_linked.wait();
                    assert_eq!(serving.stop().unwrap(), 2, "{transport}");
                });
            }
        });
    }
}

#[test]
fn a_group_is_joined_by_all_of_its_nodes_at_once() {
    for transport in transports() {
        let targets: Vec<_> = (0..4).map(|_| listen(transport)).collect();
        let addresses: Vec<_> = targets.iter().map(Target::address).collect();
        let nodes = start(targets, |number| group(number, &addresses));
        for (number, (_, nodes)) in nodes.iter().enumerate() {
            assert_eq!(nodes.number() as usize, number);
            assert_eq!(nodes.linked(), nodes.others(), "{transport}");
            assert_eq!(nodes.others().len(), 3, "{transport}");
        }
        all_to_all(&nodes);
        for (serving, _) in nodes {
            assert_eq!(serving.stop().unwrap(), 3, "{transport}");
        }
    }
}

#[test]
fn nodes_find_each_other_by_a_directory() {
    let directory = std::env::temp_dir().join(unique("group").replace(':', "-"));
    std::fs::create_dir_all(&directory).unwrap();
    let meeting = Rendezvous::in_directory(&directory, "group").unwrap();
    let targets = (0..3).map(|_| listen("shm")).collect();
    let nodes = start(targets, |number| Group::meeting(&meeting, number, 3));
    all_to_all(&nodes);
    // A node that ends is found no more, also while its `Nodes` are held.
    for (serving, _nodes) in nodes {
        serving.stop().unwrap();
    }
    assert!(meeting.find(0, Duration::ZERO).is_err());
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_node_joins_later_and_one_again() {
    for transport in ["loopback", "shm"] {
        let targets: Vec<_> = (0..3).map(|_| listen(transport)).collect();
        let mut addresses: Vec<_> = targets.iter().map(Target::address).collect();
        let mut nodes = start(targets, |number| group(number, &addresses));

        // No node knew of node 3.
        let mut target = listen(transport);
        addresses.push(target.address());
        let three = target.join(group(3, &addresses)).unwrap();
        nodes.push((target.spawn(0u64).unwrap(), three));
        until(|| nodes.iter().all(|(_, nodes)| nodes.linked().len() == 3));
        all_to_all(&nodes);

        // Node 1 ends: it is known by its address, and its links are gone.
        let (one, _) = nodes.remove(1);
        one.stop().unwrap();
        until(|| nodes.iter().all(|(_, nodes)| nodes.source(1).is_none()));
        assert_eq!(nodes[0].1.others(), [1, 2, 3], "{transport}");

        // It joins again, elsewhere: those above it do not know that, and it connects to them.
        let mut target = listen(transport);
        addresses[1] = target.address();
        let began = Instant::now();
        let one = target.join(group(1, &addresses)).unwrap();
        assert!(began.elapsed() < Duration::from_secs(20));
        nodes.insert(1, (target.spawn(0u64).unwrap(), one));
        until(|| nodes.iter().all(|(_, nodes)| nodes.linked().len() == 3));
        all_to_all(&nodes);
        for (serving, _) in nodes {
            serving.stop().unwrap();
        }
    }
}

#[test]
fn a_link_to_a_node_lasts_as_long_as_both_ends() {
    let targets: Vec<_> = (0..2).map(|_| listen("loopback")).collect();
    let addresses: Vec<_> = targets.iter().map(Target::address).collect();
    let mut nodes = start(targets, |number| group(number, &addresses));
    let held = nodes[0].1.source(1).unwrap();
    assert_eq!(call(&held, 7), 7);
    nodes.remove(1).0.stop().unwrap();
    until(|| nodes[0].1.linked().is_empty());
    let image = images::add().encode().unwrap();
    let add = held.register_bytes::<Add>(&image).unwrap();
    let refused = add.call(&1).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("was not sent"), "{refused}");
    nodes.remove(0).0.stop().unwrap();
}

#[test]
fn the_first_of_several_links_to_a_node_is_used() {
    let targets: Vec<_> = (0..2).map(|_| listen("loopback")).collect();
    let addresses: Vec<_> = targets.iter().map(Target::address).collect();
    let nodes = start(targets, |number| group(number, &addresses));
    let zero = &nodes[0].1;
    let used = || Arc::as_ptr(zero.source(1).unwrap().shared());
    let first = used();
    // Another one, which was accepted earlier and is found to lead to the node only now.
    let another = Source::connect(&addresses[1]).unwrap();
    zero.link_up(1, 0, another.clone());
    assert_eq!(used(), first);
    drop(zero.link_down(1, 0));
    assert_eq!(used(), first);
    for (serving, _) in nodes {
        serving.stop().unwrap();
    }
}

#[test]
fn what_cannot_be_joined_says_why() {
    let join = |group: Group| listen("loopback").join(group.timeout(Duration::from_millis(700)));
    let missing = unique("loopback");
    let error = join(Group::new(1).node(0, &missing).unwrap()).unwrap_err();
    assert!(matches!(error, GroupError::Connect { node: 0, .. }), "{error}");
    assert!(error.to_string().contains("cannot connect to node 0"), "{error}");

    // It listens, and has not joined.
    let silent = listen("loopback");
    let error = join(Group::new(1).node(0, &silent.address()).unwrap()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("has not joined a group"), "{text}");

    // It is another one.
    let mut seven = listen("loopback");
    let address = seven.address();
    seven.join(Group::new(7)).unwrap();
    let error = join(Group::new(1).node(0, &address).unwrap()).unwrap_err();
    assert!(
        matches!(
            error,
            GroupError::OtherNode {
                node: 0,
                found: 7,
                ..
            }
        ),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.starts_with("node 7 listens at `") && text.contains("help: give each node"),
        "{text}"
    );
    let error = seven.join(Group::new(7)).unwrap_err();
    assert!(matches!(error, GroupError::Joined { number: 7 }), "{error}");
    assert!(
        error.to_string().contains("node 7 of a group already; help: "),
        "{error}"
    );

    assert!(Group::new(0).node(u32::MAX, "shm:a").is_err());
    assert!(Group::new(0).node(1, "nowhere").is_err());
    assert!(join(Group::new(u32::MAX)).is_err());
    // The target can join after that.
    let mut target = listen("loopback");
    let group = Group::new(0).node(1, &missing).unwrap().timeout(Duration::ZERO);
    let error = target.join(group).unwrap_err();
    assert!(matches!(error, GroupError::Missing { .. }), "{error}");
    assert!(
        error.to_string().contains("no link to node 1 of the group") && error.to_string().contains("help: "),
        "{error}"
    );
    let nodes = target
        .join(Group::new(5).node(1, &missing).unwrap().on_demand())
        .unwrap();
    assert_eq!(
        (nodes.number(), nodes.others(), nodes.linked()),
        (5, vec![1], vec![])
    );
    assert!(nodes.add(5, "shm:a").is_err());
    let known: BTreeMap<_, _> = [(1, ()), (9, ())].into();
    nodes.add(9, &unique("loopback")).unwrap();
    assert_eq!(nodes.others(), known.into_keys().collect::<Vec<_>>());
    assert_eq!(target.nodes().unwrap().number(), 5);
}

/// Three processes that a launcher started, which one authority certifies, by their addresses in a directory.
#[cfg(feature = "tls")]
#[test]
fn a_mesh_over_tls_is_one_call_of_each_node() {
    use crate::group::Group;
    use crate::keys::{SecretKey, TlsKeys};
    use crate::rendezvous::Rendezvous;
    use crate::transport::authority::{Authority, Says};
    use crate::{Policy, Target};

    let authority = Authority::new("mesh", 40);
    let trusted = authority.trusted();
    let folder = std::env::temp_dir().join(format!("ifunc-mesh-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let meeting = Rendezvous::in_directory(&folder, "mesh").unwrap();
    let joined = std::sync::Barrier::new(3);
    std::thread::scope(|scope| {
        for number in 0..3u32 {
            let (meeting, joined, trusted) = (&meeting, &joined, trusted.clone());
            let key = SecretKey::from_seed([50 + number as u8; 32], "node");
            let certificate = authority.certificate(&key, &Says::names(&["127.0.0.1", "node.example"]));
            let keys = TlsKeys::new(key)
                .certificate(certificate)
                .unwrap()
                .authority(trusted.clone());
            scope.spawn(move || {
                let policy = Policy::new()
                    .connect_certificate(trusted, ["node.example"])
                    .unwrap();
                let builder = Target::builder().policy(policy).tls(keys);
                let mut target = builder.listen("tls://127.0.0.1:0").unwrap();
                let nodes = target.join(Group::meeting(meeting, number, 3)).unwrap();
                assert_eq!((nodes.number(), nodes.others().len()), (number, 2));
                let over = target.transports();
                assert!(over.iter().all(|(_, over)| over.starts_with("tls ")), "{over:?}");
                joined.wait();
            });
        }
    });
    std::fs::remove_dir_all(folder).unwrap();
}
