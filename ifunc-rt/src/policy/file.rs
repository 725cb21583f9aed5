//! A policy as a TOML file.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::Spanned;

use super::{AddressRange, Grant, Policy, Quotas, Unsigned};
use crate::RunnerOptions;
#[cfg(feature = "tls")]
use crate::keys::CertificateAuthority;
#[cfg(feature = "tls")]
use crate::keys::certificate::is_name;
use crate::keys::{KeyError, PublicKey};
use crate::target::Level;

/// Largest file that is read.
const MAX_FILE: u64 = 1 << 20;

/// Why a file is no policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyFileError {
    /// The file cannot be read.
    #[error("cannot read the policy `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Other users may change the file.
    #[error(
        "the policy `{path}` may be changed by other users ({why}); help: `chown` it to root or to the target's user, `chmod go-w {path}`",
        path = path.display()
    )]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// Who may change it.
        why: String,
    },
    /// A line of the file is wrong.
    #[error("`{}`, line {line}: {why}\n{line:5} | {text}{}", path.display(), help_line(.help.as_deref()))]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
        /// What is wrong.
        why: String,
        /// The line.
        text: String,
        /// What to write instead.
        help: Option<String>,
    },
}

fn help_line(help: Option<&str>) -> String {
    help.map_or_else(String::new, |help| format!("\nhelp: write {help}"))
}

impl Policy {
    /// Reads a policy from a file. Files of keys that it names are relative to its folder.
    ///
    /// ```toml
    /// revoked = ["5fc3…"]                # public keys, in hexadecimal digits
    ///
    /// [connect]
    /// users = [1001]                     # over shm, beside the target's own user; or: any-user = true
    /// addresses = ["10.1.0.0/16"]        # over tls and ucx; without this line, from every address
    ///
    /// [[connect.key]]                    # over tls, beside the peers of the target's own keys
    /// name = "ada"
    /// file = "ada.pub"                   # or: public = "8a88…"
    ///
    /// [[connect.certificate]]            # over tls: certificates of an authority, in PEM
    /// ca = "cluster.pem"
    /// names = ["ada.example"]            # DNS names, addresses, URIs; without this line, every name that it certifies
    /// revoked = "revoked.pem"            # its list of revoked certificates; without this line, those in the file `ca`
    ///
    /// [quotas]                           # of each connection
    /// image-bytes = 1_048_576
    /// code-bytes = 16_777_216
    /// images = 64
    /// payload-bytes = 1_048_576
    /// answer-bytes = 65_536
    /// in-flight = 1000
    /// installs-per-second = 20
    ///                                    # in those of a key, too: invocations-per-second = 1000,
    ///                                    # run-time = "100ms", run-time-per-second = "500ms"
    /// [faults]
    /// level = "contained"                # or "panics", the default, or "process"
    /// max-run-time = "2s"                # or "20ms"; without this line, without a limit
    /// stack-bytes = 4_194_304
    ///
    /// [runners]                          # with `level = "process"`
    /// program = "/usr/bin/ifunc-runner"  # without this line, beside the target's program
    /// memory-bytes = 268_435_456         # of each
    /// cpu-time = "10min"                 # of each; without this line, without a limit
    /// max-runners = 64
    /// without-landlock = false
    ///
    /// [[key]]
    /// name = "builds"
    /// file = "builds.pub"                # or: public = "8a88…"
    ///
    /// [[key]]
    /// name = "analysts"
    /// file = "analysts.pub"
    /// imports = ["kv_get", "log_*"]      # without this line, all
    /// pure = false
    /// quotas = { images = 8, installs-per-second = 2 }
    ///
    /// [unsigned.same-user]               # code without a signature; without these tables, none
    /// imports = ["log_*"]
    ///
    /// [unsigned.every-peer]
    /// pure = true
    /// ```
    ///
    /// All of it is optional. An empty file admits processes of the target's own user and runs no code.
    ///
    /// # Errors
    /// The file cannot be read, or other users may change it; or a line is wrong: the error has its number and what to write.
    ///
    /// # Safety
    /// As for [`accept_unsigned`](Self::accept_unsigned): the author of the file decides whose code runs in this process.
    pub unsafe fn read(path: impl AsRef<Path>) -> Result<Self, PolicyFileError> {
        let path = path.as_ref();
        // SAFETY: the caller's promise.
        unsafe { Self::of_text(&read(path)?, path) }
    }

