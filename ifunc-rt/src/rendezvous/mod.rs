//! Rendezvous: how the processes of a job find each other's addresses. A process that a launcher starts (`mpirun`,
//! `srun`, a loop over `ssh`) knows its rank, and not where the others listen.
//!
//! ```no_run
//! use std::time::Duration;
//! use ifunc_rt::rendezvous::{Launched, Rendezvous};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let me = Launched::from_env()?;
//! let meeting = Rendezvous::from_env(&me.job)?;
//! // SAFETY: the processes of this job, which are trusted with this one's memory.
//! let policy = unsafe { ifunc_rt::Policy::trust_every_peer() };
//! let target = ifunc_rt::Target::builder().policy(policy).listen("ucx://10.0.0.7:0")?;
//! let published = meeting.publish(me.rank, &target.address())?;
//! let serving = target.spawn(0u64)?;
//! for rank in 0..me.size {
//!     let source = ifunc_rt::Source::connect(&meeting.find(rank, Duration::from_secs(60))?)?;
//!     // …
//! }
//! # Ok(()) }
//! ```
//!
//! The environment selects a directory or a list of addresses:
//!
//! | variable | what it holds |
//! |---|---|
//! | `IFUNC_RENDEZVOUS` | a directory that all processes see, such as a home directory on NFS |
//! | `IFUNC_HOSTS` | the addresses themselves, by rank: `10.0.0.7:4711,10.0.0.8:4711` |
//! | `IFUNC_HOSTFILE` | a file with an address a line; empty lines and what follows a `#` are no addresses |
//!
//! An address of a list is one that [`Source::connect`](crate::Source::connect) takes, or `HOST:PORT`, which stands
//! for `ucx://HOST:PORT` (with `IFUNC_TRANSPORT=ucx-put`, for `ucx-put://HOST:PORT`). With a list no process writes
//! anything; each target listens at its own address.
//!
//! **The directory** has a folder for each job. In it each target publishes its address as a file named after its
//! rank. A rename makes the file appear, so it is complete or absent. There are no locks: a process that does not
//! find a file polls for it until a deadline. NFS has to provide no more than that. Each poll opens the folder anew,
//! so that an NFS client checks its cache of absent names with the server. A process that publishes removes its file
//! when it leaves, and the last one removes the folder.
//!
//! **Addresses of an earlier job** are never used. The launcher makes the name of a job different each time
//! ([`Launched::job`]), and a file holds the name of the job that wrote it. If a name is used again all the same (a
//! name set by hand in `IFUNC_JOB`), the reader recognises a file of a killed process of its own host and ignores it.
//! It cannot recognise a stale file of another host: give each run a name of its own.
//!
//! **Trust.** A process that can write into the folder decides where the others send their payloads. The folder is
//! created for the user alone, and a folder that other users may write to is rejected.

mod directory;
mod entry;
mod launched;
mod list;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use directory::Published;
pub use launched::Launched;

use crate::transport::address::{Address, AddressError};
use directory::Directory;

/// The place where the processes of a job find each other's targets.
#[derive(Clone, Debug)]
pub struct Rendezvous(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Directory(Directory),
    /// Addresses by rank.
    List(Vec<Address>),
}

/// Why processes do not find each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// No supported launcher started this process.
    #[error(
        "{missing} is not set: no launcher that is known started this process; help: start it with `mpirun` or `srun`, or set IFUNC_RANK, IFUNC_SIZE and IFUNC_JOB"
    )]
    NotLaunched {
        /// The missing `IFUNC_` variable that would suffice.
        missing: &'static str,
    },
    /// A variable holds no number.
    #[error(
        "{name}={value} is not a number; help: the launcher sets it; unset it where no launcher starts the process"
    )]
    Number {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The rank is not below the number of processes.
    #[error("rank {rank} is not one of {size} processes, whose ranks begin at 0")]
    Rank {
        /// The rank.
        rank: u32,
        /// Number of processes.
        size: u32,
    },
    /// The environment names neither a directory nor addresses.
    #[error(
        "the processes have nowhere to exchange their addresses; help: set IFUNC_RENDEZVOUS to a directory that all processes see, or IFUNC_HOSTS to their addresses (`host:port,host:port`), or IFUNC_HOSTFILE to a file of them"
    )]
    NoPlace,
    /// The name of the job is invalid.
    #[error("{0:?} is not the name of a job: 1 to 256 bytes without line ends and other control characters")]
    Job(String),
    /// An address does not parse.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The list has no address for this rank.
    #[error(
        "there are addresses for {listed} ranks, and none for rank {rank}; help: list one address for each process"
    )]
    NotListed {
        /// The rank.
        rank: u32,
        /// Number of addresses in the list.
        listed: usize,
    },
    /// An address that other processes cannot reach, or that means another target to them.
    #[error("`{address}` of rank {rank} {problem}")]
    Unreachable {
        /// The rank whose address it is.
        rank: u32,
        /// The address.
        address: String,
        /// Why no process reaches it, and what to do.
        problem: &'static str,
    },
    /// The rank has published no address before the deadline.
    #[error(
        "rank {rank} has published no address within {} s in `{}`; help: was it started, and does it see this directory?{}",
        waited.as_secs(), folder.display(), remark.map(|remark| format!(" {remark}")).unwrap_or_default()
    )]
    Missing {
        /// The missing rank.
        rank: u32,
        /// Time spent waiting.
        waited: Duration,
        /// The folder searched for its file.
        folder: PathBuf,
        /// What the folder held instead.
        remark: Option<&'static str>,
    },
    /// The directory cannot be trusted.
    #[error("the processes cannot exchange their addresses in `{}`: {problem}", path.display())]
    Directory {
        /// The folder of the job.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: &'static str,
    },
    /// The system refused something.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl RendezvousError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}

