//! One connection, for both roles.

use ifunc_abi::frame::{Header, Kind, Limits};
use ifunc_abi::machine::Machine;
use ifunc_abi::status::Status;

use crate::caller::{CALL_WINDOW, Caller, Image, NotSent, Submission, SubmitError};
use crate::calls::{Request, recorded};
use crate::closed::Closed;
use crate::footprint::Footprint;
use crate::host::Refusal;
use crate::link::{Inbound, Link, LinkError, Outbound};
use crate::order::{Order, Price};
use crate::server::{Server, ServerConfig};

mod poll;
mod run;
#[cfg(test)]
mod tests;

use poll::Plan;

/// What a node does on its connections.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of a batch of aggregated invocations.
    pub batch_size: usize,
    /// Bytes of answers that were received and not dropped yet. A call whose answer finds no room ends with
    /// [`AnswersTooLarge`](crate::calls::Lost::AnswersTooLarge).
    pub max_answers: usize,
    /// How it serves; `None`: it does not.
    pub server: Option<ServerConfig>,
}

/// What the peer stated in its hello.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// What it accepts; `None`: it does not serve, or this node does not invoke. A node that never invokes states `None`:
    /// otherwise both sides of the link disagree on how many calls may be under way.
    pub limits: Option<Limits>,
    /// Whether it invokes.
    pub invokes: bool,
    /// Length of the longest answer that it takes, if it invokes.
    pub max_answer: u64,
    /// Its machine: decides which slice of an image is sent to it.
    pub machine: Machine,
    /// Its number, if it is a node of the group that this node is in: what it forwards is always received.
    pub node: Option<u32>,
}

/// A connection.
///
/// `I` is an image that this side sends, `U` what the driver keeps with a call (such as a waker), `B` an installed image of
/// the peer's ([`Host::Image`](crate::host::Host::Image)). A connection outlives its link: when the link dies, requests that
/// may run twice wait for the next link, and all others end.
#[derive(Debug)]
pub struct Connection<I, U, B> {
    /// What this side calls: its handles, calls and batches. What needs the link is a method of the connection.
    pub caller: Caller<I, U>,
    pub(crate) order: Order,
    pub(crate) server: Option<Server<B>>,
    pub(crate) is_linked: bool,
    /// Why the last link died.
    lost_because: String,
    /// How the next poll goes.
    plan: Plan,
    /// The last poll found a request that waits for the send window.
    is_stalled: bool,
    /// The last poll found an invocation of a source that travels, and the host does not admit any.
    pub(crate) is_held: bool,
    /// The peer's number in the group.
    pub(crate) node: Option<u32>,
    /// The link died: the first poll that processes nothing returns this.
    closed: Option<Box<Closed>>,
    /// Completions and reports received.
    pub(crate) received: u64,
    /// The last [`receive`](Self::receive) that was interrupted left frames, and none has found the link empty since.
    pub(crate) has_more: bool,
    config: Config,
}

