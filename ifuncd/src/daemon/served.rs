//! A target of the daemon, on a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use ifunc_rt::{PolicyHandle, StatsHandle, StopHandle, Target, TargetError};

use super::DaemonError;
use super::error::os;
use crate::config::Config;
use crate::node::{Data, Node};
use crate::policy;

/// A target that serves.
pub(super) struct Served {
    pub(super) address: String,
    pub(super) node: Arc<Node>,
    pub(super) policy: PolicyHandle,
    pub(super) stats: StatsHandle,
    pub(super) stop: StopHandle,
}

/// What the thread of the daemon waits for.
pub(super) enum Event {
    /// A signal has come.
    Signal(i32),
    /// The target at an address has ended; `None`: by a panic.
    Ended(String, Option<Result<(), TargetError>>),
}

/// Reports the end of a target when it is dropped.
struct End {
    events: Sender<Event>,
    address: String,
    served: Option<Result<(), TargetError>>,
}

impl End {
    fn is(&mut self, served: Result<(), TargetError>) {
        self.served = Some(served);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let ended = Event::Ended(std::mem::take(&mut self.address), self.served.take());
        // A daemon that has stopped does not ask.
        let _ = self.events.send(ended);
    }
}

/// Listens at one address.
///
/// # Safety
/// As for [`policy::of`].
pub(super) unsafe fn listen(
    config: &Config,
    address: &str,
    data: &Arc<Data>,
    events: &Sender<Event>,
) -> Result<Served, DaemonError> {
    let node = Arc::new(Node::new(Arc::clone(data)));
    // SAFETY: the caller's promise.
    let policy = unsafe { policy::of(config, &node) }?;
    let mut builder = Target::builder()
        .policy(policy)
        .max_connections(config.listen.max_connections);
    if let Some(keys) = &config.listen.keys {
        builder = builder.tls(keys.clone());
    }
    if config.listen.share_stats {
        builder = builder.share_stats(true);
    } else if !address.starts_with("shm:") {
        builder = builder.share_stats(false);
    }
    let failed = |error| DaemonError::Target {
        address: address.to_owned(),
        error,
    };
    let mut target = builder.listen(address).map_err(failed)?;
    let (address, policy, stats, stop) = (
        target.address(),
        target.policy(),
        target.stats_handle(),
        target.stop_handle(),
    );
    let (threads, serving) = (config.listen.threads, Arc::clone(&node));
    let mut end = End {
        events: events.clone(),
        address: address.clone(),
        served: None,
    };
    let serve = move || {
        let served = target.serve_shared(&*serving, threads);
        // The sources learn of the end before the daemon does.
        drop(target);
        end.is(served);
    };
    let started = thread::Builder::new().name("ifuncd-serve".into()).spawn(serve);
    started.map_err(os("start a thread that serves"))?;
    Ok(Served {
        address,
        node,
        policy,
        stats,
        stop,
    })
}
