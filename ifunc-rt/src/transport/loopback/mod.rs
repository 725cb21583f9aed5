//! A target in the same process: for unit tests and for learning. A link is that of [shared memory](super::shm), made over a pair
//! of sockets; nothing of it is in the file system. In tests it can deliver out of order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::shm::{Acceptor, connect_here};
use super::{ConnectConfig, ConnectError, Link, ListenConfig, ListenError, Listener};

/// Targets of this process by name.
static ACCEPTORS: Mutex<BTreeMap<String, Arc<Acceptor>>> = Mutex::new(BTreeMap::new());

fn acceptors() -> MutexGuard<'static, BTreeMap<String, Arc<Acceptor>>> {
    // The map is whole between any two statements, also after a panic of another test's thread.
    ACCEPTORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name that a listener has until it is dropped.
struct Name(String);

impl Drop for Name {
    fn drop(&mut self) {
        let acceptor = acceptors().remove(&self.0);
        // After the lock is released: its connections that were not accepted end with it.
        drop(acceptor);
    }
}

/// Listens at `name`.
pub(super) fn listen(name: &str, config: ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    let acceptor = Acceptor::new("loopback", None, config)?;
    let mut acceptors = acceptors();
    if acceptors.contains_key(name) {
        return Err(ListenError::InUse {
            address: address_of(name),
            holder: std::process::id().try_into().ok(),
        });
    }
    acceptors.insert(name.to_owned(), Arc::clone(&acceptor));
    Ok(acceptor.into_listener(name, Name(name.to_owned())))
}

/// Connects to the target `name`.
pub(super) fn connect(name: &str, config: &ConnectConfig) -> Result<Link, ConnectError> {
    let address = address_of(name);
    // They stay locked, so that the listener still exists when the link is put there.
    let acceptors = acceptors();
    // A forked child has its parent's targets in its memory, and no thread that serves them.
    match acceptors.get(name).filter(|acceptor| !acceptor.is_forked()) {
        Some(acceptor) => {
            let link = connect_here(acceptor, address, config)?;
            #[cfg(all(test, not(loom)))]
            let link = tests::shuffled(link, acceptor.config().shuffle, acceptor.config().to_source);
            Ok(link)
        }
        None => Err(ConnectError::NobodyListens { address, path: None }),
    }
}

fn address_of(name: &str) -> String {
    format!("loopback:{name}")
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests;
