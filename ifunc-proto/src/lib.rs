//! One connection between two processes, for both roles, without I/O.
//!
//! Each side of a [`Connection`] may install images at its peer and invoke them, and each may answer: the side that sends
//! is the *source*, the side that runs is the *target*, and one process may be both over one link.
//! The connection sends and receives [frames](ifunc_abi::frame) over a [`Link`](link::Link) that its caller gives to each
//! method, and runs what it receives on a [`Host`](host::Host). It opens no socket, starts no thread, takes no lock and
//! reads no clock: the same calls on the same links produce the same result, so a simulator can drive it.
//!
//! | module | holds |
//! |---|---|
//! | [`connection`] | the connection: what both halves share, and their order on one link |
//! | [`caller`] | the calling half: handles, requests, fragments, batches, what is sent again |
//! | `server` | the serving half: bindings, reassembly, batches, statistics |
//! | `replies`, `long` | what the serving half owes its peer; answers that are larger than a frame |
//! | `order` | the reorder buffer, and the quantum of a poll |
//! | `assembly`, `partly` | bodies and answers from their fragments |
//! | [`calls`] | tokens, and how requests end |
//! | [`node`] | a node of a group: slots, outbox, scopes, lost nodes |
//! | [`link`], [`host`] | what a connection needs of a transport, and of the node that serves |

#![forbid(unsafe_code)]

#[macro_use]
mod failpoint;

mod assembly;
mod attention;
mod batch;
pub mod buffer;
pub mod caller;
pub mod calls;
mod closed;
mod completion;
pub mod connection;
mod footprint;
mod gathered;
pub mod host;
pub mod link;
mod long;
pub mod node;
mod order;
mod partly;
mod replies;
mod server;
#[cfg(test)]
mod testing;

pub use calls::Request;
pub use closed::Closed;
pub use connection::{Config, Connection, Peer};
#[cfg(feature = "failpoints")]
pub use failpoint::set_hook as set_failpoint_hook;
pub use footprint::Footprint;
pub use replies::{ANSWER_ROOM, DUPLEX_CALLS};
pub use server::ServerConfig;
