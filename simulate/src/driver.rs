//! What drivers do: submit, await, take, drop.

use ifunc_abi::frame::Kind;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;
use ifunc_proto::Closed;
use ifunc_proto::caller::{Image, NotSent, Submission, SubmitError};
use ifunc_proto::calls::Lost;
use ifunc_proto::link::{Inbound as _, Link as _};

use crate::host::{SimulatedHost, stats_page};
use crate::image::SentImage;
use crate::ledger::{GIVEN_UP, is_given_up, lane, write_bytes};
use crate::link::End;
use crate::network::BROKEN;
use crate::port::{Awaited, Call, Port, Wish};
use crate::rng::Rng;
use crate::world::{World, note};

impl World {
    fn pick_handle(&mut self, rng: &mut Rng, port: usize) -> (u32, SentImage) {
        if self.ports[port].handles.is_empty() {
            self.bind(rng, port);
        }
        rng.pick(&self.ports[port].handles)
    }

    pub(crate) fn bind(&mut self, rng: &mut Rng, port: usize) {
        let image = SentImage::new(rng);
        let holder = &mut self.ports[port];
        if holder.handles.len() >= 12 {
            return;
        }
        let handle = holder.connection.caller.bind(image);
        holder.handles.push((handle, image));
        holder.bound.push((handle, self.steps));
        let bound = holder.connection.caller.image(handle).key();
        note!(self, "port {port}: binds {:?} to handle {handle}", image.key());
        let others = &self.ports[port].handles;
        if bound != image.key()
            || others
                .iter()
                .any(|(h, i)| (*h == handle) != (i.key() == image.key()))
        {
            self.ledger.fail(
                "a handle is bound to one entry, and an entry to one handle",
                format_args!("port {port}, handle {handle}"),
            );
        }
    }

    pub(crate) fn unbind(&mut self, rng: &mut Rng, port: usize) {
        let holder = &mut self.ports[port];
        if holder.handles.is_empty() {
            return;
        }
        let index = rng.below(holder.handles.len());
        let (handle, _) = holder.handles[index];
        // A submission that waits uses its handle.
        if holder.waiting.is_some_and(|wish| wish.handle == handle) {
            return;
        }
        holder.handles.swap_remove(index);
        if let Some(last) = holder.bound.iter().rposition(|&(bound, _)| bound == handle) {
            holder.bound.remove(last);
        }
        holder.connection.caller.unbind(handle);
        note!(self, "port {port}: unbinds handle {handle}");
        self.with_link(port, "drives", |port, end| port.connection.drive(end));
    }

    /// Submits an invocation, or many with nothing between them.
    pub(crate) fn submit_step(&mut self, rng: &mut Rng, port: usize) {
        if !self.ports[port].is_served {
            return;
        }
        if let Some(wish) = self.ports[port].waiting.take() {
            self.submit(port, wish);
            return;
        }
        let wish = self.wish(rng, port);
        if !self.submit(port, wish) && rng.one_in(2) {
            self.ports[port].waiting = Some(wish);
        } else if rng.one_in(40) {
            self.burst(rng, port, wish);
        }
    }

    /// Submits alike invocations: more than may be under way, or more failures than a connection keeps reports.
    fn burst(&mut self, rng: &mut Rng, port: usize, wish: Wish) {
        let wants_completion = rng.one_in(2);
        let wish = Wish {
            len: 8,
            bound: 8,
            wants_completion,
            carries_code: false,
            batch: wish.batch.filter(|_| rng.one_in(2)),
            ..wish
        };
        for _ in 0..rng.below(300) {
            self.steps += 1;
            if !self.submit(port, wish) {
                break;
            }
        }
    }

    fn wish(&mut self, rng: &mut Rng, port: usize) -> Wish {
        let (handle, image) = self.pick_handle(rng, port);
        let taste = self.taste;
        let max = self.ports[port].connection.caller.limits().max_payload as usize;
        let len = if rng.below(8) < taste.alike {
            8
        } else if rng.below(8) < taste.small {
            rng.below(48)
        } else {
            rng.below(max + max / 4 + 2)
        };
        let mut wish = Wish {
            handle,
            image,
            len,
            bound: len + if rng.one_in(4) { rng.below(200) } else { 0 },
            align: rng.pick(&[1, 8, 64]),
            wants_completion: rng.below(8) < taste.calls,
            carries_code: rng.below(8) < taste.code,
            batch: (rng.below(8) < taste.batches).then(|| rng.one_in(8)),
            does_encode: !rng.one_in(64),
        };
        if len < 4 && !self.is_faultless {
            // Too short for its number: it is known by when it is sent, which must be now and once.
            wish.bound = len;
            wish.batch = None;
            wish.wants_completion &= !image.is_idempotent();
        }
        wish
    }

