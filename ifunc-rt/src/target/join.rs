//! Making links while this target's own listener accepts: all nodes of a group connect to each other at the same time.

use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{Host, Target};
use crate::driver::backoff::after;
use crate::group::{Dialed, Dialer, Group, GroupError, Membership, Nodes};
use crate::rendezvous::Rendezvous;
use crate::source::connection::Connection;
use crate::transport::address::Address;
use crate::transport::{ConnectError, Route};
use crate::{Source, SourceError, SourceOptions};

/// How long a node waits for one with a higher number to connect before it connects itself.
const GRACE: Duration = Duration::from_millis(500);
/// Pause between two polls of the listener while something waits that only serving can process.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest sleep between two polls of the listener.
const NAP: Duration = Duration::from_millis(100);

impl Target {
    /// Connects with these options instead of the defaults.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(&mut self, address: &str, options: SourceOptions) -> Result<Source, SourceError> {
        let route = Route::Address(address.parse::<Address>()?);
        let service = self.host.service();
        let doorbell = Arc::clone(&self.host.doorbell.local);
        let connection = thread::scope(|scope| {
            let (done, result) = channel();
            let connect = move || {
                let _ = done.send(Connection::connect(route, options, Some(service)));
                doorbell.wake();
            };
            let name = thread::Builder::new().name("ifunc-dial".into());
            if let Err(source) = name.spawn_scoped(scope, connect) {
                let doing = "starting a thread that connects".into();
                return Err(ConnectError::Io { doing, source });
            }
            loop {
                match result.try_recv() {
                    Ok(connected) => return connected,
                    Err(TryRecvError::Empty) => self.accept_for(NAP),
                    Err(TryRecvError::Disconnected) => unreachable!("the thread sends its result"),
                }
            }
        })?;
        self.links.connect(connection, true, &self.host)
    }

    /// Makes this target a node of a group: connects to its other nodes, and accepts theirs meanwhile. Returns when there is
    /// a link to each node of the group. One call starts a mesh, over every transport:
    ///
    /// ```no_run
    /// use ifunc_rt::group::Group;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // SAFETY: the processes of this job, which are trusted with this one's memory.
    /// let policy = unsafe { ifunc_rt::Policy::trust_every_peer() };
    /// let mut target = ifunc_rt::Target::builder().policy(policy).listen("ucx://10.0.0.7:0")?;
    /// let nodes = target.join(Group::launched()?)?;
    /// println!("node {} of {}", nodes.number(), nodes.others().len() + 1);
    /// target.serve(&mut 0u64)?;
    /// # Ok(()) }
    /// ```
    ///
    /// What other nodes send meanwhile runs when this target polls or serves. See [`group`](crate::group).
    ///
    /// # Errors
    /// A node of the group cannot be reached, or has another number than the group says; a node has not joined within
    /// [`Group::timeout`]; this target has joined a group already. Then this target is no node of the group.
    pub fn join(&mut self, group: Group) -> Result<Nodes, GroupError> {
        group.check()?;
        if let Some(nodes) = self.host.nodes() {
            return Err(GroupError::Joined {
                number: nodes.number(),
            });
        }
        let publish = |rendezvous: &Rendezvous| rendezvous.publish(group.number, &self.address());
        let published = group.rendezvous.as_ref().map(publish).transpose()?;
        self.set_node(Some(group.number));
        let doorbell = Arc::clone(&self.host.doorbell.local);
        let dialer = Dialer::new(doorbell, self.links.listener.connector());
        let travels = Arc::clone(&self.host.travels);
        let membership = Membership::new(&group, published, dialer, travels);
        let nodes = membership.nodes.clone();
        self.host.membership = Some(membership);
        if !group.is_on_demand
            && let Err(error) = self.meet(&nodes, group.timeout)
        {
            self.host.membership = None;
            self.set_node(None);
            return Err(error);
        }
        self.host.travels.with(|node| node.set_number(group.number));
        Ok(nodes)
    }

    /// The nodes of the group that this target has [joined](Self::join).
    #[must_use]
    pub fn nodes(&self) -> Option<Nodes> {
        self.host.nodes().cloned()
    }

    fn set_node(&mut self, number: Option<u32>) {
        self.host.hello.node = number;
        self.links.listener.set_node(number);
    }

    /// Waits for links to all nodes of the group.
    fn meet(&mut self, nodes: &Nodes, timeout: Duration) -> Result<(), GroupError> {
        let (began, until) = (Instant::now(), after(timeout));
        let dial = |host: &Host, all: bool| {
            let others = nodes.missing().into_iter();
            for node in others.filter(|&node| all || node < nodes.number()) {
                nodes.dial(node, host.service(), until);
            }
        };
        dial(&self.host, false);
        let mut has_dialed_all = false;
        loop {
            self.links.gather(&self.host);
            if let Some(error) = nodes.take_failure() {
                return Err(error);
            }
            for connection in self.links.iter_mut() {
                connection.meet(nodes);
            }
            let missing = nodes.missing();
            if missing.is_empty() {
                return Ok(());
            }
            let waited = began.elapsed();
            // An attempt that fails at the same time explains more.
            let is_over = |until| Instant::now() >= until;
            if is_over(until) && !nodes.is_dialing() || is_over(until + GRACE) {
                let nodes = missing;
                return Err(GroupError::Missing { nodes, waited });
            }
            if !has_dialed_all && waited >= GRACE {
                has_dialed_all = true;
                dial(&self.host, true);
            }
            self.accept_for(NAP.min(timeout));
        }
    }

    /// Polls the listener, and waits for an event for at most this time.
    fn accept_for(&mut self, time: Duration) {
        if self.links.gather(&self.host) {
            return;
        }
        let is_quiet = self.links.arm(&self.host, true) && !self.host.doorbell.is_stopped();
        if !is_quiet || self.host.doorbell.sleep_for(time).is_err() {
            // What has arrived waits until this target serves.
            thread::sleep(PAUSE.min(time));
        }
        self.links.disarm();
    }
}

impl super::Links {
    /// Adds the connections that were made to nodes of the group.
    pub(super) fn gather_dialed(&mut self, host: &Host, nodes: &Nodes) {
        for Dialed { node, result } in nodes.take_dialed() {
            let linked = result.and_then(|connection| {
                let linked = self.connect(connection, false, host);
                linked
                    .map(drop)
                    .map_err(|error| GroupError::unreachable(node, error))
            });
            if let Err(error) = linked {
                tracing::warn!(node, %error, "no link to a node of the group");
                nodes.dial_failed(node, error);
            }
        }
    }
}
