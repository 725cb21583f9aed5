//! The receiving side: installs what sources send and runs it on its own data.

mod accept;
mod answers;
mod argument;
#[cfg(test)]
pub(crate) mod bench;
mod builder;
mod companions;
mod connection;
mod duplex;
mod escape;
mod join;
mod links;
mod one_way;
mod pauses;
mod peers;
mod poll;
mod raw;
mod rotation;
mod served;
mod serving;
mod shared;
mod tasks;
mod unfinished;
mod visits;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use ifunc::payload::TargetArgs;
use ifunc_abi::hello::Hello;
use ifunc_abi::stats::Stats;
use ifunc_exec::{
    ExecThread, Executor, Exports, HostSymbols, ImageExecutor, ImageExecutorOptions, SetupError,
};
use ifunc_proto::ServerConfig;

pub use builder::{TargetBuilder, TargetError};
pub use escape::{AfterEscape, Escaped, Level};
pub use peers::Peers;
pub use raw::{RawArgs, RawType, TooManyTypes};
pub use serving::{ServeEnd, ServeError, Serving};

pub(crate) use served::Bound;

use answers::LongAnswers;
use argument::{Argument, HostType};
use escape::EscapeHook;
use links::Links;
use unfinished::Unfinished;

use crate::group::{Membership, Nodes};
use crate::observe::{Metrics, StatsHandle};
use crate::policy::{LivePolicy, PolicyHandle, SourceInfo};
use crate::serve::doorbell::{StopHandle, TargetDoorbell};
use crate::source::connection::Service;
use crate::transport::Listener;
use crate::transport::address::Knows;
use crate::travel::Travels;
use crate::travel::companions::CompanionMemory;
use crate::{Source, SourceError, SourceOptions};

/// A target: listens, installs and runs.
///
/// ```no_run
/// let mut counter = 0u64;
/// // SAFETY: only processes of this user connect, and they may do here whatever they like.
/// let builder = unsafe { ifunc_rt::Target::builder().accept_code() };
/// let mut target = builder.listen("shm:counter")?;
/// println!("ifunc: ready {}", target.address());
/// target.serve(&mut counter)?;
/// # Ok::<(), ifunc_rt::TargetError>(())
/// ```
///
/// A process may be source and target at once. A host function that an invocation calls may send and call with a
/// source of the process, but the target continues only when the invocation has ended. So the function must not wait
/// for anything that needs this target: the answer of a call to it; the answer of another target that waits for this
/// one in an invocation of its own; credit of a target that waits for credit of this one. Such a wait ends at its
/// deadline ([`Handle::with_timeout`](crate::Handle::with_timeout)); `try_send` and `try_call` never wait.
///
/// The target reads frames only in [`poll`](Self::poll) and [`serve`](Self::serve), on the calling thread, one
/// invocation at a time; or on the thread that [`spawn`](Self::spawn) starts. Several threads serve where the ifuncs
/// take `&T`: [`serve_shared`](Self::serve_shared), [`spawn_shared`](Self::spawn_shared).
pub struct Target {
    // Connections hold images, which the executor's memory outlives: dropped in this order.
    links: Links,
    host: Host,
    entry: ExecThread,
    /// The thread that mapped the entry's stack.
    home: ThreadId,
    /// The type of the target arguments of the last poll, and its hash.
    host_type: Option<fn() -> HostType>,
    target_hash: u64,
}

/// State that all connections share.
struct Host {
    policy: Arc<LivePolicy>,
    /// What the transport knows of peers.
    knows: Knows,
    executor: ImageExecutor,
    /// Whether images run in the processes of their tenants.
    uses_runners: bool,
    metrics: Arc<Metrics>,
    /// What this target states about itself. Its limits are those of all connections.
    hello: Hello,
    max_handles: usize,
    copy_payloads: bool,
    /// See [`TargetBuilder::share_stats`].
    share_stats: Option<bool>,
    /// Sources over links that were accepted.
    peers: Peers,
    /// The group that this target has joined.
    membership: Option<Membership>,
    /// Bodies whose last fragment has not arrived, and answers whose last fragment was not sent.
    unfinished: Arc<Unfinished>,
    /// Limits of answers.
    answers: Arc<LongAnswers>,
    /// Invocations that travel on.
    travels: Arc<Travels>,
    /// Slices for other machines, to be sent on.
    companions: Arc<CompanionMemory>,
    /// Wakes the threads that serve.
    doorbell: Arc<TargetDoorbell>,
    /// How long a thread that serves polls in vain before it sleeps.
    spin: Duration,
    /// See [`TargetBuilder::on_escape`].
    on_escape: Option<EscapeHook>,
}

impl Host {
    /// What the invocations of a thread run on.
    fn thread(&self) -> std::io::Result<ExecThread> {
        let mut thread = self.executor.thread()?;
        thread.set_services(Some(self.travels.clone()));
        Ok(thread)
    }

    /// The nodes of the group.
    fn nodes(&self) -> Option<&Nodes> {
        self.membership.as_ref().map(|membership| &membership.nodes)
    }

