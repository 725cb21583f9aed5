//! The source's side of making a connection.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ucx_sys::{
    SockAddr, Status, UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_NOT_CONNECTED,
    UCS_ERR_REJECTED, UCS_ERR_SHMEM_SEGMENT, UCS_ERR_UNREACHABLE, Ucx, ucp_ep_h,
};

use super::attempts::{self, Attempt};
use super::engine::{Engine, Locked, Refused};
use super::handshake::{Hello, Misheard, VERSION, Way};
use super::header::Notice;
use super::settings::{Settings, judge};
use super::table::{ConnectionId, Stage};
use super::{link, put};
use crate::transport::address::{Address, HostPort, WorkerAddress};
use crate::transport::{ConnectConfig, ConnectError, Link, LinkError};

/// That nobody listens is said at once, but not before UCX was made ready, which takes a while: whoever has no time left is
/// told that much.
const GRACE: Duration = Duration::from_millis(100);

/// Connects to the target at `at`.
pub(super) fn connect(
    at: &HostPort,
    config: &ConnectConfig,
    deadline: Instant,
    way: Way,
) -> Result<Link, ConnectError> {
    let address = format!("{}://{at}", way.scheme());
    let ucx = load()?;
    let to = at.resolve().map_err(|source| ConnectError::Io {
        doing: format!("looking for the host of `{address}`"),
        source,
    })?;
    judge(ucx.version(), to.ip()).map_err(|problem| ConnectError::Library { problem })?;
    attempts::until(deadline, |attempt| {
        let engine = engine(ucx, Some(to.ip()), config, way)?;
        let mut locked = engine.lock();
        let ep = locked
            .connect(&SockAddr::new(to))
            .map_err(refused("connecting by UCX"))?;
        let id = locked.state.insert(ep, true, Stage::Calling);
        say_hello(&mut locked, id, None);
        hear(&engine, locked, id, address.clone(), attempt)
    })
}

/// Connects to the target whose worker has this address.
pub(super) fn connect_to_worker(
    to: &WorkerAddress,
    config: &ConnectConfig,
    deadline: Instant,
) -> Result<Link, ConnectError> {
    let address = Address::UcxWorker(Some(to.clone())).to_string();
    let ucx = load()?;
    attempts::until(deadline, |attempt| {
        // The target hears of the end of an attempt by the end of its worker.
        let engine = engine(ucx, None, config, Way::Messages)?;
        let mut locked = engine.lock();
        let own = locked
            .address()
            .map_err(|Refused { doing, status }| refused(doing)(status))?;
        let ep = locked
            .connect_to_worker(to)
            .map_err(|status| failed(status, &address))?;
        let id = locked.state.insert(ep, true, Stage::Calling);
        if let Some(connection) = locked.state.connections.get_mut(&id) {
            connection.am_id = Some(to.am_id());
        }
        say_hello(&mut locked, id, Some(own));
        hear(&engine, locked, id, address.clone(), attempt)
    })
}

fn load() -> Result<&'static Ucx, ConnectError> {
    Ucx::load().map_err(|error| ConnectError::Library {
        problem: error.to_string(),
    })
}

fn engine(
    ucx: &'static Ucx,
    by_way_of: Option<IpAddr>,
    config: &ConnectConfig,
    way: Way,
) -> Result<Arc<Engine>, ConnectError> {
    let settings =
        Settings::new(ucx, by_way_of, config.peer_timeout).map_err(refused("reading UCX's configuration"))?;
    Engine::new(ucx, &settings, way).map_err(|Refused { doing, status }| refused(doing)(status))
}

fn refused(doing: &'static str) -> impl FnOnce(Status) -> ConnectError {
    move |status| ConnectError::Ucx {
        doing,
        problem: status.to_string(),
    }
}

/// What it means that an endpoint failed before it was of use.
fn failed(status: Status, address: &str) -> ConnectError {
    match status.code {
        UCS_ERR_CONNECTION_RESET | UCS_ERR_NOT_CONNECTED | UCS_ERR_ENDPOINT_TIMEOUT | UCS_ERR_SHMEM_SEGMENT => {
            ConnectError::NobodyListens {
                address: address.to_owned(),
                path: None,
            }
        }
        // Worth another attempt: who says it has no room at this moment, or is about to go.
        UCS_ERR_REJECTED => ConnectError::Ucx {
            doing: "connecting by UCX",
            problem: format!(
                "`{address}` rejected the connection: too many are being made to it at this moment, or it stops listening; help: try again in a moment"
            ),
        },
        UCS_ERR_UNREACHABLE if address.starts_with("ucx-worker:") => ConnectError::Ucx {
            doing: "connecting by UCX",
            problem: "destination is unreachable; help: the target whose address this is may have ended (a target that starts again has another address), or both sides have no transport in common: see UCX_TLS and UCX_NET_DEVICES of both".into(),
        },
        UCS_ERR_UNREACHABLE => ConnectError::Ucx {
            doing: "connecting by UCX",
            problem: "destination is unreachable; help: both sides need a transport in common that takes connections, such as tcp: see UCX_TLS and UCX_NET_DEVICES of both".into(),
        },
        _ => refused("connecting by UCX")(status),
    }
}

/// An endpoint of the application's, of a worker that was borrowed.
#[derive(Clone, Copy, Debug)]
struct Ep(ucp_ep_h);

// SAFETY: a handle, which is used under the lock of its worker's engine alone.
unsafe impl Send for Ep {}
// SAFETY: as above.
unsafe impl Sync for Ep {}

/// Where a source is that has an endpoint of the application's.
#[derive(Clone)]
pub(crate) struct Over {
    engine: Arc<Engine>,
    ep: Ep,
}

