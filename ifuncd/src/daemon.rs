//! The daemon: its targets, and what signals do.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ifunc_rt::stats::Stats;
use ifunc_rt::{PolicyError, PolicyHandle, StatsHandle, StopHandle, Target, TargetError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::Config;
use crate::files::Folder;
use crate::http::{self, Answer};
use crate::logging::AuditLog;
use crate::memory::Regions;
use crate::metrics;
use crate::node::{Data, Node};
use crate::notify::{reloading, tell};
use crate::peer::Peers;
use crate::policy;
use crate::store::Database;

/// How often it looks after connections that have ended, and writes changes of the store to the disk.
const TICK: Duration = Duration::from_secs(1);
/// Without frames and invocations for so long, a daemon that stops has run what was sent to it.
const QUIET: Duration = Duration::from_millis(200);

/// Why the daemon does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The file of the store.
    #[error("cannot open the store `{path}`: {error}")]
    Store {
        /// The file.
        path: String,
        /// Why.
        error: redb::Error,
    },
    /// The folder of the files.
    #[error("cannot open the folder `{path}`: {error}")]
    Files {
        /// The folder.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// A target does not listen, or stopped.
    #[error("the target at `{address}`: {error}")]
    Target {
        /// The address.
        address: String,
        /// Why.
        error: TargetError,
    },
    /// The policy of a target.
    #[error("the policy: {0}")]
    Policy(#[from] PolicyError),
    /// The address of the metrics.
    #[error("cannot serve metrics at `{address}`: {error}")]
    Metrics {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// A target ended without a request.
    #[error("the target at `{address}` stopped serving: a panic in the daemon")]
    Panicked {
        /// The address.
        address: String,
    },
    /// The system refused something.
    #[error("cannot {what}: {error}")]
    Os {
        /// What.
        what: &'static str,
        /// Why.
        error: std::io::Error,
    },
}

fn os(what: &'static str) -> impl FnOnce(std::io::Error) -> DaemonError {
    move |error| DaemonError::Os { what, error }
}

/// A target that serves.
struct Served {
    address: String,
    node: Arc<Node>,
    policy: PolicyHandle,
    stats: StatsHandle,
    stop: StopHandle,
    thread: thread::JoinHandle<()>,
}

enum Event {
    Signal(i32),
    /// The target at an address has ended; `None`: by a panic.
    Ended(String, Option<Result<(), TargetError>>),
}

/// Reports the end of a target when it is dropped.
struct End {
    events: Sender<Event>,
    address: String,
    served: Option<Result<(), TargetError>>,
}

impl End {
    fn is(&mut self, served: Result<(), TargetError>) {
        self.served = Some(served);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let ended = Event::Ended(std::mem::take(&mut self.address), self.served.take());
        // A daemon that has stopped does not ask.
        let _ = self.events.send(ended);
    }
}

/// What answers requests for metrics.
struct Counters {
    stats: Vec<StatsHandle>,
    data: Arc<Data>,
    is_draining: AtomicBool,
}

impl Counters {
    fn answer(&self, path: &str) -> Option<Answer> {
        let is_draining = self.is_draining.load(Ordering::Relaxed);
        match path {
            "/metrics" => {
                let stats: Vec<Stats> = self.stats.iter().map(StatsHandle::read).collect();
                Some(Answer {
                    status: "200 OK",
                    content_type: metrics::CONTENT_TYPE,
                    body: metrics::text(&stats, &self.data, is_draining),
                })
            }
            "/health" if is_draining => Some(Answer::text("503 Service Unavailable", "draining")),
            "/health" => Some(Answer::text("200 OK", "ok")),
            _ => None,
        }
    }
}

/// A daemon that serves.
pub struct Daemon {
    config: Config,
    data: Arc<Data>,
    targets: Vec<Served>,
    counters: Arc<Counters>,
    audit: Option<AuditLog>,
    events: Receiver<Event>,
}

impl Daemon {
    /// Opens what the configuration names, and listens.
    ///
    /// # Errors
    /// Something is not there, is taken, or is refused.
    ///
    /// # Safety
    /// As for [`policy::of`].
    pub unsafe fn start(config: Config, audit: Option<AuditLog>) -> Result<Self, DaemonError> {
        let store = config.store.as_ref().map(|store| {
            let opened = Database::open(&store.file, store.is_immediate, store.cache_bytes);
            opened.map_err(|error| DaemonError::Store {
                path: store.file.display().to_string(),
                error,
            })
        });
        let files = config.files.as_ref().map(|files| {
            Folder::open(&files.folder, files.max_file_bytes).map_err(|error| DaemonError::Files {
                path: files.folder.display().to_string(),
                error,
            })
        });
        let data = Arc::new(Data {
            peers: Peers::new(&config.peers),
            store: store.transpose()?,
            files: files.transpose()?,
            memory: config.memory.map(Regions::new),
        });
        let (send, events) = channel();
        let signals = Signals::new([SIGHUP, SIGTERM, SIGINT]).map_err(os("handle signals"))?;
        forward(signals, send.clone())?;
        let mut targets = Vec::new();
        for address in &config.listen.addresses {
            // SAFETY: the caller's promise.
            targets.push(unsafe { listen(&config, address, &data, &send) }?);
        }
        let counters = Arc::new(Counters {
            stats: targets.iter().map(|target| target.stats.clone()).collect(),
            data: Arc::clone(&data),
            is_draining: AtomicBool::new(false),
        });
        if let Some(address) = config.metrics {
            let answering = Arc::clone(&counters);
            let served = http::serve(address, move |path| answering.answer(path));
            let address = served.map_err(|error| DaemonError::Metrics { address, error })?;
            tracing::info!(%address, "metrics");
            print(&format!("ifuncd: metrics http://{address}/metrics"));
        }
        for target in &targets {
            print(&format!("ifunc: ready {}", target.address));
        }
        tell("READY=1");
        Ok(Self {
            config,
            data,
            targets,
            counters,
            audit,
            events,
        })
    }

    /// Serves until a signal ends it.
    ///
    /// # Errors
    /// A target stopped by itself.
    pub fn run(mut self) -> Result<(), DaemonError> {
        loop {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Signal(SIGHUP)) => self.reload(),
                Ok(Event::Signal(_)) => break,
                Ok(Event::Ended(address, Some(Err(error)))) => {
                    return Err(DaemonError::Target { address, error });
                }
                Ok(Event::Ended(address, _)) => return Err(DaemonError::Panicked { address }),
                Err(RecvTimeoutError::Timeout) => self.tick(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.drain();
        Ok(())
    }

    fn tick(&self) {
        for target in &self.targets {
            let stats = target.stats.read();
            let connected: Vec<u64> = stats.sources.iter().map(|source| source.connection).collect();
            // Those that were accepted since are not in the list.
            let latest = connected.last().copied().unwrap_or(0);
            target.node.retain_connections(&connected, latest);
        }
        self.flush();
    }

    fn flush(&self) {
        if let Some(Err(error)) = self.data.store.as_ref().map(Database::flush) {
            tracing::error!(%error, "the store is not on the disk");
        }
    }

    /// Reads the configuration again. What is wrong, or cannot change, is logged, and nothing changes.
    fn reload(&mut self) {
        tell(&reloading());
        if let Some(Err(error)) = self.audit.as_ref().map(AuditLog::reopen) {
            tracing::error!(%error, "the audit log cannot be opened again");
        }
        match self.try_reload(&self.config.path.clone()) {
            Ok(()) => tracing::info!(
                peers = self.config.peers.len(),
                "the configuration was read again"
            ),
            Err(why) => tracing::error!("the configuration stays as it was: {why}"),
        }
        tell("READY=1");
    }

    fn try_reload(&mut self, path: &Path) -> Result<(), String> {
        let config = Config::read(path).map_err(|error| error.to_string())?;
        let fixed = self.config.differs_in_fixed(&config);
        if !fixed.is_empty() {
            return Err(format!(
                "{} cannot change while the daemon runs; help: start it again for that",
                fixed.join(", ")
            ));
        }
        let text = |error: PolicyError| error.to_string();
        let policies = self.targets.iter().map(|target| {
            // SAFETY: who starts the daemon promised it for what the file says.
            unsafe { policy::of(&config, &target.node) }
        });
        let policies: Vec<_> = policies.collect::<Result<_, _>>().map_err(text)?;
        // The peers come first: the targets ask about what is installed once they have their policy, and that is judged by the peers.
        self.data.peers.replace(&config.peers);
        for (index, policy) in policies.into_iter().enumerate() {
            if let Err(error) = self.targets[index].policy.replace(policy) {
                self.put_back(index);
                return Err(error.to_string());
            }
        }
        self.config = config;
        Ok(())
    }

    /// Lets the configuration hold again that held before: for the peers, and for the first targets, which have a new policy.
    fn put_back(&self, targets: usize) {
        self.data.peers.replace(&self.config.peers);
        for target in &self.targets[..targets] {
            // SAFETY: who starts the daemon promised it for what the file said.
            let policy = unsafe { policy::of(&self.config, &target.node) };
            if let Err(error) = policy.and_then(|policy| target.policy.replace(policy)) {
                tracing::error!(address = target.address, %error, "the policy is not what it was");
            }
        }
    }

    /// Runs what was sent, until there is nothing more or the time is over, and stops.
    fn drain(self) {
        tell("STOPPING=1");
        let now = Instant::now();
        let deadline = now.checked_add(self.config.listen.drain).unwrap_or(now);
        self.counters.is_draining.store(true, Ordering::Relaxed);
        for target in &self.targets {
            target.policy.close_to_new_sources(true);
        }
        tracing::info!(within = ?self.config.listen.drain, "stopping");
        self.await_quiet(deadline);
        for target in &self.targets {
            target.stop.stop();
        }
        let mut running = 0;
        for target in self.targets {
            while !target.thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            match target.thread.is_finished() {
                true => drop(target.thread.join()),
                false => running += 1,
            }
        }
        if let Some(Err(error)) = self.data.store.as_ref().map(Database::flush) {
            tracing::error!(%error, "the store is not on the disk");
        }
        match running {
            0 => tracing::info!("stopped"),
            _ => tracing::warn!(running, "stopped with invocations that did not end in time"),
        }
    }

    /// Waits until no frame has arrived for a while and nothing runs.
    fn await_quiet(&self, deadline: Instant) {
        let frames = || -> u64 {
            self.targets
                .iter()
                .map(|target| target.stats.read().total.frames)
                .sum()
        };
        let in_flight = || -> usize {
            self.data
                .peers
                .all()
                .iter()
                .map(|peer| peer.allowance().in_flight())
                .sum()
        };
        let (mut seen, mut since) = (frames(), Instant::now());
        while Instant::now() < deadline && since.elapsed() < QUIET {
            thread::sleep(QUIET / 10);
            let now = frames();
            if now != seen || in_flight() > 0 {
                (seen, since) = (now, Instant::now());
            }
        }
    }
}

/// A line for whoever started the daemon: tests, and `cargo ifunc run`.
fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Sends signals on as events.
fn forward(mut signals: Signals, events: Sender<Event>) -> Result<(), DaemonError> {
    let forwarding = move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    };
    let started = thread::Builder::new().name("signals".into()).spawn(forwarding);
    started.map(drop).map_err(os("start a thread"))
}

/// Listens at one address.
///
/// # Safety
/// As for [`policy::of`].
unsafe fn listen(
    config: &Config,
    address: &str,
    data: &Arc<Data>,
    events: &Sender<Event>,
) -> Result<Served, DaemonError> {
    let node = Arc::new(Node::new(Arc::clone(data)));
    // SAFETY: the caller's promise.
    let policy = unsafe { policy::of(config, &node) }?;
    let mut builder = Target::builder()
        .policy(policy)
        .max_connections(config.listen.max_connections);
    if let Some(keys) = &config.listen.keys {
        builder = builder.tls(keys.clone());
    }
    if config.listen.share_stats {
        builder = builder.share_stats(true);
    } else if !address.starts_with("shm:") {
        builder = builder.share_stats(false);
    }
    let failed = |error| DaemonError::Target {
        address: address.to_owned(),
        error,
    };
    let mut target = builder.listen(address).map_err(failed)?;
    let (address, policy, stats, stop) = (
        target.address(),
        target.policy(),
        target.stats_handle(),
        target.stop_handle(),
    );
    let (threads, serving) = (config.listen.threads, Arc::clone(&node));
    let thread = {
        let mut end = End {
            events: events.clone(),
            address: address.clone(),
            served: None,
        };
        let serve = move || {
            let served = target.serve_shared(&*serving, threads);
            // The sources learn of the end before the daemon does.
            drop(target);
            end.is(served);
        };
        let started = thread::Builder::new().name("ifuncd-serve".into()).spawn(serve);
        started.map_err(os("start a thread that serves"))?
    };
    Ok(Served {
        address,
        node,
        policy,
        stats,
        stop,
        thread,
    })
}