    /// How the protocol serves a connection.
    fn server(&self, has_private_answers: bool) -> ServerConfig {
        ServerConfig {
            limits: self.hello.limits,
            max_handles: self.max_handles,
            has_private_answers,
        }
    }

    /// How a link is served that carries invocations both ways.
    fn service(&self) -> Service {
        Service::new(
            self.server(true),
            crate::hello::both(&self.hello),
            self.policy.connect.clone(),
            Arc::clone(&self.doorbell.local),
        )
    }
}

impl Target {
    /// Options of a target. Without a [policy](TargetBuilder::policy) it rejects every image.
    pub fn builder() -> TargetBuilder {
        TargetBuilder::default()
    }

    fn new(
        builder: TargetBuilder,
        symbols: HostSymbols,
        listener: Box<dyn Listener>,
        knows: Knows,
    ) -> Result<Self, TargetError> {
        let policy = Arc::new(LivePolicy::new(builder.policy, builder.listen.connect)?);
        let (address, timing) = (listener.address(), builder.timing);
        let (max_bytes, max_age) = builder.unfinished;
        let unfinished = Unfinished::new(max_bytes, max_age);
        let answers = LongAnswers::new(builder.listen.hello.limits.max_answer, &unfinished);
        let uses_runners = builder.executor.runners.is_some();
        let options = ImageExecutorOptions {
            answers: Some(answers.clone()),
            ..builder.executor
        };
        let doorbell =
            TargetDoorbell::new(listener.doorbell()).map_err(TargetError::os("make an epoll instance"))?;
        let travels = Travels::new(&builder.listen.hello, builder.outbox, Arc::clone(&doorbell.local));
        let companions = CompanionMemory::new(options.code_bytes);
        let metrics = Metrics::new(
            address,
            timing,
            options.code_bytes,
            options.max_images,
            Arc::clone(&travels),
        );
        let executor =
            ImageExecutor::new(options, symbols, metrics.clone()).map_err(|error| match error {
                SetupError::Os(error) => TargetError::os("reserve memory for code")(error),
                SetupError::Names(conflict) => TargetError::Names(conflict),
                SetupError::Runner(error) => TargetError::os("run ifuncs in processes of their own")(error),
                other => TargetError::os("make an executor")(std::io::Error::other(other)),
            })?;
        let mut entry = executor
            .thread()
            .map_err(TargetError::os("map a stack for injected code"))?;
        entry.set_services(Some(travels.clone()));
        doorbell.serve_node(Arc::clone(&travels));
        Ok(Self {
            links: Links::new(listener),
            host: Host {
                policy,
                knows,
                executor,
                uses_runners,
                metrics,
                hello: builder.listen.hello,
                max_handles: builder.max_handles,
                copy_payloads: builder.copy_payloads,
                share_stats: builder.share_stats,
                peers: Peers::default(),
                membership: None,
                unfinished,
                answers,
                travels,
                companions,
                doorbell: Arc::new(doorbell),
                spin: builder.spin,
                on_escape: builder.on_escape,
            },
            entry,
            home: thread::current().id(),
            host_type: None,
            target_hash: 0,
        })
    }

    /// The address that sources connect to.
    #[must_use]
    pub fn address(&self) -> String {
        self.links.listener.address()
    }

    /// Number of connected sources.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// Number of connections that a poll visits.
    #[cfg(test)]
    pub(crate) fn active_connections(&self) -> usize {
        self.links.active()
    }

    /// Number of installed images.
    #[must_use]
    pub fn images(&self) -> usize {
        self.host.executor.image_count()
    }

