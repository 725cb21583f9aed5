//! Programs of nodes, which invoke over the links of their nodes.

use std::time::Instant;

use ifunc_rt::{Scope, Source};
use ifunc_tests_ifuncs::travel::{
    Count, Spread, Tour, t_answers_twice, t_count_on, t_count_up, t_spread, t_tour, t_tour_panics,
};

use super::common::TIMEOUT;
use super::{Node, accepting, start, stop, sum};

/// The source of node `from`'s program that sends over the node's link to node `to`.
fn source(nodes: &[Node], from: usize, to: u32) -> Source {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(source) = nodes[from].nodes.source(to) {
            return source;
        }
        assert!(Instant::now() < deadline, "node {from} has no link to node {to}");
        std::thread::yield_now();
    }
}

/// Over both ends of a link, and over the smallest one.
#[test]
fn the_program_of_a_node_is_answered() {
    for is_smallest in [false, true] {
        let nodes = start(3, || {
            if is_smallest {
                accepting().credits(2).ring(1 << 16)
            } else {
                accepting()
            }
        });
        for (from, to) in [(0, 1), (1, 0)] {
            invoke(&source(&nodes, from, to), from as u32, to);
        }
        stop(nodes);
    }
}

/// Invokes node `to` from the program of node `from`.
fn invoke(source: &Source, from: u32, to: u32) {
    let tour = source.register::<t_tour>().unwrap();
    // Answered at once, from elsewhere, by the program's own node, and after a way over the same link in both directions.
    let routes: [&[u32]; 4] = [&[], &[2], &[from], &[from, to, 2, to, from, 2]];
    for route in routes {
        let calls: Vec<_> = (0..30).map(|_| tour.call(&Tour::new(route)).unwrap()).collect();
        for call in calls {
            assert_eq!(call.wait().unwrap(), sum(to, route), "{route:?}");
        }
    }
    let panics = source.register::<t_tour_panics>().unwrap();
    for (route, node) in [(&[][..], to), (&[from, 2][..], 2)] {
        let panicked = panics.call(&Tour::new(route)).unwrap().wait();
        let panicked = panicked.unwrap_err().to_string();
        assert!(panicked.contains(&format!("lost on node {node}")), "{panicked}");
    }
    let twice = source.register::<t_answers_twice>().unwrap();
    let answered = twice.call(&2).unwrap().wait().unwrap_err();
    assert!(answered.to_string().contains("answered it, too"), "{answered}");

    // In parts, and more of them than may be sent ahead.
    let few = source.register::<t_count_up>().unwrap();
    let parts: Vec<u64> = few.call_stream(&50).unwrap().map(Result::unwrap).collect();
    assert_eq!(parts, (0..=50).collect::<Vec<_>>());
    let many = source.register::<t_count_on>().unwrap();
    let count = Count { from: 0, to: 300 };
    let parts: Vec<u64> = many.call_stream(&count).unwrap().map(Result::unwrap).collect();
    assert_eq!(parts, (0..300).collect::<Vec<_>>());
    // One that is not taken to its end.
    let first: Vec<_> = many
        .call_stream(&count)
        .unwrap()
        .take(3)
        .map(Result::unwrap)
        .collect();
    assert_eq!(first, [0, 1, 2]);

    // In scopes.
    let spread = source.register::<t_spread>().unwrap();
    for (depth, fan, all) in [(0, 0, 1), (3, 3, 40)] {
        let spread_out = |scope: &Scope<'_>| scope.send(&spread, &Spread { depth, fan });
        let finished = source.finish(spread_out).unwrap();
        assert_eq!((finished.executed, finished.failed), (all, 0), "{finished:?}");
    }
    let finished = source
        .finish(|scope| scope.send(&panics, &Tour::new(&[from])))
        .unwrap();
    assert_eq!((finished.executed, finished.failed), (1, 1), "{finished:?}");
}
