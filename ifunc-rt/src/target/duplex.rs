//! A connection that carries invocations both ways: the target serves it, and sources of this process send over it.

use std::sync::Arc;

use ifunc_abi::ImageId;
use ifunc_abi::status::Status;
use ifunc_exec::Session;
use ifunc_proto::Closed;
use ifunc_proto::buffer::AlignedBuffer;
use ifunc_proto::host::{
    Event, Failed, Host as ProtocolHost, Install, Invocation, Payload, Refusal, ReplyTo,
};
use ifunc_proto::link::Body;

use super::Host;
use super::connection::{Argument, Bound, Counted, Served, State, copied};
use super::peers::Peers;
use crate::policy::SourceInfo;
use crate::serve::doorbell::LinkDoorbells;
use crate::source::connection::{ACCEPTED, Connection};
use crate::source::shared::SharedConnection;
use crate::transport::{ConnectError, Key, Link, Route, Waiter};
use crate::{Source, SourceError, SourceOptions};

/// Invocations that one poll runs.
const QUANTUM: usize = 64;
/// Why a connection ends with its target.
const TARGET_GONE: &str = "the target that served the connection is gone";

/// A connection that the target shares with sources of this process.
///
/// The target holds its lock while it takes an invocation out of the link and while it sends the answer, and not while the
/// invocation runs.
pub(super) struct Duplex {
    shared: Arc<SharedConnection>,
    info: SourceInfo,
    key: Key,
    /// What is served of the link that there is now, by the link's number.
    served: Option<(u64, State)>,
    /// The payload of the invocation that runs, and its answer.
    payload: AlignedBuffer,
    answer: AlignedBuffer,
    is_busy: bool,
    doorbell: Doorbell,
}

/// What wakes the target for the link.
enum Doorbell {
    /// The listener that accepted the link. Its sources are listed as long as the connection lives.
    Listener(Peers),
    /// The link's own.
    Own(Arc<LinkDoorbells>, Option<Arc<dyn Waiter>>),
}

/// An invocation that was taken out of the link.
struct Taken {
    counted: Counted,
    sequence: u32,
    is_batched: bool,
    reply_to: ReplyTo,
}

/// The host of a poll: takes one invocation.
struct Takes<'a, 's> {
    served: Served<'a, 's>,
    payload: &'a mut AlignedBuffer,
    taken: &'a mut Option<Taken>,
}

impl ProtocolHost for Takes<'_, '_> {
    type Image = Bound;

    const TAKES: bool = true;

    fn install(&mut self, install: Install) -> Result<Bound, Refusal> {
        self.served.install(install)
    }

    fn has_id(&mut self, bound: &Bound, id: &ImageId) -> bool {
        self.served.has_id(bound, id)
    }

    fn invoke<B: Body>(
        &mut self,
        bound: &Bound,
        invocation: Invocation<'_, B>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        self.served.invoke(bound, invocation, answer)
    }

    fn take<B: Body>(&mut self, bound: &Bound, invocation: &Invocation<'_, B>, reply_to: ReplyTo) {
        copied(self.payload, invocation.payload);
        *self.taken = Some(Taken {
            counted: bound.counted.clone(),
            sequence: invocation.sequence,
            is_batched: invocation.is_batched,
            reply_to,
        });
    }

    fn stats(&mut self, offset: u32, max: usize) -> (Status, Vec<u8>) {
        self.served.stats(offset, max)
    }

    fn observe(&mut self, event: Event) {
        self.served.observe(event);
    }
}

impl Duplex {
    /// Of a link that the target accepted from a node.
    pub(super) fn accepted(number: u64, link: Link, host: &Host) -> Self {
        let (key, info) = (link.key, SourceInfo::new(number, &link.peer));
        let options = SourceOptions::default();
        let source = Connection::of_link(None, link, options, Some(host.service())).map(Source::of);
        let Ok(Ok(source)) = source else {
            unreachable!("it makes neither a descriptor nor a thread");
        };
        host.peers.add(info, source.clone());
        Self::new(&source, info, key, Doorbell::Listener(host.peers.clone()), host)
    }

    /// Connects to a node.
    ///
    /// # Errors
    /// As [`Source::connect_with`].
    pub(super) fn connected(
        number: u64,
        route: Route,
        options: SourceOptions,
        host: &Host,
        doorbells: &Arc<LinkDoorbells>,
    ) -> Result<(Source, Self), SourceError> {
        let connection = Connection::connect(route, options, Some(host.service()))?;
        let peer = connection.served_link().map(|(link, _)| link.peer.clone());
        let peer = peer.ok_or_else(|| ConnectError::Io {
            doing: "connecting".into(),
            source: std::io::ErrorKind::ConnectionReset.into(),
        })?;
        let source = Source::of(connection)?;
        // No listener gives out keys from the end.
        let (info, key) = (SourceInfo::new(number, &peer), Key(u64::MAX - number));
        let doorbell = Doorbell::Own(Arc::clone(doorbells), None);
        let duplex = Self::new(&source, info, key, doorbell, host);
        Ok((source, duplex))
    }

    fn new(source: &Source, info: SourceInfo, key: Key, doorbell: Doorbell, host: &Host) -> Self {
        let shared = Arc::clone(source.shared());
        let served = shared.lock().connection.served_link().map(|(link, number)| {
            let state = State::new(info.connection, link, host);
            (number, state)
        });
        Self {
            shared,
            info,
            key,
            served,
            payload: AlignedBuffer::default(),
            answer: AlignedBuffer::default(),
            is_busy: true,
            doorbell,
        }
    }

