//! Processes of hosts that do not trust the network between them, over TLS 1.3.
//!
//! Both sides prove that they hold an ed25519 key: raw public keys (RFC 7250), no certificates ([`credentials`]). The target's
//! policy decides which keys connect; a source knows the keys of its targets. The handshakes of a target run on the
//! [background thread](super::watch), a bounded number at a time, each with a deadline ([`half_open`](super::half_open), [`acceptor`]).
//! Over the encrypted stream the sides exchange hellos ([`greeting`]), then frames ([`wire`], [`flow`]).
//!
//! After that the transport has no thread for a connection: the thread that polls it reads its socket, decrypts what has arrived and
//! puts the bodies into memory of this process alone, where the peer cannot change them ([`connection`], [`link`]). A frame is
//! encrypted and written when it is committed. While the socket is full there is no credit, so at most one frame waits in memory.
//!
//! A side that closes the connection sends TLS's `close_notify` behind its last frame. A connection that ends without it, in the
//! middle of a record or not, ends as one whose peer has died. Whatever fails its authentication ends the connection, and what
//! arrived before and was not taken is not delivered.

mod acceptor;
mod connection;
mod credentials;
mod flow;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod greeting;
mod link;
mod listener;
#[cfg(feature = "ucx")]
pub(super) mod once;
mod server;
mod source;
mod stream;
mod wire;

pub(super) use listener::listen;
pub(super) use source::connect;

#[cfg(all(test, not(loom)))]
pub(super) mod tests;
