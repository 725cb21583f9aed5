//! Links that a target makes on the worker on which it listens: one poll of the worker is a poll of all of them.

use std::sync::Arc;
use std::time::Instant;

use super::attempts;
use super::engine::Engine;
use super::exchange::source::Host;
use super::handshake::Mode;
use super::source::look_up;
use crate::transport::address::Address;
use crate::transport::{ConnectConfig, ConnectError, Connector, Link};

/// The worker of a listener, and where it leads.
pub(super) struct Beside {
    engine: Arc<Engine>,
    mode: Mode,
    /// The worker uses the loopback device alone, or all others.
    is_loopback: bool,
}

impl Beside {
    /// `None`: the worker is the application's, which says what it is used for.
    pub(super) fn new(engine: &Arc<Engine>, listens_at: &Address) -> Option<Self> {
        let (mode, at) = Mode::of_host(listens_at)?;
        let address = at.resolve().ok()?;
        engine.attached().is_none().then(|| Self {
            engine: Arc::clone(engine),
            mode,
            is_loopback: address.ip().is_loopback(),
        })
    }
}

impl Connector for Beside {
    fn connect(
        &self,
        to: &Address,
        config: &ConnectConfig,
        deadline: Instant,
    ) -> Option<Result<Link, ConnectError>> {
        let (mode, at) = Mode::of_host(to)?;
        let library = self.engine.lock().worker.library();
        let resolved = match look_up(library, at) {
            Ok(resolved) => resolved,
            Err(error) => return Some(Err(error)),
        };
        if mode != self.mode || resolved.ip().is_loopback() != self.is_loopback {
            return None;
        }
        let address = to.to_string();
        let host = Host {
            mode,
            at: resolved,
            name: &at.host,
            address: &address,
        };
        Some(attempts::until(deadline, |attempt| {
            let calling = self.engine.call_host(&host, config, attempt)?;
            calling.wait_beside(attempt.deadline, || attempt.is_hopeless())
        }))
    }
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the worker of a listener")
    }
}
