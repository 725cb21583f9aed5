//! Options of a target.

use std::ffi::c_void;
use std::time::Duration;

use ifunc::host::{Interface, InterfaceExport, NameConflict};
use ifunc_abi::frame::Limits;
use ifunc_abi::hello::Roles;
use ifunc_abi::stats::Timing;
use ifunc_exec::runner::BodyLimits;
use ifunc_exec::{
    ContainOptions, DebugInfo, DuplicateExport, HostSymbols, ImageExecutorOptions, InvalidSoname, NamedSet,
    Symbol,
};

use super::Target;
use super::escape::{AfterEscape, EscapeHook, Escaped, Level};
use crate::keys::TlsKeys;
use crate::library;
use crate::policy::{Policy, PolicyError};
use crate::transport::address::{Address, AddressError, Knows};
use crate::transport::{ListenConfig, ListenError, Listener};
#[cfg(feature = "ucx")]
use crate::ucx::Worker;

/// Environment variable for [`credits`](TargetBuilder::credits). With the smallest sizes, 2 and 65536, every test of a
/// program waits for credit, wraps around and sends fragments, which are otherwise rare.
const CREDITS: &str = "IFUNC_CREDITS";
/// Environment variable for [`ring`](TargetBuilder::ring).
const RING: &str = "IFUNC_RING";

/// Before a policy is known.
const NO_LIMITS: Limits = Limits {
    max_payload: 0,
    max_image: 0,
    max_answer: 0,
};

/// Options of a [`Target`]: its [policy](Self::policy), what it exports, and what it uses. Sizes are in bytes.
#[derive(Debug)]
#[must_use]
pub struct TargetBuilder {
    pub(super) policy: Policy,
    /// `None`: the exports of this process.
    pub(super) exports: Option<Vec<Symbol>>,
    pub(super) allowed: Vec<Symbol>,
    pub(super) remote_exports: bool,
    pub(super) of_sets: Vec<Symbol>,
    pub(super) libraries: Vec<String>,
    pub(super) interfaces: Vec<InterfaceExport>,
    pub(super) max_handles: usize,
    pub(super) unfinished: (usize, Duration),
    pub(super) executor: ImageExecutorOptions,
    pub(super) copy_payloads: bool,
    pub(super) listen: ListenConfig,
    pub(super) slots: Option<u32>,
    pub(super) ring_bytes: Option<u32>,
    pub(super) timing: Timing,
    pub(super) share_stats: Option<bool>,
    pub(super) outbox: usize,
    pub(super) spin: Duration,
    pub(super) on_escape: Option<EscapeHook>,
    pub(super) tls: Option<TlsKeys>,
}

/// Why a target cannot be made or cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The address does not parse.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The target cannot listen at the address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Two exports have the same name.
    #[error(transparent)]
    Export(#[from] DuplicateExport),
    /// Two types of this process have one name, by which ifuncs know them: two exports use one opaque name, or the target
    /// arguments have an opaque name that exports use for another type.
    #[error(transparent)]
    Names(#[from] NameConflict),
    /// The policy does not suit the address, or contradicts itself.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The argument of [`allow_library`](TargetBuilder::allow_library) is no soname.
    #[error(transparent)]
    Library(#[from] InvalidSoname),
    /// An environment variable that sets a size is no number.
    #[error("{name}={value} is not a number; help: unset it, or give it a power of two")]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// Another thread was to serve on a UCX worker that belongs to one thread.
    #[error(
        "a target on a UCX worker of UCS_THREAD_MODE_SINGLE is served by the worker's thread alone; help: `serve` or `poll` there, or make the worker UCS_THREAD_MODE_MULTI"
    )]
    OneThread,
    /// The kernel refused memory or a descriptor.
    #[error("cannot {what}: {error}")]
    Os {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        error: std::io::Error,
    },
}

impl TargetError {
    pub(super) fn os<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Os {
            what,
            error: error.into(),
        }
    }
}

