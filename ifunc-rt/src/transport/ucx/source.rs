//! The source's side of making a connection.

use ifunc_abi::hello;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::ucx::code::{
    UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_NOT_CONNECTED, UCS_ERR_SHMEM_SEGMENT,
    UCS_ERR_UNREACHABLE,
};
use ::ucx::{Endpoint, EndpointId, Error, Library, LoadError, Status, raw};

use super::attempts;
use super::attempts::Attempt;
use super::engine::{Engine, Locked};
use super::exchange::liveness::Liveness;
use super::exchange::notices::Channel;
use super::exchange::source::{Host, closed};
use super::handshake::{Hello, Mode, Nonce};
use super::header::Notice;
use super::link;
use super::settings::check_version;
use super::table::{ConnectionId, Stage};
use crate::transport::address::{Address, HostPort, WorkerAddress};
use crate::transport::{ConnectConfig, ConnectError, Link, LinkError};

/// UCX says at once that no target listens, but not before it is initialised, which takes a while: a source whose time is over
/// waits for that much.
const GRACE: Duration = Duration::from_millis(100);
/// Time between two looks for the answer, on a worker that another thread serves.
const LOOK: Duration = Duration::from_micros(200);

/// Connects to the target at an address of UCX's.
pub(crate) fn connect(to: &Address, config: &ConnectConfig, deadline: Instant) -> Result<Link, ConnectError> {
    let address = to.to_string();
    let ucx = Library::load()?;
    let (mode, host) = match Mode::of_host(to) {
        Some((mode, at)) => {
            let host = Host {
                mode,
                at: look_up(ucx, at)?,
                name: &at.host,
                address: &address,
            };
            (mode, Some(host))
        }
        None => (Mode::Messages, None),
    };
    attempts::until(deadline, |attempt| {
        // The target notices the end of an attempt by the end of its worker.
        let ip = host.map(|host| host.at.ip());
        let engine = Engine::new(ucx, ip, config.peer_timeout, mode)?;
        let calling = match (&host, to) {
            (Some(host), _) => engine.call_host(host, config, attempt)?,
            (None, Address::UcxWorker(Some(worker))) => {
                let mut locked = engine.lock();
                let own = locked.address()?;
                let endpoint = locked.connect_to_worker(worker);
                let endpoint = endpoint.map_err(|status| failed(status, &address))?;
                let to = Worker {
                    am_id: worker.am_id(),
                    nonce: Nonce::NONE,
                    own: Some(own),
                };
                let calling = locked.call(&engine, endpoint, &address);
                locked.greet(calling.id, config.hello, Some(to));
                calling
            }
            _ => return Err(ConnectError::Worker),
        };
        calling.wait(engine.lock(), attempt.deadline, || attempt.is_hopeless())
    })
}

/// What a source knows of the worker to which it says hello, and says there of its own.
struct Worker {
    am_id: u16,
    /// That of the target's answer.
    nonce: Nonce,
    /// Where an endpoint to this side leads, unless the target has one.
    own: Option<WorkerAddress>,
}

/// The address of a host by which UCX can be used.
pub(super) fn look_up(ucx: Library, at: &HostPort) -> Result<SocketAddr, ConnectError> {
    let host = at.resolve().map_err(|source| ConnectError::Io {
        doing: format!("looking for the host of `{at}`"),
        source,
    })?;
    check_version(ucx.version(), host.ip()).map_err(|problem| ConnectError::Library { problem })?;
    Ok(host)
}

impl From<LoadError> for ConnectError {
    fn from(error: LoadError) -> Self {
        Self::Library {
            problem: error.to_string(),
        }
    }
}

impl From<Error> for ConnectError {
    fn from(Error { doing, status }: Error) -> Self {
        Self::Ucx {
            doing,
            problem: status.to_string(),
        }
    }
}

/// What errors call it.
const CONNECTING: &str = "connecting by UCX";

/// Whether an endpoint failed because its peer is not there.
fn means_gone(status: Status) -> bool {
    matches!(
        status.code,
        UCS_ERR_CONNECTION_RESET | UCS_ERR_NOT_CONNECTED | UCS_ERR_ENDPOINT_TIMEOUT | UCS_ERR_SHMEM_SEGMENT
    )
}

/// What it means that an endpoint failed before it was of use.
fn failed(status: Status, address: &str) -> ConnectError {
    match status.code {
        _ if means_gone(status) => ConnectError::NobodyListens {
            address: address.to_owned(),
            path: None,
        },
        UCS_ERR_UNREACHABLE if address.starts_with("ucx-worker:") => ConnectError::Ucx {
            doing: CONNECTING,
            problem: "destination is unreachable; help: the target whose address this is may have ended (a target that starts again has another address), or both sides have no transport in common: see UCX_TLS and UCX_NET_DEVICES of both".into(),
        },
        UCS_ERR_UNREACHABLE => ConnectError::Ucx {
            doing: CONNECTING,
            problem: "destination is unreachable; help: both sides need a transport in common: see UCX_TLS and UCX_NET_DEVICES of both".into(),
        },
        _ => Error { doing: CONNECTING, status }.into(),
    }
}

