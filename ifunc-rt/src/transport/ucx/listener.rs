//! The target's side of making connections.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ucx_sys::{
    SockAddr, UCP_LISTENER_ATTR_FIELD_SOCKADDR, UCS_ERR_ALREADY_EXISTS, UCS_ERR_BUSY, Ucx, socket_addr,
    ucp_listener_attr_t, ucp_listener_h,
};

use super::borrowed::Borrowed;
use super::engine::{Engine, Locked, Refused};
use super::handshake::{Way, Welcome};
use super::settings::{Settings, judge};
use super::table::Door;
use super::{link, put};
use crate::transport::address::{Address, HostPort};
use crate::transport::{Key, Link, ListenConfig, ListenError, Listener};

/// A listening target.
struct UcxListener {
    engine: Arc<Engine>,
    address: Address,
}

/// Listens at `at`.
pub(super) fn listen(
    at: &HostPort,
    config: &ListenConfig,
    way: Way,
) -> Result<Box<dyn Listener>, ListenError> {
    let ucx = Ucx::load().map_err(|error| ListenError::Library {
        problem: error.to_string(),
    })?;
    let address = at.resolve().map_err(|source| ListenError::Io {
        doing: format!("looking for the host of `{at}`"),
        source,
    })?;
    let refused = |doing| {
        move |status: ucx_sys::Status| ListenError::Ucx {
            doing,
            problem: status.to_string(),
        }
    };
    judge(ucx.version(), address.ip()).map_err(|problem| ListenError::Library { problem })?;
    let settings = Settings::new(ucx, Some(address.ip()), config.peer_timeout)
        .map_err(refused("reading UCX's configuration"))?;
    let engine =
        Engine::new(ucx, &settings, way).map_err(|Refused { doing, status }| refused(doing)(status))?;
    let mut locked = engine.lock();
    let listener = locked
        .listen(&SockAddr::new(address))
        .map_err(|status| match status.code {
            UCS_ERR_BUSY | UCS_ERR_ALREADY_EXISTS => ListenError::PortInUse { address },
            _ => refused("listening by UCX")(status),
        })?;
    locked.state.door = Some(Door::new(Some(listener), config));
    let mut attr = ucp_listener_attr_t {
        field_mask: u64::from(UCP_LISTENER_ATTR_FIELD_SOCKADDR),
        ..ucp_listener_attr_t::default()
    };
    // SAFETY: the listener is alive; the fields of the mask are written.
    let status = unsafe { ucx.ucp_listener_query(listener, &raw mut attr) };
    drop(locked);
    // From here on its end is the listener's.
    let named = |address: SocketAddr| {
        let at = HostPort {
            host: address.ip().to_string(),
            port: address.port(),
        };
        match way {
            Way::Messages => Address::Ucx(at),
            Way::Puts => Address::UcxPut(at),
        }
    };
    let mut listener = UcxListener {
        engine,
        address: named(address),
    };
    ucx.check(status)
        .map_err(refused("asking UCX for the address that it listens on"))?;
    let address = socket_addr(&attr.sockaddr).unwrap_or(address);
    listener.address = named(address);
    let ucx_version = ucx.version();
    if address.ip().is_loopback() {
        tracing::warn!(%address, %ucx_version, "listening by UCX: every user of this host can connect, and whoever does is trusted with this process's memory");
    } else {
        tracing::warn!(%address, %ucx_version, "listening by UCX on a network: every host that reaches this address can connect, and whoever does is trusted with this process's memory");
    }
    Ok(Box::new(listener))
}

/// Makes a target that is known by the address of its worker.
pub(super) fn listen_at_worker(config: &ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    let ucx = Ucx::load().map_err(|error| ListenError::Library {
        problem: error.to_string(),
    })?;
    let refused = |Refused { doing, status }| ListenError::Ucx {
        doing,
        problem: status.to_string(),
    };
    let settings = Settings::new(ucx, None, config.peer_timeout).map_err(|status| ListenError::Ucx {
        doing: "reading UCX's configuration",
        problem: status.to_string(),
    })?;
    let engine = Engine::new(ucx, &settings, Way::Messages).map_err(refused)?;
    let mut locked = engine.lock();
    let address = locked.address().map_err(refused)?;
    locked.state.door = Some(Door::new(None, config));
    drop(locked);
    tracing::warn!(
        ucx_version = %ucx.version(),
        "listening by UCX on every device that it may use (UCX_NET_DEVICES, UCX_TLS): who reaches this worker can connect, and whoever does is trusted with this process's memory"
    );
    Ok(Box::new(UcxListener {
        engine,
        address: Address::UcxWorker(Some(address)),
    }))
}

