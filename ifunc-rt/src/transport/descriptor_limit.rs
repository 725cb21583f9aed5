//! The limit on descriptors. Each connection takes some, and the limit that processes begin with (the *soft* limit, often
//! 1024) is for programs that use `select`. Any process may raise it up to the *hard* limit.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many descriptors making a connection may take.
const RESERVE: u64 = 16;

/// Raises the soft limit to the hard one when `last`, the descriptor that was made last, comes near to it: the kernel gives the
/// lowest number that is free.
pub(super) fn raise_limit_near(last: BorrowedFd<'_>) {
    let number = u64::try_from(last.as_raw_fd()).unwrap_or_default();
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let near = current.is_some_and(|now| number + RESERVE >= now && maximum.is_none_or(|most| now < most));
    if !near {
        return;
    }
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => tracing::info!(
            from = current,
            to = maximum,
            "the soft limit on descriptors is raised"
        ),
        Err(error) => {
            tracing::warn!(%error, limit = current, "the limit on descriptors is near, and cannot be raised")
        }
    }
}
