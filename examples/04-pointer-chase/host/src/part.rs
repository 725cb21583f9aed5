//! A server's part of the table, and the functions on it that ifuncs may call.

use std::sync::atomic::{AtomicU64, Ordering};

use ifunc::Opaque;
use rustix::time::{ClockId, clock_gettime};

use crate::peer::Peer;
use crate::permutation::{Cut, Permutation};
use crate::waiting::Spin;

/// A part of the table. Ifuncs refer to it by the name `part/1` and cannot access its contents.
#[derive(Debug, Opaque)]
#[opaque("part/1")]
pub struct Part {
    cut: Cut,
    rank: u32,
    entries: Entries,
    /// The same entries, for gets and active messages of UCX; none without UCX.
    peer: Option<Peer>,
}

/// Where the entries lie.
#[derive(Debug)]
enum Entries {
    Own(Vec<AtomicU64>),
    /// Memory that UCX registered, so that others can read it.
    Registered(std::sync::Arc<ucx::Memory>),
}

impl Part {
    /// The part of server `rank`, filled.
    ///
    /// # Errors
    /// UCX refuses the memory or its threads.
    pub fn new(
        permutation: Permutation,
        cut: Cut,
        rank: u32,
        spin: Spin,
    ) -> Result<Self, example_servers::Failure> {
        let range = cut.range(rank);
        let len = (range.end - range.start) as usize;
        let peer = Peer::start(cut, rank, len, spin)?;
        let entries = match &peer {
            Some(peer) => Entries::Registered(peer.memory()),
            None => Entries::Own((0..len).map(|_| AtomicU64::new(0)).collect()),
        };
        let part = Self {
            cut,
            rank,
            entries,
            peer,
        };
        for (entry, at) in part.entries().iter().zip(range) {
            entry.store(permutation.next(at), Ordering::Relaxed);
        }
        Ok(part)
    }

    fn entries(&self) -> &[AtomicU64] {
        match &self.entries {
            Entries::Own(entries) => entries,
            Entries::Registered(memory) => (**memory).as_ref(),
        }
    }
}

/// What follows `at`, if this server has that entry.
#[ifunc::export]
pub fn lookup(part: &Part, at: u64) -> Option<u64> {
    let (owner, place) = part.cut.place(at);
    let entry = part.entries().get(place).filter(|_| owner == part.rank);
    entry.map(|entry| entry.load(Ordering::Relaxed))
}

/// The server that has an entry.
#[ifunc::export]
pub fn owner(part: &Part, at: u64) -> u32 {
    part.cut.place(at).0
}

/// Nanoseconds of processors that this server has used, user's and kernel's.
#[ifunc::export]
pub fn used(_: &Part) -> u64 {
    process_time()
}

/// Nanoseconds of processors that this process has used.
#[must_use]
pub fn process_time() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Writes how UCX reaches this server, and returns the length; 0 without UCX.
#[ifunc::export]
pub fn describe(part: &Part, into: &mut [u8]) -> u64 {
    let description = part.peer.as_ref().map(Peer::description).unwrap_or_default();
    if let Some(into) = into.get_mut(..description.len()) {
        into.copy_from_slice(description);
    }
    description.len() as u64
}

/// Connects this server by UCX to those that these bytes describe.
///
/// # Errors
/// -1: this server has no UCX, or it does not connect.
#[ifunc::export]
pub fn connect(part: &Part, servers: &[u8]) -> Result<(), i32> {
    let peer = part.peer.as_ref().ok_or(-1)?;
    peer.connect(servers).map_err(|why| {
        eprintln!("error: server {} by UCX: {why}", part.rank);
        -1
    })
}