    /// Submits an invocation. `false`: the connection does not take it now.
    pub(crate) fn submit(&mut self, at: usize, wish: Wish) -> bool {
        let Some((link, side)) = self.ports[at].link else {
            return false;
        };
        let id = self.ledger.add(at, wish.image, wish.len, wish.wants_completion);
        let mut end = End::new(&mut self.links[link].channels, side);
        let port = &mut self.ports[at];
        let submission = Submission {
            handle: wish.handle,
            bound: wish.bound,
            align: wish.align,
            wants_completion: wish.wants_completion,
            carries_code: wish.carries_code,
        };
        let mut has_memory = true;
        let mut encode = |memory: &mut [u8]| {
            if !wish.does_encode {
                return Err(());
            }
            has_memory &= memory.len() >= wish.bound;
            match memory.get_mut(..wish.len) {
                Some(memory) => write_bytes(memory, id),
                None => return Err(()),
            }
            Ok(wish.len)
        };
        // As the runtime does: it polls for replies before a frame without a completion, but in a stream not before each.
        let receives_first = !wish.wants_completion && id.is_multiple_of(2) && !end.split().1.is_empty();
        let result = match wish.batch {
            Some(is_eager) => port
                .connection
                .append(&mut end, submission, is_eager, &mut encode),
            None if receives_first => port.connection.submit(&mut end, submission, &mut encode),
            None => match port.connection.submit_at_once(&mut end, &submission, &mut encode) {
                Some(sent) => sent,
                None => port.connection.submit(&mut end, submission, &mut encode),
            },
        };
        let result = match result {
            Ok(token) => Ok(Some(token)),
            Err(NotSent::Blocked) => Ok(None),
            Err(NotSent::Failed(error)) => Err(*error),
        };
        let limits = port.connection.caller.limits();
        note!(
            self,
            "port {at}: submits number {id} on link {link}: handle {} (entry {:?}), {} of {} bytes, {}{}{}: {result:?}",
            wish.handle,
            wish.image.key(),
            wish.len,
            wish.bound,
            if wish.wants_completion { "call" } else { "send" },
            if wish.carries_code { ", carries code" } else { "" },
            match wish.batch {
                Some(true) => ", in a batch of its own",
                Some(false) => ", in a batch",
                None => "",
            },
        );
        if !has_memory {
            self.ledger
                .fail("a payload has memory for its bound", format_args!("number {id}"));
        }
        let is_taken = !matches!(result, Ok(None));
        if let Ok(Some(_)) = result {
            self.ledger.accept(id);
        }
        self.check(at);
        match result {
            Ok(Some(token)) => {
                if wish.wants_completion != (token != 0) {
                    self.ledger
                        .fail("a call has a token", format_args!("number {id}"));
                }
                if wish.wants_completion {
                    self.await_call(at, token, Awaited::Invocation(id));
                }
            }
            Ok(None) => {}
            Err(SubmitError::Encode(())) if !wish.does_encode => {}
            Err(SubmitError::Lost(Lost::PayloadTooLarge { len, limit }))
                if len > limit
                    && limit == limits.max_payload
                    && (len == wish.len as u64 || len == wish.bound as u64) => {}
            Err(SubmitError::Lost(Lost::ImageTooLarge { len, limit }))
                if len > limit && len == wish.image.bytes().len() as u64 && limit == limits.max_image => {}
            Err(SubmitError::Earlier(report)) => self.ledger.reported(at, report.image, &report.outcome),
            Err(error) => self
                .ledger
                .fail("a submission fails for its own reason", format_args!("{error:?}")),
        }
        is_taken
    }

    fn await_call(&mut self, at: usize, token: u64, awaited: Awaited) {
        let port = &mut self.ports[at];
        if port.calls.iter().any(|call| call.token == token) {
            self.ledger
                .fail("a token names one call", format_args!("{token:#x}"));
        }
        // Every other call has a waiter, unless it ended already.
        port.users += 1;
        let has_waiter =
            port.users.is_multiple_of(2) && port.connection.caller.calls.pending(token).is_some();
        let user = has_waiter.then_some(port.users);
        if has_waiter {
            port.connection.caller.calls.set_user(token, user);
        }
        port.calls.push(Call {
            token,
            awaited,
            user,
            is_woken: false,
        });
    }