/// A source that has said hello, and hears.
pub(crate) struct Calling {
    over: Over,
    id: ConnectionId,
    /// What became of it was said: the connection is a link's, or no more.
    told: bool,
}

impl std::fmt::Debug for Over {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an endpoint of the application's")
    }
}

impl Over {
    pub(super) fn new(engine: &Arc<Engine>, ep: ucp_ep_h) -> Self {
        // Another one may have had the address before.
        engine.lock().state.lost.remove(&ep.addr());
        Self {
            engine: Arc::clone(engine),
            ep: Ep(ep),
        }
    }

    /// What errors call it.
    const NAME: &str = "an endpoint of the application's";

    fn begin(&self) -> Result<(Locked<'_>, ConnectionId), ConnectError> {
        let mut locked = self.engine.lock();
        if locked.state.closed || locked.state.lost.contains(&self.ep.0.addr()) {
            return Err(ConnectError::Refused {
                address: Self::NAME.into(),
                reason: "the application said that the worker is closed, or that the endpoint's peer is gone"
                    .into(),
            });
        }
        let id = locked.state.insert(self.ep.0, false, Stage::Calling);
        Ok((locked, id))
    }

    /// Connects to the target on the worker at the other end.
    pub(crate) fn connect(&self, deadline: Instant) -> Result<Link, ConnectError> {
        let (mut locked, id) = self.begin()?;
        say_hello(&mut locked, id, None);
        locked.work_until(in_time(deadline), |locked| is_decided(locked, id));
        verdict(&self.engine, locked, id, Self::NAME.into())
    }

    /// Says hello, and waits for nothing.
    pub(crate) fn call(&self) -> Result<Calling, ConnectError> {
        let (mut locked, id) = self.begin()?;
        say_hello(&mut locked, id, None);
        Ok(Calling {
            over: self.clone(),
            id,
            told: false,
        })
    }
}

impl Calling {
    /// What became of it, if it is known.
    pub(crate) fn poll(&mut self) -> Option<Result<Link, ConnectError>> {
        let mut locked = self.over.engine.lock();
        locked.progress();
        if !is_decided(&locked, self.id) {
            return None;
        }
        self.told = true;
        Some(verdict(&self.over.engine, locked, self.id, Over::NAME.into()))
    }

    /// For another attempt.
    pub(crate) fn over(&self) -> &Over {
        &self.over
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        if !self.told {
            self.over.engine.leave(self.id);
        }
    }
}

/// Hears what becomes of a connection, or that this attempt gets nowhere.
fn hear(
    engine: &Arc<Engine>,
    mut locked: Locked<'_>,
    id: ConnectionId,
    address: String,
    attempt: &mut Attempt,
) -> Result<Link, ConnectError> {
    let deadline = in_time(attempt.deadline);
    locked.work_until(deadline, |locked| is_decided(locked, id) || attempt.is_hopeless());
    verdict(engine, locked, id, address)
}

fn in_time(deadline: Instant) -> Instant {
    deadline.max(Instant::now() + GRACE)
}

fn say_hello(locked: &mut Locked<'_>, id: ConnectionId, own: Option<WorkerAddress>) {
    let Some(name) = locked
        .state
        .connections
        .get(&id)
        .map(|connection| connection.name)
    else {
        return;
    };
    let hello = Hello { name, address: own };
    let way = locked.state.way;
    locked.say(id, Notice::Hello, 0, &hello.encode(way));
}

/// Whether it is known what became of a call.
fn is_decided(locked: &Locked<'_>, id: ConnectionId) -> bool {
    let connection = locked.state.connections.get(&id);
    connection
        .is_none_or(|connection| connection.gone.is_some() || !matches!(connection.stage, Stage::Calling))
}

/// What became of a call; it ends here, if nothing did.
fn verdict(
    engine: &Arc<Engine>,
    mut locked: Locked<'_>,
    id: ConnectionId,
    address: String,
) -> Result<Link, ConnectError> {
    let way = locked.state.way;
    let connection = locked.state.connections.get_mut(&id);
    let (stage, failure, gone) = connection.map_or((None, None, None), |connection| {
        let open = matches!(connection.stage, Stage::Open { .. } | Stage::Put(_));
        let stage = (!open).then(|| std::mem::replace(&mut connection.stage, Stage::Calling));
        (stage, connection.failure, connection.gone.clone())
    });
    let protocol = |problem| ConnectError::Protocol {
        address: address.clone(),
        problem,
    };
    let error = match (stage, gone) {
        (None, None) => {
            locked.show(id);
            drop(locked);
            let link = match way {
                Way::Messages => link::new(engine, id),
                Way::Puts => put::link::new(engine, id),
            };
            return link.ok_or(protocol("it left at once"));
        }
        (Some(Stage::Refused(reason)), _) => ConnectError::Refused { address, reason },
        (Some(Stage::Busy(reason)), _) => ConnectError::Busy { address, reason },
        (Some(Stage::Misheard(Misheard::Version(theirs))), _) => ConnectError::Version {
            address,
            theirs,
            ours: VERSION,
        },
        (Some(Stage::Misheard(Misheard::Way(_))), _) => protocol("it answers in terms of another transport"),
        (Some(Stage::Misheard(Misheard::Nonsense(problem))), _)
        | (_, Some(LinkError::Malformed(problem))) => protocol(problem),
        (_, Some(LinkError::Closed)) => match failure {
            None => ConnectError::NobodyListens { address, path: None },
            Some(status) => failed(locked.ucx().status(status), &address),
        },
        (Some(_), None) => ConnectError::Timeout {
            address,
            waiting_for: "it has not said that it takes the connection",
        },
    };
    locked.forget(id);
    Err(error)
}
