//! What ifuncs are run on: the node's data, and which source is asking.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use ifunc_rt::{ImageInfo, SourceInfo, Verdict, invoking_connection};
use ifuncd_interfaces::{Node as NodeInterface, NodeError};

use crate::capability::{Capabilities, Capability};
use crate::files::Folder;
use crate::memory::Regions;
use crate::peer::{Peer, PeerSettings, Peers};
use crate::store::Database;

/// What all targets of the daemon share.
#[derive(Debug)]
pub struct Data {
    /// The sources.
    pub peers: Peers,
    /// Keys and values.
    pub store: Option<Database>,
    /// Files.
    pub files: Option<Folder>,
    /// Regions.
    pub memory: Option<Regions>,
}

/// The target arguments of one target.
#[derive(ifunc::Opaque, Debug)]
#[opaque(interfaces)]
pub struct Node {
    data: Arc<Data>,
    /// Whose the connections are that have sent images. Numbers are those of this node's target.
    connections: RwLock<HashMap<u64, Arc<Peer>>>,
}

#[ifunc::export]
impl NodeInterface for Node {}

/// A call that was admitted.
pub(crate) struct Caller {
    pub(crate) peer: Arc<Peer>,
    pub(crate) settings: Arc<PeerSettings>,
    capability: Capability,
}

impl Caller {
    /// Counts and writes down that the call is refused after all.
    pub(crate) fn refuse(&self, why: NodeError, what: &str) -> NodeError {
        self.peer.refuse(&self.settings, self.capability, why, what)
    }

    /// Counts bytes that the call moves.
    pub(crate) fn moved(&self, bytes: usize) {
        self.peer
            .counts()
            .bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Node {
    /// The node of one target.
    #[must_use]
    pub fn new(data: Arc<Data>) -> Self {
        Self {
            data,
            connections: RwLock::default(),
        }
    }

    /// What it is the node of.
    #[must_use]
    pub fn data(&self) -> &Arc<Data> {
        &self.data
    }

    /// The source whose invocation calls, if it may use this.
    pub(crate) fn caller(&self, capability: Capability) -> Result<Caller, NodeError> {
        let connection = invoking_connection().ok_or(NodeError::Denied)?;
        let peer = {
            let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
            connections.get(&connection).cloned()
        };
        let peer = peer.ok_or(NodeError::Denied)?;
        let settings = peer.admit(capability)?;
        Ok(Caller {
            peer,
            settings,
            capability,
        })
    }

    /// Whether an image of a source may be installed, or stays when the configuration was read again: the check of the target's policy.
    pub fn check(&self, source: &SourceInfo, image: &ImageInfo<'_>) -> Verdict {
        let Some(peer) = self.data.peers.of(source) else {
            let who = match (&source.name, source.key, source.uid) {
                (Some(name), _, _) => format!("the certificate `{name}`"),
                (None, Some(key), _) => format!("the key {key}"),
                (None, None, Some(user)) => format!("the user {user}"),
                (None, None, None) => "no key".to_owned(),
            };
            return Verdict::refuse(format!("no `[[peer]]` of this ifuncd's configuration has {who}"));
        };
        let settings = peer.settings();
        if let Err(why) = admits(&settings, image) {
            peer.counts().refused_images.fetch_add(1, Ordering::Relaxed);
            return Verdict::refuse(why);
        }
        if !image.is_installed {
            peer.counts().images.fetch_add(1, Ordering::Relaxed);
        }
        let verdict = Verdict::accept_within(peer.allowance());
        let mut connections = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        connections.insert(source.connection, peer);
        verdict
    }

    /// Forgets the connections that are not among these, which the target reports, up to the latest of them.
    pub fn retain_connections(&self, connected: &[u64], latest: u64) {
        let mut connections = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|number, _| *number > latest || connected.binary_search(number).is_ok());
    }
}

/// Whether a peer may send this image.
fn admits(settings: &PeerSettings, image: &ImageInfo<'_>) -> Result<(), String> {
    let name = &settings.name;
    match (image.signer, &settings.signers) {
        (None, _) if !settings.unsigned => {
            return Err(format!(
                "the peer `{name}` may send signed code only; help: `cargo ifunc sign --key KEY NAME.so`, with a key of a `[[signer]]`"
            ));
        }
        (Some(signer), Some(signers)) if !signers.iter().any(|known| known == signer) => {
            return Err(format!(
                "the peer `{name}` may not send code that `{signer}` signed; help: add it to the peer's `signers`"
            ));
        }
        _ => {}
    }
    let denied = |symbol: &&&str| {
        Capability::of_import(symbol).is_some_and(|needed| !settings.capabilities.has(needed))
    };
    // Nothing asks when one of these is called.
    let of_runtime = image
        .imports
        .iter()
        .find(|symbol| Capability::is_of_runtime(symbol) && denied(symbol));
    if let Some(symbol) = of_runtime {
        return Err(format!(
            "the peer `{name}` may not import `{symbol}`; help: add it to the peer's `capabilities`"
        ));
    }
    let needed: Capabilities = image
        .imports
        .iter()
        .filter_map(|symbol| Capability::of_import(symbol))
        .collect();
    let has_some = needed.iter().any(|one| settings.capabilities.has(one));
    if needed != Capabilities::default() && !has_some {
        return Err(format!(
            "the peer `{name}` may use {}, and the image uses {needed}; help: add it to the peer's `capabilities`",
            settings.capabilities
        ));
    }
    Ok(())
}
