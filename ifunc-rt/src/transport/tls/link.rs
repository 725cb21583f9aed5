//! A connection as a link.

use std::sync::Arc;

use ifunc_abi::frame::Header;
use ifunc_abi::hello::Hello;

use super::connection::Connection;
use super::flow::{Arrived, Packet};
use crate::transport::{
    self, Body, Ends, Inbound, Key, Link, LinkError, Outbound, Park, Peer, Waiter, assert_fits,
};

/// The link over a connection. `key`: what the listener names it by.
pub(super) fn new(
    connection: &Arc<Connection>,
    hello: Hello,
    peer: Peer,
    key: Option<Key>,
    max_body: usize,
) -> Link {
    let tx = Sender {
        connection: Arc::clone(connection),
        max_body,
        packet: Packet::default(),
        sent: 0,
    };
    let rx = Receiver {
        connection: Arc::clone(connection),
        held: None,
    };
    Link {
        ends: Ends::other(tx, rx),
        waiter: Arc::clone(connection) as Arc<dyn Waiter>,
        peer,
        shares_bodies: false,
        hello,
        key,
    }
}

/// Frames out.
struct Sender {
    connection: Arc<Connection>,
    max_body: usize,
    /// The body of the next frame.
    packet: Packet,
    /// Frames sent.
    sent: u64,
}

impl Sender {
    /// The largest packet that is kept for the next frame.
    const KEPT: usize = 64 << 10;
}

impl Outbound for Sender {
    fn max_body(&self) -> usize {
        self.max_body
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert_fits(len, align, self.max_body);
        let mut state = self.connection.lock();
        if state.gone.is_none() && !Connection::may_write(&state, len) {
            self.connection.pump(&mut state);
        }
        if let Some(gone) = &state.gone {
            return Err(gone.clone());
        }
        if !Connection::may_write(&state, len) {
            return Ok(None);
        }
        drop(state);
        self.packet.resize(len);
        Ok(Some(self.packet.bytes_mut()))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        assert!(
            len <= self.packet.bytes().len(),
            "a body larger than what was reserved"
        );
        self.packet.resize(len);
        failpoint!("transport.commit");
        let mut state = self.connection.lock();
        if state.gone.is_some() {
            return 0;
        }
        let sequence = self.connection.send(&mut state, header.words(), &self.packet);
        drop(state);
        self.sent += 1;
        if self.packet.capacity() > Self::KEPT {
            self.packet = Packet::default();
        }
        sequence
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn is_unconsumed(&mut self, sequence: u32) -> bool {
        self.connection.lock().flow.is_unconsumed(sequence)
    }
}

/// Frames in.
struct Receiver {
    connection: Arc<Connection>,
    /// The frame that `peek` found.
    held: Option<Arrived>,
}

impl Receiver {
    /// The next frame, if there is one.
    fn next(&self) -> Result<Option<Arrived>, LinkError> {
        let mut state = self.connection.lock();
        if !state.flow.has_arrived() {
            self.connection.pump(&mut state);
        }
        match (state.flow.next(), &state.gone) {
            (None, Some(gone)) => Err(gone.clone()),
            (frame, _) => Ok(frame),
        }
    }

    /// Whether a wake-up will come for everything that is received.
    fn is_drained(&self) -> bool {
        let state = self.connection.lock();
        self.held.is_none() && !state.flow.has_arrived() && state.gone.is_none()
    }
}

impl Inbound for Receiver {
    type Body<'a> = Body<'a>;

    const IN_ORDER: bool = true;

    fn peek(&mut self) -> Result<Option<transport::Frame<Body<'_>>>, LinkError> {
        if self.held.is_none() {
            self.held = self.next()?;
        }
        Ok(self.held.as_ref().map(|Arrived { head, body }| transport::Frame {
            sequence: head.sequence,
            words: head.words,
            body: Body::from(body.bytes()),
        }))
    }

    fn release(&mut self) {
        if let Some(Arrived { body, .. }) = self.held.take() {
            let mut state = self.connection.lock();
            state.flow.release(&body);
            self.connection.settle(&mut state);
        }
    }

    fn settle(&mut self) {
        let mut state = self.connection.lock();
        state.flow.settle();
        self.connection.settle(&mut state);
    }
}

impl Park for Receiver {
    fn arm(&mut self) -> bool {
        self.connection.set_parked(true);
        self.is_drained()
    }

    fn disarm(&mut self) {
        self.connection.set_parked(false);
    }

    fn park(&mut self) {
        self.connection.set_parked(true);
    }

    fn is_idle(&mut self) -> bool {
        self.is_drained()
    }
}
