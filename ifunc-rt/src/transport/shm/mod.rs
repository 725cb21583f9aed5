//! Processes of one host, over rings in shared memory.
//!
//! The target listens on a Unix socket in the user's runtime directory ([`directory`], [`bound_name`]). It checks the user of
//! a source that connects, as the kernel reports it ([`listener`]), and sends it a segment of memory over the socket
//! ([`handshake`], [`segment`]), which holds a ring for each direction ([`ring`]). The socket stays: a byte on it wakes a
//! sleeper, and its end notifies one process that the other one died ([`connection`]). A side that closes the connection also
//! states so in the segment, where its peer reads it before each frame. Nothing of a connection is in the file system. A
//! target reads from one page which of its connections have work ([`ready`]).
//!
//! One background thread per process does what needs system calls ([`watch`](super::watch)). Sending, receiving and checking whether the
//! peer is gone need none, except to wake a peer that sleeps ([`barrier`]).
//!
//! A connection does not survive a `fork` without `exec` in the child: the rings are one producer's and one
//! consumer's. A child may connect anew. A parent that is killed while such a child lives is not noticed
//! until the child ends, because the child holds the socket.

mod barrier;
mod bound_name;
mod connection;
mod directory;
mod first_lap;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod handshake;
mod line_owner;
mod listener;
mod mapped;
mod mapping;
mod pace;
mod ready;
mod ring;
mod segment;
mod source;
mod wakeups;

/// Where frames go out.
pub(crate) type Outgoing = ring::Producer<mapped::Mapped>;
/// Where frames come in.
pub(crate) type Incoming = ring::Consumer<mapped::Mapped>;

pub(super) use listener::{Acceptor, listen};
pub(super) use source::{connect, connect_here};

#[cfg(all(test, not(loom)))]
mod tests;
