//! The target's side of making connections.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ::ucx::code::{UCS_ERR_ALREADY_EXISTS, UCS_ERR_BUSY};
use ::ucx::{Error, Library, LoadError};

use super::attached::Attached;
use super::beside::Beside;
use super::engine::{Engine, Locked};
use super::handshake::{Mode, Welcome};
use super::link;
use super::settings::check_version;
use super::table::{Acceptor, Closing};
use crate::transport::address::{Address, HostPort};
use crate::transport::{Connector, Key, Link, ListenConfig, ListenError, Listener, PollScope};

/// A listening target.
struct UcxListener {
    engine: Arc<Engine>,
    address: Address,
}

impl From<LoadError> for ListenError {
    fn from(error: LoadError) -> Self {
        Self::Library {
            problem: error.to_string(),
        }
    }
}

impl From<Error> for ListenError {
    fn from(Error { doing, status }: Error) -> Self {
        Self::Ucx {
            doing,
            problem: status.to_string(),
        }
    }
}

/// Listens at an address of UCX's.
pub(crate) fn listen(address: &Address, config: &ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    let ucx = Library::load()?;
    let Some((mode, at)) = Mode::of_host(address) else {
        // Sources connect to the worker.
        return Engine::new(ucx, None, config.peer_timeout, Mode::Messages)?.listen(config);
    };
    let address = at.resolve().map_err(|source| ListenError::Io {
        doing: format!("looking for the host of `{at}`"),
        source,
    })?;
    check_version(ucx.version(), address.ip()).map_err(|problem| ListenError::Library { problem })?;
    let engine = Engine::new(ucx, Some(address.ip()), config.peer_timeout, mode)?;
    let mut locked = engine.lock();
    let listener = locked
        .worker
        .listen(address)
        .map_err(|error| match error.status.code {
            UCS_ERR_BUSY | UCS_ERR_ALREADY_EXISTS => ListenError::PortInUse { address },
            _ => error.into(),
        })?;
    let address = listener.address();
    locked.state.acceptor = Some(Acceptor::new(Some(listener), config));
    drop(locked);
    let at = HostPort {
        host: address.ip().to_string(),
        port: address.port(),
    };
    let ucx_version = ucx.version();
    if address.ip().is_loopback() {
        tracing::warn!(%address, %ucx_version, "listening by UCX: every user of this host can connect, and is trusted with this process's memory");
    } else {
        tracing::warn!(%address, %ucx_version, "listening by UCX on a network: every host that reaches this address can connect, and is trusted with this process's memory");
    }
    Ok(Box::new(UcxListener {
        engine,
        address: match mode {
            Mode::Messages => Address::Ucx(at),
            Mode::Puts => Address::UcxPut(at),
        },
    }))
}

impl Acceptor {
    /// Where sources connect to UCX's listener, or send a hello to the worker.
    pub(super) fn new(listener: Option<::ucx::Listener>, config: &ListenConfig) -> Self {
        Self {
            listener,
            welcome: Welcome {
                hello: config.hello,
                to_target: config.to_target,
                to_source: config.to_source,
            },
            connect: config.connect.clone(),
            most: config.max_connections,
            waiting: VecDeque::new(),
            armed: false,
            asleep: false,
        }
    }
}

impl Listener for UcxListener {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn set_node(&mut self, node: Option<u32>) {
        if let Some(acceptor) = &mut self.engine.lock().state.acceptor {
            acceptor.welcome.hello.node = node;
        }
    }

    fn accept(&mut self) -> Option<Link> {
        if self.engine.polling.accepts_none() {
            return None;
        }
        let mut locked = self.engine.lock();
        // Between `arm` and the sleep there is no progress: what it takes in would not wake the target.
        let armed = locked
            .state
            .acceptor
            .as_mut()
            .is_some_and(|acceptor| std::mem::take(&mut acceptor.armed));
        if !armed && !self.engine.polling.is_here() {
            locked.progress();
        }
        let id = locked.state.acceptor.as_mut()?.waiting.pop_front()?;
        locked.log_lanes(id);
        drop(locked);
        link::new(&self.engine, id)
    }

    fn doorbell(&self) -> BorrowedFd<'_> {
        self.engine.bell()
    }

    fn ready(&mut self, keys: &mut Vec<Key>) {
        keys.append(&mut self.engine.lock().state.ready);
    }

    fn fence(&self) {
        // Everything is under one lock.
    }

    fn arm(&mut self) {
        let mut locked = self.engine.lock();
        if locked.state.mode == Mode::Puts {
            locked.announce_all();
        }
        locked.arm();
        let (pause, nap) = (locked.pause(), locked.backoff());
        if pause.is_some() {
            locked.wake();
        }
        if let Some(acceptor) = &mut locked.state.acceptor {
            (acceptor.armed, acceptor.asleep) = (true, true);
        }
        drop(locked);
        // Others may use the engine meanwhile.
        std::thread::sleep(pause.unwrap_or_default().max(nap));
    }

    fn disarm(&mut self) {
        if let Some(acceptor) = &mut self.engine.lock().state.acceptor {
            (acceptor.armed, acceptor.asleep) = (false, false);
        }
    }

    fn connector(&self) -> Option<Arc<dyn Connector>> {
        Some(Arc::new(Beside::new(&self.engine, &self.address)?))
    }

    fn serves_any_thread(&self) -> bool {
        self.engine.attached().is_none_or(Attached::is_anywhere)
    }

    fn poll_scope(&self) -> Option<Arc<dyn PollScope>> {
        // An application's worker may be used by one thread alone, and progressed by the application.
        let engine = self
            .engine
            .attached()
            .is_none()
            .then(|| Arc::clone(&self.engine))?;
        Some(engine)
    }

    /// Over TCP a poll is a system call.
    fn pace(&self) -> u32 {
        8
    }
}

impl Drop for UcxListener {
    fn drop(&mut self) {
        self.engine.close(Closing::Acceptor);
    }
}

impl Locked<'_> {
    /// Takes no more connections.
    pub(super) fn stop_listening(&mut self) {
        let Some(acceptor) = self.state.acceptor.take() else {
            return;
        };
        if let Some(listener) = acceptor.listener {
            self.worker.close_listener(listener);
        }
        // Their sources learn that no target takes them.
        for id in Vec::from_iter(self.state.half_open().chain(acceptor.waiting)) {
            self.forget(id);
        }
    }
}

impl Engine {
    /// Makes a target that is known by the address of its worker.
    pub(crate) fn listen(self: &Arc<Self>, config: &ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
        let mut locked = self.lock();
        // The application may have destroyed it.
        if locked.state.closed {
            return Err(ListenError::WorkerClosed);
        }
        let address = Address::UcxWorker(Some(locked.address()?));
        if locked.state.acceptor.is_some() {
            return Err(ListenError::InUse {
                address: address.to_string(),
                holder: Some(std::process::id().cast_signed()),
            });
        }
        locked.state.acceptor = Some(Acceptor::new(None, config));
        let ucx_version = locked.worker.library().version();
        drop(locked);
        match self.attached() {
            Some(_) => tracing::warn!(
                "listening on a UCX worker of the application's: every process that reaches it can connect, and is trusted with this process's memory"
            ),
            None => tracing::warn!(
                %ucx_version,
                "listening by UCX on every device that it may use (UCX_NET_DEVICES, UCX_TLS): every host that reaches this worker can connect, and is trusted with this process's memory"
            ),
        }
        Ok(Box::new(UcxListener {
            engine: Arc::clone(self),
            address,
        }))
    }
}
