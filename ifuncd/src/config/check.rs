//! From the text of a file to a configuration.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ifunc_rt::keys::{Certificate, CertificateAuthority, PublicKey, SecretKey, TlsKeys};
use ifunc_rt::{Address, Level, Quotas, RunnerOptions};
use toml::Spanned;

use super::error::Reader;
use super::file::{
    ConfigFile, FaultsTable, FilesTable, ListenTable, LogTable, QuotasTable, RunnersTable, Size, StoreTable,
    Time,
};
use super::peers::{key_named, public_key};
use super::{Config, ConfigError, Faults, Files, Listen, Log, Store};
use crate::capability::Capability;
use crate::peer::PeerSettings;

/// The longest `drain`.
const MAX_DRAIN: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the problem is, and what it is; the help follows.
pub(super) type Wrong = (Range<usize>, String, Option<String>);

pub(super) fn of_text(text: &str, path: &Path) -> Result<Config, ConfigError> {
    let mut check = Check {
        reader: Reader {
            path,
            text,
            problems: Vec::new(),
        },
        folder: path.parent().unwrap_or(Path::new("")),
    };
    let file: ConfigFile = toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let key = check.reader.key_at(span.start);
        let why = error.message().to_owned();
        ConfigError::Lines(vec![check.reader.problem(&key, span, why, None)])
    })?;
    let config = check.config(file);
    check
        .reader
        .problems
        .sort_by_key(|problem| (problem.line, problem.column));
    match check.reader.problems.is_empty() {
        true => Ok(config),
        false => Err(ConfigError::Lines(check.reader.problems)),
    }
}

pub(super) struct Check<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) folder: &'a Path,
}

