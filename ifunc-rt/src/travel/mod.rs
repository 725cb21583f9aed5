//! Invocations that travel on: a target's part of a group, between the protocol's [`Node`] and the connections.
//!
//! The protocol's node decides; this module gives it the time, keeps what it wants done until the right thread does it, and lets
//! running code call it ([`services`]). Any thread may use the node, under one lock, which no thread holds while code runs or a
//! connection is used: a connection's lock is taken first.
//!
//! | what the node wants | who does it |
//! |---|---|
//! | an answer, a partial answer, a report for a source | the thread that polls the source's connection next: [`Mail`] |
//! | a link to another node | a thread of its own: [`Nodes::dial`](crate::group::Nodes) |
//! | to send what waits for a node | the thread that serves, as the node's window allows: `target/tasks.rs` |
//! | to run what this node sent to itself | the thread that serves: `target/tasks.rs` |

pub(crate) mod companions;
pub(crate) mod sent;
pub(crate) mod services;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ifunc_abi::hello::Hello;
use ifunc_abi::stats::GroupStats;
use ifunc_abi::travel::{NO_NODE, ScopeReport, TravelHead};
use ifunc_exec::services::now;
use ifunc_exec::{InstalledEntry, InstalledImage};
use ifunc_proto::host::{Failed, ReplyTo};
use ifunc_proto::node::{Arrival, Ended, Event, Node, NodeConfig};
use rustix::time::{ClockId, clock_gettime};

use crate::driver::biased::BiasedMutex;
use crate::observe::limited;
use crate::os::EventFd;
use crate::source::library::Library;

use self::sent::SentEntry;

/// Hops of an invocation unless its handle says otherwise.
pub(crate) const HOP_LIMIT: u16 = 16_384;
/// Default of [`TargetBuilder::outbox`](crate::TargetBuilder::outbox).
pub(crate) const OUTBOX_BYTES: usize = 16 << 20;
/// Images that are kept for what is sent next.
const KEPT_IMAGES: usize = 16;

/// The protocol's node.
pub(crate) type ProtocolNode = Node<SentEntry, Origin>;
pub(crate) type Visit = ifunc_proto::node::Visit<SentEntry, Origin>;

/// What ends the request of a source.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The number of its connection.
    pub(crate) connection: u64,
    /// The number of the connection's link, if it may have several.
    pub(crate) link: u64,
    pub(crate) reply_to: ReplyTo,
}

/// What is to be sent over a source's connection.
#[derive(Debug)]
pub(crate) enum Mail {
    Answer {
        origin: Origin,
        /// The node that reports it; `None`: this one.
        node: Option<u32>,
        outcome: Result<Vec<u8>, Box<Failed>>,
    },
    Partial {
        origin: Origin,
        number: u32,
        answer: Vec<u8>,
    },
    Finished {
        origin: Origin,
        report: Box<ScopeReport>,
    },
}

/// A target's part of a group. A target that has not joined one has it, too: nothing travels on from there.
#[derive(Debug)]
pub(crate) struct Travels {
    node: BiasedMutex<Local>,
    /// The node has something to send, to run or to dial. What waits for a closed window does not count.
    is_ready: AtomicBool,
    /// The first node to which something can be sent, or [`NO_NODE`].
    first_ready: AtomicU32,
    /// The node has gathered something that it sends when a poll finds nothing.
    has_gathered: AtomicBool,
    /// When the node has something to do, if nothing happens before: nanoseconds on its clock.
    due: AtomicU64,
    /// A thread sleeps on the doorbell until `due`, or less.
    is_asleep: AtomicBool,
    /// What waits for connections, by their numbers, and for how many connections.
    mail: Mutex<BTreeMap<u64, Vec<Mail>>>,
    has_mail: AtomicUsize,
    /// A connection holds back invocations that may travel.
    is_holding: AtomicBool,
    is_used: AtomicBool,
    /// Wakes the threads that serve.
    doorbell: Arc<EventFd>,
    max_answer: usize,
}

/// The node, and what it asked for.
#[derive(Debug)]
struct Local {
    node: ProtocolNode,
    /// Nodes to which it asked for a link.
    wanted: Vec<u32>,
    /// Images that were sent on, without companions, the last one last.
    images: Vec<Arc<Library>>,
}

impl Local {
    /// What was sent for an entry of an image before, if that is kept.
    fn library(&mut self, image: &Arc<InstalledImage>, entry: usize) -> Option<Arc<Library>> {
        let is_current = |library: &Arc<Library>| library.is_entry(image, entry) && library.is_sent_as(image);
        let at = self.images.iter().rposition(is_current)?;
        let last = self.images.len() - 1;
        if at < last {
            self.images[at..].rotate_left(1);
        }
        Some(Arc::clone(&self.images[last]))
    }

