//! PageRank. Each step is two phases: all servers scatter the ranks of their vertices to the neighbours, and when all shares
//! have arrived, each server makes new ranks of them.
//!
//! Ranks are integers, parts of [`ONE`]. Sums of integers do not depend on the order in which messages arrive, so the result
//! is that of a sequential computation, bit by bit.

use core::mem::take;

use alloc::vec;
use alloc::vec::Vec;

use ifunc::prelude::*;

use crate::{Graph, send, send_batches};

/// The column of the ranks.
pub const RANKS: u32 = 1;
/// The column of what has arrived for the next ranks.
pub const SUMS: u32 = 2;
/// The sum of all ranks.
pub const ONE: u64 = 1 << 62;

/// The part of a rank that follows edges: 0.85 of it.
#[must_use]
pub fn damped(rank: u64) -> u64 {
    rank / 20 * 17
}

/// The rank of a vertex to which no edge leads.
#[must_use]
pub fn base(vertices: u32) -> u64 {
    (ONE - damped(ONE)) / u64::from(vertices)
}

/// What a vertex receives from its neighbours in a step.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The vertex.
    pub vertex: u64,
    /// A part of [`ONE`].
    pub amount: u64,
}

/// Divides the rank of each vertex among its neighbours, on all servers: the one that the source invokes sends itself to the others. A
/// vertex without neighbours keeps its rank.
#[ifunc]
pub fn share_ranks(_: (), graph: &mut dyn Graph, ctx: &mut Context) {
    let part = graph.part();
    if ctx.hops() == 0 {
        for server in (0..part.servers).filter(|&server| server != part.server) {
            send::<share_ranks>(server, &(), ctx);
        }
    }
    let mut shares = shares(graph);
    add_shares(&take(&mut shares[part.server as usize]), graph);
    send_batches::<add_shares, _>(&shares, ctx);
}

/// What the vertices of each server receive from those of this one. The shares of several neighbours for one vertex are added up.
fn shares(graph: &mut dyn Graph) -> Vec<Vec<Share>> {
    let part = graph.part();
    let mut sums = vec![0; part.vertices as usize];
    for vertex in part.range() {
        let rank = graph.column(RANKS)[part.index(vertex)];
        match graph.neighbours(vertex) {
            [] => sums[vertex as usize] += rank,
            neighbours => {
                let share = rank / neighbours.len() as u64;
                for &neighbour in neighbours {
                    sums[neighbour as usize] += share;
                }
            }
        }
    }
    let share = |vertex: u32| Share {
        vertex: vertex.into(),
        amount: sums[vertex as usize],
    };
    let batch = |server| part.range_of(server).map(share).filter(|share| share.amount > 0);
    (0..part.servers).map(|server| batch(server).collect()).collect()
}

/// Adds shares to the sums of vertices of this server.
#[ifunc]
pub fn add_shares(shares: &[Share], graph: &mut dyn Graph) {
    let part = graph.part();
    let sums = graph.column(SUMS);
    for share in shares {
        sums[part.index(share.vertex as u32)] += share.amount;
    }
}

/// Makes ranks of the sums of this server.
#[ifunc]
pub fn update_ranks(_: (), graph: &mut dyn Graph) {
    let base = base(graph.part().vertices);
    for at in 0..graph.column(SUMS).len() {
        let sum = take(&mut graph.column(SUMS)[at]);
        graph.column(RANKS)[at] = base + damped(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ring, star};

    #[test]
    fn shares_for_one_vertex_travel_as_one() {
        let [mut centre, mut leaves] = star(6, 2);
        centre.column(RANKS).fill(30);
        leaves.column(RANKS).fill(30);
        // Vertex 0 is on the first server, with vertices 1 and 2.
        let share = |vertex, amount| Share { vertex, amount };
        assert_eq!(shares(&mut centre)[1], [share(3, 6), share(4, 6), share(5, 6)]);
        assert_eq!(shares(&mut leaves)[0], [share(0, 90)]);
        assert_eq!(shares(&mut leaves)[1], []);
    }

    #[test]
    fn a_ring_stays_as_it_is() {
        let mut graph = ring(4, 1).remove(0);
        graph.column(RANKS).fill(ONE / 4);
        share_ranks((), &mut graph, &mut Context::detached());
        update_ranks((), &mut graph);
        for &rank in graph.column(RANKS).iter() {
            assert!(rank.abs_diff(ONE / 4) < 100, "{rank}");
        }
        assert_eq!(graph.column(SUMS), [0; 4]);
    }
}