impl Default for TargetBuilder {
    fn default() -> Self {
        let policy = Policy::default();
        // Those of the policy hold: see `start`.
        let mut listen = ListenConfig::with_hello(crate::hello::serving(NO_LIMITS));
        // Over a link to a peer that serves.
        listen.hello.roles = Roles::SERVES.with(Roles::INVOKES);
        Self {
            policy,
            exports: None,
            allowed: Vec::new(),
            remote_exports: false,
            of_sets: Vec::new(),
            libraries: Vec::new(),
            interfaces: Vec::new(),
            max_handles: 4096,
            unfinished: (256 << 20, Duration::from_secs(60)),
            executor: ImageExecutorOptions {
                code_bytes: 256 << 20,
                max_images: 4096,
                max_image_memory: 64 << 20,
                // Those of the policy hold: see `start`.
                stack_bytes: 0,
                debug: DebugInfo::default(),
                library_folders: library::folders,
                contain: ContainOptions::default(),
                answers: None,
                runners: None,
            },
            copy_payloads: false,
            listen,
            slots: None,
            ring_bytes: None,
            timing: Timing::default(),
            tls: None,
            share_stats: None,
            outbox: crate::travel::OUTBOX_BYTES,
            spin: crate::serve::SPIN,
            on_escape: None,
        }
    }
}

impl TargetBuilder {
    /// Runs code of processes of this target's own user, without signatures: short for
    /// `policy(Policy::trust_same_user())`. A target on a network needs a [`Policy`] that says whose code it accepts.
    ///
    /// # Safety
    /// As for [`Policy::accept_unsigned`].
    pub unsafe fn accept_code(self) -> Self {
        // SAFETY: the caller's promise.
        self.policy(unsafe { Policy::trust_same_user() })
    }

    /// What the target admits: which peers connect, whose code runs, what it may import and use, and what a fault does. The
    /// default runs no code.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Changes the policy.
    #[cfg(test)]
    pub(crate) fn map_policy(mut self, change: impl FnOnce(Policy) -> Policy) -> Self {
        self.policy = change(self.policy);
        self
    }

    /// Exports these symbols, instead of every `#[ifunc::export]` of the process: two targets of one process may export
    /// different things. Called again, it exports those, too. See [`Symbol`], and [`Target::exports`] for changes while the
    /// target serves.
    ///
    /// ```no_run
    /// use ifunc_rt::{Symbol, Target};
    ///
    /// #[ifunc::export]
    /// fn score(words: u32) -> u32 {
    ///     words * 2
    /// }
    ///
    /// #[ifunc::export]
    /// fn score_by_length(words: u32) -> u32 {
    ///     words.leading_zeros()
    /// }
    ///
    /// let score = |name| Symbol::exported(name).unwrap().named("score");
    /// let builder = || unsafe { Target::builder().accept_code() };
    /// let first = builder().exports([score("score")]).listen("shm:first")?;
    /// let second = builder().exports([score("score_by_length")]).listen("shm:second")?;
    /// # Ok::<(), ifunc_rt::TargetError>(())
    /// ```
    pub fn exports(mut self, symbols: impl IntoIterator<Item = impl Into<Symbol>>) -> Self {
        let exports = self.exports.get_or_insert_default();
        exports.extend(symbols.into_iter().map(Into::into));
        self
    }

    /// Lets accepted ifuncs replace exports by functions and variables of their own images: in Rust by
    /// [`Context::replace_export`](ifunc::Context::replace_export), in C by `ifunc_replace_export` of `ifunc.h`. Default: no; an
    /// image that does so is refused then.
    ///
    /// Such a source decides what the ifuncs of all sources call by these names from then on, after it has left, too. The types
    /// are compared as in [`Exports::replace`](crate::Exports::replace), by the text that the image states; that its code is of
    /// that type is its own promise, as all of its code is. To let sources choose among versions that the host has, export a
    /// function that does it instead: see [`Exports`](crate::Exports).
    pub fn allow_remote_exports(mut self, yes: bool) -> Self {
        self.remote_exports = yes;
        self
    }

