//! Connecting to nodes on threads of their own, while the thread that serves goes on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{GroupError, Place};
use crate::os::EventFd;
use crate::source::connection::{Connection, Service};
use crate::transport::address::Address;
use crate::transport::{ConnectError, Connector, Route};
use crate::{SourceOptions, rendezvous::Rendezvous};

/// Threads that connect at the same time.
const THREADS: usize = 4;
/// Longest attempt, after which a published address is read again: the node may have been restarted elsewhere.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Pause before the next attempt to connect to a target that has not joined the group yet.
const PAUSE: Duration = Duration::from_millis(20);

/// A connection to make.
pub(crate) struct Dialing {
    pub(crate) node: u32,
    pub(crate) place: Place,
    pub(crate) service: Service,
    pub(crate) until: Instant,
}

/// What became of it.
pub(crate) struct Dialed {
    pub(crate) node: u32,
    pub(crate) result: Result<Connection, GroupError>,
}

/// Makes connections, and wakes the thread that serves for each result.
#[derive(Clone)]
pub(crate) struct Dialer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// `state.done` is not empty. Written under the lock: the thread that serves asks in every poll that finds nothing.
    has_done: AtomicBool,
    doorbell: Arc<EventFd>,
    /// By whose means links are made, where they lead to the address.
    connector: Option<Arc<dyn Connector>>,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Dialing>,
    done: Vec<Dialed>,
    threads: usize,
    is_closed: bool,
}

impl Dialer {
    pub(crate) fn new(doorbell: Arc<EventFd>, connector: Option<Arc<dyn Connector>>) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            has_done: AtomicBool::new(false),
            doorbell,
            connector,
        }))
    }

    /// Connects on another thread.
    pub(super) fn dial(&self, dialing: Dialing) {
        let mut state = self.0.state();
        state.requests.push_back(dialing);
        if state.threads == THREADS {
            return;
        }
        let shared = Arc::clone(&self.0);
        let name = thread::Builder::new().name("ifunc-dial".into());
        match name.spawn(move || shared.work()) {
            Ok(_) => state.threads += 1,
            // Another thread has taken it, or there is none.
            Err(_) if state.threads > 0 => {}
            Err(source) => {
                for Dialing { node, .. } in std::mem::take(&mut state.requests) {
                    let why = ConnectError::Io {
                        doing: "starting a thread that connects".into(),
                        source: source.kind().into(),
                    };
                    let result = Err(connect_error(node, why));
                    state.done.push(Dialed { node, result });
                }
                self.0.has_done.store(!state.done.is_empty(), Ordering::Release);
            }
        }
    }

    /// The results since the last call.
    pub(super) fn take_done(&self) -> Vec<Dialed> {
        if !self.0.has_done.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut state = self.0.state();
        self.0.has_done.store(false, Ordering::Release);
        std::mem::take(&mut state.done)
    }

    /// Connects to no more nodes, and drops the results of those under way.
    pub(super) fn close(&self) {
        let mut state = self.0.state();
        state.is_closed = true;
        let dropped = (
            std::mem::take(&mut state.requests),
            std::mem::take(&mut state.done),
        );
        drop(state);
        drop(dropped);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Body of a thread: ends when nothing is left to do.
    fn work(&self) {
        loop {
            let mut state = self.state();
            let Some(dialing) = state.requests.pop_front() else {
                state.threads -= 1;
                return;
            };
            drop(state);
            let node = dialing.node;
            let result = self.connect(dialing);
            let mut state = self.state();
            if state.is_closed {
                drop(state);
                drop(result);
                continue;
            }
            state.done.push(Dialed { node, result });
            self.has_done.store(true, Ordering::Release);
            drop(state);
            self.doorbell.wake();
        }
    }

    fn connect(&self, dialing: Dialing) -> Result<Connection, GroupError> {
        let Dialing {
            node,
            place,
            service,
            until,
        } = dialing;
        loop {
            let address = place.find(node, until)?;
            let text = address.to_string();
            let left = until.saturating_duration_since(Instant::now());
            // When the link has ended, the group makes another one if it needs it.
            let options = SourceOptions::default()
                .connect_timeout(left.min(ATTEMPT))
                .reconnect(Duration::ZERO);
            let route = match &self.connector {
                Some(connector) => Route::Beside(Arc::clone(connector), address),
                None => Route::Address(address),
            };
            let why = match Connection::connect(route, options, Some(service.clone())) {
                Ok(mut connection) => match connection.peer_node() {
                    Some(found) if found == node => {
                        connection.greet();
                        return Ok(connection);
                    }
                    Some(found) => {
                        let address = text;
                        return Err(GroupError::OtherNode { node, found, address });
                    }
                    None => ConnectError::Timeout {
                        address: text,
                        waiting_for: "it has not joined a group",
                    },
                },
                Err(why) => why,
            };
            if !why.may_pass() || Instant::now() + PAUSE >= until || self.state().is_closed {
                return Err(connect_error(node, why));
            }
            thread::sleep(PAUSE);
        }
    }
}

fn connect_error(node: u32, why: ConnectError) -> GroupError {
    let why = Box::new(why);
    GroupError::Connect { node, why }
}

impl Place {
    /// The address, once it is published.
    fn find(&self, node: u32, until: Instant) -> Result<Address, GroupError> {
        let find =
            |rendezvous: &Rendezvous| rendezvous.find(node, until.saturating_duration_since(Instant::now()));
        Ok(match self {
            Self::Address(address) => address.clone(),
            Self::Published(rendezvous) => find(rendezvous)?.parse()?,
        })
    }
}
