//! A listening target.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ::ucx::{Error, Library, LoadError};

use super::attached::Attached;
use super::beside::Beside;
use super::engine::{Engine, Locked};
use super::exchange;
use super::handshake::{Mode, Welcome};
use super::link;
use super::settings::check_version;
use super::table::{Acceptor, Closing};
use crate::keys::{PublicKey, TlsKeys};
use crate::transport::address::{Address, HostPort};
use crate::transport::tls::once;
use crate::transport::{Connector, Key, Link, ListenConfig, ListenError, Listener, PollScope};

/// A listening target.
struct UcxListener {
    /// Answers sources until it is dropped, which is before the engine is; `None` where they have the worker's address.
    _exchange: Option<Arc<exchange::acceptor::Acceptor>>,
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
    let io = |doing: String| move |source| ListenError::Io { doing, source };
    let resolved = at
        .resolve()
        .map_err(io(format!("looking for the host of `{at}`")))?;
    check_version(ucx.version(), resolved.ip()).map_err(|problem| ListenError::Library { problem })?;
    let server = server(&address.to_string(), config)?;
    let key = server.as_ref().map(once::Server::key);
    let socket = TcpListener::bind(resolved).map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => ListenError::PortInUse { address: resolved },
        _ => io(format!("listening at `{address}`"))(source),
    })?;
    let bound = socket
        .set_nonblocking(true)
        .and_then(|()| socket.local_addr())
        .map_err(io(format!("listening at `{address}`")))?;
    let engine = Engine::new(ucx, Some(bound.ip()), config.peer_timeout, mode)?;
    engine.lock().state.acceptor = Some(Acceptor::new(true, config));
    let exchange = exchange::acceptor::Acceptor::new(&engine, socket.into(), mode, config, server)
        .map_err(io("starting the thread that watches connections".into()))?;
    if mode == Mode::Messages {
        engine.prepare_gathering();
    }
    log_trust(ucx, bound, key);
    let at = HostPort {
        host: bound.ip().to_string(),
        port: bound.port(),
    };
    Ok(Box::new(UcxListener {
        _exchange: Some(exchange),
        engine,
        address: match mode {
            Mode::Messages => Address::Ucx(at),
            Mode::Puts => Address::UcxPut(at),
        },
    }))
}

/// What sources prove their keys to, if the target has keys.
fn server(address: &str, config: &ListenConfig) -> Result<Option<once::Server>, ListenError> {
    let connect = config.connect.get();
    let keys = TlsKeys::given(connect.tls.as_ref()).map_err(|problem| ListenError::Keys {
        address: address.to_owned(),
        problem,
    })?;
    keys.map(|keys| once::Server::new(address, keys, &connect))
        .transpose()
}

/// Logs who can do what to a target that listens.
fn log_trust(ucx: Library, address: SocketAddr, key: Option<PublicKey>) {
    let ucx_version = ucx.version();
    let connects = match key {
        Some(_) => "the holders of the keys that this target admits connect",
        None => "every process that the policy's addresses admit connects",
    };
    let reaches = if address.ip().is_loopback() {
        "every user of this host reaches"
    } else {
        "every host of the network reaches"
    };
    tracing::warn!(
        %address,
        key = key.map(|key| key.to_string()),
        %ucx_version,
        "listening by UCX: {connects}; {reaches} UCX's own port, which authenticates nobody and is not encrypted, and is trusted there with this process's memory"
    );
}

impl Acceptor {
    /// Where sources say hello after an exchange, or send one to the worker.
    pub(super) fn new(by_exchange: bool, config: &ListenConfig) -> Self {
        Self {
            by_exchange,
            welcome: Welcome {
                hello: config.hello,
                to_target: config.to_target,
                to_source: config.to_source,
            },
            most: config.max_connections,
            connect: config.connect.clone(),
            waiting: VecDeque::new(),
            armed: false,
            asleep: false,
            is_woken: false,
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

    fn has_waiting(&self) -> bool {
        !self.engine.polling.accepts_none()
    }

    fn accept(&mut self) -> Option<Link> {
        if !self.has_waiting() {
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
        locked.note_lanes(id);
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
        // A thread that takes the lock after this one sees that connections are parked; this one sees what others received before. So do
        // callbacks in the application's calls, which do not have the lock but pass the handler's gate, or are this thread's.
        let mut locked = self.engine.lock();
        drop(locked.worker.handler());
    }

    fn arm(&mut self) {
        let mut locked = self.engine.lock();
        if locked.state.mode == Mode::Puts {
            locked.announce_all();
        }
        locked.arm();
        self.engine.polling.before_sleep();
        let (pause, nap) = (locked.pause(), locked.backoff());
        if pause.is_some() {
            locked.wake();
        }
        if let Some(acceptor) = &mut locked.state.acceptor {
            (acceptor.armed, acceptor.asleep, acceptor.is_woken) = (true, true, false);
        }
        drop(locked);
        if self.engine.has_late_notices() {
            self.engine.lock().wake();
        }
        // Others may use the engine meanwhile.
        std::thread::sleep(pause.unwrap_or_default().max(nap));
    }

    fn disarm(&mut self) {
        if let Some(acceptor) = &mut self.engine.lock().state.acceptor {
            (acceptor.armed, acceptor.asleep, acceptor.is_woken) = (false, false, false);
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
        locked.state.acceptor = Some(Acceptor::new(false, config));
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
            _exchange: None,
            engine: Arc::clone(self),
            address,
        }))
    }
}