    fn keep_library(&mut self, library: &Arc<Library>) {
        if self.images.len() == KEPT_IMAGES {
            self.images.remove(0);
        }
        self.images.push(Arc::clone(library));
    }
}

impl Travels {
    pub(crate) fn new(hello: &Hello, outbox_bytes: usize, doorbell: Arc<EventFd>) -> Arc<Self> {
        let limit = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let config = NodeConfig {
            epoch: hello.epoch,
            // Keys from the system's random numbers.
            seed: RandomState::new().hash_one(hello.epoch),
            outbox_bytes,
            max_payload: limit(hello.limits.max_payload),
            max_answer: limit(hello.limits.max_answer).min(outbox_bytes / 4),
            ..NodeConfig::default()
        };
        Arc::new(Self {
            node: BiasedMutex::new(Local {
                node: Node::new(config),
                wanted: Vec::new(),
                images: Vec::new(),
            }),
            is_ready: AtomicBool::new(false),
            first_ready: AtomicU32::new(NO_NODE),
            has_gathered: AtomicBool::new(false),
            due: AtomicU64::new(u64::MAX),
            is_asleep: AtomicBool::new(false),
            mail: Mutex::default(),
            has_mail: AtomicUsize::new(0),
            is_holding: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            doorbell,
            max_answer: limit(hello.limits.max_answer),
        })
    }

