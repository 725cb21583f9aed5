//! Frames by one-sided puts into a ring that the receiving side owns: the way of the ifunc systems before this one.
//!
//! Connections are made, left and lost as those of `ucx` are, by the same engine; the socket of the exchange carries the handshake, the
//! `FIN` and the doorbell ([`notices`](super::exchange::notices)). Frames and credits are put, and UCX sends no message.
//!
//! **Memory.** Each side lets UCX allocate the ring that it receives in, so that over shared memory UCX writes it directly, and
//! gives its address and remote key away in the handshake ([`offer`]). [`layout`] says what lies where: a
//! *slot* of two cache lines per frame, with its header and a *checksum*, words of the connection, and a ring of lines for bodies that are longer than a
//! slot has room for ([`ring`]).
//!
//! **A frame** with a short body is one put of its slot, or of its slot's second line: body, header and checksum. What lies last in one put does not
//! land last, so the receiver, which polls the number in the header, takes the frame only once the checksum is right. Numbers are looked for at the one place where each belongs, so no
//! body looks like a frame; checksums are of the connection's nonce and of the lap's number, so nothing that was left there does. A frame with
//! a longer body is two puts: the body into the ring, and after a fence of the worker the last 32 bytes of the slot, whose checksum is of the header alone.
//!
//! **Order.** The fence orders puts of one lane; several would need a flush that waits for the peer. So RMA uses one
//! rail where UCX has a setting for it. UCX before 1.19 lacks a fence that holds on ConnectX-8 (openucx/ucx#10658). Not tested
//! on RDMA hardware.
//!
//! **Credits** are one word in the sender's memory, which the receiver puts: one put at a time, or an older one might land last. Those for lines are
//! put when a poll is over, those for slots when a quarter of the slots is free, or the receiver closes.
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