/// An endpoint of the application's, over which sources connect.
#[derive(Clone)]
pub(crate) struct Over {
    engine: Arc<Engine>,
    endpoint: EndpointId,
    /// What the source states about itself.
    hello: hello::Hello,
}

impl std::fmt::Debug for Over {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an endpoint of the application's")
    }
}

impl Engine {
    /// The route to the target at the other end of an endpoint.
    ///
    /// # Safety
    /// The endpoint is of the engine's worker, and alive until [`peer_gone`](Self::peer_gone).
    pub(crate) unsafe fn over(self: &Arc<Self>, ep: raw::ucp_ep_h, hello: hello::Hello) -> Over {
        let endpoint = EndpointId::of_raw(ep);
        // Another endpoint may have had the id before.
        self.lock().state.lost.remove(&endpoint);
        Over {
            engine: Arc::clone(self),
            endpoint,
            hello,
        }
    }
}

impl Over {
    /// Connects to the target on the worker at the other end.
    pub(crate) fn connect(&self, deadline: Instant) -> Result<Link, ConnectError> {
        self.call()?.wait(self.engine.lock(), deadline, || false)
    }

    /// Sends the hello, and does not wait.
    pub(crate) fn call(&self) -> Result<Calling, ConnectError> {
        let mut locked = self.engine.lock();
        if locked.state.closed {
            return Err(ConnectError::WorkerClosed);
        }
        if locked.state.lost.contains(&self.endpoint) {
            return Err(ConnectError::Refused {
                address: format!("{self:?}"),
                reason: "the application said that the endpoint's peer is gone".into(),
            });
        }
        // SAFETY: by the promise of `over`, as the application has not said that the peer is gone.
        let endpoint = unsafe { locked.worker.borrow_endpoint(self.endpoint) };
        let calling = locked.call(&self.engine, endpoint, &format!("{self:?}"));
        locked.greet(calling.id, self.hello, None);
        Ok(calling)
    }
}

/// A source that has sent its hello, and waits for the answer.
pub(crate) struct Calling {
    engine: Arc<Engine>,
    id: ConnectionId,
    /// The target's, for errors.
    address: String,
    /// It answered at its socket, just before.
    has_answered: bool,
    /// The result was returned: the connection is a link's, or is forgotten.
    is_decided: bool,
}

impl Engine {
    /// Asks a target that listens at a socket for the address of its worker, and sends it a hello there.
    pub(super) fn call_host(
        self: &Arc<Self>,
        host: &Host<'_>,
        config: &ConnectConfig,
        attempt: &mut Attempt,
    ) -> Result<Calling, ConnectError> {
        let own = self.lock().address()?;
        let deadline = attempt.deadline.max(Instant::now() + GRACE);
        let answered = host.ask(&own, config, deadline, || attempt.is_hopeless())?;
        let mut locked = self.lock();
        // The next endpoint may have the id of one that failed.
        locked.dispatch();
        let endpoint = locked.route_to(&answered.worker);
        let endpoint = endpoint.map_err(|status| failed(status, host.address))?;
        let to = Worker {
            am_id: answered.worker.am_id(),
            nonce: answered.nonce,
            own: None,
        };
        let mut calling = locked.call(self, endpoint, host.address);
        calling.has_answered = true;
        // Where frames are put, the socket carries the hello, and what follows.
        let channel = (host.mode == Mode::Puts).then(|| Channel::new(answered.encrypted));
        let socket = match Liveness::of_source(self, calling.id, answered.socket, channel) {
            Ok(socket) => socket,
            Err(source) => {
                // The end of the call uses the lock.
                drop(locked);
                return Err(ConnectError::Io {
                    doing: format!("{}: watching the connection", host.address),
                    source,
                });
            }
        };
        if let Some(connection) = locked.state.connections.get_mut(&calling.id) {
            (connection.socket, connection.known) = (Some(socket), answered.known);
        }
        locked.greet(calling.id, config.hello, Some(to));
        drop(locked);
        Ok(calling)
    }
}

