//! Clients that come and go, and those that do what they may not.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ifunc::Ifunc;
use ifunc_rt::keys::{PublicKey, TlsKeys};
use ifunc_rt::{Error, Failure, Handle, Source, SourceOptions};
use ifuncd_tests_ifuncs::{d_all, d_count, d_get, d_put, d_read, d_scan, d_spin, d_time};

use crate::Failure as Failed;
use crate::node::{Node, key_of};

/// Longer than anything takes on a machine that is busy.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the clients have seen.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    calls: AtomicU64,
    refused: AtomicU64,
    connections: AtomicU64,
    again: AtomicU64,
    overdue: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Counts {
    pub(crate) fn first_error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (calls, refused) = (of(&self.calls), of(&self.refused));
        let (connections, again, overdue) = (of(&self.connections), of(&self.again), of(&self.overdue));
        write!(
            f,
            "{connections} connections, {calls} calls, {refused} refused, {overdue} overdue, {again} sent again"
        )
    }
}

/// A client, and how it connects.
#[derive(Clone)]
pub(crate) struct Client {
    name: &'static str,
    address: String,
    target: PublicKey,
    libraries: PathBuf,
    counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
}

type Running = JoinHandle<Result<(), Failed>>;

impl Client {
    /// Starts all clients but the durable one.
    pub(crate) fn start_all(
        node: &Node,
        libraries: &Path,
        is_over: &Arc<AtomicBool>,
    ) -> (Vec<Running>, Arc<Counts>) {
        let counts = Arc::<Counts>::default();
        let client = |name: &'static str| Self {
            name,
            address: if name == "own" {
                node.shm.clone()
            } else {
                node.tls.clone()
            },
            target: node.key,
            libraries: libraries.to_owned(),
            counts: Arc::clone(&counts),
            is_over: Arc::clone(is_over),
        };
        let mut all = Vec::new();
        for number in 0..3 {
            for name in ["own", "all", "less"] {
                let client = client(name);
                let work = move || client.run(number);
                all.push(thread::spawn(work));
            }
        }
        (all, counts)
    }

    /// One that goes on while the daemon is killed.
    pub(crate) fn durable(
        node: &Node,
        libraries: &Path,
        counts: &Arc<Counts>,
        is_over: &Arc<AtomicBool>,
    ) -> Running {
        let client = Self {
            name: "own",
            address: node.shm.clone(),
            target: node.key,
            libraries: libraries.to_owned(),
            counts: Arc::clone(counts),
            is_over: Arc::clone(is_over),
        };
        thread::spawn(move || client.go_on())
    }

    fn connect(&self) -> Result<Source, Failed> {
        let keys = TlsKeys::new(key_of(self.name)).peer(self.target);
        let options = SourceOptions::default()
            .timeout(TIMEOUT)
            .connect_timeout(TIMEOUT)
            .reconnect(TIMEOUT);
        self.counts.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Source::connect_with(&self.address, options.tls(Some(keys)))?)
    }

    fn handle<F: Ifunc>(&self, source: &Source, name: &str) -> Result<Handle<F>, Failed> {
        Ok(source.register_path::<F>(self.libraries.join(format!("{name}.so")))?)
    }

    fn run(&self, number: u64) -> Result<(), Failed> {
        let mut round = number;
        while !self.is_over.load(Ordering::Relaxed) {
            round += 1;
            let worked = match self.name {
                "less" => self.misbehave(round),
                _ => self.behave(round),
            };
            if let Err(error) = worked {
                // On a machine that is busy enough, an invocation waits longer for a processor than it may run.
                if let Some(Error::Failed {
                    why: Failure::Deadline,
                    ..
                }) = error.downcast_ref()
                {
                    self.counts.overdue.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let error = format!("{}: {error}", self.name);
                let mut first = self.counts.error.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(error);
                break;
            }
        }
        Ok(())
    }

    fn called(&self, what: &str, is_right: bool) -> Result<(), Failed> {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        if is_right {
            Ok(())
        } else {
            Err(format!("{what}: a wrong answer").into())
        }
    }

    /// Uses everything, and leaves.
    fn behave(&self, round: u64) -> Result<(), Failed> {
        let source = self.connect()?;
        let (put, get) = (
            self.handle::<d_put>(&source, "d_put")?,
            self.handle::<d_get>(&source, "d_get")?,
        );
        let key = format!("{round}/{:?}", thread::current().id());
        let value = [round as u8; 100];
        for _ in 0..20 {
            let stored = put.call(&(key.as_bytes(), value.as_slice()))?.wait()?;
            // The quota may be used up: by 1 MiB.
            self.called("put", stored == 0 || stored == -3)?;
            if stored == 0 {
                let found = get.call(key.as_bytes())?.wait()?;
                self.called("get", found == (100, 100 * u64::from(round as u8)))?;
            }
        }
        let read = self
            .handle::<d_read>(&source, "d_read")?
            .call(&("numbers", 0))?
            .wait()?;
        self.called("read", read.0 == 120_000 && read.1 == 64)?;
        let region = format!("{}", round % 8);
        let count = self.handle::<d_count>(&source, "d_count")?;
        let counted = count.call(&(region.as_str(), 64, 1))?.wait()?;
        self.called("count", counted.0 == 0)?;
        let scanned = self
            .handle::<d_scan>(&source, "d_scan")?
            .call(&(b"1".as_slice(), 50))?
            .wait()?;
        self.called("scan", scanned.0 >= 0)?;
        let all = self.handle::<d_all>(&source, "d_all")?.call("numbers")?.wait()?;
        self.called("all", all[0] == 32 && all[3] > 0)?;
        Ok(())
    }

    /// Does what it may not, and what ends its process.
    fn misbehave(&self, round: u64) -> Result<(), Failed> {
        let source = self.connect()?;
        let refused = |result: Result<bool, Error>| match result {
            Ok(true) | Err(Error::Rejected { .. } | Error::Failed { .. }) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(false) => Err("it was not refused".into()),
            Err(error) => Err(Failed::from(error)),
        };
        let put = self.handle::<d_put>(&source, "d_put")?;
        refused(
            put.call(&(b"k".as_slice(), b"v".as_slice()))?
                .wait()
                .map(|_| false),
        )?;
        let all = self.handle::<d_all>(&source, "d_all")?;
        refused(
            all.call("../../etc/passwd")?
                .wait()
                .map(|all| all[0] == -1 && all[1] == -1),
        )?;
        let time = self.handle::<d_time>(&source, "d_time")?;
        self.called("time", time.call(&0)?.wait()?.0 > 0)?;
        if round.is_multiple_of(50) {
            // Longer than an invocation may run.
            let spin = self.handle::<d_spin>(&source, "d_spin")?;
            refused(spin.call(&20_000)?.wait().map(|_| false))?;
        }
        Ok(())
    }

    /// Calls and calls, and sends again what may not have run.
    fn go_on(&self) -> Result<(), Failed> {
        let source = self.connect()?;
        let put = self.handle::<d_put>(&source, "d_put")?;
        let time = self.handle::<d_time>(&source, "d_time")?;
        let mut round = 0_u64;
        while !self.is_over.load(Ordering::Relaxed) {
            round += 1;
            let value = round.to_le_bytes();
            let called = put
                .call(&(b"durable".as_slice(), value.as_slice()))
                .and_then(ifunc_rt::Call::wait);
            match called {
                Ok(stored) => self.called("put", stored == 0 || stored == -3)?,
                Err(Error::Indeterminate { .. } | Error::PeerGone { .. }) => {
                    self.counts.again.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            match time.call(&0).and_then(ifunc_rt::Call::wait) {
                Ok(times) => self.called("time", times.0 > 0)?,
                Err(Error::Indeterminate { .. } | Error::PeerGone { .. }) => {
                    self.counts.again.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