    /// A policy of the text of a [file](Self::read). Files of keys that it names are relative to the working directory.
    ///
    /// ```
    /// let text = "[[key]]\nname = \"builds\"\npublic = \"12\"\n";
    /// // SAFETY: it is refused.
    /// let error = unsafe { ifunc_rt::Policy::from_toml(text) }.unwrap_err();
    /// assert!(error.to_string().contains("line 3: `12` is not a public key"));
    /// ```
    ///
    /// # Errors
    /// A line is wrong.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    pub unsafe fn from_toml(text: &str) -> Result<Self, PolicyFileError> {
        // SAFETY: the caller's promise.
        unsafe { Self::of_text(text, Path::new("policy.toml")) }
    }

    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn of_text(text: &str, path: &Path) -> Result<Self, PolicyFileError> {
        let reader = Reader { text, path };
        let file: PolicyFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.fail(at, error.message().to_owned())
        })?;
        let mut policy = Self::new().connect_users(file.connect.users);
        if file.connect.any_user {
            policy = policy.connect_any_user();
        }
        if let Some(ranges) = &file.connect.addresses {
            let ranges = ranges.iter().map(|range| reader.parse(range));
            policy = policy.connect_from(ranges.collect::<Result<Vec<AddressRange>, _>>()?);
        }
        for PeerTable { name, public, file } in file.connect.key {
            let key = reader.key(&name, public.as_ref(), file.as_ref())?;
            policy = policy.connect_key(name.into_inner(), key);
        }
        for table in file.connect.certificate {
            policy = reader.certificate(policy, table)?;
        }
        for key in &file.revoked {
            policy = policy.revoke(reader.parse(key)?);
        }
        policy.quotas = file.quotas.or(Quotas::default());
        for KeyTable {
            name,
            public,
            file,
            imports,
            pure,
            quotas,
        } in file.key
        {
            let public = reader.key(&name, public.as_ref(), file.as_ref())?;
            let grant = grant(imports, pure, &quotas);
            // SAFETY: the caller's promise.
            policy = unsafe { policy.accept_key(name.into_inner(), public, grant) };
        }
        let UnsignedTable {
            same_user,
            every_peer,
        } = file.unsigned;
        for (from, table) in [(Unsigned::SameUser, same_user), (Unsigned::EveryPeer, every_peer)] {
            if let Some(GrantTable {
                imports,
                pure,
                quotas,
            }) = table
            {
                // SAFETY: the caller's promise.
                policy = unsafe { policy.accept_unsigned(from, grant(imports, pure, &quotas)) };
            }
        }
        let FaultsTable {
            level,
            max_run_time,
            stack_bytes,
        } = file.faults;
        policy.stack = stack_bytes.unwrap_or(policy.stack);
        if let Some(level) = level {
            policy.level = match level.get_ref().as_str() {
                "panics" => Level::Panics,
                "contained" => Level::Contained,
                "process" => Level::Process,
                other => return Err(reader.fail(level.span().start, format!("there is no level `{other}`"))),
            };
        }
        let time = |text: Spanned<String>| {
            let parsed = duration(text.get_ref());
            let why = || format!("`{}` is not a time", text.get_ref());
            parsed.ok_or_else(|| reader.fail(text.span().start, why()))
        };
        policy.max_run_time = max_run_time.map(time).transpose()?;
        let RunnersTable {
            program,
            memory_bytes,
            cpu_time,
            max_runners,
            without_landlock,
        } = file.runners;
        let mut runners = RunnerOptions::new().without_landlock(without_landlock);
        if let Some(program) = program {
            let folder = path.parent().unwrap_or(Path::new(""));
            runners = runners.program(folder.join(program));
        }
        if let Some(bytes) = memory_bytes {
            runners = runners.memory(bytes);
        }
        if let Some(limit) = cpu_time {
            runners = runners.cpu_time(time(limit)?);
        }
        if let Some(count) = max_runners {
            runners = runners.max_runners(count);
        }
        policy.runners = runners;
        Ok(policy)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PolicyFile {
    #[serde(default)]
    revoked: Vec<Spanned<String>>,
    #[serde(default)]
    connect: ConnectTable,
    #[serde(default)]
    quotas: QuotasTable,
    #[serde(default)]
    faults: FaultsTable,
    #[serde(default)]
    runners: RunnersTable,
    #[serde(default)]
    key: Vec<KeyTable>,
    #[serde(default)]
    unsigned: UnsignedTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ConnectTable {
    #[serde(default)]
    users: Vec<u32>,
    #[serde(default)]
    any_user: bool,
    addresses: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    key: Vec<PeerTable>,
    #[serde(default)]
    certificate: Vec<CertificateTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[cfg_attr(
    not(feature = "tls"),
    expect(dead_code, reason = "there are no certificates without TLS")
)]
struct CertificateTable {
    ca: Spanned<String>,
    names: Option<Vec<Spanned<String>>>,
    revoked: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PeerTable {
    name: Spanned<String>,
    public: Option<Spanned<String>>,
    file: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct QuotasTable {
    image_bytes: Option<usize>,
    code_bytes: Option<usize>,
    images: Option<usize>,
    payload_bytes: Option<usize>,
    answer_bytes: Option<usize>,
    in_flight: Option<usize>,
    installs_per_second: Option<u32>,
    invocations_per_second: Option<u32>,
    #[serde(default, deserialize_with = "time")]
    run_time: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    run_time_per_second: Option<Duration>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FaultsTable {
    level: Option<Spanned<String>>,
    max_run_time: Option<Spanned<String>>,
    stack_bytes: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RunnersTable {
    program: Option<PathBuf>,
    memory_bytes: Option<u64>,
    cpu_time: Option<Spanned<String>>,
    max_runners: Option<usize>,
    #[serde(default)]
    without_landlock: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KeyTable {
    name: Spanned<String>,
    public: Option<Spanned<String>>,
    file: Option<Spanned<String>>,
    imports: Option<Vec<String>>,
    #[serde(default)]
    pure: bool,
    #[serde(default)]
    quotas: QuotasTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct UnsignedTable {
    same_user: Option<GrantTable>,
    every_peer: Option<GrantTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct GrantTable {
    imports: Option<Vec<String>>,
    #[serde(default)]
    pure: bool,
    #[serde(default)]
    quotas: QuotasTable,
}

impl QuotasTable {
    /// These, and those of `others` that are not stated.
    fn or(&self, others: Quotas) -> Quotas {
        Quotas {
            image_bytes: self.image_bytes.unwrap_or(others.image_bytes),
            code_bytes: self.code_bytes.unwrap_or(others.code_bytes),
            images: self.images.unwrap_or(others.images),
            payload_bytes: self.payload_bytes.unwrap_or(others.payload_bytes),
            answer_bytes: self.answer_bytes.unwrap_or(others.answer_bytes),
            in_flight: self.in_flight.unwrap_or(others.in_flight),
            installs_per_second: self.installs_per_second.unwrap_or(others.installs_per_second),
            invocations_per_second: self
                .invocations_per_second
                .unwrap_or(others.invocations_per_second),
            run_time: self.run_time.unwrap_or(others.run_time),
            run_time_per_second: self.run_time_per_second.unwrap_or(others.run_time_per_second),
        }
    }
}

fn grant(imports: Option<Vec<String>>, pure: bool, quotas: &QuotasTable) -> Grant {
    let mut grant = Grant::new().quotas(quotas.or(Quotas::UNLIMITED));
    if let Some(imports) = imports {
        grant = grant.imports(imports);
    }
    if pure { grant.pure() } else { grant }
}

/// A time of a table.
fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    let time = duration(&text);
    time.map(Some)
        .ok_or_else(|| D::Error::custom(format!("`{text}` is not a time")))
}

/// A time such as `20ms` or `2s`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit.trim_start() {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "min" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
}

/// What to write, by the key of a line.
const EXAMPLES: [(&str, &str); 34] = [
    (
        "revoked",
        "`revoked = [\"KEY\"]`, each the 64 hexadecimal digits of a file that `cargo ifunc keygen` wrote",
    ),
    ("users", "`users = [1001, 1002]`, the numbers that `id -u` prints"),
    ("any-user", "`any-user = true`"),
    (
        "addresses",
        "`addresses = [\"10.1.0.0/16\", \"fd00::/8\", \"192.168.1.7\"]`",
    ),
    ("image-bytes", "`image-bytes = 1_048_576`, a number of bytes"),
    ("code-bytes", "`code-bytes = 16_777_216`, a number of bytes"),
    ("images", "`images = 64`"),
    ("payload-bytes", "`payload-bytes = 1_048_576`, a number of bytes"),
    ("answer-bytes", "`answer-bytes = 65_536`, a number of bytes"),
    ("in-flight", "`in-flight = 1000`"),
    ("installs-per-second", "`installs-per-second = 20`"),
    ("invocations-per-second", "`invocations-per-second = 1000`"),
    ("run-time", "`run-time = \"100ms\"`, with `ms`, `s` or `min`"),
    (
        "run-time-per-second",
        "`run-time-per-second = \"500ms\"`, with `ms`, `s` or `min`",
    ),
    (
        "level",
        "`level = \"contained\"`, `level = \"panics\"` or `level = \"process\"`",
    ),
    (
        "program",
        "`program = \"/usr/bin/ifunc-runner\"`, relative to the policy",
    ),
    ("memory-bytes", "`memory-bytes = 268_435_456`, a number of bytes"),
    ("cpu-time", "`cpu-time = \"10min\"`, with `ms`, `s` or `min`"),
    ("max-runners", "`max-runners = 64`"),
    ("without-landlock", "`without-landlock = true`"),
    ("max-run-time", "`max-run-time = \"2s\"`, with `ms`, `s` or `min`"),
    ("stack-bytes", "`stack-bytes = 4_194_304`, a number of bytes"),
    ("name", "`name = \"builds\"`, and `file = \"builds.pub\"`"),
    (
        "public",
        "`public = \"KEY\"`, the 64 hexadecimal digits of a file that `cargo ifunc keygen` wrote",
    ),
    (
        "file",
        "`file = \"builds.pub\"`, a file that `cargo ifunc keygen` wrote, relative to the policy",
    ),
    ("imports", "`imports = [\"kv_get\", \"log_*\"]`"),
    ("pure", "`pure = true`"),
    (
        "quotas",
        "`quotas = { images = 8 }`, or `[quotas]` for those of each connection",
    ),
    (
        "[[key]]",
        "`name = \"builds\"` and `file = \"builds.pub\"` below it",
    ),
    (
        "[[connect.key]]",
        "`name = \"ada\"` and `file = \"ada.pub\"` below it",
    ),
    (
        "[[connect.certificate]]",
        "`ca = \"cluster.pem\"` and `names = [\"ada.example\"]` below it",
    ),
    (
        "ca",
        "`ca = \"cluster.pem\"`, the certificate of the authority in PEM, relative to the policy",
    ),
    (
        "names",
        "`names = [\"ada.example\", \"10.1.0.7\", \"spiffe://cluster/ada\"]`; a wildcard is for certificates",
    ),
    ("[key]", "`[[key]]`"),
];

/// The text, for errors.
#[derive(Clone, Copy)]
struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Reader<'_> {
    /// What is wrong at an offset of the text.
    fn fail(&self, at: usize, why: String) -> PolicyFileError {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let text = self.text.lines().nth(line - 1).unwrap_or_default().trim_end();
        let key = text.split_once('=').map_or(text, |(key, _)| key).trim();
        let example = EXAMPLES.iter().find(|(name, _)| *name == key);
        PolicyFileError::Line {
            path: self.path.to_owned(),
            line,
            why,
            text: text.to_owned(),
            help: example.map(|(_, help)| (*help).to_owned()),
        }
    }

    fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        text: &Spanned<String>,
    ) -> Result<T, PolicyFileError> {
        let parsed = text.get_ref().parse();
        parsed.map_err(|error: T::Err| {
            // The help is that of the line.
            let why = error.to_string();
            let why = why.split("; help: ").next().unwrap_or_default().to_owned();
            self.fail(text.span().start, why)
        })
    }

    /// The key of a table that has this name.
    fn key(
        &self,
        name: &Spanned<String>,
        public: Option<&Spanned<String>>,
        file: Option<&Spanned<String>>,
    ) -> Result<PublicKey, PolicyFileError> {
        match (public, file) {
            (Some(public), None) => self.parse(public),
            (None, Some(file)) => self.key_file(file),
            _ => {
                let why = "a key has either `public` or `file`".to_owned();
                Err(self.fail(name.span().start, why))
            }
        }
    }

    /// The key in a file.
    fn key_file(&self, file: &Spanned<String>) -> Result<PublicKey, PolicyFileError> {
        self.named_file(file, |path| PublicKey::read(path).map(|(key, _)| key))
    }

    /// What a file holds that the policy names, which other users may not change.
    fn named_file<T>(
        &self,
        file: &Spanned<String>,
        read: impl FnOnce(&Path) -> Result<T, KeyError>,
    ) -> Result<T, PolicyFileError> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let path = folder.join(file.get_ref());
        let found = check_owner(&path)
            .map_err(|error| error.to_string())
            .and_then(|()| read(&path).map_err(|error| error.to_string()));
        found.map_err(|why| self.fail(file.span().start, why))
    }

    /// The policy with the certificates of a table.
    #[cfg(feature = "tls")]
    fn certificate(&self, policy: Policy, table: CertificateTable) -> Result<Policy, PolicyFileError> {
        let CertificateTable { ca, names, revoked } = table;
        let mut authority = self.named_file(&ca, |path| CertificateAuthority::read(path))?;
        if let Some(revoked) = revoked {
            authority = self.named_file(&revoked, |path| authority.revoked_by(path))?;
        }
        let Some(names) = names else {
            return Ok(policy.connect_any_certificate(authority));
        };
        let wrong = names.iter().find(|name| !is_name(name.get_ref()));
        if let Some(name) = wrong {
            let why = format!(
                "`{}` is not a name by which a certificate connects",
                name.get_ref()
            );
            return Err(self.fail(name.span().start, why));
        }
        let names = names.iter().map(Spanned::get_ref);
        let added = policy.connect_certificate(authority, names);
        added.map_err(|error| self.fail(ca.span().start, error.to_string()))
    }

    #[cfg(not(feature = "tls"))]
    fn certificate(&self, _: Policy, table: CertificateTable) -> Result<Policy, PolicyFileError> {
        let why = "this program was built without TLS, which certificates need; help: build `ifunc-rt` with its feature `tls`";
        Err(self.fail(table.ca.span().start, why.into()))
    }
}

/// The text of a file that other users may not change.
fn read(path: &Path) -> Result<String, PolicyFileError> {
    check_owner(path)?;
    std::fs::read_to_string(path).map_err(|error| PolicyFileError::Read {
        path: path.to_owned(),
        error,
    })
}

fn check_owner(path: &Path) -> Result<(), PolicyFileError> {
    let cannot = |error| PolicyFileError::Read {
        path: path.to_owned(),
        error,
    };
    let about = std::fs::metadata(path).map_err(cannot)?;
    if about.len() > MAX_FILE {
        return Err(cannot(std::io::Error::other(format!(
            "it has more than {MAX_FILE} bytes"
        ))));
    }
    let me = rustix::process::geteuid().as_raw();
    let untrusted = |why| PolicyFileError::Untrusted {
        path: path.to_owned(),
        why,
    };
    if about.uid() != me && about.uid() != 0 {
        return Err(untrusted(format!("it belongs to user {}", about.uid())));
    }
    if about.mode() & 0o002 != 0 {
        return Err(untrusted(format!("its mode is {:o}", about.mode() & 0o777)));
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
