//! The sources that the configuration names, and what each may use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use ifunc_rt::keys::PublicKey;
use ifunc_rt::{Allowance, Quotas, SourceInfo};
use ifuncd_interfaces::NodeError;

use crate::audit;
use crate::capability::{Capabilities, Capability};
use crate::rate::Rate;

/// By what a source is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The key that it proves.
    Key(PublicKey),
    /// The name of the certificate that it proves.
    Certificate(String),
    /// Its user, on this host.
    User(u32),
}

impl Identity {
    /// That of a connection: the name of its certificate comes first, then its key, then its user.
    pub(crate) fn of(certificate: Option<&str>, key: Option<PublicKey>, user: Option<u32>) -> Option<Self> {
        match (certificate, key, user) {
            (Some(name), _, _) => Some(Self::Certificate(name.to_owned())),
            (None, Some(key), _) => Some(Self::Key(key)),
            (None, None, user) => user.map(Self::User),
        }
    }
}

/// What the configuration says of a source.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// Its name, in logs and counters.
    pub name: Arc<str>,
    /// How it is recognised.
    pub identity: Identity,
    /// Where its keys and regions are.
    pub namespace: Arc<str>,
    /// What it may use.
    pub capabilities: Capabilities,
    /// Whether its code runs without a signature.
    pub unsigned: bool,
    /// The names of the signers whose code it may send; `None`: all of them.
    pub signers: Option<Vec<String>>,
    /// The folder of its files, below that of the node; empty: that of the node.
    pub folder: String,
    /// Whether it may write files.
    pub writes_files: bool,
    /// What the runtime counts of it.
    pub quotas: Quotas,
    /// Calls of the node's interfaces per second; `None`: no limit.
    pub calls_per_second: Option<u32>,
    /// Bytes of keys and values in the namespace.
    pub store_bytes: u64,
    /// Bytes of regions in the namespace.
    pub memory_bytes: u64,
}

/// What is counted of a source.
#[derive(Debug, Default)]
pub struct PeerCounts {
    /// Calls of interfaces that were admitted, by capability.
    pub calls: [AtomicU64; Capability::ALL.len()],
    /// Calls that were not, by capability.
    pub refused_calls: [AtomicU64; Capability::ALL.len()],
    /// Images that were accepted.
    pub images: AtomicU64,
    /// Images that this daemon's own check refused.
    pub refused_images: AtomicU64,
    /// Bytes that were read and written by calls.
    pub bytes: AtomicU64,
}

/// A source that the configuration names. It keeps what it has used when the configuration is read again.
#[derive(Debug)]
pub struct Peer {
    settings: RwLock<Arc<PeerSettings>>,
    allowance: Allowance,
    calls: Rate,
    counts: PeerCounts,
}

impl Peer {
    fn new(settings: PeerSettings) -> Self {
        Self {
            allowance: Allowance::new(format!("the peer `{}`", settings.name), settings.quotas),
            settings: RwLock::new(Arc::new(settings)),
            calls: Rate::default(),
            counts: PeerCounts::default(),
        }
    }

    /// What the configuration says now.
    #[must_use]
    pub fn settings(&self) -> Arc<PeerSettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, settings: PeerSettings) {
        self.allowance.set_quotas(settings.quotas);
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// What its images and invocations count against.
    #[must_use]
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> &PeerCounts {
        &self.counts
    }

    /// Admits a call, and counts it.
    ///
    /// # Errors
    /// The peer may not use this, or calls too often.
    pub(crate) fn admit(&self, capability: Capability) -> Result<Arc<PeerSettings>, NodeError> {
        let settings = self.settings();
        let refused = if !settings.capabilities.has(capability) {
            NodeError::Denied
        } else if !self.calls.take(settings.calls_per_second, Instant::now()) {
            NodeError::Rate
        } else {
            self.counts.calls[capability as usize].fetch_add(1, Ordering::Relaxed);
            return Ok(settings);
        };
        Err(self.refuse(&settings, capability, refused, ""))
    }

    /// Counts and writes down that a call was refused.
    pub(crate) fn refuse(
        &self,
        settings: &PeerSettings,
        capability: Capability,
        why: NodeError,
        what: &str,
    ) -> NodeError {
        self.counts.refused_calls[capability as usize].fetch_add(1, Ordering::Relaxed);
        audit::call_refused(&settings.name, capability, why, what);
        why
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Peers(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    by_identity: HashMap<Identity, Arc<Peer>>,
    /// Those that were left out. One that is named again is the same for connections that it had before.
    removed: HashMap<Identity, Arc<Peer>>,
}

impl Peers {
    /// Those of a configuration.
    #[must_use]
    pub fn new(all: &[PeerSettings]) -> Self {
        let peers = Self::default();
        peers.replace(all);
        peers
    }

    /// Replaces them. One that is recognised by the same keeps what it has used; one that is left out may use nothing until it is
    /// named again.
    pub fn replace(&self, all: &[PeerSettings]) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut table.removed);
        before.extend(table.by_identity.drain());
        for settings in all {
            let peer = match before.remove(&settings.identity) {
                Some(peer) => {
                    peer.set(settings.clone());
                    peer
                }
                None => Arc::new(Peer::new(settings.clone())),
            };
            table.by_identity.insert(settings.identity.clone(), peer);
        }
        for peer in before.values() {
            let settings = PeerSettings {
                capabilities: Capabilities::default(),
                ..PeerSettings::clone(&peer.settings())
            };
            peer.set(settings);
        }
        table.removed = before;
    }

    /// The peer that a connected source is.
    #[must_use]
    pub fn of(&self, source: &SourceInfo) -> Option<Arc<Peer>> {
        self.by_identity(&Identity::of(source.name.as_deref(), source.key, source.uid)?)
    }

    /// The peer that is recognised so.
    pub(crate) fn by_identity(&self, identity: &Identity) -> Option<Arc<Peer>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.by_identity.get(identity).cloned()
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Peer>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = table.by_identity.values().cloned().collect();
        all.sort_by_key(|peer| Arc::clone(&peer.settings().name));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: &str, user: u32) -> PeerSettings {
        PeerSettings {
            name: name.into(),
            identity: Identity::User(user),
            namespace: name.into(),
            capabilities: [Capability::Store].into_iter().collect(),
            unsigned: true,
            signers: None,
            folder: String::new(),
            writes_files: false,
            quotas: Quotas::UNLIMITED,
            calls_per_second: None,
            store_bytes: 0,
            memory_bytes: 0,
        }
    }

    #[test]
    fn a_peer_that_is_named_again_is_the_same() {
        let (ada, bob) = (settings("ada", 1), settings("bob", 2));
        let peers = Peers::new(&[ada.clone(), bob.clone()]);
        let of_ada = Arc::clone(&peers.all()[0]);
        assert!(of_ada.admit(Capability::Store).is_ok());
        // Left out twice, as when something else changes meanwhile.
        for _ in 0..2 {
            peers.replace(std::slice::from_ref(&bob));
            assert_eq!(peers.all().len(), 1);
            assert_eq!(of_ada.admit(Capability::Store).map(drop), Err(NodeError::Denied));
        }
        peers.replace(&[ada, bob]);
        assert!(Arc::ptr_eq(&of_ada, &peers.all()[0]));
        assert!(of_ada.admit(Capability::Store).is_ok());
    }
}
