//! Breadth-first search, without rounds: a server that learns of vertices goes on at once, and a level that turns out to be too
//! great is corrected later.

use core::mem::replace;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use ifunc::prelude::*;

use crate::{Graph, send_batches};

/// The column of the levels.
pub const LEVELS: u32 = 0;
/// The level of a vertex that was not reached.
pub const UNREACHED: u64 = u64::MAX;

/// A vertex that can be reached, and in how many steps.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The vertex.
    pub vertex: u32,
    /// Number of steps.
    pub level: u32,
}

/// Visits vertices of this server and all that can be reached from them on this server. What lies elsewhere goes to the servers
/// that have it, in one batch for each of them. A batch is ordered by levels.
#[ifunc]
pub fn visit(reached: &[Reached], graph: &mut dyn Graph, ctx: &mut Context) {
    send_batches::<visit, _>(&explore(reached, graph), ctx);
}

/// Visits vertices of this server. Returns the vertices of each other server that it reached.
fn explore(reached: &[Reached], graph: &mut dyn Graph) -> Vec<Vec<Reached>> {
    let part = graph.part();
    let mut elsewhere = vec![Vec::new(); part.servers as usize];
    let mut found = vec![false; part.vertices as usize];
    let mut reached = reached.iter().copied().peekable();
    let mut queue: VecDeque<Reached> = VecDeque::new();
    // The nearest first: of the paths from this batch to a vertex, the first one is a shortest one.
    while let Some(Reached { vertex, level }) = match (queue.front(), reached.peek()) {
        (Some(here), Some(there)) if there.level < here.level => reached.next(),
        (Some(_), _) => queue.pop_front(),
        (None, _) => reached.next(),
    } {
        let known = &mut graph.column(LEVELS)[part.index(vertex)];
        if *known <= level.into() {
            continue;
        }
        *known = level.into();
        for &vertex in graph.neighbours(vertex) {
            if replace(&mut found[vertex as usize], true) {
                continue;
            }
            let next = Reached {
                vertex,
                level: level + 1,
            };
            match part.owner(vertex) {
                here if here == part.server => queue.push_back(next),
                server => elsewhere[server as usize].push(next),
            }
        }
    }
    elsewhere
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Memory, ring};

    #[test]
    fn one_server_reaches_all_by_itself() {
        let mut graph = ring(6, 1).remove(0);
        graph.column(LEVELS).fill(UNREACHED);
        let root = Reached { vertex: 2, level: 0 };
        visit(&[root], &mut graph, &mut Context::detached());
        assert_eq!(graph.column(LEVELS), [2, 1, 0, 1, 2, 3]);
    }

    #[test]
    fn several_servers_correct_each_other() {
        let mut servers = ring(6, 3);
        for server in &mut servers {
            server.column(LEVELS).fill(UNREACHED);
        }
        // Server 1 learns of a long way first.
        let mut under_way = VecDeque::from([
            (1, vec![Reached { vertex: 3, level: 9 }]),
            (
                1,
                vec![Reached { vertex: 2, level: 0 }, Reached { vertex: 3, level: 7 }],
            ),
        ]);
        while let Some((to, batch)) = under_way.pop_front() {
            let batches = explore(&batch, &mut servers[to]);
            let sent = batches.into_iter().enumerate();
            under_way.extend(sent.filter(|(_, batch)| !batch.is_empty()));
        }
        let levels = |server: &mut Memory| server.column(LEVELS).to_vec();
        let all: Vec<_> = servers.iter_mut().flat_map(levels).collect();
        assert_eq!(all, [2, 1, 0, 1, 2, 3]);
    }
}
