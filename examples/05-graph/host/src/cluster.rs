//! The source's side: runs both algorithms on all servers, and fetches graph and results.

use std::collections::VecDeque;

use example_05_graph_ifuncs::{
    Array, Fill, LEVELS, ONE, Page, Part, RANKS, Reached, SUMS, UNREACHED, fetch_page, fill_column,
    share_ranks, update_ranks, visit,
};
use example_servers::{Failure, Moved, moved};
use ifunc::Ifunc;
use ifunc_rt::{Finished, Handle, Source};

use crate::rows::Rows;

/// Connections to all servers, in the order of their numbers.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Source>,
    /// How the graph is cut.
    part: Part,
}

/// Calls under way while an array is fetched.
const MAX_CALLS: usize = 8;
/// Bytes of a page: the longest answer of a target that does not choose another limit.
const PAGE_BYTES: usize = 64 << 10;

impl Cluster {
    /// Connects to servers over which a graph of so many vertices is cut.
    ///
    /// # Errors
    /// One cannot be reached.
    pub fn connect(addresses: &[String], vertices: u32) -> Result<Self, Failure> {
        let servers = addresses.iter().map(|at| Source::connect(at));
        Ok(Self {
            part: Part::new(vertices, addresses.len() as u32, 0),
            servers: servers.collect::<Result<_, _>>()?,
        })
    }

    /// What the servers have received and answered so far.
    ///
    /// # Errors
    /// A server is gone.
    pub fn moved(&self) -> Result<Moved, Failure> {
        moved(&self.servers)
    }

    /// Sets the column [`LEVELS`] to the number of steps from `root`. Returns how many invocations it took.
    ///
    /// # Errors
    /// A server is gone, or an invocation failed.
    pub fn search(&self, root: u32) -> Result<u64, Failure> {
        self.fill(LEVELS, UNREACHED)?;
        let server = &self.servers[self.part.owner(root) as usize];
        let visit = server.register::<visit>()?;
        let root = Reached {
            vertex: root,
            level: 0,
        };
        // One scope for the whole search: the number of messages is not known in advance.
        succeeded(server.finish(|scope| scope.send(&visit, &[root]))?)
    }

    /// Sets the column [`RANKS`] to the ranks after some steps. Returns how many invocations without answers it took.
    ///
    /// # Errors
    /// A server is gone, or an invocation failed.
    pub fn rank(&self, steps: u64) -> Result<u64, Failure> {
        self.fill(RANKS, ONE / u64::from(self.part.vertices))?;
        self.fill(SUMS, 0)?;
        let first = &self.servers[0];
        let share = first.register::<share_ranks>()?;
        let updates = self.register::<update_ranks>()?;
        let mut invocations = 0;
        for _ in 0..steps {
            // All shares of this step have arrived when the scope ends.
            invocations += succeeded(first.finish(|scope| scope.send(&share, &()))?)?;
            call_all(&updates, &())?;
        }
        Ok(invocations)
    }

    /// Fetches the whole graph.
    ///
    /// # Errors
    /// A server is gone.
    pub fn graph(&self) -> Result<Rows, Failure> {
        let mut all = Rows::default();
        for (server, handle) in (0..).zip(self.register::<fetch_page>()?) {
            let vertices = self.part.range_of(server).len();
            let offsets = fetch_array(&handle, Array::Offsets, 8 * (vertices + 1))?;
            let offsets: Vec<u64> = words(&offsets).map(u64::from_le_bytes).collect();
            let edges = *offsets.last().ok_or("a server sent no offsets")? as usize;
            let targets = fetch_array(&handle, Array::Targets, 4 * edges)?;
            let targets = words(&targets).map(u32::from_le_bytes).collect();
            all.append(Rows { offsets, targets });
        }
        Ok(all)
    }

    /// Fetches a column of all vertices.
    ///
    /// # Errors
    /// A server is gone.
    pub fn column(&self, column: Array) -> Result<Vec<u64>, Failure> {
        let mut all = Vec::new();
        for (server, handle) in (0..).zip(self.register::<fetch_page>()?) {
            let bytes = fetch_array(&handle, column, 8 * self.part.range_of(server).len())?;
            all.extend(words(&bytes).map(u64::from_le_bytes));
        }
        Ok(all)
    }

    fn fill(&self, column: u32, value: u64) -> Result<(), Failure> {
        let column = column.into();
        call_all(&self.register::<fill_column>()?, &Fill { column, value })
    }

    fn register<F: Ifunc>(&self) -> Result<Vec<Handle<F>>, Failure> {
        let handles = self.servers.iter().map(Source::register::<F>);
        Ok(handles.collect::<Result<_, _>>()?)
    }
}

/// Calls an ifunc on all servers, which work at the same time.
fn call_all<F: Ifunc>(servers: &[Handle<F>], payload: &F::Payload<'_>) -> Result<(), Failure> {
    let calls: Vec<_> = servers
        .iter()
        .map(|server| server.call(payload))
        .collect::<Result<_, _>>()?;
    for call in calls {
        call.wait_bytes()?;
    }
    Ok(())
}

/// The invocations of a scope, none of which failed.
fn succeeded(finished: Finished) -> Result<u64, Failure> {
    match finished.failures.into_iter().next() {
        None => Ok(finished.executed),
        Some(why) => Err(why.into()),
    }
}

/// Fetches the bytes of an array of a server, page by page, with several calls under way.
fn fetch_array(server: &Handle<fetch_page>, array: Array, len: usize) -> Result<Vec<u8>, Failure> {
    let pages = (0..len as u64).step_by(PAGE_BYTES);
    let mut calls = pages.map(|from| server.call(&Page { array, from }));
    let mut under_way = calls
        .by_ref()
        .take(MAX_CALLS)
        .collect::<Result<VecDeque<_>, _>>()?;
    let mut bytes = Vec::with_capacity(len);
    while let Some(call) = under_way.pop_front() {
        bytes.extend_from_slice(&call.wait_bytes()?);
        under_way.extend(calls.next().transpose()?);
    }
    Ok(bytes)
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks().0.iter().copied()
}