    pub(super) fn source(&self) -> SourceInfo {
        self.info
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn carried_by(&self) -> String {
        let waiter = self.shared.lock().connection.waiter();
        waiter.map_or_else(String::new, |waiter| waiter.carried_by())
    }

    fn is_accepted(&self) -> bool {
        matches!(self.doorbell, Doorbell::Listener(_))
    }

    /// Processes at most one quantum of what has arrived. Returns the number of frames and batch entries processed; `None`:
    /// the connection ended.
    #[cold]
    pub(super) fn poll(
        &mut self,
        host: &Host,
        session: &mut Session<'_>,
        argument: &Argument,
    ) -> Option<usize> {
        let mut processed = 0;
        while processed < QUANTUM {
            let polled = self.poll_one(host, session, argument)?;
            if polled == 0 {
                break;
            }
            processed += polled;
        }
        self.is_busy |= processed > 0;
        if argument.shared {
            // Another thread may poll next.
            self.shared.lock().connection.set_polled_here(false);
        }
        Some(processed)
    }

    /// Processes what has arrived up to the next invocation, and runs that.
    fn poll_one(&mut self, host: &Host, session: &mut Session<'_>, argument: &Argument) -> Option<usize> {
        let mut state = self.shared.lock();
        if state.is_closed {
            return None;
        }
        state.connection.set_polled_here(true);
        let Some((link, number)) = state.connection.served_link() else {
            drop(state);
            self.served = None;
            return (!self.is_accepted()).then_some(0);
        };
        if self.served.as_ref().is_none_or(|(known, _)| *known != number) {
            self.served = None;
            self.served = Some((number, State::new(self.info.connection, link, host)));
        }
        let Some((_, served)) = &mut self.served else {
            return None;
        };
        let mut taken = None;
        let mut takes = Takes {
            served: Served {
                state: served,
                host,
                session: &mut *session,
                argument,
            },
            payload: &mut self.payload,
            taken: &mut taken,
        };
        let polled = state.connection.poll_served(&mut takes);
        state.polled();
        drop(state);
        let processed = match polled {
            Ok(processed) => processed,
            Err(closed) => {
                served.ended(&closed);
                self.served = None;
                return (!self.is_accepted()).then_some(0);
            }
        };
        if let Some(taken) = taken {
            let mut served = Served {
                state: served,
                host,
                session,
                argument,
            };
            let max_answer = taken.reply_to.max_answer();
            self.answer.resize(max_answer.unwrap_or(0));
            let invocation = Invocation::<&[u8]> {
                sequence: taken.sequence,
                is_batched: taken.is_batched,
                payload: Payload::Private(self.payload.as_slice()),
            };
            let answer = max_answer.map(|_| self.answer.as_mut_slice());
            let outcome = served.run(&taken.counted, invocation, answer);
            let outcome = outcome.map(|len| &self.answer.as_slice()[..len]);
            let mut state = self.shared.lock();
            state
                .connection
                .answer(number, &mut served, &taken.reply_to, outcome);
            state.polled();
        }
        Some(processed)
    }

    /// Whether a poll would find something. If not, grants the peer its credits.
    pub(super) fn has_work(&mut self) -> bool {
        let mut state = self.shared.lock();
        let is_over = state.is_closed || self.is_accepted() && !state.connection.is_linked();
        let has_work = is_over || state.connection.has_arrived();
        state.polled();
        has_work
    }

    /// Whether a poll processed something since the last call. A link whose doorbell the listener does not watch counts as
    /// busy: no listener reports it.
    pub(super) fn take_busy(&mut self) -> bool {
        std::mem::take(&mut self.is_busy) || !self.is_accepted()
    }

    pub(super) fn park(&mut self) {
        let is_accepted = self.is_accepted();
        let connection = &mut self.shared.lock().connection;
        if let Doorbell::Own(doorbells, watched) = &mut self.doorbell {
            doorbells.watch(watched, connection.waiter());
        }
        connection.park(!is_accepted);
    }

    pub(super) fn is_quiet(&mut self) -> bool {
        let mut state = self.shared.lock();
        if state.is_closed || self.is_accepted() && !state.connection.is_linked() {
            return false;
        }
        let is_quiet = state.connection.is_quiet();
        state.polled();
        is_quiet
    }

    pub(super) fn unpark(&mut self) {
        self.shared.lock().connection.unpark();
        if let Doorbell::Own(_, Some(waiter)) = &self.doorbell {
            waiter.clear_doorbell();
        }
        self.is_busy = true;
    }
}

/// Ends the link. Sources that use it learn why.
impl Drop for Duplex {
    fn drop(&mut self) {
        let listed = match &mut self.doorbell {
            Doorbell::Listener(peers) => peers.remove(self.info.connection),
            Doorbell::Own(doorbells, watched) => {
                doorbells.watch(watched, None);
                None
            }
        };
        let mut state = self.shared.lock();
        let is_linked = state.connection.is_linked();
        let why = if is_linked { TARGET_GONE } else { ACCEPTED };
        state.connection.retire(why);
        state.give_up(why.into());
        drop(state);
        if is_linked && let Some((_, served)) = &self.served {
            served.ended(&Closed::Left);
        }
        drop(listed);
    }
}