    pub(crate) fn flush(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let (true, Some((link, side))) = (port.is_served, port.link) else {
            return;
        };
        if !port.connection.is_linked() {
            let token = port.connection.flushed();
            note!(self, "port {at}: flushes without a link: {token:?}");
            if let Some(token) = token {
                let Port {
                    connection, calls, ..
                } = &mut self.ports[at];
                let outcome = connection.caller.calls.take(token);
                let is_waiting = calls
                    .iter()
                    .any(|call| connection.caller.calls.pending(call.token).is_some());
                if is_waiting || !matches!(outcome, Some(Ok(_))) {
                    self.ledger
                        .fail("a flush without a link has ended", format_args!("{outcome:?}"));
                }
            }
            return;
        }
        let mut end = End::new(&mut self.links[link].channels, side);
        let token = port.connection.flush(&mut end);
        let sync = end.tx.0.log.last().filter(|commit| commit.kind == Kind::Sync);
        let sync = sync.map(|commit| (commit.token, commit.sequence));
        note!(self, "port {at}: flushes: {token:?}");
        self.check(at);
        match (token, sync) {
            (Some(token), Some((sent, sequence))) if token == sent => {
                self.await_call(at, token, Awaited::Flush(link, sequence));
            }
            (None, None) => {}
            _ => self
                .ledger
                .fail("a flush is sent", format_args!("{token:?}, {sync:?}")),
        }
    }

    pub(crate) fn stats(&mut self, rng: &mut Rng, at: usize) {
        let offset = rng.below(1000) as u32;
        if !self.ports[at].is_served {
            return;
        }
        let token = self.with_link(at, "asks for statistics", |port, end| {
            port.connection.stats(end, offset)
        });
        if let Some(Some(token)) = token {
            self.await_call(at, token, Awaited::Stats(offset));
        }
    }

    pub(crate) fn pick_call(&self, rng: &mut Rng, port: usize) -> Option<Call> {
        let calls = &self.ports[port].calls;
        (!calls.is_empty()).then(|| rng.pick(calls))
    }

    pub(crate) fn take_step(&mut self, rng: &mut Rng, port: usize) {
        if !self.ports[port].calls.is_empty() {
            let index = rng.below(self.ports[port].calls.len());
            self.take(port, index);
        }
    }

    /// Takes the outcome of a call, if it ended.
    pub(crate) fn take(&mut self, at: usize, index: usize) -> bool {
        let port = &mut self.ports[at];
        let call = port.calls[index];
        let is_pending = port.connection.caller.calls.pending(call.token).is_some();
        let Some(outcome) = port.connection.caller.calls.take(call.token) else {
            if !is_pending {
                self.ledger
                    .fail("a call is pending until it ends", format_args!("{call:?}"));
            }
            return false;
        };
        port.calls.swap_remove(index);
        note!(self, "port {at}: takes {:?}: {outcome:?}", call.awaited);
        if is_pending {
            self.ledger
                .fail("a call is pending until it ends", format_args!("{call:?}"));
        }
        if call.user.is_some() && !call.is_woken {
            self.ledger.fail(
                "a call that ends wakes its own waiter once",
                format_args!("{call:?}"),
            );
        }
        match call.awaited {
            Awaited::Invocation(id) => self.ledger.ended(id, &outcome),
            Awaited::Flush(link, sequence) => match outcome {
                Ok(completion) if completion.bytes().is_empty() => {
                    self.take_reports(at, true);
                    if let Some((now, side)) = self.ports[at].link
                        && now == link
                    {
                        self.ledger.flushed(lane(link, side), sequence);
                    }
                }
                Err(lost) if *lost == Lost::Indeterminate && self.links[link].channels[0].is_dead() => {}
                outcome => self
                    .ledger
                    .fail("a flush ends as its link does", format_args!("{outcome:?}")),
            },
            Awaited::Stats(offset) => match outcome {
                Ok(completion) if completion.bytes() == stats_page(offset, completion.bytes().len()) => {}
                Ok(completion) if is_given_up(&completion) => {}
                Err(lost) if *lost == Lost::Indeterminate => {}
                outcome => self
                    .ledger
                    .fail("statistics arrive as they were sent", format_args!("{outcome:?}")),
            },
        }
        true
    }

    pub(crate) fn take_reports(&mut self, at: usize, takes_all: bool) {
        let connection = &mut self.ports[at].connection;
        let reports = if takes_all {
            connection.caller.take_reports()
        } else {
            connection.caller.take_report().into_iter().collect()
        };
        for report in reports {
            note!(self, "port {at}: takes a report: {report:?}");
            self.ledger.reported(at, report.image, &report.outcome);
        }
    }

