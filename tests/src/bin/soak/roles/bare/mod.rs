//! UCX without ifunc, doing the same: exchange the addresses of workers, send active messages of the same sizes, close; be killed. What UCX leaks, no layer
//! above it can give back, and our transport is measured by what it takes beyond that.

mod source;
mod target;
mod worker;

pub(super) use source::run as source;
pub(super) use target::run as target;