impl Check<'_> {
    pub(super) fn wrong(&mut self, key: &str, span: Range<usize>, why: impl Into<String>, help: &str) {
        let help = (!help.is_empty()).then(|| help.to_owned());
        self.reader.note(key, span, why.into(), help);
    }

    /// The value, or the problem is noted.
    pub(super) fn or_note<T>(&mut self, key: &str, result: Result<T, Wrong>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err((span, why, help)) => {
                self.reader.note(key, span, why, help);
                None
            }
        }
    }

    fn path_of(&self, path: &Spanned<String>) -> PathBuf {
        self.folder.join(path.get_ref())
    }

    fn config(&mut self, file: ConfigFile) -> Config {
        let ConfigFile {
            listen,
            metrics,
            log,
            faults,
            runners,
            quotas,
            store,
            files,
            memory,
            signer,
            peer,
        } = file;
        let at_listen = listen.span();
        let listen = self.listen(listen.into_inner());
        let metrics = metrics.and_then(|table| {
            let parsed = table.address.get_ref().parse();
            parsed
                .map_err(|_| {
                    self.wrong(
                        "metrics.address",
                        table.address.span(),
                        format!("`{}` is not an address and a port", table.address.get_ref()),
                        "write `\"127.0.0.1:9177\"`, or `\"[::1]:9177\"`",
                    )
                })
                .ok()
        });
        let log = self.log(&log);
        let faults = self.faults(&faults, &runners);
        let store = store.map(|table| self.store(&table));
        let files = files.map(|table| self.files(&table));
        let memory = memory.map(|table| table.max_bytes.0);
        let mut signers = Vec::<(String, PublicKey)>::new();
        for table in signer {
            let key = public_key(
                &table.name,
                table.public.as_ref(),
                table.file.as_ref(),
                self.folder,
            );
            let Some(key) = self.or_note(key_named("signer", table.public.is_some()), key) else {
                continue;
            };
            if signers
                .iter()
                .any(|(name, known)| name == table.name.get_ref() || *known == key)
            {
                self.wrong(
                    "signer.name",
                    table.name.span(),
                    "two signers have this name or this key",
                    "keep one of them",
                );
            }
            signers.push((table.name.into_inner(), key));
        }
        let has = |capability| match capability {
            Capability::Store => store.is_some(),
            Capability::Files => files.is_some(),
            Capability::Memory => memory.is_some(),
            Capability::Time | Capability::Random | Capability::Log => true,
        };
        let is_writable = files.as_ref().is_some_and(|files| files.is_writable);
        let mut peers = Vec::<PeerSettings>::new();
        let mut known = HashMap::new();
        let mut names = HashSet::new();
        for table in peer {
            let span = table.name.span();
            let Some(settings) = self.peer(table, &has, is_writable, &signers, &listen) else {
                continue;
            };
            if !names.insert(Arc::clone(&settings.name)) {
                self.wrong(
                    "peer.name",
                    span.clone(),
                    format!("two peers are called `{}`", settings.name),
                    "give each peer a name of its own",
                );
            }
            if let Some(other) = known.insert(settings.identity.clone(), Arc::clone(&settings.name)) {
                self.wrong(
                    "peer.name",
                    span,
                    format!(
                        "the peers `{other}` and `{}` are recognised by the same key, certificate or user",
                        settings.name
                    ),
                    "keep one of them",
                );
            }
            peers.push(settings);
        }
        if peers.is_empty() && self.reader.problems.is_empty() {
            self.wrong(
                "peer",
                at_listen,
                "no source may connect: there is no `[[peer]]`",
                "add `[[peer]]` with a `name`, a `file` or a `user`, and `capabilities`",
            );
        }
        Config {
            path: self.reader.path.to_owned(),
            listen,
            metrics,
            log,
            faults,
            quotas: quotas_of(&quotas),
            store,
            files,
            memory,
            signers,
            peers,
        }
    }

    fn listen(&mut self, table: ListenTable) -> Listen {
        let mut addresses = Vec::new();
        if table.addresses.get_ref().is_empty() {
            self.wrong(
                "listen.addresses",
                table.addresses.span(),
                "the daemon listens nowhere",
                "write `[\"shm:ifuncd\"]`, or `[\"tls://0.0.0.0:7000\"]`",
            );
        }
        for address in table.addresses.get_ref() {
            if let Err((why, help)) = check_address(address.get_ref(), table.key.is_some()) {
                self.wrong("listen.addresses", address.span(), why, help);
            }
            addresses.push(address.get_ref().clone());
        }
        let keys = table.key.as_ref().and_then(|file| {
            let read = SecretKey::read(self.path_of(file)).map(TlsKeys::new);
            self.or_note(
                "listen.key",
                read.map_err(|error| (file.span(), error.to_string(), None)),
            )
        });
        let keys = match (keys, &table.certificate) {
            (Some(keys), Some(file)) => {
                let read = Certificate::read(self.path_of(file))
                    .and_then(|certificate| keys.certificate(certificate));
                self.or_note(
                    "listen.certificate",
                    read.map_err(|error| (file.span(), error.to_string(), None)),
                )
            }
            (keys, _) => keys,
        };
        let mut authority = table.authority.as_ref().and_then(|file| {
            let read = CertificateAuthority::read(self.path_of(file));
            self.or_note(
                "listen.authority",
                read.map_err(|error| (file.span(), error.to_string(), None)),
            )
        });
        if let Some(file) = &table.revoked {
            authority = match authority {
                Some(authority) => {
                    let read = authority.revoked_by(self.path_of(file));
                    self.or_note(
                        "listen.revoked",
                        read.map_err(|error| (file.span(), error.to_string(), None)),
                    )
                }
                None => {
                    self.wrong(
                        "listen.revoked",
                        file.span(),
                        "there is no `listen.authority` that could have revoked something",
                        "name the authority, too",
                    );
                    None
                }
            };
        }
        let positive = |number: &Option<Spanned<u32>>, default: u32| {
            number.as_ref().map_or(default, |number| *number.get_ref())
        };
        for (key, number) in [
            ("listen.threads", &table.threads),
            ("listen.max-connections", &table.max_connections),
        ] {
            if let Some(number) = number.as_ref().filter(|number| *number.get_ref() == 0) {
                self.wrong(key, number.span(), "0 serves nobody", "write at least 1");
            }
        }
        let drain = table.drain.map(|drain| {
            let Time(time) = *drain.get_ref();
            if time > MAX_DRAIN {
                self.wrong(
                    "listen.drain",
                    drain.span(),
                    "a daemon that stops waits for a day at most",
                    "write `\"10s\"`, or another time up to `\"1440min\"`",
                );
            }
            time
        });
        Listen {
            addresses,
            threads: positive(&table.threads, 2) as usize,
            keys,
            authority,
            max_connections: positive(&table.max_connections, 1024) as usize,
            drain: drain.unwrap_or(Duration::from_secs(10)),
            share_stats: table.share_stats,
        }
    }

    fn log(&mut self, table: &LogTable) -> Log {
        let level = table.level.as_ref().map(|level| match level.get_ref().as_str() {
            "error" => Ok(tracing::Level::ERROR),
            "warn" => Ok(tracing::Level::WARN),
            "info" => Ok(tracing::Level::INFO),
            "debug" => Ok(tracing::Level::DEBUG),
            other => Err((
                level.span(),
                format!("there is no level `{other}`"),
                Some("write `\"error\"`, `\"warn\"`, `\"info\"` or `\"debug\"`".to_owned()),
            )),
        });
        let level = level.and_then(|level| self.or_note("log.level", level));
        let audit = table.audit.as_ref().map(|file| {
            let path = self.path_of(file);
            self.parent_exists("log.audit", file, &path);
            path
        });
        Log {
            level: level.unwrap_or(tracing::Level::INFO),
            audit,
        }
    }

    fn parent_exists(&mut self, key: &str, file: &Spanned<String>, path: &Path) {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        if !parent.is_dir() {
            self.wrong(
                key,
                file.span(),
                format!("the folder `{}` of this file is not there", parent.display()),
                "make it, or name another file",
            );
        }
    }

    fn faults(&mut self, table: &FaultsTable, runners: &RunnersTable) -> Faults {
        let level = table.level.as_ref().map(|level| match level.get_ref().as_str() {
            "process" => Ok(Level::Process),
            "contained" => Ok(Level::Contained),
            "panics" => Ok(Level::Panics),
            other => Err((
                level.span(),
                format!("there is no level `{other}`"),
                Some("write `\"process\"`, `\"contained\"` or `\"panics\"`".to_owned()),
            )),
        });
        let level = level
            .and_then(|level| self.or_note("faults.level", level))
            .unwrap_or(Level::Process);
        let least = 512 << 10;
        if let Some(bytes) = table
            .stack_bytes
            .as_ref()
            .filter(|bytes| bytes.get_ref().0 < least)
        {
            self.wrong(
                "faults.stack-bytes",
                bytes.span(),
                "the stack is too small",
                "write at least `524_288`",
            );
        }
        let mut options = RunnerOptions::new().without_landlock(runners.without_landlock);
        // The daemon is its own runner program.
        if let Ok(program) = std::env::current_exe() {
            options = options.program(program);
        }
        if let Some(Size(bytes)) = runners.memory_bytes {
            options = options.memory(bytes);
        }
        if let Some(Time(time)) = runners.cpu_time {
            options = options.cpu_time(time);
        }
        if let Some(count) = &runners.max_runners {
            if *count.get_ref() == 0 {
                self.wrong(
                    "runners.max-runners",
                    count.span(),
                    "0 processes run nothing",
                    "write at least 1",
                );
            }
            options = options.max_runners(*count.get_ref() as usize);
        }
        Faults {
            level,
            max_run_time: table
                .max_run_time
                .map_or(Duration::from_secs(10), |Time(time)| time),
            stack_bytes: table
                .stack_bytes
                .as_ref()
                .map_or(4 << 20, |bytes| bytes.get_ref().usize()),
            runners: options,
        }
    }

    fn store(&mut self, table: &StoreTable) -> Store {
        let file = self.path_of(&table.file);
        self.parent_exists("store.file", &table.file, &file);
        let durability = table
            .durability
            .as_ref()
            .map(|durability| match durability.get_ref().as_str() {
                "immediate" => Ok(true),
                "second" => Ok(false),
                other => Err((
                    durability.span(),
                    format!("there is no durability `{other}`"),
                    Some(
                        "write `\"immediate\"`, or `\"second\"`: on the disk within about a second"
                            .to_owned(),
                    ),
                )),
            });
        Store {
            file,
            is_immediate: durability
                .and_then(|it| self.or_note("store.durability", it))
                .unwrap_or(true),
            cache_bytes: table.cache_bytes.map_or(64 << 20, Size::usize),
        }
    }

    fn files(&mut self, table: &FilesTable) -> Files {
        let folder = self.path_of(&table.folder);
        let why = match std::fs::metadata(&folder) {
            Ok(about) if about.is_dir() => None,
            Ok(_) => Some(format!("`{}` is not a folder", folder.display())),
            Err(error) => Some(format!("`{}`: {error}", folder.display())),
        };
        if let Some(why) = why {
            self.wrong(
                "files.folder",
                table.folder.span(),
                why,
                "name a folder that the daemon may read",
            );
        }
        Files {
            folder,
            is_writable: table.writable,
            max_file_bytes: table.max_file_bytes.map_or(1 << 30, |Size(bytes)| bytes),
        }
    }
}