    pub(crate) fn abandon(&mut self, rng: &mut Rng, at: usize) {
        let port = &mut self.ports[at];
        if port.calls.is_empty() {
            return;
        }
        let index = rng.below(port.calls.len());
        let call = port.calls.swap_remove(index);
        port.connection.caller.abandon(call.token);
        note!(self, "port {at}: abandons {:?}", call.awaited);
    }

    /// Polls a port, or lets it receive if it does not serve. Returns what the poll returns.
    pub(crate) fn poll(&mut self, at: usize) -> usize {
        self.answer(at);
        if self.nodes[self.ports[at].node].takes {
            self.poll_as::<true>(at)
        } else {
            self.poll_as::<false>(at)
        }
    }

    /// Answers the invocation that the node took. The answer is dropped if its link was replaced.
    pub(crate) fn answer(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let (Some(taken), Some((link, side))) = (port.taken.take(), port.link) else {
            return;
        };
        if taken.generation != port.connection.caller.generation() {
            note!(self, "port {at}: drops an answer for link {}", taken.link);
            return;
        }
        let outcome = taken.outcome(&mut self.ledger);
        let channels = &mut self.links[link].channels;
        let is_link_dead = channels[0].is_dead();
        let mut end = End::new(channels, side);
        let mut host = SimulatedHost::<true> {
            ledger: &mut self.ledger,
            link,
            lane: lane(link, 1 - side),
            is_link_dead,
            installed: &port.installed,
            generation: taken.generation,
            taken: &mut port.taken,
        };
        note!(self, "port {at}: answers {outcome:?} on link {link}");
        let (answer, failed) = match outcome {
            Ok(answer) => (answer, None),
            Err(failed) => (Vec::new(), Some(failed)),
        };
        let outcome = failed.map_or(Ok(&answer[..]), Err);
        port.connection
            .answer(&mut end, &mut host, &taken.reply_to, outcome);
        self.check(at);
    }

    /// Gives up the answers in fragments that wait to be sent, as a target does whose source has not read for too long.
    pub(crate) fn refuse_unsent(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let Some((link, side)) = port.link else { return };
        // An unfinished body would be refused, too, and its invocation would not run.
        if port.connection.unfinished().is_none() || port.connection.footprint().assembled > 0 {
            return;
        }
        self.ledger.gave_up_answers(lane(link, 1 - side));
        let refusal = Refusal {
            reason: Rejection::Resources,
            detail: GIVEN_UP.into(),
        };
        port.connection.refuse_unfinished(refusal);
        note!(self, "port {at}: gives up the answers that wait on link {link}");
        self.check(at);
    }

    fn poll_as<const TAKES: bool>(&mut self, at: usize) -> usize {
        let port = &mut self.ports[at];
        let Some((link, side)) = port.link else { return 0 };
        let mut processed = 0;
        let is_receiving = !port.serves && !self.steps.is_multiple_of(4);
        let channels = &mut self.links[link].channels;
        let is_link_dead = channels[0].is_dead();
        let mut end = End::new(channels, side);
        if is_receiving {
            port.connection.receive(&mut end, 0);
            note!(
                self,
                "port {at}: receives, {} in all",
                self.ports[at].connection.received()
            );
        } else if port.connection.is_linked() || port.connection.has_work() {
            let generation = port.connection.caller.generation();
            let mut host = SimulatedHost::<TAKES> {
                ledger: &mut self.ledger,
                link,
                lane: lane(link, 1 - side),
                is_link_dead,
                installed: &port.installed,
                generation,
                taken: &mut port.taken,
            };
            let result = port.connection.poll(&mut end, &mut host);
            note!(self, "port {at}: polls link {link}: {result:?}");
            match result {
                Ok(count) => processed = count,
                Err(closed) => {
                    if let Closed::Broke(why) = &*closed
                        && why != BROKEN
                    {
                        self.ledger.fail("no connection breaks the protocol", why);
                    }
                }
            }
        }
        self.check(at);
        processed
    }

    /// No other link will be made for a port that has none.
    pub(crate) fn give_up(&mut self, at: usize) {
        let port = &mut self.ports[at];
        if port.connection.is_linked() || port.link.is_none() {
            return;
        }
        port.connection.caller.give_up("given up");
        note!(self, "port {at}: gives up");
        self.check(at);
        for index in 0..self.ports[at].calls.len() {
            let call = self.ports[at].calls[index];
            if self.ports[at]
                .connection
                .caller
                .calls
                .pending(call.token)
                .is_some()
            {
                self.ledger
                    .fail("a call ends when its driver gives up", format_args!("{call:?}"));
            }
        }
        self.take_all(at);
    }
}
