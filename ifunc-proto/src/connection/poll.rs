//! Polling a connection that serves: what has arrived is processed, within a quantum.
//!
//! The fast path is invocations that come in a frame of their own, in order: [`Connection::plain_frame`]. The first poll after an idle one
//! processes one of them and no other; later ones process several, alike ones among them as a [run](super::run). Everything else is
//! processed in [`Connection::unusual_frames`], which returns to the fast path once nothing unusual is left.

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::rare::rarely;
use ifunc_abi::status::Status;

use super::{Connection, TOO_FAR_AHEAD};
use crate::caller::Image;
use crate::closed::Closed;
use crate::host::{Event, Failed, Host, ReplyTo, report_failed};
use crate::link::{Body, Frame, Inbound, Link, MIN_RUN, Outbound};
use crate::order::{Order, Price, Quantum, Turn, UNITS};
use crate::server::{Progress, Server, Unanswered};

/// How much a poll processed.
#[derive(Clone, Copy)]
pub(super) struct Polled {
    /// Frames and entries of batches.
    pub(super) processed: usize,
    /// The quantum is used up, or something is left for another reason.
    pub(super) is_exhausted: bool,
}

impl From<Quantum> for Polled {
    fn from(quantum: Quantum) -> Self {
        Self {
            processed: quantum.processed,
            is_exhausted: quantum.is_exhausted(),
        }
    }
}

/// How the next poll goes, in one word: one comparison finds [`ONE_INVOCATION`](Self::ONE_INVOCATION).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan(u32);

impl Plan {
    /// The poll does not take the fast path.
    const UNUSUAL: u32 = 1 << 31;
    /// The transport may [wait](Inbound::begin_poll) first. It may also do so without this in a poll that has room for several invocations.
    const WAITS: u32 = 1 << 30;

    /// After an idle poll: one invocation, on the fast path, at once.
    const ONE_INVOCATION: Self = Self::new(Price::WHOLE);

    /// A poll that takes the fast path at once, at this price of an invocation.
    const fn new(price: Price) -> Self {
        Self(price.units())
    }

    /// The first poll of a connection without a link.
    pub(super) fn without_link() -> Self {
        Self(Price::for_invocations(UNITS).units() | Self::UNUSUAL)
    }

    /// Whether the poll takes the fast path: this side serves, and there is no parked frame, no reply that waits, no stalled request and
    /// no end to return. [`Connection::update_fast`] computes it after whatever may change it.
    pub(super) fn is_fast(self) -> bool {
        self.0 & Self::UNUSUAL == 0
    }

    /// Of an invocation.
    pub(super) fn price(self) -> Price {
        Price::of_units(self.0 & !(Self::UNUSUAL | Self::WAITS))
    }

    pub(super) fn set_fast(&mut self, is_fast: bool) {
        self.0 = self.0 & !Self::UNUSUAL | if is_fast { 0 } else { Self::UNUSUAL };
    }

    /// The plan of the poll after this one, which takes the fast path if this one ends on it.
    pub(super) fn next(self, price: Price, waits: bool) -> Self {
        let waits = if waits { Self::WAITS } else { 0 };
        Self(self.0 & Self::UNUSUAL | waits | price.units())
    }
}

/// What came of looking at the next frame.
enum Next {
    /// It was an invocation, and it is done: nothing is owed to the peer.
    Done,
    /// It was an invocation, and something else followed. `false`: the poll processes no other frame.
    Concluded(bool),
    /// It is parked, out of turn, or no plain invocation.
    Unusual,
    /// There is none, or the connection is over.
    None,
}

