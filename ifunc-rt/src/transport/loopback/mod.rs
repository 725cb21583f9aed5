//! A target in the same process: for unit tests and for learning. It keeps the rules of the other transports
//! (credits, at most [`max_body`](super::Outbound::max_body) bytes, wake-ups). In tests it can deliver out of order.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifunc_abi::hello::Hello;

use self::end::{Connection, End};
use self::ready_list::ReadyList;
use super::{ConnectConfig, ConnectError, Ends, Key, Link, ListenConfig, ListenError, Listener, Peer};
use crate::os::EventFd;

mod end;
mod pipe;
mod ready_list;

/// Targets of this process by name.
static ACCEPTORS: Mutex<BTreeMap<String, Arc<Acceptor>>> = Mutex::new(BTreeMap::new());

/// Locks, also after a panic of another test's thread: what is kept here is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a target accepts sources by.
struct Acceptor {
    config: ListenConfig,
    hello: Hello,
    event_fd: Arc<EventFd>,
    ready: Arc<ReadyList>,
    waiting: Mutex<VecDeque<Link>>,
    /// Length of `waiting`.
    count: AtomicUsize,
}

/// The listener of a target.
struct LoopbackListener {
    name: String,
    acceptor: Arc<Acceptor>,
}

/// Listens at `name`.
pub(super) fn listen(name: &str, config: ListenConfig) -> Result<impl Listener + use<>, ListenError> {
    let event_fd = EventFd::new().map_err(|source| ListenError::Io {
        doing: "making an eventfd".into(),
        source,
    })?;
    let event_fd = Arc::new(event_fd);
    let acceptor = Arc::new(Acceptor {
        hello: config.hello(),
        config,
        ready: Arc::new(ReadyList::new(Arc::clone(&event_fd))),
        event_fd,
        waiting: Mutex::default(),
        count: AtomicUsize::new(0),
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
    Ok(LoopbackListener {
        name: name.to_owned(),
        acceptor,
    })
}

/// Connects to the target `name`.
pub(super) fn connect(name: &str, config: &ConnectConfig) -> Result<Link, ConnectError> {
    let no_target = || ConnectError::NobodyListens {
        address: address_of(name),
        path: None,
    };
    let acceptors = lock(&ACCEPTORS);
    let acceptor = acceptors.get(name).ok_or_else(no_target)?;
    let event_fd = EventFd::new().map_err(|source| ConnectError::Io {
        doing: "making an eventfd".into(),
        source,
    })?;
    let most = acceptor.config.max_connections;
    let key = acceptor.ready.enter(most).ok_or_else(|| ConnectError::Busy {
        address: address_of(name),
        reason: super::no_more_than(most),
    })?;
    let connection = Arc::new(Connection::new(
        &acceptor.config,
        (Arc::clone(&acceptor.ready), key),
        Arc::new(event_fd),
    ));
    let link = |end: End, hello: Hello| {
        let end = Arc::new(end);
        Link {
            ends: Ends::other(
                end::Sender::new(Arc::clone(&end)),
                end::Receiver::new(Arc::clone(&end)),
            ),
            waiter: Arc::new(end::Sleeper::new(end)),
            peer: Peer {
                uid: Some(rustix::process::geteuid().as_raw()),
                pid: std::process::id().try_into().ok(),
            },
            hello,
            key,
        }
    };
    let source = link(End::source(Arc::clone(&connection)), acceptor.hello);
    // `acceptors` is still locked: the listener still exists.
    lock(&acceptor.waiting).push_back(link(End::target(connection), config.hello()));
    acceptor.count.fetch_add(1, Ordering::Release);
    acceptor.event_fd.wake();
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
        if self.acceptor.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.acceptor.count.fetch_sub(1, Ordering::Relaxed);
        lock(&self.acceptor.waiting).pop_front()
    }

    fn doorbell(&self) -> BorrowedFd<'_> {
        self.acceptor.event_fd.as_fd()
    }

    fn ready(&mut self, keys: &mut Vec<Key>) {
        self.acceptor.ready.take(keys);
    }

    fn fence(&self) {
        // Queues are under locks.
    }

    fn arm(&mut self) {
        self.acceptor.event_fd.clear();
        self.acceptor.ready.arm(true);
    }

    fn disarm(&mut self) {
        self.acceptor.ready.arm(false);
    }
}

impl Drop for LoopbackListener {
    fn drop(&mut self) {
        lock(&ACCEPTORS).remove(&self.name);
        // Dropping them notifies their sources.
        let unaccepted = std::mem::take(&mut *lock(&self.acceptor.waiting));
        drop(unaccepted);
    }
}

#[cfg(test)]
mod tests;
