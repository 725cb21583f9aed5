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
    ConfigFile, FaultsTable, FilesTable, ListenTable, LogTable, PeerTable, QuotasTable, RunnersTable, Size,
    StoreTable, Time, User,
};
use super::{Config, ConfigError, Faults, Files, Listen, Log, Store};
use crate::capability::{Capabilities, Capability};
use crate::peer::{Identity, PeerSettings};

/// Where the problem is, and what it is; the help follows.
type Wrong = (Range<usize>, String, Option<String>);

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
    match check.reader.problems.is_empty() {
        true => Ok(config),
        false => Err(ConfigError::Lines(check.reader.problems)),
    }
}

struct Check<'a> {
    reader: Reader<'a>,
    folder: &'a Path,
}

impl Check<'_> {
    fn wrong(&mut self, key: &str, span: Range<usize>, why: impl Into<String>, help: &str) {
        let help = (!help.is_empty()).then(|| help.to_owned());
        self.reader.note(key, span, why.into(), help);
    }

    /// The value, or the problem is noted.
    fn or_note<T>(&mut self, key: &str, result: Result<T, Wrong>) -> Option<T> {
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
            let Some(key) = self.or_note("signer", key) else {
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
        let files = [&table.key, &table.certificate, &table.authority, &table.revoked];
        let key_files = files
            .into_iter()
            .take(2)
            .flatten()
            .map(|file| self.path_of(file))
            .collect();
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
        Listen {
            addresses,
            threads: positive(&table.threads, 2) as usize,
            keys,
            key_files,
            authority,
            max_connections: positive(&table.max_connections, 1024) as usize,
            drain: table.drain.map_or(Duration::from_secs(10), |Time(time)| time),
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

    fn peer(
        &mut self,
        table: PeerTable,
        has: &dyn Fn(Capability) -> bool,
        is_writable: bool,
        signers: &[(String, PublicKey)],
        listen: &Listen,
    ) -> Option<PeerSettings> {
        let name = self.name("peer.name", &table.name)?;
        let identity = self.identity(&table, listen);
        let mut capabilities = Capabilities::default();
        for capability in table.capabilities.get_ref() {
            match Capability::by_name(capability.get_ref()) {
                None => {
                    let names: Vec<_> = Capability::ALL.iter().map(|one| format!("`\"{one}\"`")).collect();
                    let help = format!("write some of {}", names.join(", "));
                    self.wrong(
                        "peer.capabilities",
                        capability.span(),
                        format!("there is no capability `{}`", capability.get_ref()),
                        &help,
                    );
                }
                Some(one) if !has(one) => {
                    let help = format!("add the table `[{one}]`, or leave the capability out");
                    self.wrong(
                        "peer.capabilities",
                        capability.span(),
                        format!("the node has no `{one}`: there is no table `[{one}]`"),
                        &help,
                    );
                }
                Some(one) => capabilities.add(one),
            }
        }
        for signer in table.signers.iter().flatten() {
            if !signers.iter().any(|(name, _)| name == signer.get_ref()) {
                self.wrong(
                    "peer.signers",
                    signer.span(),
                    format!("there is no `[[signer]]` called `{}`", signer.get_ref()),
                    "add it, with its key",
                );
            }
        }
        if !table.unsigned && signers.is_empty() {
            self.wrong(
                "peer.unsigned",
                table.name.span(),
                "this peer may send signed code only, and there is no `[[signer]]`",
                "add `[[signer]]` with a `name` and a `file`, or `unsigned = true` to the peer",
            );
        }
        let namespace = match &table.namespace {
            Some(namespace) => self.name("peer.namespace", namespace)?,
            None => Arc::clone(&name),
        };
        let writes = table
            .writes_files
            .as_ref()
            .is_some_and(|writes| *writes.get_ref());
        if let Some(writes) = table.writes_files.as_ref().filter(|_| writes && !is_writable) {
            self.wrong(
                "peer.writes-files",
                writes.span(),
                "no source may write files: `files.writable` is not true",
                "write `writable = true` in `[files]`, or leave this out",
            );
        }
        let folder = table
            .folder
            .as_ref()
            .map_or("", |folder| folder.get_ref().as_str());
        if folder.starts_with('/') || folder.split('/').any(|part| part == "..") {
            let span = table.folder.as_ref().map_or(0..0, Spanned::span);
            self.wrong(
                "peer.folder",
                span,
                format!("`{folder}` leads out of the folder of the node"),
                "write a path below `files.folder`: `folder = \"ada\"`",
            );
        }
        let quotas = &table.quotas;
        let or = |size: Option<Size>, default: usize| size.map_or(default, Size::usize);
        let count = |number: Option<u32>| number.map_or(usize::MAX, |number| number as usize);
        let unlimited = Quotas::UNLIMITED;
        Some(PeerSettings {
            name,
            identity: identity?,
            namespace,
            capabilities,
            unsigned: table.unsigned,
            signers: table
                .signers
                .map(|all| all.into_iter().map(Spanned::into_inner).collect()),
            folder: folder.to_owned(),
            writes_files: writes,
            quotas: unlimited
                .image_bytes(or(quotas.image_bytes, unlimited.image_bytes))
                .code_bytes(or(quotas.code_bytes, unlimited.code_bytes))
                .images(count(quotas.images))
                .installs_per_second(quotas.installs_per_second.unwrap_or(u32::MAX))
                .payload_bytes(or(quotas.payload_bytes, unlimited.payload_bytes))
                .answer_bytes(or(quotas.answer_bytes, unlimited.answer_bytes))
                .in_flight(count(quotas.in_flight))
                .invocations_per_second(quotas.invocations_per_second.unwrap_or(u32::MAX)),
            calls_per_second: quotas.calls_per_second,
            store_bytes: quotas.store_bytes.map_or(64 << 20, |Size(bytes)| bytes),
            memory_bytes: quotas.memory_bytes.map_or(16 << 20, |Size(bytes)| bytes),
        })
    }

    fn name(&mut self, key: &str, name: &Spanned<String>) -> Option<Arc<str>> {
        let text = name.get_ref();
        let is_name = (1..=64).contains(&text.len())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c));
        if !is_name {
            self.wrong(
                key,
                name.span(),
                format!("`{text}` is not a name here"),
                "write 1 to 64 letters, digits, `-`, `_`, `.` and `@`",
            );
        }
        is_name.then(|| text.as_str().into())
    }

    fn identity(&mut self, table: &PeerTable, listen: &Listen) -> Option<Identity> {
        let span = table.name.span();
        let has_key = table.public.is_some() || table.file.is_some();
        let given = [has_key, table.certificate.is_some(), table.user.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            self.wrong("peer.name", span, "a peer is recognised by one of: a key, a certificate, a user", "write `file = \"ada.pub\"` or `public = \"KEY\"`, `certificate = \"NAME\"`, or `user = 1000`");
            return None;
        }
        if let Some(user) = &table.user {
            let has_shm = listen.addresses.iter().any(|address| address.starts_with("shm:"));
            if !has_shm {
                self.wrong(
                    "peer.user",
                    user.span(),
                    "users are known over shared memory only, and the daemon has no `shm:` address",
                    "add `\"shm:ifuncd\"` to `listen.addresses`, or give the peer a key",
                );
            }
            return Some(Identity::User(match user.get_ref() {
                User::Own => rustix::process::geteuid().as_raw(),
                User::Number(number) => *number,
            }));
        }
        if let Some(name) = &table.certificate {
            if listen.authority.is_none() {
                self.wrong(
                    "peer.certificate",
                    name.span(),
                    "there is no authority whose certificates are believed",
                    "name its file: `authority = \"cluster.pem\"` in `[listen]`",
                );
            }
            return Some(Identity::Certificate(name.get_ref().clone()));
        }
        let key = public_key(
            &table.name,
            table.public.as_ref(),
            table.file.as_ref(),
            self.folder,
        );
        self.or_note("peer", key).map(Identity::Key)
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

/// The key of a table.
fn public_key(
    name: &Spanned<String>,
    public: Option<&Spanned<String>>,
    file: Option<&Spanned<String>>,
    folder: &Path,
) -> Result<PublicKey, Wrong> {
    // The help of these errors is for programs.
    let first = |why: String| why.split("; help: ").next().unwrap_or_default().to_owned();
    match (public, file) {
        (Some(public), None) => public
            .get_ref()
            .parse()
            .map_err(|error: ifunc_rt::keys::KeyError| {
                let help =
                    "write the 64 hexadecimal digits of a file that `cargo ifunc keygen` wrote".to_owned();
                (public.span(), first(error.to_string()), Some(help))
            }),
        (None, Some(file)) => {
            let read = PublicKey::read(folder.join(file.get_ref())).map(|(key, _)| key);
            read.map_err(|error| {
                let help = "name a file `NAME.pub` that `cargo ifunc keygen` wrote".to_owned();
                (file.span(), first(error.to_string()), Some(help))
            })
        }
        _ => {
            let help = "write `file = \"NAME.pub\"`, or `public = \"KEY\"`".to_owned();
            Err((
                name.span(),
                "a key has either `file` or `public`".to_owned(),
                Some(help),
            ))
        }
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