impl<I: Image + Clone, U, B> Connection<I, U, B> {
    /// A connection without a link.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            caller: Caller::new(config.batch_size, config.max_answers),
            order: Order::new(),
            server: None,
            is_linked: false,
            lost_because: String::new(),
            plan: Plan::without_link(),
            is_stalled: false,
            is_held: false,
            node: None,
            closed: None,
            received: 0,
            config,
            has_more: false,
        }
    }

    /// Continues over a new link. Images are sent over it again; images that the peer installed over an earlier link are
    /// released.
    pub fn connect<L: Link>(&mut self, link: &mut L, peer: Peer) {
        let (tx, rx) = link.split();
        let server = self.config.server.filter(|_| peer.invokes);
        let is_duplex = server.is_some() && peer.limits.is_some();
        self.server = server.map(|config| {
            Server::new(
                config,
                tx.max_body(),
                peer.max_answer,
                is_duplex,
                peer.node.is_some(),
            )
        });
        self.caller
            .relink(peer.limits, peer.machine, tx.max_body(), is_duplex);
        self.order = Order::new();
        self.is_stalled = false;
        self.is_held = false;
        self.has_more = false;
        self.node = peer.node;
        self.closed = None;
        self.is_linked = true;
        let price = Price::for_invocations(rx.first_quantum());
        self.plan = self.plan.next(price, rx.must_begin_poll());
        self.update_fast();
    }

    /// Sequence number of the next frame: another one after each frame that was processed.
    #[must_use]
    pub fn next_sequence(&self) -> u32 {
        self.order.next()
    }

    /// Whether there is a link that works as far as this side knows.
    #[inline]
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.is_linked
    }

    /// Handles a link that failed in a submission.
    #[cold]
    pub(crate) fn not_sent<L: Link, E>(&mut self, link: &mut L, error: NotSent<I, E>) -> NotSent<I, E> {
        match error {
            NotSent::Failed(error) => match *error {
                SubmitError::Link(error) => {
                    self.fail_link(link, error);
                    NotSent::Blocked
                }
                error => error.into(),
            },
            error => error,
        }
    }

    /// Adds an invocation to the open batch, or sends it in a frame of its own if it fits into no batch. `is_eager`: a
    /// batch is sent with its first entry.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn append<L: Link, E>(
        &mut self,
        link: &mut L,
        submission: Submission,
        is_eager: bool,
        encode: &mut impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<u64, NotSent<I, E>> {
        if let Some(appended) = self.caller.append_alike(&submission, encode) {
            return appended;
        }
        if !self.caller.fits_batch(&submission) {
            return self.submit(link, submission, encode);
        }
        let (tx, _) = link.split();
        match self.caller.append(tx, submission, is_eager, encode) {
            Ok(token) => Ok(token),
            Err(error) => Err(self.not_sent(link, error)),
        }
    }

    /// Asks for a completion when the peer has consumed everything that was sent before. `None`: the window is closed.
    pub fn flush<L: Link>(&mut self, link: &mut L) -> Option<u64> {
        self.request(link, Kind::Sync, 0, Request::Flush)
    }

    /// The token of a flush that ended: nothing is under way. For a connection without a link.
    pub fn flushed(&mut self) -> Option<u64> {
        if self.is_linked || !self.caller.is_at_rest() {
            return None;
        }
        let token = self.caller.calls.begin(Request::Flush, None);
        self.caller.calls.end_small(token, Status::Executed, &[][..]);
        Some(token)
    }

    /// Asks for the page of the peer's statistics that begins at `offset`. `None`: the window is closed.
    pub fn stats<L: Link>(&mut self, link: &mut L, offset: u32) -> Option<u64> {
        self.request(link, Kind::Stats, offset, Request::Stats)
    }

    pub(crate) fn request<L: Link>(
        &mut self,
        link: &mut L,
        kind: Kind,
        handle: u32,
        request: Request,
    ) -> Option<u64> {
        self.receive_all(link);
        self.caller.close_batch_soon();
        let is_driven = self.drive(link);
        if !self.caller.has_call_window() {
            self.caller.lacking = CALL_WINDOW;
            return None;
        }
        if !is_driven || !self.caller.is_served() {
            return None;
        }
        let (tx, _) = link.split();
        match tx.reserve(0, 1) {
            Ok(Some(_)) => {
                let send = |token| recorded(tx.commit(Header::new(kind, handle, token), 0));
                return Some(self.caller.calls.begin_sent(request, None, send));
            }
            Ok(None) => self.caller.lacking = 0,
            Err(error) => self.fail_link(link, error),
        }
        None
    }

    /// Sends what waits to be sent. `false`: the window is closed for some of it, or the link died.
    pub fn drive<L: Link>(&mut self, link: &mut L) -> bool {
        if !self.caller.has_backlog() {
            return true;
        }
        if !self.caller.is_served() {
            return false;
        }
        let (tx, _) = link.split();
        match self.caller.drive(tx) {
            Ok(is_done) => is_done,
            Err(error) => {
                self.fail_link(link, error);
                false
            }
        }
    }

    /// Sends the open batch, after everything else that waits.
    pub fn close_batch<L: Link>(&mut self, link: &mut L) {
        self.caller.close_batch_soon();
        self.drive(link);
    }

    /// Like [`close_batch`](Self::close_batch), if the call's invocation lies in the open batch.
    #[inline]
    pub fn close_batch_of<L: Link>(&mut self, link: &mut L, token: u64) {
        if self.caller.open_batch().is_some() && self.caller.calls.is_in_batch(token) {
            self.close_batch(link);
        }
    }

    /// What the connection holds.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        let server = self.server.as_ref();
        Footprint {
            parked: self.order.parked(),
            replies: server.map_or(0, |server| server.replies.kept()),
            late: server.map_or(0, |server| server.replies.late()),
            batch: self.caller.batch.len(),
            assembled: server.map_or(0, Server::assembled) + self.caller.calls.assembled(),
            calls: self.caller.calls.in_use(),
            reports: self.caller.reports.len(),
        }
    }

    /// A number while a body that comes in fragments is unfinished and kept, or an answer in fragments waits to be sent. A driver that
    /// finds the same number for too long [refuses](Self::refuse_unfinished) them: the next body has another number, and so has an answer
    /// of which more was sent.
    #[must_use]
    pub fn unfinished(&self) -> Option<u64> {
        self.server.as_ref().and_then(Server::unfinished)
    }

    /// Drops the unfinished body and the answers in fragments that wait, if there are any: the host holds nothing of them any longer. The
    /// peer may send the rest of the body, and what it was for is then rejected with this reason; the calls of the answers fail with it.
    pub fn refuse_unfinished(&mut self, refusal: Refusal) {
        if let Some(server) = &mut self.server
            && server.unfinished().is_some()
        {
            server.refuse_unfinished(refusal);
        }
    }

    /// Calls `keeps` with each entry of an image that the peer has bound. One for which it returns a reason is dropped: from the next frame on its
    /// invocations are rejected with that reason, as if the image had been refused, until the peer releases the handle or binds it again.
    pub fn review_images(&mut self, keeps: impl FnMut(&mut B) -> Result<(), Refusal>) {
        if let Some(server) = &mut self.server {
            server.review_images(keeps);
        }
    }

    /// Whether frames may be left that the last [`receive`](Self::receive) did not process. A driver does not sleep then.
    #[inline]
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Number of completions, parts of answers and reports received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The sending direction failed. What the peer sent before is received first.
    #[cold]
    fn fail_link<L: Link>(&mut self, link: &mut L, error: LinkError) {
        // A connection that serves runs what the peer sent before it ended, in the polls that follow.
        if self.server.is_none() {
            self.lose(link, &error.to_string());
        }
    }

    /// The link is dead: receives what arrived before, and ends every request or keeps it for the next link. The driver
    /// calls it when the transport reports the peer's end before the link does.
    #[cold]
    pub fn lose<L: Link>(&mut self, link: &mut L, why: &str) {
        if self.is_linked {
            for _ in 0..LAST_RECEIVES {
                self.receive_all(link);
                if !self.has_more {
                    break;
                }
            }
            self.lose_received(link, why);
        }
    }

    pub(crate) fn lose_received<L: Link>(&mut self, link: &mut L, why: &str) {
        if !std::mem::take(&mut self.is_linked) {
            return;
        }
        self.lost_because = why.to_owned();
        self.has_more = false;
        self.order = Order::new();
        let (tx, _) = link.split();
        self.caller.lose(why, |sequence| tx.is_unconsumed(sequence));
        self.server = None;
        self.plan.set_fast(false);
    }

    /// Why the last link died.
    #[must_use]
    pub fn lost_because(&self) -> &str {
        &self.lost_because
    }

    /// Whether the window is open for a frame with a body of `bytes` bytes, or as much as a frame may have. Sends what waits
    /// first.
    pub fn has_window<L: Link>(&mut self, link: &mut L, bytes: usize) -> bool {
        self.drive(link);
        if !self.is_linked {
            return false;
        }
        if bytes == CALL_WINDOW {
            return self.caller.has_call_window();
        }
        let (tx, _) = link.split();
        match tx.reserve(bytes.min(tx.max_body()), 1) {
            Ok(memory) => memory.is_some(),
            Err(error) => {
                self.fail_link(link, error);
                false
            }
        }
    }
}

/// How often a link is received from that has died: more than a window takes, and not for ever, whatever the peer still writes.
const LAST_RECEIVES: usize = 1 << 13;

pub(crate) const TOO_FAR_AHEAD: LinkError =
    LinkError::Malformed("frames further ahead of their turn than there are credits");
