//! The configuration: a TOML file, checked.

mod check;
mod error;
mod file;
mod listen;
mod peers;
mod tables;

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ifunc_rt::keys::{CertificateAuthority, PublicKey, TlsKeys};
use ifunc_rt::{Level, Quotas, RunnerOptions};

pub use error::{ConfigError, Problem};

use crate::peer::PeerSettings;

/// Largest file that is read.
const MAX_FILE: u64 = 4 << 20;

/// The configuration that the package installs. It is valid but for the files that it names.
pub const SAMPLE: &str = include_str!("../../package/ifuncd.toml");

/// A configuration. Everything that it names is there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The file.
    pub path: PathBuf,
    /// Where and how the daemon listens.
    pub listen: Listen,
    /// Where its metrics are.
    pub metrics: Option<SocketAddr>,
    /// What it logs.
    pub log: Log,
    /// Where ifuncs run, and what ends them.
    pub faults: Faults,
    /// What each connection may use.
    pub quotas: Quotas,
    /// The capability `store`.
    pub store: Option<Store>,
    /// The capability `files`.
    pub files: Option<Files>,
    /// The bytes of all regions of the capability `memory`.
    pub memory: Option<u64>,
    /// Whose code runs.
    pub signers: Vec<(String, PublicKey)>,
    /// The sources.
    pub peers: Vec<PeerSettings>,
}

/// Where and how the daemon listens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listen {
    /// One target listens at each.
    pub addresses: Vec<String>,
    /// Threads of each target.
    pub threads: usize,
    /// Its key, and its certificate.
    pub keys: Option<TlsKeys>,
    /// Who certifies sources.
    pub authority: Option<CertificateAuthority>,
    /// Connections of each target.
    pub max_connections: usize,
    /// How long calls may take to end when the daemon stops.
    pub drain: Duration,
    /// Whether every source may read the counters.
    pub share_stats: bool,
}

/// What the daemon logs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Log {
    /// The level of the log on standard error: `info`.
    pub level: tracing::Level,
    /// The file of the audit log.
    pub audit: Option<PathBuf>,
}

/// Where ifuncs run, and what ends them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Faults {
    /// In this process, or in processes of their own.
    pub level: Level,
    /// How long an invocation may run.
    pub max_run_time: Duration,
    /// The stack of an invocation.
    pub stack_bytes: usize,
    /// The processes.
    pub runners: RunnerOptions,
}

/// The capability `store`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Store {
    /// The file.
    pub file: PathBuf,
    /// Whether each change is on the disk when it returns.
    pub is_immediate: bool,
    /// Memory for pages of the file.
    pub cache_bytes: usize,
}

/// The capability `files`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Files {
    /// The folder.
    pub folder: PathBuf,
    /// Whether sources may write at all.
    pub is_writable: bool,
    /// Longest file that a source may write.
    pub max_file_bytes: u64,
}

impl Config {
    /// Reads a configuration. The files that it names are relative to its folder.
    ///
    /// # Errors
    /// The file cannot be read, or other users may change it; or lines of it are wrong: the error has all of them, with their place, their
    /// key and what to write.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let cannot = |error| ConfigError::Read {
            path: path.to_owned(),
            error,
        };
        let about = std::fs::metadata(path).map_err(cannot)?;
        if about.len() > MAX_FILE {
            return Err(cannot(std::io::Error::other(format!(
                "it has more than {MAX_FILE} bytes"
            ))));
        }
        let untrusted = |why| ConfigError::Untrusted {
            path: path.to_owned(),
            why,
        };
        if about.uid() != rustix::process::geteuid().as_raw() && about.uid() != 0 {
            return Err(untrusted(format!("it belongs to user {}", about.uid())));
        }
        if about.mode() & 0o002 != 0 {
            return Err(untrusted(format!("its mode is {:o}", about.mode() & 0o777)));
        }
        Self::of_text(&std::fs::read_to_string(path).map_err(cannot)?, path)
    }

    /// A configuration of the text of a file, at this path.
    ///
    /// # Errors
    /// Lines are wrong.
    pub fn of_text(text: &str, path: &Path) -> Result<Self, ConfigError> {
        check::of_text(text, path)
    }

    /// What another configuration changes that holds until the daemon is started again.
    #[must_use]
    pub fn differs_in_fixed(&self, other: &Self) -> Vec<&'static str> {
        let (mine, yours) = (&self.listen, &other.listen);
        let runners = |config: &Self| format!("{:?}", config.faults.runners);
        let limits = |config: &Self| {
            let Quotas {
                image_bytes,
                payload_bytes,
                answer_bytes,
                ..
            } = config.quotas;
            (image_bytes, payload_bytes, answer_bytes)
        };
        [
            (mine.addresses != yours.addresses, "`listen.addresses`"),
            (mine.threads != yours.threads, "`listen.threads`"),
            (
                // What is in the files, wherever they are.
                mine.keys != yours.keys,
                "`listen.key` and `listen.certificate`",
            ),
            (
                mine.max_connections != yours.max_connections,
                "`listen.max-connections`",
            ),
            (mine.share_stats != yours.share_stats, "`listen.share-stats`"),
            (self.metrics != other.metrics, "`[metrics]`"),
            (self.log != other.log, "`[log]`"),
            (self.faults.level != other.faults.level, "`faults.level`"),
            (
                self.faults.max_run_time != other.faults.max_run_time,
                "`faults.max-run-time`",
            ),
            (
                self.faults.stack_bytes != other.faults.stack_bytes,
                "`faults.stack-bytes`",
            ),
            (runners(self) != runners(other), "`[runners]`"),
            (
                limits(self) != limits(other),
                "`image-bytes`, `payload-bytes` and `answer-bytes` of `[quotas]`",
            ),
            (self.store != other.store, "`[store]`"),
            (self.files != other.files, "`[files]`"),
            (self.memory != other.memory, "`[memory]`"),
        ]
        .into_iter()
        .filter_map(|(differs, what)| differs.then_some(what))
        .collect()
    }
}