impl Rendezvous {
    /// Reads the environment (see the [module](self)): a list if there is one, otherwise the directory, for this job.
    ///
    /// # Errors
    /// The environment names no place, or a list with an invalid address.
    pub fn from_env(job: &str) -> Result<Self, RendezvousError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let scheme = list::scheme(std::env::var("IFUNC_TRANSPORT").ok().as_deref());
        if let Some(hosts) = set("IFUNC_HOSTS") {
            return Ok(Self(Kind::List(list::parse(&hosts.to_string_lossy(), scheme)?)));
        }
        if let Some(file) = set("IFUNC_HOSTFILE") {
            let path = Path::new(&file);
            let text = std::fs::read_to_string(path).map_err(RendezvousError::io("read", path))?;
            return Ok(Self(Kind::List(list::parse(&text, scheme)?)));
        }
        match set("IFUNC_RENDEZVOUS") {
            Some(directory) => Self::in_directory(directory, job),
            None => Err(RendezvousError::NoPlace),
        }
    }

    /// Uses a directory that all processes of the job see.
    ///
    /// # Errors
    /// The name of the job is invalid.
    pub fn in_directory(directory: impl Into<PathBuf>, job: &str) -> Result<Self, RendezvousError> {
        Ok(Self(Kind::Directory(Directory::new(directory.into(), job)?)))
    }

    /// Uses a list of addresses, one for each rank.
    ///
    /// # Errors
    /// One of them is no address.
    pub fn of_addresses<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Self, RendezvousError> {
        let parse = |address: A| list::address(address.as_ref(), list::scheme(None));
        Ok(Self(Kind::List(
            addresses.into_iter().map(parse).collect::<Result<_, _>>()?,
        )))
    }

    /// The address at which the target of this rank has to listen, if a list defines it.
    #[must_use]
    pub fn listed(&self, rank: u32) -> Option<String> {
        match &self.0 {
            Kind::List(addresses) => addresses.get(rank as usize).map(ToString::to_string),
            Kind::Directory(_) => None,
        }
    }

    /// Publishes the address of this rank's target: [`Target::address`](crate::Target::address). Other processes find
    /// it as long as the returned value lives. It replaces what an earlier process of this rank published. With a
    /// list it does nothing.
    ///
    /// # Errors
    /// The address cannot be reached (`0.0.0.0`, port 0); the directory cannot be written to, or other users may
    /// write to it.
    pub fn publish(&self, rank: u32, address: &str) -> Result<Published, RendezvousError> {
        let parsed: Address = address.parse()?;
        if let Some(problem) = parsed.nowhere() {
            return Err(RendezvousError::Unreachable {
                rank,
                address: address.into(),
                problem,
            });
        }
        match &self.0 {
            Kind::Directory(directory) => directory.publish(rank, address),
            Kind::List(_) => Ok(Published(None)),
        }
    }

    /// The address of this rank's target; waits until the target has published it.
    ///
    /// # Errors
    /// The target has not published it before the deadline; the address is reached on its own host only, which is
    /// another one; the directory cannot be read.
    pub fn find(&self, rank: u32, timeout: Duration) -> Result<String, RendezvousError> {
        match &self.0 {
            Kind::Directory(directory) => directory.find(rank, Instant::now(), timeout),
            Kind::List(addresses) => self.listed(rank).ok_or(RendezvousError::NotListed {
                rank,
                listed: addresses.len(),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