impl Locked<'_> {
    /// Makes a connection to a target that is about to be sent a hello.
    fn call(&mut self, engine: &Arc<Engine>, endpoint: Endpoint, address: &str) -> Calling {
        Calling {
            engine: Arc::clone(engine),
            id: self.state.insert(endpoint, Stage::Calling),
            address: address.to_owned(),
            has_answered: false,
            is_decided: false,
        }
    }

    /// Sends a hello: to a worker, or over an endpoint of the application's.
    fn greet(&mut self, id: ConnectionId, hello: hello::Hello, to: Option<Worker>) {
        let mode = self.state.mode;
        let Some(connection) = self.state.connections.get_mut(&id) else {
            return;
        };
        let (mut nonce, mut address) = (Nonce::NONE, None);
        if let Some(to) = to {
            connection.am_id = Some(to.am_id);
            connection.peer = to.nonce.name();
            (nonce, address) = (to.nonce, to.own);
        }
        let hello = Hello {
            hello,
            name: connection.name,
            nonce,
            address,
        };
        self.notify_peer(id, Notice::Hello, 0, &hello.encode(mode));
    }
}

impl Calling {
    /// The result, if it is known.
    pub(crate) fn poll(&mut self) -> Option<Result<Link, ConnectError>> {
        let engine = Arc::clone(&self.engine);
        let mut locked = engine.lock();
        locked.progress();
        self.has_answer(&locked).then(|| self.decide(locked))
    }

    /// Waits for the answer until the deadline, or until the attempt is hopeless.
    fn wait(
        mut self,
        mut locked: Locked<'_>,
        deadline: Instant,
        mut is_hopeless: impl FnMut() -> bool,
    ) -> Result<Link, ConnectError> {
        let deadline = deadline.max(Instant::now() + GRACE);
        locked.progress_until(deadline, |locked| {
            // The background thread cannot say it while this one has the lock.
            locked.check_hung_up(self.id);
            self.has_answer(locked) || is_hopeless()
        });
        self.decide(locked)
    }

    /// As [`wait`](Self::wait), on a worker that another thread serves: that thread has the lock between two looks.
    pub(super) fn wait_beside(
        mut self,
        deadline: Instant,
        mut is_hopeless: impl FnMut() -> bool,
    ) -> Result<Link, ConnectError> {
        let deadline = deadline.max(Instant::now() + GRACE);
        loop {
            if let Some(result) = self.poll() {
                return result;
            }
            if Instant::now() >= deadline || is_hopeless() {
                let engine = Arc::clone(&self.engine);
                return self.decide(engine.lock());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn has_answer(&self, locked: &Locked<'_>) -> bool {
        let connection = locked.state.connections.get(&self.id);
        connection
            .is_none_or(|connection| connection.gone.is_some() || !matches!(connection.stage, Stage::Calling))
    }

    /// The result. Without an answer it is a timeout.
    fn decide(&mut self, mut locked: Locked<'_>) -> Result<Link, ConnectError> {
        self.is_decided = true;
        let (id, address) = (self.id, self.address.clone());
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
                locked.note_lanes(id);
                drop(locked);
                return link::new(&self.engine, id).ok_or(protocol("it closed the connection at once"));
            }
            (Some(Stage::Declined(declined)), _) => declined.into_error(address),
            (_, Some(LinkError::Malformed(problem))) => protocol(problem),
            (_, Some(LinkError::Closed)) if self.has_answered && failure.is_none_or(means_gone) => {
                closed(address)
            }
            (_, Some(LinkError::Closed)) => match failure {
                None => ConnectError::NobodyListens { address, path: None },
                Some(status) => failed(status, &address),
            },
            (Some(_), None) => ConnectError::Timeout {
                address,
                waiting_for: "it has not said that it takes the connection",
            },
        };
        locked.forget(id);
        Err(error)
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        if !self.is_decided {
            self.engine.close(self.id.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use ::ucx::code::UCS_ERR_NO_MEMORY;

    use super::*;

    /// What a failed endpoint means depends on what UCX says and on what the address is of.
    #[test]
    fn each_failure_says_what_to_do() {
        let Ok(ucx) = Library::load() else { return };
        let text = |code, address| failed(ucx.status(code), address).to_string();
        for code in [
            UCS_ERR_CONNECTION_RESET,
            UCS_ERR_NOT_CONNECTED,
            UCS_ERR_ENDPOINT_TIMEOUT,
            UCS_ERR_SHMEM_SEGMENT,
        ] {
            let error = failed(ucx.status(code), "ucx://there:1");
            assert!(
                matches!(&error, ConnectError::NobodyListens { address, .. } if address == "ucx://there:1")
            );
        }
        let [host, worker] =
            ["ucx://there:1", "ucx-worker:00"].map(|address| text(UCS_ERR_UNREACHABLE, address));
        assert!(
            host.contains("help: both sides need a transport in common"),
            "{host}"
        );
        assert!(
            worker.contains("help: the target whose address this is may have ended"),
            "{worker}"
        );
        let other = failed(ucx.status(UCS_ERR_NO_MEMORY), "ucx://there:1");
        assert!(
            matches!(&other, ConnectError::Ucx { doing, problem } if *doing == CONNECTING && !problem.contains("help"))
        );
    }
}
