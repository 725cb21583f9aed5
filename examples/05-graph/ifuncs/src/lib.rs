//! The ifuncs: a breadth-first search and PageRank that run where the graph is. The servers link none of them: they lend their
//! part of the graph by the interface [`Graph`], and memory for what an algorithm remembers of each vertex.

#![no_std]

extern crate alloc;

mod access;
mod bfs;
mod pagerank;
#[cfg(test)]
mod testing;

use core::ops::Range;

use alloc::vec::Vec;
use ifunc::prelude::*;

pub use access::{Array, Fill, Page, fetch_page, fill_column};
pub use bfs::{LEVELS, Reached, UNREACHED, visit};
pub use pagerank::{ONE, RANKS, SUMS, Share, add_shares, base, damped, share_ranks, update_ranks};

/// A server's part of a graph, in compressed sparse rows.
#[ifunc::interface]
pub trait Graph {
    /// Which part it is.
    fn part(&self) -> Part;
    /// Where in [`targets`](Self::targets) the neighbours of each vertex of this part begin, and where the last ones end.
    fn offsets(&self) -> &[u64];
    /// The neighbours of all vertices of this part, one vertex after the other.
    fn targets(&self) -> &[u32];
    /// A column: a word for each vertex of this part. There are [`COLUMNS`] of them.
    fn column(&mut self, number: u32) -> &mut [u64];
}

/// Number of columns of [`Graph::column`].
pub const COLUMNS: usize = 4;

impl dyn Graph + '_ {
    /// The neighbours of a vertex of this part.
    fn neighbours(&self, vertex: u32) -> &[u32] {
        let (offsets, at) = (self.offsets(), self.part().index(vertex));
        &self.targets()[offsets[at] as usize..offsets[at + 1] as usize]
    }
}

/// How a graph is cut over servers: each has consecutive vertices.
#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Vertices of the whole graph. Their numbers are 0, 1, 2, …
    pub vertices: u32,
    /// Vertices of each server; the last ones may have fewer.
    pub block: u32,
    /// Number of servers.
    pub servers: u32,
    /// The number of this server.
    pub server: u32,
}

impl Part {
    /// The part of one of the servers.
    #[must_use]
    pub fn new(vertices: u32, servers: u32, server: u32) -> Self {
        Self {
            vertices,
            block: vertices.div_ceil(servers).max(1),
            servers,
            server,
        }
    }

    /// The server that has a vertex.
    #[must_use]
    pub fn owner(self, vertex: u32) -> u32 {
        vertex / self.block
    }

    /// The place of a vertex in the part that has it.
    #[must_use]
    pub fn index(self, vertex: u32) -> usize {
        (vertex % self.block) as usize
    }

    /// The vertices of this part.
    #[must_use]
    pub fn range(self) -> Range<u32> {
        self.range_of(self.server)
    }

    /// The vertices of a server.
    #[must_use]
    pub fn range_of(self, server: u32) -> Range<u32> {
        let at = |server: u32| (u64::from(server) * u64::from(self.block)).min(self.vertices.into()) as u32;
        at(server)..at(server + 1)
    }
}

/// Most entries of a message.
const MAX_ENTRIES: usize = 1 << 16;

/// Sends each server the entries for it, in as few invocations of `F` as possible.
fn send_batches<F, T>(batches: &[Vec<T>], ctx: &mut Context)
where
    F: for<'a> Ifunc<Payload<'a> = [T]>,
{
    for (server, entries) in (0..).zip(batches) {
        for batch in entries.chunks(MAX_ENTRIES) {
            send::<F>(server, batch, ctx);
        }
    }
}

/// Starts an invocation on another server.
fn send<F: Ifunc>(server: u32, payload: &F::Payload<'_>, ctx: &mut Context) {
    if let Err(why) = ctx.send::<F>(server, payload) {
        panic!("cannot send to server {server}: {why}");
    }
}
