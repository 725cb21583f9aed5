//! placeholder: the runtime's front page.
mod transports;