    /// Allows images to import `pointer` under `name`: a function or data of the host, in addition to the exports of
    /// `#[ifunc::export]`. It must stay valid as long as the target lives, and must be what the accepted code takes
    /// it for (see [`Policy::accept_unsigned`]). Injected code calls it on the injected stack, unguarded: a
    /// panic in it aborts the process, and if it calls back into injected code that panics, its frames are jumped
    /// over.
    #[expect(
        clippy::not_unsafe_ptr_arg_deref,
        reason = "the pointer is only handed to images"
    )]
    pub fn allow(mut self, name: impl Into<String>, pointer: *const c_void) -> Self {
        // SAFETY: the accepted code takes it for what it is, as `Policy::accept_unsigned` was promised.
        self.allowed
            .push(unsafe { Symbol::untyped(name.into(), pointer) });
        self
    }

    /// Allows images to import the names of a set, such as the C library's, which C code expects. A name that is
    /// exported or [`allow`](Self::allow)ed keeps its meaning. Without this, an image may import no functions of the
    /// C library except the few that compilers call on their own (`memcpy` and the like, `strlen`).
    ///
    /// Each of them runs on the injected stack, unguarded, as for [`allow`](Self::allow).
    pub fn allow_set(mut self, set: NamedSet) -> Self {
        self.of_sets.extend(set.symbols());
        self
    }

    /// Allows images to need a shared library by its soname, such as `libz.so.1`, and to import what that library
    /// itself defines. Only images that list it among their needed libraries see it, and names of the host take
    /// precedence over its names.
    ///
    /// [`listen`](Self::listen) opens the library, not the first image that needs it: no source chooses when its
    /// constructors run, and a target may give up its rights afterwards. The library stays open as long as the
    /// process lives. If it cannot be opened, or the target is linked statically and has no loader, the target
    /// rejects the images that need it with the reason, and serves the others.
    ///
    /// # Safety
    /// The loader searches for the library in its usual places (`LD_LIBRARY_PATH`, the system's folders). Its
    /// constructors run in this process, and what it defines must be what the accepted code takes it for (see
    /// [`Policy::accept_unsigned`]). Its functions run on the injected stack, unguarded; those that call back
    /// into injected code must tolerate that a jump leaves them.
    pub unsafe fn allow_library(mut self, soname: impl Into<String>) -> Self {
        self.libraries.push(soname.into());
        self
    }

    /// Exports the interface `I` (`dyn Kv`) for the host type `H`: images that take `&mut dyn Kv` run on this target while
    /// it serves an `H`.
    ///
    /// An `#[ifunc::export] impl Kv for Store` needs no call: it is exported by every target of the process, unless
    /// several types of the process export the interface. Then each target chooses one. Generic types are exported by
    /// this call alone. A target exports an interface for one type.
    ///
    /// ```
    /// #[ifunc::interface]
    /// pub trait Log {
    ///     fn append(&mut self, line: &str) -> u64;
    /// }
    ///
    /// #[derive(ifunc::Opaque, Default)]
    /// #[opaque(interfaces)]
    /// pub struct Lines<T> {
    ///     lines: Vec<(String, T)>,
    /// }
    ///
    /// impl<T: Default> Log for Lines<T> {
    ///     fn append(&mut self, line: &str) -> u64 {
    ///         self.lines.push((line.to_owned(), T::default()));
    ///         self.lines.len() as u64
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), ifunc_rt::TargetError> {
    /// // SAFETY: this process alone connects.
    /// let builder = unsafe { ifunc_rt::Target::builder().accept_code() };
    /// let mut target = builder
    ///     .export_interface::<dyn Log, Lines<u32>>()
    ///     .listen("loopback:lines")?;
    /// target.poll(&mut Lines::<u32>::default());
    /// # Ok(())
    /// # }
    /// ```
    pub fn export_interface<I: Interface<H> + ?Sized, H: 'static>(mut self) -> Self {
        self.interfaces.push(InterfaceExport::of::<I, H>());
        self
    }

    /// Largest memory of one image, zero-initialised data included. Default 64 MiB.
    pub fn max_image_memory(mut self, bytes: usize) -> Self {
        self.executor.max_image_memory = bytes;
        self
    }

    /// Maximum number of handles per connection. Default 4096.
    pub fn max_handles(mut self, handles: usize) -> Self {
        self.max_handles = handles;
        self
    }

    /// Memory for the bodies of all connections that arrive in fragments and are not complete, and how long one may take.
    /// Default 256 MiB and 60 s. A payload or an image that is larger than a frame (half of the [ring](Self::ring)) travels in
    /// fragments, which the target keeps until the last one arrives. One that finds no memory left, or is not complete in that
    /// time, is dropped: its invocation, or all of its image, is [rejected](crate::Rejection::Quota), and the connection goes
    /// on. Long [answers](crate::Quotas::answer_bytes) that were not sent yet count, too: an ifunc for whose answer there is no memory left fails, and
    /// so does a call whose source takes nothing of its answer in that time. Each target's bound holds for all sources together, before any policy is asked.
    pub fn unfinished_bodies(mut self, bytes: usize, age: Duration) -> Self {
        self.unfinished = (bytes, age);
        self
    }

    /// Maximum number of connections. Default 1024. The target reports the limit to a source beyond it, and that
    /// source retries until its [`connect_timeout`](crate::SourceOptions::connect_timeout). Each connection takes one
    /// descriptor (over UCX, what UCX takes), and the part of its rings' memory that was used.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.listen.max_connections = connections;
        self
    }

    /// The target states that its CPU has at most these features, and runs no image that needs others: for a group whose nodes all
    /// compute the same bits, as a fused multiplication rounds once, or for a process that may be moved to another machine. Bits as in
    /// the header of images: on x86-64 bit 0 is x86-64-v2, bit 1 v3 and bit 2 v4, and a level has the bits of those below it.
    pub fn limit_cpu_features(mut self, features: u64) -> Self {
        self.listen.hello.cpu_features &= features;
        self
    }

    /// Address space for installed code of all connections, and its maximum number of images; memory is committed as
    /// images arrive. Default 256 MiB and 4096.
    pub fn code_cache(mut self, bytes: usize, images: usize) -> Self {
        self.executor.code_bytes = bytes;
        self.executor.max_images = images;
        self
    }

    /// What the host does after an invocation ended early, by a panic, a fault, its [deadline](Policy::max_run_time), or too little stack:
    /// the data of the target may be half changed. The hook is called on the thread that serves, before the next
    /// invocation, and before the source receives the failure. If it panics, the target stops serving, as by
    /// [`AfterEscape::Stop`].
    ///
    /// ```no_run
    /// use ifunc_rt::{AfterEscape, Level, Policy, Target};
    ///
    /// # fn main() -> Result<(), ifunc_rt::TargetError> {
    /// // SAFETY: only processes of this user connect, and they may do here whatever they like.
    /// let policy = unsafe { Policy::trust_same_user() };
    /// let mut target = Target::builder()
    ///     .policy(policy.level(Level::Contained))
    ///     .on_escape(|escaped| {
    ///         eprintln!("{} ended early: {} ({})", escaped.ifunc(), escaped.why(), escaped.detail());
    ///         match escaped.target_mut::<Vec<u64>>() {
    ///             Some(sorted) => {
    ///                 sorted.sort_unstable();
    ///                 AfterEscape::Continue
    ///             }
    ///             None => AfterEscape::Stop,
    ///         }
    ///     })
    ///     .listen("shm:sorted")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_escape(
        mut self,
        hook: impl Fn(&mut Escaped<'_>) -> AfterEscape + Send + Sync + 'static,
    ) -> Self {
        self.on_escape = Some(EscapeHook::new(hook));
        self
    }

    /// Copies payloads before use that are otherwise used in place: those of the same user over `shm`, and those over `tls` and `ucx`. The
    /// others are always copied.
    pub fn copy_payloads(mut self, yes: bool) -> Self {
        self.copy_payloads = yes;
        self
    }

    /// Credits: the number of frames in flight per connection and direction, a power of two from 2 to 65,536. Default:
    /// the value of the environment variable `IFUNC_CREDITS` (2: for tests), or 4096; over shared memory 1024 of a connection that begins
    /// beside 64 others, and 256 beside 256, so that their rings stay in the processor's caches.
    pub fn credits(mut self, frames: u32) -> Self {
        self.slots = Some(frames);
        self
    }

    /// Memory for the bodies of frames in flight, per connection and direction, a power of two of at least 64 KiB.
    /// Default: the value of the environment variable `IFUNC_RING` in bytes (65536: for tests), or 2 MiB for requests
    /// and 1 MiB for answers. A body larger than half of it travels in fragments. Over shared memory, where its core and the target's are
    /// distant, a source of long payloads has private memory beside it, as long as the longest payload below 2 MiB.
    pub fn ring(mut self, bytes: u32) -> Self {
        self.ring_bytes = Some(bytes);
        self
    }

    /// The keys of this process: for `listen` at `tls://HOST:PORT`, and for the links that the target
    /// [makes](Target::connect). Default: [those that the environment names](TlsKeys::from_env). The target admits the peers that
    /// they name, beside those of its [policy](Policy::connect_key).
    ///
    /// A target at `ucx://HOST:PORT` or `ucx-put://HOST:PORT` that has keys admits sources by theirs, too, and no others. What goes over UCX
    /// after that is not encrypted: see `SECURITY.md`.
    pub fn tls(mut self, keys: TlsKeys) -> Self {
        self.tls = Some(keys);
        self
    }

    /// How long a source that vanished with its host may be silent before the target takes it for dead. Default 5 s.
    /// See [`SourceOptions::peer_timeout`](crate::SourceOptions::peer_timeout) for the timers that it sets and those
    /// that it cannot set.
    pub fn peer_timeout(mut self, timeout: Duration) -> Self {
        self.listen.peer_timeout = timeout;
        self
    }

    /// What debuggers and profilers can read about installed images. Default [`DebugInfo::names`]; the environment
    /// variable `IFUNC_DEBUG` overrides it.
    pub fn debug_info(mut self, info: DebugInfo) -> Self {
        self.executor.debug = info;
        self
    }

    /// Makes `loopback` deliver out of order, in an order that depends on the seed.
    #[cfg(test)]
    pub(crate) fn shuffle(mut self, seed: u64) -> Self {
        self.listen.shuffle = Some(seed);
        self
    }

    /// Which invocations the target times for [`Target::stats`]. Default [`Timing::Sampled`]: the first 64 of each
    /// ifunc on each connection, then one in 64. Those of a batch that run together count as one.
    pub fn time_invocations(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// How long a thread that serves polls in vain before it sleeps. Default 100 µs: longer than a wake-up takes. Zero, where more processes
    /// serve than there are processors: a thread that polls keeps the others from theirs.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Bytes of invocations for other nodes of the [group](crate::group) that were not sent yet. Default 16 MiB. An answer that goes to another
    /// node may have a quarter of it. While more than half of
    /// it is used, sources whose ifuncs may travel wait; an invocation for which there is no room is told so
    /// ([`TravelError::Busy`](ifunc::TravelError::Busy)).
    pub fn outbox(mut self, bytes: usize) -> Self {
        self.outbox = bytes;
        self
    }

    /// Whether sources can read the target's counters ([`Source::target_stats`](crate::Source::target_stats), `cargo
    /// ifunc top`): names, sizes and hits of all ifuncs, users and processes of all sources. Default: sources of the
    /// same user can, and so can all sources where the transport does not know their user (`ucx://`), since they can
    /// do more than read numbers. Processes of other users ([`Policy::connect_any_user`]) cannot.
    pub fn share_stats(mut self, yes: bool) -> Self {
        self.share_stats = Some(yes);
        self
    }

    /// Starts listening on `address`: `shm:NAME`, `tls://HOST:PORT`, `ucx://HOST:PORT`, `ucx-worker:` or `loopback:NAME`. Port 0 stands
    /// for any free port. [`Target::address`] returns the address with the chosen port, or the worker's address for
    /// launchers to pass on (`ucx-worker:HEX`).
    ///
    /// # Errors
    /// The address does not parse or is taken; a size is invalid; two exports have one name, or use different types by one
    /// opaque name; a library's name is no
    /// soname; memory is exhausted.
    pub fn listen(self, address: &str) -> Result<Target, TargetError> {
        let address: Address = address.parse()?;
        let knows = address.knows(TlsKeys::are_given(self.tls.as_ref()));
        self.policy.check_transport(&address.to_string(), knows)?;
        self.start(knows, |config| crate::transport::listen(&address, config))
    }

    /// Starts listening on a worker of the application's: see [`ucx`](crate::ucx). Sources connect [over
    /// endpoints](crate::Source::over) to that worker, or by its address, which [`Target::address`] returns.
    /// [`peer_timeout`](Self::peer_timeout) has no effect, because the context is the application's.
    ///
    /// # Errors
    /// A target already listens on the worker; otherwise as [`listen`](Self::listen).
    #[cfg(feature = "ucx")]
    pub fn listen_on(self, worker: &Worker) -> Result<Target, TargetError> {
        self.policy.check_transport("ucx-worker:", Knows::default())?;
        self.start(Knows::default(), |config| worker.engine().listen(&config))
    }

    fn start(
        mut self,
        knows: Knows,
        listen: impl FnOnce(ListenConfig) -> Result<Box<dyn Listener>, ListenError>,
    ) -> Result<Target, TargetError> {
        let mut symbols = match &self.exports {
            None => HostSymbols::new()?,
            Some(exports) => HostSymbols::with(exports.iter().cloned())?,
        };
        for interface in &self.interfaces {
            symbols.export_interface(*interface)?;
        }
        if self.remote_exports {
            symbols.allow_remote_exports();
        }
        for symbol in &self.allowed {
            symbols.allow(symbol.clone())?;
        }
        for symbol in &self.of_sets {
            symbols.allow_of_set(symbol.clone());
        }
        for soname in &self.libraries {
            // SAFETY: the caller of `allow_library` made the promise that this function requires.
            unsafe { symbols.allow_library(soname) }?;
        }
        self.policy.connect.tls = self.tls.take();
        self.listen.connect = self.policy.connect.clone().into();
        self.listen.hello.limits = self.policy.quotas.limits();
        let Policy {
            stack,
            level,
            runners,
            max_run_time,
            ..
        } = &self.policy;
        self.executor.stack_bytes = *stack;
        self.executor.contain.faults = *level == Level::Contained;
        self.executor.contain.deadline = *max_run_time;
        self.executor.runners = (*level == Level::Process).then(|| {
            let Limits {
                max_payload,
                max_image,
                max_answer,
            } = self.listen.hello.limits;
            let bytes = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
            let limits = BodyLimits {
                payload: bytes(max_payload),
                image: bytes(max_image),
                answer: bytes(max_answer),
            };
            (runners.clone(), limits)
        });
        let mut config = self.listen.clone();
        let or = |chosen: Option<u32>, name| chosen.map_or_else(|| number(name), |n| Ok(Some(n)));
        let (slots, data) = (or(self.slots, CREDITS)?, or(self.ring_bytes, RING)?);
        for ring in [&mut config.to_target, &mut config.to_source] {
            ring.slots = slots.unwrap_or(ring.slots);
            ring.data = data.unwrap_or(ring.data);
        }
        config.shares_slots = slots.is_none();
        let listener = listen(config)?;
        Target::new(self, symbols, listener, knows)
    }
}

/// The variable's number; `None` if it is not set.
///
/// # Errors
/// The value is no number of 32 bits. The builder checks later whether a ring may have that size.
fn number(name: &'static str) -> Result<Option<u32>, TargetError> {
    std::env::var_os(name)
        .map(|value| parse(name, &value.to_string_lossy()))
        .transpose()
}

fn parse(name: &'static str, value: &str) -> Result<u32, TargetError> {
    value.trim().parse().map_err(|_| TargetError::Environment {
        name,
        value: value.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_nothing_else() {
        assert_eq!(parse(CREDITS, "2").unwrap(), 2);
        assert_eq!(parse(RING, " 65536\n").unwrap(), 65536);
        for value in ["", "two", "-2", "4294967296", "64k"] {
            let message = parse(CREDITS, value).unwrap_err().to_string();
            assert!(message.contains(&format!("IFUNC_CREDITS={value}")), "{message}");
        }
    }
}
