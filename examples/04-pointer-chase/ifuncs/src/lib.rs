//! The ifuncs: the chaser, and two by which the source introduces the servers to each other for the ways that it is compared
//! with. The servers link none of them.

#![no_std]

use ifunc::Onward;
use ifunc::prelude::*;

/// A server's part of the table, whose memory only the server can access.
#[derive(Opaque)]
#[opaque("part/1")]
pub struct Part(ifunc::Foreign);

#[ifunc::import]
unsafe extern "C" {
    /// What follows `at`, if this server has that entry.
    safe fn lookup(part: &Part, at: u64) -> Option<u64>;
    /// The server that has an entry.
    safe fn owner(part: &Part, at: u64) -> u32;
    /// Nanoseconds of processors that this server has used.
    safe fn used(part: &Part) -> u64;
    /// Writes how UCX reaches this server, and returns the length; 0 without UCX.
    safe fn describe(part: &Part, into: &mut [u8]) -> u64;
    /// Connects this server by UCX to those that these bytes describe.
    safe fn connect(part: &Part, servers: &[u8]) -> Result<(), i32>;
}

/// The payload of [`follow()`].
#[ifunc::layout]
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// The entry that it has come to.
    pub at: u64,
    /// Steps that are left.
    pub left: u64,
}

/// Follows the entries of this server, and goes on to the server that has the next one. The server at which it ends answers
/// the source. The servers need not know this code: it travels with the first chase, from server to server, too.
#[ifunc]
pub fn follow(mut walk: Walk, part: &Part, ctx: &mut Context) -> Onward<u64> {
    while walk.left > 0 {
        let Some(next) = lookup(part, walk.at) else {
            let owner = owner(part, walk.at);
            return match ctx.forward::<follow>(owner, &walk) {
                Ok(()) => Onward::Forwarded,
                Err(why) => panic!("cannot go on to server {owner}: {why}"),
            };
        };
        walk.at = next;
        walk.left -= 1;
    }
    Onward::Answer(walk.at)
}

/// Answers how much this server has worked: nanoseconds of processors.
#[ifunc(idempotent)]
pub fn worked(_: (), part: &Part) -> u64 {
    used(part)
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
