//! How sources come in.

use std::time::{Duration, Instant};

use ucx_sys::{
    UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR, UCS_OK, socket_addr, ucp_conn_request_attr_t, ucp_conn_request_h,
};

use super::credits::{Incoming, Outgoing};
use super::engine::Locked;
use super::handshake::{Misheard, VERSION, refusal};
use super::header::Notice;
use super::table::{ConnectionId, Stage};

/// How long a guest may say nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How many guests there may be at a time.
const MOST_GUESTS: usize = 256;
/// How many connections the target may leave waiting.
const MOST_WAITING: usize = 1024;

impl Locked<'_> {
    /// Somebody wants to connect.
    pub(super) fn knock(&mut self, request: ucp_conn_request_h) {
        let mut attr = ucp_conn_request_attr_t {
            field_mask: u64::from(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR),
            ..ucp_conn_request_attr_t::default()
        };
        // SAFETY: the request was not used up yet; the fields of the mask are written.
        let status = unsafe { self.ucx().ucp_conn_request_query(request, &raw mut attr) };
        let from = (status == UCS_OK)
            .then(|| socket_addr(&attr.client_address))
            .flatten();
        let full = self
            .state
            .door
            .as_ref()
            .is_none_or(|door| door.guests.len() >= MOST_GUESTS);
        if full {
            tracing::warn!(
                ?from,
                "refused a connection: too many are being made at this moment"
            );
            if let Some(door) = &self.state.door {
                let listener = door.listener;
                // SAFETY: the listener is alive, and the request used up by this.
                unsafe { self.ucx().ucp_listener_reject(listener, request) };
            }
            return;
        }
        match self.accept(request) {
            Ok(ep) => {
                tracing::debug!(?from, "somebody connects");
                let id = self.state.insert(ep, Stage::Guest);
                if let Some(door) = &mut self.state.door {
                    door.guests.push_back((id, Instant::now()));
                }
            }
            Err(status) => tracing::warn!(?from, %status, "a connection could not be made"),
        }
    }

    /// A guest said what it is.
    pub(super) fn greet(
        &mut self,
        id: ConnectionId,
        hello: Result<(), Misheard>,
    ) -> Result<(), &'static str> {
        let Some(door) = &mut self.state.door else {
            return Err("a source that calls a source");
        };
        door.guests.retain(|(guest, _)| *guest != id);
        let welcome = door.welcome;
        let why = match hello {
            Ok(()) if door.waiting.len() < MOST_WAITING => {
                door.waiting.push_back(id);
                if let Some(connection) = self.state.connections.get_mut(&id) {
                    connection.stage = Stage::Open {
                        welcome,
                        out: Outgoing::new(welcome.to_source),
                        incoming: Incoming::new(welcome.to_target),
                    };
                }
                self.say(id, Notice::Welcome, 0, &welcome.encode());
                return Ok(());
            }
            Ok(()) => "it does not take the connections that wait already".to_owned(),
            Err(Misheard::Version(theirs)) => {
                format!("it speaks version {VERSION} of the transport, not {theirs}")
            }
            Err(Misheard::Nonsense(why)) => return Err(why),
        };
        self.say(id, Notice::Refused, 0, &refusal(&why));
        // It leaves when it has heard that; until then it is a guest, but it has said what it had to say.
        if let Some(connection) = self.state.connections.get_mut(&id) {
            connection.stage = Stage::TurnedAway;
        }
        if let Some(door) = &mut self.state.door {
            door.guests.push_back((id, Instant::now()));
        }
        Ok(())
    }
}
