//! A target in the same process: for unit tests and for learning. It keeps the rules of the other transports
//! (credits, at most [`max_body`](super::Outbound::max_body) bytes, wake-ups). In tests it can deliver out of order.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ConnectConfig, ConnectError, Key, Link, ListenConfig, ListenError, Listener};
use crate::os::EventFd;

mod link;

/// Targets of this process by name.
static ACCEPTORS: Mutex<BTreeMap<String, Arc<Acceptor>>> = Mutex::new(BTreeMap::new());

/// Locks, also after a panic of another test's thread: what is kept here is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a target shares with its connections.
struct Acceptor {
    config: ListenConfig,
    doorbell: Arc<EventFd>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Connections that the target has not accepted.
    waiting: VecDeque<Link>,
    /// Parked connections that have an event.
    ready: Vec<Key>,
    /// The target sleeps and must be woken for them.
    asleep: bool,
    /// The key of the next connection.
    next: u64,
    /// Connections that the target has or is about to have.
    live: usize,
}

impl Acceptor {
    /// Reports a parked connection that has an event.
    fn mark_ready(&self, key: Key) {
        let mut state = lock(&self.state);
        state.ready.push(key);
        if std::mem::take(&mut state.asleep) {
            self.doorbell.wake();
        }
    }
}

/// The listener of a target.
struct LoopbackListener {
    name: String,
    acceptor: Arc<Acceptor>,
}

/// Listens at `name`.
pub(super) fn listen(name: &str, config: ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    let doorbell = EventFd::new().map_err(|source| ListenError::Io {
        doing: "making an eventfd".into(),
        source,
    })?;
    let acceptor = Arc::new(Acceptor {
        config,
        doorbell: Arc::new(doorbell),
        state: Mutex::default(),
    });
    let mut acceptors = lock(&ACCEPTORS);
    if acceptors.contains_key(name) {
        let holder = std::process::id().try_into().ok();
        return Err(ListenError::InUse {
            address: address_of(name),
            holder,
        });
    }
    acceptors.insert(name.to_owned(), Arc::clone(&acceptor));
    Ok(Box::new(LoopbackListener {
        name: name.to_owned(),
        acceptor,
    }))
}

/// Connects to the target `name`.
pub(super) fn connect(name: &str, config: &ConnectConfig) -> Result<Link, ConnectError> {
    let acceptors = lock(&ACCEPTORS);
    let acceptor = acceptors.get(name).ok_or_else(|| ConnectError::NobodyListens {
        address: address_of(name),
        path: None,
    })?;
    let doorbell = EventFd::new().map_err(|source| ConnectError::Io {
        doing: "making an eventfd".into(),
        source,
    })?;
    // `acceptors` stays locked, so that the listener still exists when the link is put there.
    let mut state = lock(&acceptor.state);
    let most = acceptor.config.max_connections;
    if state.live >= most {
        return Err(ConnectError::Busy {
            address: address_of(name),
            reason: super::no_more_than(most),
        });
    }
    let key = Key(state.next);
    let [target, source] = link::pair(acceptor, key, doorbell, config.hello);
    state.live += 1;
    state.next += 1;
    state.waiting.push_back(target);
    acceptor.doorbell.wake();
    Ok(source)
}

fn address_of(name: &str) -> String {
    format!("loopback:{name}")
}

impl Listener for LoopbackListener {
    fn address(&self) -> String {
        address_of(&self.name)
    }

    fn accept(&mut self) -> Option<Link> {
        lock(&self.acceptor.state).waiting.pop_front()
    }

    fn doorbell(&self) -> BorrowedFd<'_> {
        self.acceptor.doorbell.as_fd()
    }

    fn ready(&mut self, keys: &mut Vec<Key>) {
        keys.append(&mut lock(&self.acceptor.state).ready);
    }

    fn fence(&self) {
        // Queues are under locks.
    }

    fn arm(&mut self) {
        self.acceptor.doorbell.clear();
        lock(&self.acceptor.state).asleep = true;
    }

    fn disarm(&mut self) {
        lock(&self.acceptor.state).asleep = false;
    }
}

impl Drop for LoopbackListener {
    fn drop(&mut self) {
        lock(&ACCEPTORS).remove(&self.name);
        // Dropping them notifies their sources. It locks the state itself.
        let unaccepted = std::mem::take(&mut lock(&self.acceptor.state).waiting);
        drop(unaccepted);
    }
}

#[cfg(test)]
mod tests;