impl Door {
    /// Where sources come in by UCX's listener, or say hello to the worker.
    pub(super) fn new(listener: Option<ucp_listener_h>, config: &ListenConfig) -> Self {
        Self {
            listener,
            welcome: Welcome {
                // Keys from the system's random numbers, a counter, the time: another one in every run.
                epoch: RandomState::new().hash_one((std::process::id(), std::time::SystemTime::now())) | 1,
                limits: config.limits,
                to_target: config.to_target,
                to_source: config.to_source,
            },
            most: config.max_connections,
            guests: VecDeque::new(),
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

    fn accept(&mut self) -> Option<Link> {
        let mut locked = self.engine.lock();
        // Between `arm` and sleep UCX is not let work: what it then took in would not ring.
        let armed = locked
            .state
            .door
            .as_mut()
            .is_some_and(|door| std::mem::take(&mut door.armed));
        if !armed {
            locked.progress();
        }
        let id = locked.state.door.as_mut()?.waiting.pop_front()?;
        locked.show(id);
        let way = locked.state.way;
        drop(locked);
        match way {
            Way::Messages => link::new(&self.engine, id),
            Way::Puts => put::link::new(&self.engine, id),
        }
    }

    fn bell(&self) -> BorrowedFd<'_> {
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
        if locked.state.way == Way::Puts {
            locked.announce_all();
        }
        locked.arm();
        let (pause, nap) = (locked.pause(), locked.nap());
        if pause.is_some() {
            locked.wake();
        }
        if let Some(door) = &mut locked.state.door {
            (door.armed, door.asleep) = (true, true);
        }
        drop(locked);
        // Others may use the engine meanwhile.
        std::thread::sleep(pause.unwrap_or_default().max(nap));
    }

    fn disarm(&mut self) {
        if let Some(door) = &mut self.engine.lock().state.door {
            (door.armed, door.asleep) = (false, false);
        }
    }

    fn serves_any_thread(&self) -> bool {
        self.engine.borrowed().is_none_or(Borrowed::is_anywhere)
    }

    /// Over TCP a look is a system call.
    fn pace(&self) -> u32 {
        8
    }
}

impl Drop for UcxListener {
    fn drop(&mut self) {
        self.engine.close_door();
    }
}

impl Locked<'_> {
    /// Nobody comes in any more.
    pub(super) fn close_door(&mut self) {
        let Some(door) = self.state.door.take() else {
            return;
        };
        if let Some(listener) = door.listener {
            // SAFETY: alive, its worker this thread's, and used for the last time.
            unsafe { self.ucx().ucp_listener_destroy(listener) };
        }
        // Their sources learn that nobody will come.
        for id in door.guests.into_iter().map(|(id, _)| id).chain(door.waiting) {
            self.forget(id);
        }
    }
}

/// Makes a target of a worker of the application's.
pub(super) fn listen_on(
    engine: &Arc<Engine>,
    config: &ListenConfig,
) -> Result<Box<dyn Listener>, ListenError> {
    let mut locked = engine.lock();
    let refused = |Refused { doing, status }| ListenError::Ucx {
        doing,
        problem: status.to_string(),
    };
    let address = Address::UcxWorker(Some(locked.address().map_err(refused)?));
    if locked.state.door.is_some() {
        return Err(ListenError::InUse {
            address: address.to_string(),
            holder: Some(std::process::id().cast_signed()),
        });
    }
    locked.state.door = Some(Door::new(None, config));
    drop(locked);
    tracing::warn!(
        "listening on a UCX worker of the application's: who reaches it can connect, and whoever does is trusted with this process's memory"
    );
    Ok(Box::new(UcxListener {
        engine: Arc::clone(engine),
        address,
    }))
}
