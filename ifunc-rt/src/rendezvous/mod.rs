//! How the processes of a job find each other: what a launcher (`mpirun`, `srun`, a loop over `ssh`) starts knows its rank
//! and nothing of where the others listen.
//!
//! ```no_run
//! use std::time::Duration;
//! use ifunc_rt::rendezvous::{Launched, Rendezvous};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let me = Launched::from_env()?;
//! let meeting = Rendezvous::from_env(&me.job)?;
//! // SAFETY: the processes of this job, which are trusted with this one's memory.
//! let target = unsafe { ifunc_rt::Target::builder().accept_code() }.listen("ucx://10.0.0.7:0")?;
//! let published = meeting.publish(me.rank, &target.address())?;
//! let serving = target.spawn(0u64)?;
//! for rank in 0..me.size {
//!     let source = ifunc_rt::Source::connect(&meeting.find(rank, Duration::from_secs(60))?)?;
//!     // …
//! }
//! # Ok(()) }
//! ```
//!
//! There are two ways, and the environment chooses:
//!
//! | variable | what it holds |
//! |---|---|
//! | `IFUNC_RENDEZVOUS` | a directory that all processes see, such as a home directory on NFS |
//! | `IFUNC_HOSTS` | the addresses themselves, by rank: `10.0.0.7:4711,10.0.0.8:4711` |
//! | `IFUNC_HOSTFILE` | a file with an address a line; empty lines and what follows a `#` are no addresses |
//!
//! An address of a list is one that [`Source::connect`](crate::Source::connect) takes, or `HOST:PORT`, which stands for
//! `ucx://HOST:PORT` (with `IFUNC_TRANSPORT=ucx-put`, for `ucx-put://HOST:PORT`). Nothing is written then; each target listens at its own.
//!
//! **The directory** has a folder for each job, in which each target's address is a file named as its rank. A file appears
//! by a rename, complete or not at all; there are no locks, and who looks for a file that is not there yet
//! looks again until a deadline. That is all that NFS is asked for, and the folder is opened anew for each look, so that what
//! an NFS client remembers of names that were not there is checked with the server. Whoever publishes removes its file
//! when it leaves, and whoever is the last removes the folder.
//!
//! **An earlier job's addresses** are never taken: a job is known by what its launcher makes different each time
//! ([`Launched::job`]), and a file says in which job it was written. Where the same name is used again all the same (a name
//! given by hand in `IFUNC_JOB`), what a killed process of this host left behind is known by that process, and passed over; what one
//! of another host left cannot be told from what is about to be replaced: give each run a name of its own.
//!
//! **Whom it trusts.** Who writes into the folder says where the others send their payloads. It is made for the
//! user alone, and one that others may write to is refused.

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

/// Where the targets of a job are found.
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
    /// No launcher that is known started this process.
    #[error(
        "{missing} is not set: no launcher that is known started this process; help: start it with `mpirun` or `srun`, or set IFUNC_RANK, IFUNC_SIZE and IFUNC_JOB"
    )]
    NotLaunched {
        /// The variable of ours that would do.
        missing: &'static str,
    },
    /// A variable holds no number.
    #[error("{name}={value} is no number")]
    Number {
        /// The variable.
        name: &'static str,
        /// What it holds.
        value: String,
    },
    /// A rank that is not below the number of processes.
    #[error("rank {rank} of {size} processes")]
    Rank {
        /// The rank.
        rank: u32,
        /// How many processes there are.
        size: u32,
    },
    /// The environment names neither a directory nor addresses.
    #[error(
        "no place to meet; help: set IFUNC_RENDEZVOUS to a directory that all processes see, or IFUNC_HOSTS to their addresses (`host:port,host:port`), or IFUNC_HOSTFILE to a file of them"
    )]
    NoPlace,
    /// A name of a job that cannot be one.
    #[error("{0:?} is no name of a job: 1 to 256 bytes without line ends and other control characters")]
    Job(String),
    /// An address that does not parse.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A list has no address for this rank.
    #[error("there are addresses for {listed} ranks, and none for rank {rank}")]
    NotListed {
        /// The rank.
        rank: u32,
        /// How many the list has.
        listed: usize,
    },
    /// An address that means something else, or nothing, where it would be read.
    #[error("`{address}` of rank {rank} {problem}")]
    Unreachable {
        /// Whose it is.
        rank: u32,
        /// The address.
        address: String,
        /// Why nobody reaches it, and what to do.
        problem: &'static str,
    },
    /// Nobody has published an address in time.
    #[error(
        "rank {rank} has not said in {} s where it listens, in `{}`; help: was it started, and does it see this directory?{}",
        waited.as_secs(), folder.display(), remark.map(|remark| format!(" {remark}")).unwrap_or_default()
    )]
    Missing {
        /// Who is missing.
        rank: u32,
        /// How long it was waited for.
        waited: Duration,
        /// Where its file was looked for.
        folder: PathBuf,
        /// What was found instead.
        remark: Option<&'static str>,
    },
    /// The directory cannot be trusted.
    #[error("`{}` is no place to meet: {problem}", path.display())]
    Directory {
        /// The folder of the job.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: &'static str,
    },
    /// The system refused something.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
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
    /// What the environment says (see the [module](self)): a list if there is one, else the directory, for this job.
    ///
    /// # Errors
    /// It says nothing, or something that is no list of addresses.
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

    /// In a directory that all processes of the job see.
    ///
    /// # Errors
    /// The name of the job cannot be one.
    pub fn in_directory(directory: impl Into<PathBuf>, job: &str) -> Result<Self, RendezvousError> {
        Ok(Self(Kind::Directory(Directory::new(directory.into(), job)?)))
    }

    /// By a list of addresses, one for each rank.
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

    /// Where the target of this rank has to listen, if that is known beforehand: a list knows it.
    #[must_use]
    pub fn listed(&self, rank: u32) -> Option<String> {
        match &self.0 {
            Kind::List(addresses) => addresses.get(rank as usize).map(ToString::to_string),
            Kind::Directory(_) => None,
        }
    }

    /// Says where the target of this rank listens: [`Target::address`](crate::Target::address). It can be found as long as what
    /// is returned lives. What an earlier process of this rank published is replaced. With a list nothing is to be done.
    ///
    /// # Errors
    /// An address that nobody can reach (`0.0.0.0`, port 0); the directory cannot be written to, or by too many.
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
            Kind::List(_) => Ok(Published::nothing()),
        }
    }

    /// Where the target of this rank listens; waits until it has said so.
    ///
    /// # Errors
    /// It has not in time; what it said is reached on its own host only, which is not this one; the directory cannot be read.
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
