//! Groups of eight: invocations that go around a ring, over a star, and along random ways.

use std::time::{Duration, Instant};

use ifunc_rt::{Call, Handle, Source, SourceOptions};
use ifunc_tests_ifuncs::travel::{LONGEST, Tour, t_tour};

use super::common::{TIMEOUT, connect, unique};
use super::{Processes, accepting, start, stop, sum};

/// A ring, a star, and a random graph.
fn graphs() -> [Vec<u32>; 3] {
    let ring = (1..8).chain(0..8).collect();
    let star = (1..8).flat_map(|node| [node, 0]).collect();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let random = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 60) as u32 % 8
    });
    [ring, star, random.take(LONGEST).collect()]
}

#[test]
fn rings_stars_and_random_graphs() {
    let nodes = start(8, accepting);
    let sources: Vec<Source> = nodes.iter().map(|node| connect(&node.address)).collect();
    let mut expected = 0;
    for (first, source) in (0..).zip(&sources) {
        let tour = source.register::<t_tour>().unwrap();
        for route in graphs() {
            let calls: Vec<_> = (0..20).map(|_| tour.call(&Tour::new(&route)).unwrap()).collect();
            for call in calls {
                assert_eq!(call.wait().unwrap(), sum(first, &route));
            }
            expected += 20 * (route.len() as u64 + 1);
        }
    }
    assert_eq!(stop(nodes).iter().sum::<u64>(), expected);
}

/// Calls along each graph.
fn everywhere(tour: &Handle<t_tour>, calls: usize) -> Vec<(Vec<u32>, Call<u64>)> {
    let mut all = Vec::new();
    for _ in 0..calls {
        all.extend(graphs().map(|route| {
            let call = tour.call(&Tour::new(&route)).unwrap();
            (route, call)
        }));
    }
    all
}

/// Two of eight processes start when the others serve already, one of the eight is killed while calls are under way, and
/// starts again.
#[test]
fn nodes_start_later_are_killed_and_start_again() {
    const KILLED: u32 = 5;
    let Some(address) = unique() else { return };
    let mut nodes = Processes::new(address);
    nodes.start(0..6, 6);
    let timeout = Duration::from_secs(10);
    let options = SourceOptions::default().timeout(timeout);
    let source = Source::connect_with(nodes.address(0), options).unwrap();
    let tour = source.register::<t_tour>().unwrap();
    let early = [1, 2, 3, 4, 5, 0];
    assert_eq!(
        tour.call(&Tour::new(&early)).unwrap().wait().unwrap(),
        sum(0, &early)
    );

    // They get the code from the node that forwards to them. The others count them once their first frame has arrived.
    nodes.start(6..8, 8);
    all_is_well(&tour);

    // Some have ended, and others are under way.
    let mut calls = everywhere(&tour, 100).into_iter();
    for (route, call) in calls.by_ref().take(30) {
        assert_eq!(call.wait().unwrap(), sum(0, &route));
    }
    let killed = Instant::now();
    nodes.kill(KILLED);
    let mut failed = 0;
    for (route, call) in calls {
        match call.wait() {
            Ok(answer) => assert_eq!(answer, sum(0, &route)),
            Err(error) => {
                failed += 1;
                let text = error.to_string();
                let is_named =
                    text.contains("node 5") || text.contains("no answer came") && text.contains(": 5");
                assert!(is_named, "{text}");
            }
        }
        assert!(killed.elapsed() < timeout + TIMEOUT, "{failed} failed");
    }
    println!("{failed} of 270 calls failed");
    // The others go on.
    let rest = [1, 2, 3, 4, 6, 7, 6, 4, 0];
    assert_eq!(
        tour.call(&Tour::new(&rest)).unwrap().wait().unwrap(),
        sum(0, &rest)
    );
    let gone = tour
        .call(&Tour::new(&[3, KILLED, 1]))
        .unwrap()
        .wait()
        .unwrap_err()
        .to_string();
    assert!(gone.contains("node 5"), "{gone}");

    nodes.start(KILLED..KILLED + 1, 8);
    all_is_well(&tour);
}

/// Every graph is passed, at last: nodes learn of new ones at different times.
fn all_is_well(tour: &Handle<t_tour>) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let ended: Vec<_> = everywhere(tour, 3)
            .into_iter()
            .map(|(route, call)| call.wait().map(|answer| assert_eq!(answer, sum(0, &route))))
            .collect();
        match ended.into_iter().find_map(Result::err) {
            None => return,
            Some(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}
