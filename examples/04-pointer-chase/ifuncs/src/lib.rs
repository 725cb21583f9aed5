//! The ifuncs: the chaser, and two by which the source introduces the servers to each other for the ways that it is compared
//! with. The servers link none of them.

#![no_std]

use ifunc::prelude::*;

/// A server's part of the table, whose memory only the server can access.
#[derive(Opaque)]
#[opaque("part/1")]
pub struct Part(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// Writes how UCX reaches this server, and returns the length; 0 without UCX.
    safe fn describe(part: &Part, into: &mut [u8]) -> u64;
    /// Connects this server by UCX to those that these bytes describe.
    safe fn connect(part: &Part, servers: &[u8]) -> Result<(), i32>;
}

/// Answers how UCX reaches this server.
#[ifunc(idempotent)]
pub fn address(_: (), part: &Part, ctx: &mut Context) {
    ctx.answer_with(|space| describe(part, space) as usize);
}

/// Connects this server to the others and to the source; answers 0, or an error number.
#[ifunc]
pub fn meet(servers: &[u8], part: &Part) -> i32 {
    connect(part, servers).err().unwrap_or_default()
}
