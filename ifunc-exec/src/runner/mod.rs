//! Runner processes: where the images of a tenant run that is trusted less than the target.
//!
//! A *tenant* is a key that signs images, or, for code without a signature, a connection. Each tenant has a process of its own,
//! which confines itself before it runs anything (`sandbox`). It has its own address space: what injected code writes
//! there, the target does not see. The target sends it images and payloads through memory that both share (`segment`), copies answers
//! out, and starts the process again when it has died (`tenant`).
//!
//! In the target such an image is installed without code. Its entries lead to `turn_away` of the call gate, as those of an image that is closed
//! for a change do, and the invocation continues in `tenant`. So invocations of images that run in the target pay nothing.
//!
//! | what | file |
//! |---|---|
//! | which target arguments are copied | `plain` |
//! | which functions of the host cross, and how | `signature` |
//! | a call of one, in the runner and in the target | `proxy`, `exported` |
//! | what a call is made of, on the side that calls and on the other | `registers`, `buffer` |
//! | what the host's functions call of the ifunc | `callback` |
//! | what they take of the host's: its target arguments, and objects that the ifunc holds | `objects` |
//! | the shared memory | `segment` |
//! | how both sides wait | `port` |
//! | how a runner starts | `program` |
//! | a process, from the target's side | `process` |
//! | a request to it, while it asks for the host's functions | `conversation` |
//! | a tenant, and its process | `tenant` |
//! | what the process gives up | `sandbox` |
//! | what it does for the target | `serve` |

mod buffer;
mod callback;
mod conversation;
mod exported;
mod objects;
mod plain;
mod port;
mod process;
mod program;
mod proxy;
mod registers;
mod sandbox;
mod segment;
mod serve;
mod signature;
mod tenant;

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;
use ifunc_abi::symbols::{COMPILER_IMPORTS, RELEASE, RUNTIME_IMPORTS};
use ifunc_abi::{Counted, ImageId};

use self::exported::Import;
pub use self::plain::plain_size;
use self::segment::{Lens, PAGE};
pub use self::serve::run_if_started_by_target;
use self::signature::{ANY_OBJECT, Signature};
use self::tenant::TenantProcess;
pub(crate) use self::tenant::{RemoteImage, RemoteInvocation};
use crate::image::imports::Imports;
use crate::{HostSymbols, ImageExecutorOptions, NamedSet, Observer, ValidImage};

/// Most bytes of target arguments that are copied.
pub const MAX_TARGET: usize = 64 << 10;
/// Most bytes of a payload or an answer, and of an image.
const MAX_BODY: usize = 256 << 20;
/// Word of a [`Run`] without target arguments that are copied.
const NO_TARGET: u64 = u64::MAX;
/// What an ifunc in a runner process gets for target arguments that only functions of the host can use: no address of a process.
const OPAQUE: *mut c_void = std::ptr::without_provenance_mut(0x8000_0000_0000_1000);

/// Options of runner processes.
#[derive(Clone, Debug)]
#[must_use]
pub struct RunnerOptions {
    program: Option<PathBuf>,
    memory: u64,
    cpu_time: Option<Duration>,
    max_runners: usize,
    without_landlock: bool,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self {
            program: None,
            memory: 256 << 20,
            cpu_time: None,
            max_runners: 64,
            without_landlock: false,
        }
    }
}

impl RunnerOptions {
    /// The program `ifunc-runner` beside this program, or where the environment variable `IFUNC_RUNNER` says.
    pub fn new() -> Self {
        Self::default()
    }

    /// The program that a target starts: `ifunc-runner`, or one whose `main` begins with
    /// [`run_if_started_by_target`], such as this one itself. Both must be built from the same version of this crate.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Memory that the ifuncs of a tenant may use, in bytes: their data, and what they allocate. Default 256 MiB. More is not
    /// there: an allocation fails, and what an ifunc does then is as in any process. Memory for code has a limit of its own.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// CPU time of a runner process, in whole seconds, from its start until the kernel ends it. The next invocation starts another one.
    /// Default: without a limit. The time of one invocation is bounded by the policy's `max_run_time`.
    pub fn cpu_time(mut self, time: Duration) -> Self {
        self.cpu_time = Some(time);
        self
    }

