//! The source's side of making a connection.

use std::time::{Duration, Instant};

use ucx_sys::{
    SockAddr, Status, UCS_ERR_CONNECTION_RESET, UCS_ERR_NOT_CONNECTED, UCS_ERR_REJECTED, UCS_ERR_UNREACHABLE,
    Ucx,
};

use super::engine::{Engine, Refused};
use super::handshake::{Misheard, VERSION, hello};
use super::header::Notice;
use super::link;
use super::settings::{Settings, judge};
use super::table::Stage;
use crate::transports::address::HostPort;
use crate::transports::{ConnectError, Gone, Link};

/// That nobody listens is said at once, but not before UCX was made ready, which takes a while: whoever has no time left is
/// told that much.
const GRACE: Duration = Duration::from_millis(100);

/// Connects to the target at `at`.
pub(super) fn connect(at: &HostPort, deadline: Instant) -> Result<Link, ConnectError> {
    let address = format!("ucx://{at}");
    let ucx = Ucx::load().map_err(|error| ConnectError::Library {
        problem: error.to_string(),
    })?;
    let to = at.resolve().map_err(|source| ConnectError::Io {
        doing: format!("looking for the host of `{address}`"),
        source,
    })?;
    let refused = |doing| {
        move |status: Status| ConnectError::Ucx {
            doing,
            problem: status.to_string(),
        }
    };
    judge(ucx.version(), to.ip()).map_err(|problem| ConnectError::Library { problem })?;
    let settings = Settings::new(ucx, to.ip()).map_err(refused("reading UCX's configuration"))?;
    let engine = Engine::new(ucx, &settings).map_err(|Refused { doing, status }| refused(doing)(status))?;
    let mut locked = engine.lock();
    let ep = locked
        .connect(&SockAddr::new(to))
        .map_err(refused("connecting by UCX"))?;
    let id = locked.state.insert(ep, Stage::Calling);
    locked.say(id, Notice::Hello, 0, &hello());
    let deadline = deadline.max(Instant::now() + GRACE);
    locked.work_until(deadline, |locked| {
        let connection = locked.state.connections.get(&id);
        connection
            .is_none_or(|connection| connection.gone.is_some() || !matches!(connection.stage, Stage::Calling))
    });
    let connection = locked.state.connections.get_mut(&id);
    let (stage, failure, gone) = connection.map_or((None, None, None), |connection| {
        let open = matches!(connection.stage, Stage::Open { .. });
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
            return link::new(&engine, id).ok_or(protocol("it left at once"));
        }
        (Some(Stage::Refused(reason)), _) => ConnectError::Refused { address, reason },
        (Some(Stage::Misheard(Misheard::Version(theirs))), _) => ConnectError::Version {
            address,
            theirs,
            ours: VERSION,
        },
        (Some(Stage::Misheard(Misheard::Nonsense(problem))), _) | (_, Some(Gone::Malformed(problem))) => {
            protocol(problem)
        }
        (_, Some(Gone::Closed)) => match failure {
            None
            | Some(UCS_ERR_CONNECTION_RESET | UCS_ERR_NOT_CONNECTED) => {
                ConnectError::NobodyListens { address, path: None }
            }
            // Worth another attempt: who says it has no room at this moment, or is about to go.
            Some(UCS_ERR_REJECTED) => ConnectError::Ucx {
                doing: "connecting by UCX",
                problem: format!(
                    "`{address}` rejected the connection: too many are being made to it at this moment, or it stops listening; help: try again in a moment"
                ),
            },
            Some(UCS_ERR_UNREACHABLE) => ConnectError::Ucx {
                doing: "connecting by UCX",
                problem: "destination is unreachable; help: both sides need a transport in common that takes connections, such as tcp: see UCX_TLS and UCX_NET_DEVICES of both".into(),
            },
            Some(status) => refused("connecting by UCX")(ucx.status(status)),
        },
        (Some(_), None) => ConnectError::Timeout {
            address,
            waiting_for: "it has not said that it takes the connection",
        },
    };
    locked.forget(id);
    Err(error)
}