/// Whether the daemon listens at such an address.
fn check_address(text: &str, has_key: bool) -> Result<(), (String, &'static str)> {
    const KNOWN: &str =
        "write `\"shm:NAME\"` for sources of this host, `\"tls://HOST:PORT\"` for those of others";
    let address: Address = match text.parse() {
        Ok(address) => address,
        Err(_) => return Err((format!("`{text}` is not an address"), KNOWN)),
    };
    match address {
        Address::Shm(_) => Ok(()),
        Address::Tls(_) | Address::Ucx(_) | Address::UcxPut(_) if !has_key => Err((
            format!("sources prove by keys who they are at `{text}`, and the daemon has none"),
            "make one by `cargo ifunc keygen ifuncd`, and name it: `key = \"ifuncd.key\"` in `[listen]`",
        )),
        Address::Tls(_) => Ok(()),
        Address::Ucx(_) | Address::UcxPut(_) if cfg!(feature = "ucx") => Ok(()),
        Address::Ucx(_) | Address::UcxPut(_) => Err((
            format!("this program was built without UCX, which `{text}` needs"),
            "write `\"tls://HOST:PORT\"`, or build it with the cargo feature `ucx`",
        )),
        _ => Err((
            format!("no other process reaches `{text}`, or knows where it is"),
            KNOWN,
        )),
    }
}

fn quotas_of(table: &QuotasTable) -> Quotas {
    let mut quotas = Quotas::default();
    let set = |value: Option<Size>, field: &mut usize| {
        if let Some(size) = value {
            *field = size.usize();
        }
    };
    set(table.image_bytes, &mut quotas.image_bytes);
    set(table.code_bytes, &mut quotas.code_bytes);
    set(table.payload_bytes, &mut quotas.payload_bytes);
    set(table.answer_bytes, &mut quotas.answer_bytes);
    if let Some(images) = table.images {
        quotas.images = images as usize;
    }
    if let Some(rate) = table.installs_per_second {
        quotas.installs_per_second = rate;
    }
    quotas
}
