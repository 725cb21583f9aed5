//! The nodes that connected to a target: processes that serve what this one sends over the links that it accepted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Source;
use crate::policy::SourceInfo;

/// Sources over the links that a target accepted from nodes ([`Target::connect`](crate::Target::connect)). Clones list the
/// same.
///
/// A source of this list sends to the node that connected, over the same link. It does not reconnect: after the link has
/// died its operations end with [`Error::PeerGone`](crate::Error::PeerGone), and when the node connects again it is a new
/// connection. Dropping a source of this list does not close the link.
#[derive(Clone, Default)]
pub struct Peers(Arc<Mutex<Listed>>);

type Listed = BTreeMap<u64, (SourceInfo, Source)>;

impl Peers {
    /// A source that sends over this connection ([`SourceInfo::connection`], [`Context::sender`]). `None`: there is no such
    /// connection, or its peer does not serve.
    ///
    /// [`Context::sender`]: ifunc_abi::context::Context::sender
    #[must_use]
    pub fn source(&self, connection: u64) -> Option<Source> {
        self.lock().get(&connection).map(|(_, source)| source.clone())
    }

    /// All of them, oldest connection first.
    #[must_use]
    pub fn list(&self) -> Vec<(SourceInfo, Source)> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn add(&self, info: SourceInfo, source: Source) {
        self.lock().insert(info.connection, (info, source));
    }

    /// Removes a connection. The caller drops its source without this list's lock.
    pub(super) fn remove(&self, connection: u64) -> Option<(SourceInfo, Source)> {
        self.lock().remove(&connection)
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().keys()).finish()
    }
}