impl<I: Image + Clone, U, B> Connection<I, U, B> {
    /// Processes a fair quantum of what has arrived: runs invocations on `host`, and receives completions. Returns how many
    /// frames and entries of batches were processed. A driver sleeps only after a poll that returned 0: that one has
    /// returned the credits that the peer may wait for.
    ///
    /// # Errors
    /// The connection is over. If the poll processed something before, the next poll returns the error.
    #[inline(always)]
    pub fn poll<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
    ) -> Result<usize, Box<Closed>> {
        let polled = if self.plan == Plan::ONE_INVOCATION {
            let mut quantum = Quantum::new(Price::WHOLE);
            match self.plain_frame(link, host, &mut quantum) {
                Next::Done => {
                    // Nearly always: the quantum was this frame's.
                    self.plan = Plan::new(Price::WHOLE.next());
                    link.split().1.end_poll(true, false);
                    return Ok(1);
                }
                Next::Concluded(_) | Next::None => quantum.into(),
                Next::Unusual => self.frames(link, host),
            }
        } else if !self.plan.is_fast() {
            return rarely(move || self.poll_unusual(link, host));
        } else {
            self.several_frames(link, host)
        };
        if !self.plan.is_fast() {
            return rarely(move || self.end_unusual(link, host, polled, false));
        }
        self.end_poll(link, polled);
        Ok(polled.processed)
    }

    /// Returns credits, and plans the next poll.
    #[inline(always)]
    fn end_poll<L: Link>(&mut self, link: &mut L, polled: Polled) {
        let (_, rx) = link.split();
        if polled.is_exhausted {
            rx.end_poll(true, false);
            self.plan = self.plan.next(self.plan.price().next(), false);
            return;
        }
        let settles = L::Rx::IN_ORDER || !self.order.has_parked();
        rx.end_poll(polled.processed > 0, settles);
        let price = Price::for_invocations(rx.first_quantum());
        self.plan = self.plan.next(price, rx.must_begin_poll());
    }

    /// A poll on the fast path that may process several frames, or that waits first.
    #[inline(always)]
    fn several_frames<L: Link, H: Host<Image = B>>(&mut self, link: &mut L, host: &mut H) -> Polled {
        let (_, rx) = link.split();
        rx.begin_poll();
        let may_run_several =
            L::Rx::IN_ORDER && !H::TAKES && Quantum::new(self.plan.price()).admits_invocations(MIN_RUN);
        if may_run_several && !rx.is_empty() {
            return self.frame_runs(link, host);
        }
        self.frames(link, host)
    }

    /// Processes frames until the quantum is used up, none is left, or the next one stays where it is. Not inlined: the loop
    /// keeps addresses in registers, which the poll around it has for others.
    #[inline(never)]
    pub(super) fn frames<L: Link, H: Host<Image = B>>(&mut self, link: &mut L, host: &mut H) -> Polled {
        let mut quantum = Quantum::new(self.plan.price());
        let mut goes_on = self.plan.is_fast() || self.unusual_frames(link, host, &mut quantum);
        while goes_on && !quantum.is_exhausted() {
            goes_on = match self.plain_frame(link, host, &mut quantum) {
                Next::Done => !link.split().1.is_drained(),
                Next::Concluded(false) => false,
                Next::Concluded(true) if self.plan.is_fast() || quantum.is_exhausted() => true,
                Next::Concluded(true) | Next::Unusual => self.unusual_frames(link, host, &mut quantum),
                Next::None => break,
            };
        }
        quantum.into()
    }

    /// Processes the next frame, if it is an invocation whose header states nothing unusual and whose turn it is.
    #[inline(always)]
    fn plain_frame<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
        quantum: &mut Quantum,
    ) -> Next {
        let (tx, rx) = link.split();
        let plain = match rx.peek_plain(Kind::Exec) {
            Some(plain) => Some(plain),
            None => match rx.peek() {
                Ok(Some(frame)) => Header::parse_plain(frame.words, Kind::Exec).map(|header| (header, frame)),
                Ok(None) => return Next::None,
                Err(error) => {
                    self.over(error.into());
                    return Next::None;
                }
            },
        };
        let is_next = |frame: &Frame<_>| L::Rx::IN_ORDER || self.order.turn(frame.sequence) == Turn::Now;
        let (Some((header, frame)), Some(server)) =
            (plain.filter(|(_, frame)| is_next(frame)), &mut self.server)
        else {
            return Next::Unusual;
        };
        let order = &mut self.order;
        debug_assert!(!server.replies.owes());
        // An invocation that wants no answer needs nothing of the outgoing direction: nothing is owed on the fast path.
        if header.token == 0 {
            let (own, call) = (Some((order, &mut *quantum)), (header.handle, 0));
            return match server.images.invoke(host, own, call, false, frame, None) {
                Ok(_) => {
                    rx.release();
                    Next::Done
                }
                Err(unanswered) => Next::Concluded(self.next_unanswered(link, host, unanswered)),
            };
        }
        match server.exec(tx, host, order, quantum, header, frame) {
            Ok(Progress::Done) => {
                rx.release();
                Next::Done
            }
            Ok(Progress::Owing) => {
                rx.release();
                self.plan.set_fast(false);
                Next::Concluded(true)
            }
            Ok(Progress::Exhausted | Progress::Blocked) => Next::Concluded(self.stall()),
            Err(unanswered) => Next::Concluded(self.next_unanswered(link, host, unanswered)),
        }
    }

    /// The next request waits for the send window. `false`: the poll processes no other frame.
    #[cold]
    fn stall(&mut self) -> bool {
        self.is_stalled = true;
        self.plan.set_fast(false);
        false
    }

    /// The connection is over: the poll returns why. `false`: it processes no other frame.
    #[cold]
    fn over(&mut self, closed: Box<Closed>) -> bool {
        self.closed = Some(closed);
        self.plan.set_fast(false);
        false
    }

    /// Computes [`Plan::is_fast`].
    pub(super) fn update_fast(&mut self) {
        let is_fast = self.closed.is_none()
            && !self.is_stalled
            && !self.is_held
            && !self.order.has_parked()
            && self.server.as_ref().is_some_and(|server| !server.replies.owes());
        self.plan.set_fast(is_fast);
    }

    /// As [`poll`](Self::poll), off the fast path.
    fn poll_unusual<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
    ) -> Result<usize, Box<Closed>> {
        if self.closed.is_some() {
            return self.close(link, 0);
        }
        let was_stalled = std::mem::take(&mut self.is_stalled);
        self.is_held = false;
        let (_, rx) = link.split();
        rx.begin_poll();
        let polled = self.frames(link, host);
        self.end_unusual(link, host, polled, was_stalled)
    }

    /// Ends a poll off the fast path: sends the replies that wait, and returns the end of the connection.
    #[cold]
    #[inline(never)]
    fn end_unusual<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
        polled: Polled,
        was_stalled: bool,
    ) -> Result<usize, Box<Closed>> {
        let (tx, _) = link.split();
        if let Some(server) = &mut self.server
            && server.replies.owes()
            && !self.is_stalled
            && self.closed.is_none()
        {
            match server.replies.flush(tx) {
                Ok(is_done) => self.is_stalled = !is_done,
                Err(closed) => self.closed = Some(closed),
            }
        }
        self.end_poll(link, polled);
        if self.is_stalled || was_stalled {
            host.observe(Event::Stalled(self.is_stalled));
        }
        if self.closed.is_some() {
            return self.close(link, polled.processed);
        }
        self.update_fast();
        Ok(polled.processed)
    }

    #[cold]
    fn close<L: Link>(&mut self, link: &mut L, processed: usize) -> Result<usize, Box<Closed>> {
        if let Some(closed) = &self.closed {
            let why = closed.to_string();
            self.lose_received(link, &why);
        }
        match self.closed.take() {
            Some(closed) if processed == 0 => Err(closed),
            closed => {
                self.closed = closed;
                Ok(processed)
            }
        }
    }

    /// Concludes the next frame, whose invocation has no answer.
    #[cold]
    #[inline(never)]
    pub(super) fn next_unanswered<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
        unanswered: Unanswered,
    ) -> bool {
        let (tx, rx) = link.split();
        let concluded = match (rx.peek(), &mut self.server) {
            (Ok(Some(frame)), Some(server)) => server.conclude(tx, host, frame, unanswered),
            _ => unanswered.failed(host, 0).map(drop),
        };
        if let Err(closed) = concluded {
            return self.over(closed);
        }
        rx.release();
        self.update_fast();
        true
    }

    /// Processes the next frame, which is parked, out of turn, or no invocation; and the frames after it until nothing
    /// unusual is left. `false`: there is none, it stays where it is, or the connection is over. The frame is peeked
    /// again: in memory it would cost the usual path.
    #[cold]
    #[inline(never)]
    fn unusual_frames<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
        quantum: &mut Quantum,
    ) -> bool {
        loop {
            let goes_on = self
                .next_unusual(link, host, quantum)
                .unwrap_or_else(|closed| self.over(closed));
            self.update_fast();
            if !goes_on || self.plan.is_fast() || quantum.is_exhausted() {
                return goes_on;
            }
        }
    }

    fn next_unusual<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
        quantum: &mut Quantum,
    ) -> Result<bool, Box<Closed>> {
        let (tx, rx) = link.split();
        if self.order.is_next_parked() {
            return self.poll_parked(tx, host, quantum);
        }
        let Some(frame) = rx.peek()? else {
            return Ok(false);
        };
        let is_done = match self.order.turn(frame.sequence) {
            Turn::Now => self.frame(tx, host, quantum, frame)?,
            Turn::Early => {
                self.order.park(&frame).map_err(|_| TOO_FAR_AHEAD)?;
                true
            }
            Turn::Duplicate => true,
        };
        if is_done {
            rx.release();
        }
        Ok(is_done)
    }

    /// Processes the next frame in order. `false`: it stays where it is, because the quantum is used up or the send window
    /// is closed.
    fn frame<H: Host<Image = B>, P: Body>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        quantum: &mut Quantum,
        frame: Frame<P>,
    ) -> Result<bool, Box<Closed>> {
        let header = Header::parse(frame.words).map_err(Closed::broke)?;
        let is_reply = matches!(
            header.kind,
            Kind::Completion | Kind::Completions | Kind::Report | Kind::Partial | Kind::AnswerFragment
        );
        if is_reply {
            self.reply(None, frame)?;
            self.order.advance();
            quantum.charge(frame.body.len());
            return Ok(true);
        }
        let Some(server) = &mut self.server else {
            return Err(unserved());
        };
        if header.kind == Kind::Exec {
            let executed = server.exec(tx, host, &mut self.order, quantum, header, frame);
            return match executed {
                Ok(progress) => {
                    self.is_stalled = progress == Progress::Blocked;
                    Ok(progress != Progress::Blocked)
                }
                Err(unanswered) => server.conclude(tx, host, frame, unanswered).map(|()| true),
            };
        }
        if header.kind == Kind::Batch {
            let progress = server.batch(tx, host, header, &frame, quantum)?;
            self.is_stalled = progress == Progress::Blocked;
            if progress == Progress::Done {
                self.order.advance();
            }
            return Ok(progress == Progress::Done);
        }
        if header.kind == Kind::Travel {
            if self.node.is_none() && !host.admits_travel() {
                self.is_held = true;
                return Ok(false);
            }
            let traveled = server.travel(tx, host, &mut self.order, quantum, header, frame);
            return match traveled {
                Ok(progress) => {
                    self.is_stalled = progress == Progress::Blocked;
                    Ok(progress != Progress::Blocked)
                }
                Err(unanswered) => server.conclude(tx, host, frame, unanswered).map(|()| true),
            };
        }
        if matches!(
            header.kind,
            Kind::Reply | Kind::Weights | Kind::NodesLost | Kind::Window | Kind::Bounce
        ) {
            if self.node.is_none() {
                return Err(Closed::broke("a frame between nodes, from a peer that is none"));
            }
            self.order.advance();
            quantum.charge(frame.body.len());
            server.node_frame(host, header, &frame)?;
            return Ok(true);
        }
        // The token of any other kind is no call of this link: a length, or a call to be granted or cancelled.
        let token = match header.kind {
            Kind::Install | Kind::Sync | Kind::Stats | Kind::Finish => header.token,
            _ => 0,
        };
        if !server.replies.admits(tx, token)? {
            self.is_stalled = true;
            return Ok(false);
        }
        self.order.advance();
        quantum.charge_request(header, frame.body.len(), server.assembled());
        server.request(tx, host, header, &frame)?;
        Ok(true)
    }

    /// Processes a parked frame whose turn has come. `false`: it stays parked.
    #[cold]
    #[inline(never)]
    fn poll_parked<H: Host<Image = B>>(
        &mut self,
        tx: &mut impl Outbound,
        host: &mut H,
        quantum: &mut Quantum,
    ) -> Result<bool, Box<Closed>> {
        let mut order = std::mem::replace(&mut self.order, Order::new());
        let next = order.next();
        let Some(frame) = order.next_parked() else {
            self.order = order;
            return Ok(false);
        };
        // The frame is processed by a copy of the counter, and removed if the copy advanced.
        self.order = Order::starting_at(next);
        let result = self.frame(tx, host, quantum, frame);
        let is_processed = self.order.next() != next;
        if is_processed {
            order.take_parked();
        }
        self.order = order;
        result
    }

    /// Ends an invocation that the host [took](Host::take) from this link: sends the answer, if the peer wants one. On a
    /// link that died, nothing is sent; the driver drops what belongs to an earlier [link](crate::caller::Caller::generation).
    pub fn answer<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
        reply_to: &ReplyTo,
        outcome: Result<&[u8], Box<Failed>>,
    ) {
        let (tx, _) = link.split();
        if let Some(server) = &mut self.server
            && let Err(closed) = server.answer(tx, host, reply_to, outcome)
        {
            self.closed = Some(closed);
            let _ = self.close(link, 1);
        }
        self.update_fast();
    }

    /// Ends an invocation that [traveled](Host::travel), as another node reported. On a link that died nothing is sent, as by
    /// [`answer`](Self::answer).
    pub fn relay<L: Link, H: Host<Image = B>>(
        &mut self,
        link: &mut L,
        host: &mut H,
        reply_to: &ReplyTo,
        node: u32,
        outcome: Result<&[u8], &Failed>,
    ) {
        let (status, body) = match outcome {
            Ok(answer) => (Status::Executed, answer),
            Err(failed) => {
                report_failed(failed, host, reply_to.payload);
                (failed.status, &failed.detail[..])
            }
        };
        self.reply_late(link, |server, tx| {
            server.conclude_late(tx, reply_to, Some(node), status, body)
        });
    }

    /// Sends a partial answer of a call that [traveled](Host::travel), or may have. `number` counts them from 0.
    pub fn answer_partially<L: Link>(
        &mut self,
        link: &mut L,
        reply_to: &ReplyTo,
        number: u32,
        answer: Vec<u8>,
    ) {
        let header = Header::new(Kind::Partial, number, reply_to.token());
        self.reply_late(link, |server, tx| server.replies.send_late(tx, header, answer));
    }

    /// Closes the connection, because the peer broke the protocol: the next poll returns why.
    #[cold]
    pub(crate) fn refuse<L: Link>(&mut self, link: &mut L, why: &str) {
        if self.is_linked {
            self.closed = Some(Closed::broke(why));
            let _ = self.close(link, 1);
        }
        self.update_fast();
    }

    /// Sends a reply outside of a poll.
    fn reply_late<L: Link>(
        &mut self,
        link: &mut L,
        send: impl FnOnce(&mut Server<B>, &mut L::Tx) -> Result<(), Box<Closed>>,
    ) {
        let (tx, _) = link.split();
        if let Some(server) = &mut self.server
            && let Err(closed) = send(server, tx)
        {
            self.closed = Some(closed);
            let _ = self.close(link, 1);
        }
        self.update_fast();
    }

    /// Whether replies wait for the send window, and it is still closed. Asked before this side sleeps.
    pub fn is_blocked<L: Link>(&mut self, link: &mut L) -> bool {
        let (tx, _) = link.split();
        self.is_stalled
            && self
                .server
                .as_mut()
                .is_some_and(|server| server.replies.is_blocked(tx))
    }

    /// Whether the last poll found a request whose reply finds the send window closed.
    #[inline]
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Whether the last poll found an invocation of a source that travels, and the host [admits](Host::admits_travel) none.
    /// Replies go on. The driver polls again after the host admits one.
    #[inline]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether a poll has something to do, whatever arrives: an end to return, replies to send, a parked frame whose turn
    /// has come.
    #[inline]
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.has_work_beside_replies() || self.server.as_ref().is_some_and(|server| server.replies.owes())
    }

    /// As [`has_work`](Self::has_work), for a connection whose replies wait for the send window.
    #[inline]
    #[must_use]
    pub fn has_work_beside_replies(&self) -> bool {
        self.closed.is_some() || self.order.is_next_parked()
    }
}

#[cold]
fn unserved() -> Box<Closed> {
    Closed::broke("a request from a peer that does not invoke")
}
