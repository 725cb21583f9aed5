//! A target in the same process: for unit tests and for learning. It keeps the rules of the other transports
//! (credits, at most [`max_body`](super::Outbound::max_body) bytes, bells), and can deliver out of order,
//! which the layers above must bear.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifunc_abi::hello::Hello;

use self::end::{Connection, End};
use self::stirred::Stirred;
use super::bell::Bell;
use super::{ConnectConfig, ConnectError, Key, Link, ListenConfig, ListenError, Listener, Peer};

mod end;
mod pipe;
mod stirred;

/// Targets of this process by name.
static DOORS: Mutex<BTreeMap<String, Arc<Door>>> = Mutex::new(BTreeMap::new());

/// Locks, also after a panic of another test's thread: what is kept here is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where sources meet a target.
struct Door {
    config: ListenConfig,
    hello: Hello,
    bell: Arc<Bell>,
    stirred: Arc<Stirred>,
    waiting: Mutex<VecDeque<Link>>,
    /// Length of `waiting`.
    count: AtomicUsize,
}

/// A target's side of its door.
struct LoopbackListener {
    name: String,
    door: Arc<Door>,
}

/// Opens the door `name`.
pub(super) fn listen(name: &str, config: ListenConfig) -> Result<impl Listener + use<>, ListenError> {
    let bell = Bell::new().map_err(|source| ListenError::Io {
        doing: "making an eventfd".into(),
        source,
    })?;
    let bell = Arc::new(bell);
    let door = Arc::new(Door {
        hello: config.hello(),
        config,
        stirred: Arc::new(Stirred::new(Arc::clone(&bell))),
        bell,
        waiting: Mutex::default(),
        count: AtomicUsize::new(0),
    });
    let mut doors = lock(&DOORS);
    if doors.contains_key(name) {
        let holder = std::process::id().try_into().ok();
        return Err(ListenError::InUse {
            address: address_of(name),
            holder,
        });
    }
    doors.insert(name.to_owned(), Arc::clone(&door));
    Ok(LoopbackListener {
        name: name.to_owned(),
        door,
    })
}

/// Goes through the door `name`.
pub(super) fn connect(name: &str, config: &ConnectConfig) -> Result<Link, ConnectError> {
    let nobody = || ConnectError::NobodyListens {
        address: address_of(name),
        path: None,
    };
    let doors = lock(&DOORS);
    let door = doors.get(name).ok_or_else(nobody)?;
    let bell = Bell::new().map_err(|source| ConnectError::Io {
        doing: "making an eventfd".into(),
        source,
    })?;
    let most = door.config.max_connections;
    let key = door.stirred.enter(most).ok_or_else(|| ConnectError::Busy {
        address: address_of(name),
        reason: super::no_more_than(most),
    })?;
    let connection = Arc::new(Connection::new(
        &door.config,
        (Arc::clone(&door.stirred), key),
        Arc::new(bell),
    ));
    let link = |end: End, hello: Hello| {
        let end = Arc::new(end);
        Link {
            tx: Box::new(end::Sender::new(Arc::clone(&end))).into(),
            rx: Box::new(end::Receiver::new(Arc::clone(&end))).into(),
            waiter: Arc::new(end::Sleeper::new(end)),
            peer: Peer {
                uid: Some(rustix::process::geteuid().as_raw()),
                pid: std::process::id().try_into().ok(),
            },
            hello,
            key,
        }
    };
    let source = link(End::source(Arc::clone(&connection)), door.hello);
    // `doors` is still locked: the listener cannot have left.
    lock(&door.waiting).push_back(link(End::target(connection), config.hello()));
    door.count.fetch_add(1, Ordering::Release);
    door.bell.ring();
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
        if self.door.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.door.count.fetch_sub(1, Ordering::Relaxed);
        lock(&self.door.waiting).pop_front()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.door.bell.as_fd()
    }

    fn ready(&mut self, keys: &mut Vec<Key>) {
        self.door.stirred.take(keys);
    }

    fn fence(&self) {
        // Queues are under locks.
    }

    fn arm(&mut self) {
        self.door.bell.silence();
        self.door.stirred.arm(true);
    }

    fn disarm(&mut self) {
        self.door.stirred.arm(false);
    }
}

impl Drop for LoopbackListener {
    fn drop(&mut self) {
        lock(&DOORS).remove(&self.name);
        // Their sources learn that nobody will come.
        let unmet = std::mem::take(&mut *lock(&self.door.waiting));
        drop(unmet);
    }
}

#[cfg(test)]
mod tests;