    /// Runner processes at a time. Default 64. An image for whose tenant there is none is refused.
    pub fn max_runners(mut self, runners: usize) -> Self {
        self.max_runners = runners;
        self
    }

    /// Accepts a kernel without Landlock. The filter of system calls denies every access to files, too; Landlock is the second
    /// lock. Default: no.
    pub fn without_landlock(mut self, yes: bool) -> Self {
        self.without_landlock = yes;
        self
    }
}

/// The runner processes of an executor, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunnerCounts {
    /// Processes that run. The target learns that one has ended when it needs it.
    pub running: usize,
    /// Most of them at a time.
    pub max: usize,
    /// Processes that took the place of one that had ended.
    pub restarts: u64,
    /// Processes that ended by themselves, were killed, or were ended by the target for what they did.
    pub crashes: u64,
    /// Version of Landlock that confines them; 0: the kernel has none.
    pub landlock: u64,
}

/// Starts a runner process, which confines itself, and ends it. Returns the version of Landlock; 0: the kernel has none.
///
/// # Errors
/// There is no program, or it does not start, or the kernel lacks what it needs.
pub fn try_runner(options: &RunnerOptions) -> io::Result<u64> {
    let settings = Settings {
        program: program::find(options.program.as_deref())?,
        options: options.clone(),
        lens: Lens {
            payload: PAGE,
            target: PAGE,
            answer: PAGE,
        },
        code_bytes: 1 << 20,
        max_images: 1,
        max_image_memory: PAGE,
        stack_bytes: 64 << 10,
        run_time: None,
    };
    process::try_start(&settings).map_err(io::Error::other)
}

/// Longest bodies, as the target's quotas state them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Bytes of a payload.
    pub payload: usize,
    /// Bytes of an image.
    pub image: usize,
    /// Bytes of an answer.
    pub answer: usize,
}

/// Whose images share a runner process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tenant {
    /// The holder of a key, by the name that the policy gives it.
    Key(String),
    /// A connection, by its number.
    Connection(u64),
}

/// What target arguments are to an ifunc in a runner process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// They stay where they are, and functions of the host alone reach them.
    Opaque {
        /// The canonical text of their type.
        text: &'static str,
        /// Several threads use them at the same time.
        is_shared: bool,
    },
    /// The ifunc works on a copy of so many bytes, which take the place of the original when it has ended well. Every content of them is valid.
    Copied(usize),
}

impl Default for Lent {
    /// Of no type.
    fn default() -> Self {
        Self::Opaque {
            text: "",
            is_shared: true,
        }
    }
}

/// A message that asks for an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The target's number of the image.
    image: u64,
    entry: u32,
    /// A caller waits for the answer.
    is_awaited: bool,
    /// Length of the payload.
    payload: u64,
    /// Length of the target arguments, or [`NO_TARGET`].
    target: u64,
    /// Memory that the invocation is lent for its answer, and the length of the longest answer.
    room: u32,
    max_answer: u32,
    /// Milliseconds that it may run, in 31 bits, if it has a limit of its own; 0: it has none.
    run_time: u32,
    sender: u64,
}

impl Run {
    fn words(self) -> [u64; 6] {
        [
            self.image,
            u64::from(self.entry)
                | u64::from(self.is_awaited) << 32
                | u64::from(self.run_time.min(u32::MAX >> 1)) << 33,
            self.payload,
            self.target,
            u64::from(self.room) | u64::from(self.max_answer) << 32,
            self.sender,
        ]
    }

    fn from_words([image, entry, payload, target, answer, sender]: [u64; 6]) -> Self {
        Self {
            image,
            entry: entry as u32,
            is_awaited: entry >> 32 & 1 != 0,
            run_time: (entry >> 33) as u32,
            payload,
            target,
            room: answer as u32,
            max_answer: (answer >> 32) as u32,
            sender,
        }
    }
}

/// The runner processes of an executor.
#[derive(Debug)]
pub(crate) struct Runners {
    settings: Settings,
    /// Those that have an image.
    tenants: Mutex<HashMap<Tenant, Weak<TenantProcess>>>,
    /// Number of tenants: each may have a runner process at any moment.
    tenant_count: AtomicUsize,
    /// Number of images in them.
    images: AtomicUsize,
    /// Held while the observer learns of a change.
    counts: Mutex<RunnerCounts>,
    observer: Arc<dyn Observer>,
}

