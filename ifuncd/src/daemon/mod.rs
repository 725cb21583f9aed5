//! The daemon: its targets, and what signals do.

mod counters;
mod drain;
mod error;
mod served;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use ifunc_rt::PolicyError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use error::DaemonError;

use self::counters::Counters;
use self::error::os;
use self::served::{Event, Served, listen};
use crate::audit::AuditLog;
use crate::config::Config;
use crate::files::Folder;
use crate::http;
use crate::memory::Regions;
use crate::node::Data;
use crate::notify::{reloading, tell};
use crate::peer::Peers;
use crate::policy;
use crate::store::Database;

/// How often it looks after connections that have ended, and writes changes of the store to the disk.
const TICK: Duration = Duration::from_secs(1);

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
        if let Some(audit) = &audit {
            audit.name_peers(&data);
            audit.flush_regularly().map_err(os("start a thread"))?;
        }
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
            audit: audit.clone(),
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
        let audit = self.audit.clone();
        let ended = self.serve();
        if ended.is_ok() {
            self.drain();
        }
        if let Some(audit) = audit {
            audit.flush();
        }
        ended
    }

    fn serve(&mut self) -> Result<(), DaemonError> {
        loop {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Signal(SIGHUP)) => self.reload(),
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Event::Ended(address, Some(Err(error)))) => {
                    return Err(DaemonError::Target { address, error });
                }
                Ok(Event::Ended(address, _)) => return Err(DaemonError::Panicked { address }),
                Err(RecvTimeoutError::Timeout) => self.tick(),
            }
        }
    }

    fn tick(&self) {
        for target in &self.targets {
            let stats = target.stats.read();
            let connected: Vec<u64> = stats.sources.iter().map(|source| source.connection).collect();
            // Those that were accepted since are not in the list.
            let latest = connected.last().copied().unwrap_or(0);
            target.node.retain_connections(&connected, latest);
        }
        flush(&self.data);
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
}

/// Writes changes of the store to the disk.
fn flush(data: &Data) {
    if let Some(Err(error)) = data.store.as_ref().map(Database::flush) {
        tracing::error!(%error, "the store is not on the disk");
    }
}

/// Prints a line for the program that started the daemon, such as `cargo ifunc run`.
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
