//! The policy of the daemon's targets, as the configuration says it.

use std::sync::Arc;

use ifunc_rt::{Grant, Policy, PolicyError, Unsigned};

use crate::config::Config;
use crate::node::Node;
use crate::peer::Identity;

/// The policy of one target.
///
/// # Errors
/// A name is none that a certificate can have.
///
/// # Safety
/// As for [`Policy::accept_unsigned`]: the author of the configuration decides whose code runs in this process, or, at
/// [`Level::Process`](ifunc_rt::Level::Process), in processes of its own.
pub unsafe fn of(config: &Config, node: &Arc<Node>) -> Result<Policy, PolicyError> {
    let mut policy = Policy::new()
        .quotas(config.quotas)
        .level(config.faults.level)
        .stack(config.faults.stack_bytes)
        .max_run_time(config.faults.max_run_time)
        .runners(config.faults.runners.clone());
    let mut certified = Vec::new();
    for peer in &config.peers {
        match &peer.identity {
            Identity::Key(key) => policy = policy.connect_key(&*peer.name, *key),
            Identity::Certificate(name) => certified.push(name),
            Identity::User(user) => policy = policy.connect_users([*user]),
        }
    }
    if let Some(authority) = config.listen.authority.clone().filter(|_| !certified.is_empty()) {
        policy = policy.connect_certificate(authority, certified)?;
    }
    for (name, key) in &config.signers {
        // SAFETY: the caller's promise.
        policy = unsafe { policy.accept_key(name, *key, Grant::new()) };
    }
    if config.peers.iter().any(|peer| peer.unsigned) {
        // SAFETY: the caller's promise. The check refuses unsigned code of the other peers.
        policy = unsafe { policy.accept_unsigned(Unsigned::EveryPeer, Grant::new()) };
    }
    let node = Arc::clone(node);
    Ok(policy.accept_if(move |source, image| node.check(source, image)))
}
