//! Frames by one-sided puts into a ring that the receiving side owns: the way of the ifunc systems before this one.
//!
//! Connections are made, left and lost as those of `ucx` are, by the same engine; the socket of the exchange carries the handshake, the
//! `FIN` and the doorbell ([`notices`](super::exchange::notices)). Frames and credits are put, and UCX sends no message.
//!
//! **Memory.** Each side lets UCX allocate the ring that it receives in, so that over shared memory UCX writes it directly, and
//! gives its address and remote key away in the handshake ([`offer`]). [`layout`] says what lies where: a
//! *slot* per frame, which ends with a *commit word*, words of the connection, and a ring of lines for bodies that are longer than a slot
//! ([`ring`]).
//!
//! **A frame** is two puts: body and header, which lie together; a fence of the worker; the commit word, `nonce << 32 |
//! sequence`. What lies last in one put does not land last, so nothing is read before the commit word. Only commit words are
//! looked for, each at the one place where its number belongs, so no body looks like a frame; the nonce is the connection's and the
//! sequence the lap's, so nothing that was left there does. A short body and its header lie in the slot: the receiver, which polls the commit
//! word, has them in the same cache line. A longer body follows its header in the ring, and the commit word says so; where they lie apart, once
//! a lap, such a frame is three puts.
//!
//! **Order.** The fence orders puts of one lane; several would need a flush that waits for the peer. So RMA uses one
//! rail where UCX has a setting for it. UCX before 1.19 lacks a fence that holds on ConnectX-8 (openucx/ucx#10658). Not tested
//! on RDMA hardware.
//!
//! **Credits** are one word in the sender's memory, which the receiver puts: one put at a time, or an older one might land last.
//!
//! **Sleep.** Puts land without an event, so a side that is about to sleep announces it ([`sleeping`]), and the other side, when it reads
//! that after its next put, sends a doorbell.
//!
//! **When to use it.** On RDMA hardware, where a put needs nothing of the other side, and to compare with the papers. Over TCP
//! an active message costs half of a put, and a put lands only while the other side looks for frames.
//!
//! **A peer may write its ring at any time**, so words are copied once and validated as copies, and places are computed from this
//! side's own counters. Bodies are copied by the layers above. UCX validates remote keys, and fails on some bytes that
//! are not a key: a process that reaches a worker is trusted with the worker's process, as over `ucx`.

mod announcing;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
pub(super) mod layout;
pub(super) mod link;
mod offer;
mod operations;
pub(super) mod ring;
pub(super) mod rings;
pub(super) mod sleeping;
