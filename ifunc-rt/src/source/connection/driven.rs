//! The connection's interface to the [driver](crate::driver).

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use super::served::ACCEPTED;
use super::{Connection, connect_config};
use crate::driver::backoff::after;
use crate::driver::driven::{Doorbell, Driven, Signals};
use crate::driver::queue::Ticket;
use crate::driver::state::Shared;
use crate::transport::with_link;

impl Driven for Connection {
    #[inline(always)]
    fn signals(&mut self) -> &mut Signals {
        &mut self.signals
    }

    fn try_drain(&mut self) -> bool {
        self.receive_all();
        self.close_due_batch();
        self.drive()
    }

    fn watch(&mut self, token: u64, waiter: Ticket) {
        self.protocol
            .caller
            .calls
            .set_user(token, (waiter != 0).then_some(waiter));
    }

    fn has_credit(&mut self, bytes: usize) -> bool {
        self.drive();
        let Some(link) = &mut self.link else {
            return false;
        };
        let has_credit = with_link!(link, link => self.protocol.has_window(link, bytes));
        self.report();
        has_credit
    }

    fn batch_due(&self) -> Option<Instant> {
        self.batch.due
    }

    fn send_due_batch(&mut self) -> bool {
        if self.protocol.caller.is_batch_closing() {
            self.try_drain();
        } else if self.is_batch_due() {
            self.close_batch();
        }
        !self.protocol.caller.is_batch_closing()
    }

    fn is_sending(&self) -> bool {
        self.protocol.caller.has_outgoing() || self.protocol.caller.is_batch_closing()
    }

    fn is_polled_here(&self) -> bool {
        Connection::is_polled_here(self)
    }

    fn is_polled_elsewhere(&self) -> bool {
        self.is_served()
    }

    fn arm(&mut self) {
        if let Some(link) = self.own_link() {
            link.rx().arm();
        }
    }

    fn disarm(&mut self) {
        if let Some(link) = self.own_link() {
            link.rx().disarm();
        }
    }

    fn doorbell(&self) -> Option<Doorbell> {
        let (waiter, local) = (self.own_waiter()?, Arc::clone(&self.local));
        let waker = Arc::clone(&local).into();
        let sleep = move |until| {
            waiter.sleep(until, Some(local.as_fd()));
            local.clear();
        };
        Some((waker, Box::new(sleep)))
    }

    fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    fn reconnect(shared: &Shared<Self>, until: Instant, window: Instant) -> Result<bool, String> {
        let (route, config, limit) = {
            let connection = &mut shared.lock().connection;
            if let Some(why) = connection.is_over() {
                return Err(why.into());
            }
            if connection.options.reconnect.is_zero() {
                return Err("reconnecting is switched off".into());
            }
            if connection.link.is_some() {
                return Ok(true);
            }
            if std::mem::replace(&mut connection.connecting, true) {
                return Ok(false);
            }
            let options = &connection.options;
            let limit = after(options.connect_timeout);
            let config = connect_config(options, connection.service.as_ref());
            (connection.route.clone(), config, limit)
        };
        let Some(route) = route else {
            return Err(ACCEPTED.into());
        };
        let result = route.connect(&config, until.min(limit));
        let mut state = shared.lock();
        state.connection.connecting = false;
        match result {
            Ok(_) if state.is_closed => Err("the source was dropped".into()),
            Ok(link) => {
                if let Some(service) = &state.connection.service {
                    let admitted = service.admit(&link, &route);
                    admitted.map_err(|error| error.to_string())?;
                }
                if let Some(why) = state.connection.is_over() {
                    return Err(why.into());
                }
                state.connection.adopt(link);
                Ok(true)
            }
            Err(error) if error.may_pass() && Instant::now() < window => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn has_more(&self) -> bool {
        self.protocol.has_more()
    }

    fn give_up(&mut self, why: &str) {
        self.protocol.caller.give_up(why);
        self.report();
    }

    fn close(&mut self) {
        if let Some(service) = &self.service {
            // The thread that serves ends the link.
            return service.doorbell.wake();
        }
        if let Some(link) = self.link.take() {
            link.waiter.close();
        }
    }
}
