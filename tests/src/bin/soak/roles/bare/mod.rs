//! UCX without us, doing the same: connect, send active messages of the same sizes, leave; be killed. What it leaks, nobody
//! above it can give back, and our transport is judged by what it takes beyond that.

mod source;
mod target;
mod worker;

pub(super) use source::run as source;
pub(super) use target::run as target;