    /// Uses the node, and keeps what it wants done.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut ProtocolNode) -> R) -> R {
        let mut local = self.node.lock();
        let result = call(&mut local.node);
        self.settle(&mut local);
        result
    }

    /// An invocation arrived: [`Node::arrive`]. If it came from a node and is to run, the node wants nothing done yet.
    pub(crate) fn arrive(&self, from: Arrival<Origin>, head: &TravelHead) -> Result<Visit, Ended<Origin>> {
        let is_from_node = matches!(from, Arrival::Node(_));
        let mut local = self.node.lock();
        let arrived = local.node.arrive(from, head, now());
        if arrived.is_err() || !is_from_node {
            self.settle(&mut local);
        }
        arrived
    }

    /// Keeps what the node wants done.
    fn settle(&self, Local { node, wanted, .. }: &mut Local) {
        self.is_used.store(true, Ordering::Release);
        while let Some(event) = node.next_event() {
            self.keep(event, node.number(), wanted);
        }
        let first_ready = node.ready_peers().next();
        let is_ready = first_ready.is_some() || !wanted.is_empty() || node.has_local();
        self.first_ready
            .store(first_ready.unwrap_or(NO_NODE), Ordering::Release);
        self.is_ready.store(is_ready, Ordering::Release);
        self.has_gathered.store(node.has_gathered(), Ordering::Release);
        let due = node.next_deadline().unwrap_or(u64::MAX);
        // Only this lock's holder changes it. With several threads, another one may sleep, until a later time.
        if due != self.due.load(Ordering::Relaxed)
            && due < self.due.swap(due, Ordering::SeqCst)
            && self.is_asleep.load(Ordering::SeqCst)
        {
            self.wake();
        }
    }

    fn keep(&self, event: Event<Origin>, me: Option<u32>, wanted: &mut Vec<u32>) {
        match event {
            Event::Answer {
                origin,
                node,
                outcome,
            } => {
                let node = (Some(node) != me).then_some(node);
                self.post(
                    origin.connection,
                    Mail::Answer {
                        origin,
                        node,
                        outcome,
                    },
                );
            }
            Event::Partial {
                origin,
                number,
                answer,
            } => self.post(
                origin.connection,
                Mail::Partial {
                    origin,
                    number,
                    answer,
                },
            ),
            Event::Finished { origin, report } => {
                self.post(origin.connection, Mail::Finished { origin, report });
            }
            Event::NodeLost { node } => limited!(warn, node, "a node of the group was lost"),
            Event::Connect { node } => wanted.push(node),
        }
    }

    fn post(&self, connection: u64, mail: Mail) {
        let mut all = lock(&self.mail);
        all.entry(connection).or_default().push(mail);
        self.has_mail.store(all.len(), Ordering::Release);
    }

    /// Whether anything waits for any connection.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire) != 0
    }

    /// Whether something waits for this connection.
    pub(crate) fn has_mail_for(&self, connection: u64) -> bool {
        lock(&self.mail).contains_key(&connection)
    }

    /// What waits for a connection.
    pub(crate) fn take_mail(&self, connection: u64) -> Vec<Mail> {
        let mut all = lock(&self.mail);
        let mail = all.remove(&connection);
        self.has_mail.store(all.len(), Ordering::Release);
        mail.unwrap_or_default()
    }

    /// A connection ended: nothing awaits its answers.
    pub(crate) fn forget(&self, connection: u64) {
        if !self.is_used() {
            return;
        }
        self.with(|node| node.forget_connection(connection));
        drop(self.take_mail(connection));
    }

    /// A connection holds back an invocation that may travel, until [`admits`](Self::admits).
    pub(crate) fn hold(&self) {
        self.is_holding.store(true, Ordering::Release);
    }

    /// Whether connections were held back, and are no longer.
    pub(crate) fn take_held(&self) -> bool {
        self.is_holding.load(Ordering::Acquire)
            && self.admits()
            && self.is_holding.swap(false, Ordering::AcqRel)
    }

    /// Whether a parked connection may have to be activated.
    pub(crate) fn is_waking(&self) -> bool {
        self.has_mail() || self.is_holding.load(Ordering::Acquire)
    }

    /// Whether anything has used the node.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Whether the node has something to send, to run or to dial.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// A thread is about to sleep on the doorbell until [`time_left`](Self::time_left) has passed, or sleeps no more.
    pub(crate) fn set_asleep(&self, is_asleep: bool) {
        self.is_asleep.store(is_asleep, Ordering::SeqCst);
    }

    /// Whether the node has something to do now.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_ready() || self.is_due(now)
    }

    fn is_due(&self, now: impl FnOnce() -> u64) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        due != u64::MAX && due <= now()
    }

    /// The time until the node has something to do.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let due = self.due.load(Ordering::SeqCst);
        (due != u64::MAX).then(|| Duration::from_nanos(due.saturating_sub(now())))
    }

    /// A poll found nothing: sends what was gathered.
    pub(crate) fn idle(&self) {
        if self.has_gathered.load(Ordering::Acquire) {
            self.with(|node| node.idle(now()));
        }
    }

    /// Does what has become due.
    pub(crate) fn tick(&self) {
        if self.is_due(now) {
            self.with(|node| node.tick(now()));
        }
    }

    /// As [`tick`](Self::tick), by a clock that is cheaper to read and some milliseconds behind: for threads that poll all the
    /// time.
    pub(crate) fn tick_coarsely(&self) {
        if self.is_due(coarse_now) {
            self.with(|node| node.tick(now()));
        }
    }

    /// Nodes to which the node asked for a link.
    pub(crate) fn take_wanted(&self) -> Vec<u32> {
        let wanted = std::mem::take(&mut self.node.lock().wanted);
        if !wanted.is_empty() {
            self.with(|_| ());
        }
        wanted
    }

    /// The next node from this number on to which something can be sent.
    pub(crate) fn ready_peer(&self, from: u32) -> Option<u32> {
        let first = self.first_ready.load(Ordering::Acquire);
        if first == NO_NODE || first >= from {
            return Some(first).filter(|&first| first != NO_NODE);
        }
        self.node.lock().node.ready_peers().find(|&peer| peer >= from)
    }

    /// Adds to the visit that runs. What it sends leaves when it ends, so the node wants nothing done yet.
    fn add<R>(&self, call: impl FnOnce(&mut ProtocolNode) -> R) -> R {
        call(&mut self.node.lock().node)
    }

    /// Wakes the threads that serve.
    pub(crate) fn wake(&self) {
        self.doorbell.wake();
    }

    /// Whether sources may add invocations that travel.
    pub(crate) fn admits(&self) -> bool {
        self.node.lock().node.admits()
    }

    /// Length of the longest answer.
    pub(crate) fn max_answer(&self) -> usize {
        self.max_answer
    }

    /// What it does as a node of a group; `None`: it has joined none.
    pub(crate) fn stats(&self) -> Option<GroupStats> {
        let Local { node, .. } = &*self.node.lock();
        let (held, sent) = (node.footprint(), node.traffic());
        Some(GroupStats {
            node: node.number()?,
            linked: node.linked_peers().count() as u64,
            invocations: sent.invocations,
            replies: sent.replies,
            weights: sent.weights,
            others: sent.others,
            outbox_bytes: held.outbox_bytes as u64,
            slots: held.slots as u64,
            scopes: held.scopes as u64,
        })
    }

    /// As [`add`](Self::add), with what is sent for an entry of an image that runs here: the image as it arrived.
    fn add_image<R>(
        &self,
        from: &InstalledEntry,
        entry: usize,
        call: impl FnOnce(&mut ProtocolNode, Arc<Library>) -> R,
    ) -> std::io::Result<R> {
        let image = from.image();
        let mut local = self.node.lock();
        let library = match local.library(image, entry) {
            Some(library) => library,
            None => {
                drop(local);
                let library = Arc::new(Library::of_installed(image, entry)?);
                local = self.node.lock();
                local.keep_library(&library);
                library
            }
        };
        Ok(call(&mut local.node, library))
    }
}

/// [`now`] at the last tick of the kernel's timer.
fn coarse_now() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
