//! What the examples with several servers share: how the servers start and find each other, the options of the command line,
//! and how many messages and bytes moved.
//!
//! `cargo ifunc run` starts one target and one source. The target is server 0. It starts the other servers: the same program
//! again, with the variables of [`ifunc_rt::rendezvous`] that a launcher would set. Each server publishes its address. Server
//! 0 reports that it is ready when all have, and the source finds them in the same place. With `--transport loopback`, the
//! servers are threads of one process.
//!
//! A launcher (`mpirun`, `srun`, a loop over `ssh`) may start the servers instead, one on each host. It sets `IFUNC_RANK`,
//! `IFUNC_SIZE`, `IFUNC_JOB` and `IFUNC_RENDEZVOUS`, and `IFUNC_HOST`, the address by which the others reach a host. Server 0
//! then starts none.

mod args;
mod moved;
mod start;

use std::error::Error;

pub use args::Args;
pub use moved::{Bytes, Moved, moved};
pub use start::{Server, addresses, run};

/// An error with its message.
pub type Failure = Box<dyn Error + Send + Sync>;