/// What every runner is started with.
#[derive(Clone, Debug)]
struct Settings {
    program: PathBuf,
    options: RunnerOptions,
    lens: Lens,
    code_bytes: usize,
    max_images: usize,
    max_image_memory: usize,
    stack_bytes: usize,
    run_time: Option<Duration>,
}

impl Runners {
    /// Finds the runner program, and starts and ends a runner: a target learns when it begins whether they confine themselves.
    ///
    /// # Errors
    /// There is no program, or it does not start.
    pub(crate) fn new(
        options: &RunnerOptions,
        limits: BodyLimits,
        executor: &ImageExecutorOptions,
        observer: Arc<dyn Observer>,
    ) -> io::Result<Arc<Self>> {
        let pages = |bytes: usize| bytes.min(MAX_BODY).next_multiple_of(PAGE);
        // Beside an image lies its id.
        let body = limits
            .payload
            .max(limits.image.saturating_add(size_of::<ImageId>()));
        let settings = Settings {
            program: program::find(options.program.as_deref())?,
            options: options.clone(),
            lens: Lens {
                payload: pages(body),
                target: MAX_TARGET,
                answer: pages(limits.answer).max(PAGE),
            },
            code_bytes: executor.code_bytes,
            max_images: executor.max_images,
            max_image_memory: executor.max_image_memory,
            stack_bytes: executor.stack_bytes,
            run_time: executor.contain.deadline,
        };
        let landlock = process::try_start(&settings).map_err(io::Error::other)?;
        if landlock == 0 {
            tracing::warn!(
                target: crate::LOG,
                "the kernel has no Landlock: only the filter of system calls keeps runner processes from files"
            );
        } else {
            tracing::debug!(target: crate::LOG, landlock, program = %settings.program.display(), "runner processes confine themselves");
        }
        let runners = Self {
            settings,
            tenants: Mutex::default(),
            tenant_count: AtomicUsize::new(0),
            images: AtomicUsize::new(0),
            counts: Mutex::default(),
            observer,
        };
        runners.count(|counts| (counts.max, counts.landlock) = (options.max_runners, landlock));
        Ok(Arc::new(runners))
    }

    /// Changes the numbers, and reports them.
    fn count(&self, change: impl FnOnce(&mut RunnerCounts)) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut counts);
        self.observer.runners_changed(*counts);
    }

    /// Number of images in runner processes.
    pub(crate) fn images(&self) -> usize {
        self.images.load(Ordering::Relaxed)
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Tenant, Weak<TenantProcess>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process of a tenant, which is started by its first use.
    fn tenant(self: &Arc<Self>, tenant: &Tenant) -> Result<Arc<TenantProcess>, Refusal> {
        let mut tenants = self.tenants();
        if let Some(known) = tenants.get(tenant).and_then(Weak::upgrade) {
            return Ok(known);
        }
        tenants.retain(|_, known| known.strong_count() > 0);
        let max = self.settings.options.max_runners;
        if self.tenant_count.load(Ordering::Relaxed) >= max {
            let why = format!(
                "{} are in use; help: `RunnerOptions::max_runners` on the target",
                Counted(max, "runner process")
            );
            return Err(Refusal::new(Rejection::Quota, why));
        }
        self.tenant_count.fetch_add(1, Ordering::Relaxed);
        let process = Arc::new(TenantProcess::new(Arc::clone(self), tenant.clone()));
        tenants.insert(tenant.clone(), Arc::downgrade(&process));
        Ok(process)
    }

    /// Installs an image in the process of a tenant.
    ///
    /// # Errors
    /// It imports what a runner process does not have, or the process refuses it, or does not start.
    pub(crate) fn install(
        self: &Arc<Self>,
        image: &ValidImage<'_>,
        tenant: &Tenant,
        functions: Vec<Import>,
    ) -> Result<RemoteImage, Refusal> {
        let process = self.tenant(tenant)?;
        process.install(image, functions)
    }
}