    /// Changes what images import, while the target serves: adds, replaces and removes functions and variables. Any thread may
    /// use it.
    ///
    /// ```no_run
    /// use ifunc_rt::{Symbol, Target};
    ///
    /// #[ifunc::export]
    /// fn compress(input: &[u8], output: &mut [u8]) -> usize {
    ///     let len = input.len().min(output.len());
    ///     output[..len].copy_from_slice(&input[..len]);
    ///     len
    /// }
    ///
    /// #[ifunc::export]
    /// fn compress_runs(input: &[u8], output: &mut [u8]) -> usize {
    ///     # 0
    ///     // …
    /// }
    ///
    /// // SAFETY: only processes of this user connect, and they may do here whatever they like.
    /// let target = unsafe { Target::builder().accept_code() }.listen("shm:store")?;
    /// let exports = target.exports();
    /// let serving = target.spawn(0u64)?;
    /// // While sources call ifuncs that import `compress`: none of them fails, and none is sent again.
    /// let better = Symbol::exported("compress_runs").unwrap().named("compress");
    /// exports.replace(better)?;
    /// # serving.stop()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn exports(&self) -> Exports {
        self.host.executor.exports()
    }

    /// A handle that [replaces](PolicyHandle::replace) the policy, while the target serves, too.
    #[must_use]
    pub fn policy(&self) -> PolicyHandle {
        PolicyHandle {
            live: Arc::clone(&self.host.policy),
            address: self.address(),
            knows: self.host.knows,
            doorbell: Arc::clone(&self.host.doorbell.local),
        }
    }

    /// The counters so far: per source, per ifunc, in all.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats_handle().read()
    }

    /// A handle that reads the counters while the target serves on another thread.
    #[must_use]
    pub fn stats_handle(&self) -> StatsHandle {
        StatsHandle(self.host.metrics.clone())
    }

    /// The longest time to wait for [`as_fd`](AsFd::as_fd) before the next [`poll`](Self::poll). `None`: no limit. A link
    /// that the target [made](Self::connect) over UCX detects its peer's end only in polls.
    #[must_use]
    pub fn poll_interval(&self) -> Option<Duration> {
        self.host.doorbell.poll_interval()
    }

    /// The connected sources, and what carries each, as the transport reports it: over UCX the transports and devices
    /// of its endpoint, such as `sysv/memory tcp/lo`; otherwise `shm` or `loopback`.
    #[must_use]
    pub fn transports(&self) -> Vec<(SourceInfo, String)> {
        let mut all: Vec<_> = self
            .links
            .iter()
            .map(|connection| (connection.source().clone(), connection.carried_by()))
            .collect();
        all.sort_by_key(|(source, _)| source.connection);
        all
    }

    /// Connects this target to another one over a link that carries invocations both ways: the source that is returned
    /// sends to the other target, and this target serves what the other one sends back, if its program takes a source
    /// from its [`peers`](Self::peers). Both targets accept code by their own builders.
    ///
    /// ```no_run
    /// # mod hello { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
    /// // SAFETY: only processes of this user connect, and they may do here whatever they like.
    /// let mut node = unsafe { ifunc_rt::Target::builder().accept_code() }.listen("shm:one")?;
    /// let other = node.connect("shm:other")?;
    /// let serving = node.spawn(0u64)?;
    /// println!("{}", other.register::<hello::add>()?.call(&5)?.wait()?);
    /// serving.stop()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// **Which thread polls.** The thread that serves this target polls the link, for both directions. All other threads
    /// and all futures that use the source are parked meanwhile, and the thread that serves wakes them. So nothing
    /// arrives while no thread serves: a wait then ends at its deadline.
    ///
    /// **The thread that serves** must not wait for itself. In an invocation, and between two calls of
    /// [`poll`](Self::poll), it may send and call over the source: that waits for nothing while there is credit. A wait
    /// that would not end at once returns [`Error::Serving`](crate::Error::Serving): for an answer
    /// ([`Call::wait`](crate::Call::wait)), for credit, for a flush. [`Call::try_wait`](crate::Call::try_wait) never
    /// waits, and a future may be awaited. Where several threads serve ([`serve_shared`](Self::serve_shared)), an
    /// invocation may wait for another connection, as long as another thread is left to poll it; otherwise the wait ends
    /// at its deadline.
    ///
    /// **While it connects,** this target accepts connections: several nodes may connect to each other at the same time.
    /// What arrives over them runs when it polls or serves. [`join`](Self::join) connects the nodes of a group.
    ///
    /// **Calls under way.** A link that carries invocations both ways has at most 64 unanswered calls per direction. More
    /// wait, as for credit.
    ///
    /// **The end of a link.** The link lives as long as the source, its clones and its handles, and no longer than this
    /// target. When the peer goes away, the next use of the source reconnects, as for any source.
    ///
    /// # Errors
    /// As [`Source::connect`]. The other target belongs to a user whose processes may not
    /// [connect](crate::Policy::connect_users) to this one.
    pub fn connect(&mut self, address: &str) -> Result<Source, SourceError> {
        self.connect_with(address, SourceOptions::default())
    }

    /// Sources over the links that this target accepted from nodes: see [`connect`](Self::connect).
    #[must_use]
    pub fn peers(&self) -> Peers {
        self.host.peers.clone()
    }

    /// A handle that ends [`serve`](Self::serve) from another thread.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(Arc::clone(&self.host.doorbell))
    }

    /// Target arguments, of whose type [`TargetArgs::TEXT`] and the exported interfaces say everything.
    #[inline]
    fn argument<T: TargetArgs + 'static>(&mut self, target: *mut T, shared: bool) -> Argument {
        // One comparison: the function returns what only this type has, so no other type's has its address.
        let host_type = HostType::of::<T> as fn() -> HostType;
        if self
            .host_type
            .is_none_or(|known| !std::ptr::fn_addr_eq(known, host_type))
        {
            self.set_host_type::<T>();
        }
        Argument::new(target, self.target_hash, shared)
    }

    /// Lets images take values of this type by its opaque name, if it has one.
    ///
    /// # Errors
    /// Exports use another type by that name, or another one was served.
    fn name_type<T: TargetArgs + 'static>(&self) -> Result<(), TargetError> {
        Ok(HostType::of::<T>().name(&self.host.executor)?)
    }

    #[cold]
    fn set_host_type<T: TargetArgs + 'static>(&mut self) {
        self.host_type = Some(HostType::of::<T>);
        self.target_hash = argument::hash_of::<T>();
    }
}

/// Readable when there may be something to do, after [`arm`](Target::arm).
impl AsFd for Target {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.host.doorbell.as_fd()
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("address", &self.address())
            .field("connections", &self.connections())
            .field("images", &self.images())
            .finish_non_exhaustive()
    }
}
