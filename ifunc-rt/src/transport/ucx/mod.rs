//! Processes of any hosts, over UCX's active messages; or by its puts, see [`put`].
//!
//! UCX is found when it is needed; nothing is linked. Each listener and each source's link has a context and a worker of
//! its own ([`engine`], with [`requests`]), used under one [`lock`]; the links that a node makes to other nodes are on its listener's ([`beside`]). UCX's callbacks only fill an event queue ([`events`]); what follows from
//! it is decided when UCX has returned ([`dispatch`], [`acceptor`], [`closing`]). A source learns the address of the target's worker over a
//! socket, before UCX takes a byte of either ([`exchange`]), and sends a hello, over UCX or that socket, which the target answers ([`handshake`]). A frame is an active message, sent from the buffer that
//! it was encoded in ([`packet`]), and one that has arrived is such a buffer, too ([`frame`]); UCX sends small ones eagerly and lets large ones be fetched ([`header`]). Short frames may share a message
//! ([`packed`]), as those that one poll of a target sends to a peer do ([`gather`]). What may be under way is
//! bounded by credits ([`credits`]), so that a peer cannot make this process take memory without limit. Messages may
//! overtake each other; frames are put in order before their credits are given back. Where frames are put, handshake and notices stay on
//! the socket of the exchange, and UCX carries no message.
//!
//! UCX makes progress in every poll for frames. A large body is fetched with its sender's help, and what a full
//! socket did not take is sent later, so a source that sends and then does nothing keeps the end of it to itself until its
//! next call; closing is one.
//!
//! A side that closes a connection says in its `FIN` how many frames it sent, and waits for a bounded time for the `FIN_ACK`. How soon a peer
//! that died or vanished is noticed, and which devices are used, is in [`settings`].
//!
//! The end of the process does not take UCX's state away from a thread that uses it ([`exit`]).
//!
//! **Where it was tested.** Over TCP and shared memory only. On RDMA hardware it was not.
//!
//! **Trust.** The socket of a target takes any bytes, and authenticates a source where the target has keys. UCX itself listens at a port
//! of its own choosing: every process that reaches that is trusted with the process's memory. Over TCP and shared memory UCX
//! writes where a peer's message says, and UCX 1.13 aborts its process on some bytes that are not its own; it believes the worker addresses
//! that sources say. A target listens on this host's loopback device unless told otherwise, and logs from where it can be
//! reached. On loopback, that is every user of the host.

mod acceptor;
mod arming;
mod attached;
mod attempts;
mod beside;
mod closing;
mod connections;
mod credits;
mod dispatch;
mod engine;
mod events;
mod exchange;
mod exit;
mod frame;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod gather;
mod handshake;
mod header;
mod heap;
mod link;
mod listener;
mod lock;
mod packed;
mod packet;
mod put;
mod receive_queue;
mod requests;
mod routes;
mod settings;
mod source;
mod table;
mod tcp_watch;

pub use attached::{WorkerError, WorkerOptions};
pub(crate) use engine::Engine;
#[cfg(test)]
pub(crate) use gather::GATHERED;
pub(crate) use listener::listen;
pub(crate) use source::{Calling, Over, connect};

#[cfg(all(test, not(loom)))]
mod tests;