/// The functions of the host that an image imports, which are all there.
///
/// # Errors
/// It imports what a runner process does not have.
pub(crate) fn functions_of(
    valid: &ValidImage<'_>,
    imports: &Imports,
    symbols: &HostSymbols,
) -> Result<Vec<Import>, Refusal> {
    let is_there =
        |name: &str| COMPILER_IMPORTS.contains(&name) || RUNTIME_IMPORTS.contains(&name) && name != RELEASE;
    let mut functions = Vec::new();
    let mut add = |name: &str, text: &str, signature| {
        functions.push(Import {
            name: name.to_owned(),
            text: text.to_owned(),
            signature,
        });
    };
    let mut refused: Vec<String> = imports
        .needed
        .iter()
        .map(|soname| format!("`{soname}`: a library of the host; help: link it into the image, or export functions that call it"))
        .collect();
    for import in &imports.symbols {
        let name = &*import.name;
        if is_there(name) {
            continue;
        }
        if name == RELEASE {
            // The object is the host's.
            let text = format!("fn {RELEASE}({ANY_OBJECT})");
            add(name, &text, Signature::of(&text).expect("its signature is known"));
            continue;
        }
        let symbol = match symbols.get(name) {
            Some(symbol) if !HostSymbols::is_of_runtime(name) => symbol,
            // It is weak, and not there.
            None => continue,
            Some(_) => {
                refused.push(format!("`{name}`: what it is about stays in the host"));
                continue;
            }
        };
        let text = symbol.signature();
        let untyped = || match NamedSet::of(name) {
            Some(_) => {
                "a function of the C library (`allow_set`), which stays in the host; help: link one into the image, or export a function that \
                 does what it is for"
            }
            None => "its type is not stated; help: `#[ifunc::export]` in place of `allow`",
        };
        let signature = text.map_or_else(|| Err(untyped().to_owned()), Signature::of);
        match signature {
            Ok(signature) => add(name, text.unwrap_or_default(), signature),
            Err(why) => refused.push(format!("`{name}`: {why}")),
        }
    }
    if !refused.is_empty() {
        refused.insert(
            0,
            "ifuncs of the level `process` run in a process of their own. Functions of the host cross with numbers, `&str`, references and \
             slices of plain types, callbacks that take those, and `Owned` objects; help: export such functions, or serve the image on a target of \
             another level; it imports"
                .to_owned(),
        );
        return Err(Refusal::listing(Rejection::Import, refused));
    }
    if valid.image().travels() {
        let why = "ifuncs of the level `process` do not travel: they send nothing to other nodes; help: let the source send to each node";
        return Err(Refusal::new(Rejection::Import, why));
    }
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let run = Run {
            image: u64::MAX - 1,
            entry: u32::MAX,
            is_awaited: true,
            payload: 1 << 40,
            target: NO_TARGET,
            room: 7,
            max_answer: u32::MAX,
            run_time: u32::MAX >> 1,
            sender: 9,
        };
        assert_eq!(Run::from_words(run.words()), run);
        let run = Run {
            is_awaited: false,
            entry: 0,
            target: 0,
            ..run
        };
        assert_eq!(Run::from_words(run.words()), run);
        let run = Run {
            entry: 3,
            run_time: 0,
            ..run
        };
        assert_eq!(Run::from_words(run.words()), run);
        let run = Run {
            is_awaited: true,
            entry: 0,
            ..run
        };
        assert_eq!(Run::from_words(run.words()), run);
    }

    #[test]
    fn each_option_changes_what_it_names_alone() {
        let all = RunnerOptions::new()
            .program("there")
            .memory(7)
            .cpu_time(Duration::from_secs(3))
            .max_runners(5)
            .without_landlock(true);
        assert_eq!(all.program.as_deref(), Some("there".as_ref()));
        assert_eq!((all.memory, all.max_runners), (7, 5));
        assert_eq!(
            (all.cpu_time, all.without_landlock),
            (Some(Duration::from_secs(3)), true)
        );
        let default = RunnerOptions::new();
        assert_eq!((default.memory, default.max_runners), (256 << 20, 64));
        assert_eq!(
            (default.program, default.cpu_time, default.without_landlock),
            (None, None, false)
        );
    }
}
