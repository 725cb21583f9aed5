//! Options of targets.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use ifunc_rt::stats::Timing;
use ifunc_rt::{
    AfterEscape, Escaped, Grant, ImageInfo, Level, NamedSet, Policy, Quotas, RawType, RunnerOptions,
    SourceInfo, Target, TargetBuilder, Unsigned,
};

use crate::guard::{Fault, User, c_string, duration, enter};
use crate::status::{ifunc_failure, ifunc_status};

/// Options of targets. They can be used for several. Without `ifunc_target_options_accept_code`,
/// `ifunc_target_options_accept_code_of_every_peer` or `ifunc_target_options_read_policy` a target rejects every image. One thread at a time may use them.
pub struct ifunc_target_options {
    /// Applied to a builder in this order.
    settings: Vec<Box<dyn Fn(TargetBuilder) -> TargetBuilder>>,
    pub(crate) policy: Policy,
    raw_type: RawType,
}

/// Any function: cast to it, and cast back by those who call it.
pub type ifunc_function = Option<unsafe extern "C" fn()>;

/// A connected source, as far as the kernel identifies it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ifunc_source_info {
    /// Number of the connection on this target.
    pub connection: u64,
    /// Its user id; -1 if the transport does not know it.
    pub uid: i64,
    /// Its process id; -1 if the transport does not know it.
    pub pid: i64,
}

/// An image that asks to be installed, by one of its entries.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ifunc_image_info {
    /// The name that the image gives the entry; not an identity.
    pub name: *const c_char,
    /// BLAKE3 of its bytes: its identity, 32 bytes.
    pub id: *const u8,
    /// Its size in bytes.
    pub len: usize,
    /// The name that the policy gives the key that signed it; null: it was accepted as unsigned code.
    pub signer: *const c_char,
}

/// An invocation that ended early.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ifunc_escaped {
    /// The ifunc.
    pub ifunc: *const c_char,
    /// The source that sent it.
    pub source: ifunc_source_info,
    /// Why it ended: a panic, a fault, its deadline, too little stack, or a panic of the host.
    pub why: ifunc_failure,
    /// The message of a panic, the signal and the address of a fault, the limit of a deadline.
    pub detail: *const c_char,
    /// The target arguments, as the invocation left them. Where several threads serve, others use them now.
    pub target_args: *mut c_void,
}

/// Whether an image may be installed; 0: no. It is called by the thread that serves, one at a time. What it gets is valid during the call.
pub type ifunc_validate_function = Option<
    unsafe extern "C" fn(
        source: *const ifunc_source_info,
        image: *const ifunc_image_info,
        user: *mut c_void,
    ) -> c_int,
>;

/// What the host does after an invocation ended early. 0: the target goes on; otherwise it stops serving. What it gets is valid during the
/// call.
pub type ifunc_escape_function =
    Option<unsafe extern "C" fn(escaped: *const ifunc_escaped, user: *mut c_void) -> c_int>;

/// A set of names that images may import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ifunc_set {
    /// The C library as far as it computes, allocates, formats, prints and locks.
    Libc = 0,
}

/// What ends an invocation alone, and what ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ifunc_level {
    /// A panic of an ifunc ends the invocation; a fault ends the process. The default.
    Panics = 0,
    /// A fault of an ifunc ends the invocation, too: SIGSEGV, SIGBUS, SIGFPE, SIGILL, a stack that overflows.
    Contained = 1,
    /// Ifuncs run in processes of their own, on copies of their target arguments: see `ifunc_target_options_set_runner_program`.
    Process = 2,
}

/// Which invocations a target times for its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ifunc_timing {
    /// The first 64 of each ifunc on each connection, then one in 64. The default.
    Sampled = 0,
    /// Every one.
    All = 1,
    /// None.
    Off = 2,
}

impl ifunc_target_options {
    /// A builder with these options, or with the defaults, and the type of the target arguments.
    pub(crate) fn builder(options: Option<&Self>) -> (TargetBuilder, RawType) {
        // What a host exports, it says: this library is not to add to it.
        let builder = Target::builder().exports(std::iter::empty::<ifunc_rt::Symbol>());
        match options {
            None => (builder, RawType::unstated()),
            Some(this) => {
                let builder = builder.policy(this.policy.clone());
                let builder = this.settings.iter().fold(builder, |builder, set| set(builder));
                (builder, this.raw_type)
            }
        }
    }

    pub(crate) fn set(
        &mut self,
        setting: impl Fn(TargetBuilder) -> TargetBuilder + 'static,
    ) -> Result<ifunc_status, Fault> {
        self.settings.push(Box::new(setting));
        Ok(ifunc_status::Ok)
    }

    /// Changes what the target admits.
    fn admit(&mut self, change: impl FnOnce(Policy) -> Policy) -> Result<ifunc_status, Fault> {
        self.policy = change(self.policy.clone());
        Ok(ifunc_status::Ok)
    }

    /// Changes what a connection may use.
    fn limit(&mut self, change: impl FnOnce(Quotas) -> Quotas) -> Result<ifunc_status, Fault> {
        self.admit(|policy| policy.change_quotas(change))
    }

    /// Changes the runner processes.
    pub(crate) fn change_runners(
        &mut self,
        change: impl FnOnce(RunnerOptions) -> RunnerOptions,
    ) -> Result<ifunc_status, Fault> {
        self.admit(|policy| policy.change_runners(change))
    }
}

/// Makes options with the defaults. Never null. `ifunc_target_options_destroy` frees them.
#[unsafe(no_mangle)]
pub extern "C" fn ifunc_target_options_create() -> *mut ifunc_target_options {
    Box::into_raw(Box::new(ifunc_target_options {
        settings: Vec::new(),
        policy: Policy::new(),
        raw_type: RawType::unstated(),
    }))
}

/// Frees options; targets keep what they were made with. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_destroy(options: *mut ifunc_target_options) {
    destroy!(options);
}

/// Accepts code from processes of the same user. A network does not tell users: see `ifunc_target_options_accept_code_of_every_peer` and
/// `ifunc_target_options_read_policy`. ACCEPTED CODE RUNS WITH ALL RIGHTS OF THIS PROCESS. See
/// `ifunc_target_options_export_function` for what an invocation that ends early does to the exported function that it is in. `options` must
/// not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_accept_code(
    options: *mut ifunc_target_options,
) -> ifunc_status {
    enter(|| {
        // SAFETY: the promise that the header asks for.
        object_mut!(options)
            .admit(|policy| unsafe { policy.accept_unsigned(Unsigned::SameUser, Grant::new()) })
    })
}

/// Accepts code from every peer that may connect: over UCX every process that reaches the address or the worker. As
/// `ifunc_target_options_accept_code` otherwise. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_accept_code_of_every_peer(
    options: *mut ifunc_target_options,
) -> ifunc_status {
    enter(|| {
        // SAFETY: the promise that the header asks for.
        object_mut!(options)
            .admit(|policy| unsafe { policy.accept_unsigned(Unsigned::EveryPeer, Grant::new()) })
    })
}

/// Takes the policy of a file: who connects, whose code runs by which keys, what it may import and use. It replaces what was said before about
/// these; a later function changes what it names, and keeps the rest of the file. The keys of the file, and unsigned sources that it names, are trusted with this process. IFUNC_STATUS_POLICY: the file cannot be
/// used. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_read_policy(
    options: *mut ifunc_target_options,
    path: *const c_char,
) -> ifunc_status {
    enter(|| {
        let (options, path) = (object_mut!(options), text!(path));
        // SAFETY: the promise that the header asks for.
        let policy = unsafe { Policy::read(path) };
        options.policy = policy.map_err(|error| Fault::new(ifunc_status::Policy, error.to_string()))?;
        Ok(ifunc_status::Ok)
    })
}

/// Refuses code that was accepted otherwise if `validate` returns 0. It is called at every installation, and again for each installed image of each
/// connection when a policy replaces that of the target (`ifunc_target_replace_policy`), by that of the new policy: an image that it refuses
/// then is released, and its invocations are rejected. It may be asked about the slices of an image for other machines, too, which an image that
/// travels on takes along. `user` is passed to it, and may be null; it lives as long as the targets. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_accept_if(
    options: *mut ifunc_target_options,
    validate: ifunc_validate_function,
    user: *mut c_void,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        let Some(validate) = validate else {
            return Err(Fault::new(
                ifunc_status::NullArgument,
                "`validate` is a null pointer",
            ));
        };
        let user = User::new(user);
        options.admit(|policy| {
            policy.accept_if(move |source: &SourceInfo, image: &ImageInfo<'_>| {
                let name = c_string(image.name);
                let signer = image.signer.map(c_string);
                let image = ifunc_image_info {
                    name: name.as_ptr(),
                    id: image.id.as_ptr(),
                    len: image.len,
                    signer: signer.as_ref().map_or(std::ptr::null(), |signer| signer.as_ptr()),
                };
                // SAFETY: callers in C pass a function of this type.
                unsafe { validate(&source_info(source), &raw const image, user.get()) != 0 }
            })
        })
    })
}

/// Lets processes of all users connect over `shm`. Whose code runs is another question. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_connect_any_user(
    options: *mut ifunc_target_options,
) -> ifunc_status {
    enter(|| object_mut!(options).admit(Policy::connect_any_user))
}

/// States the type of the target arguments, for ifuncs in Rust, which run on no other: the text that `cargo ifunc inspect` prints, such as
/// `u64`. A process may state 64 (IFUNC_STATUS_LIMIT). Ifuncs in C state no type and run on every target. `type` may be null or empty: no type, which is the default. `options` must not
/// be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_target_type(
    options: *mut ifunc_target_options,
    r#type: *const c_char,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.raw_type = RawType::stated(text_or_null!(r#type).unwrap_or_default())
            .map_err(|error| Fault::new(ifunc_status::Limit, error.to_string()))?;
        Ok(ifunc_status::Ok)
    })
}

/// Lets images import a function by this name. It is what the accepted code takes it for, and lives as long as the targets. It runs on the
/// stack of the ifunc, as a part of the invocation, and nothing guards it: it must not be left by `longjmp` or a C++ exception; a fault in it
/// ends the process at every `ifunc_level`; a deadline waits until it returns. If it calls a function of the ifunc by a pointer, and that
/// panics, faults or meets the deadline, it is left by a jump, as by `longjmp`: locks that it holds stay locked. `signature` may be null:
/// any image may import it; otherwise it is the text of its type in Rust, with the name (`fn score(u32)->u32`), and images that state
/// another one are refused. Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_export_function(
    options: *mut ifunc_target_options,
    name: *const c_char,
    signature: *const c_char,
    function: ifunc_function,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        let symbol = symbol::function(text!(name), text_or_null!(signature), function)?;
        options.set(move |builder| builder.exports([symbol.clone()]))
    })
}

/// Lets images import a variable by this name. It is what the accepted code takes it for, and lives as long as the targets. `signature` may be
/// null, or is the text of its type in Rust, with the name (`static level:u64`). Nothing else may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_export_data(
    options: *mut ifunc_target_options,
    name: *const c_char,
    signature: *const c_char,
    data: *mut c_void,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        let symbol = symbol::data(text!(name), text_or_null!(signature), data)?;
        options.set(move |builder| builder.exports([symbol.clone()]))
    })
}

/// Lets images import the names of an `ifunc_set`. What was exported by its own name keeps its meaning. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_allow_set(
    options: *mut ifunc_target_options,
    set: u32,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        let set = match set {
            0 => NamedSet::Libc,
            other => return Err(Fault::invalid(format!("{other} is no `ifunc_set`"))),
        };
        options.set(move |builder| builder.allow_set(set))
    })
}

/// Lets images need a shared library by its soname, such as `libz.so.1`, and import what it defines. The target opens it when it is made.
/// Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_allow_library(
    options: *mut ifunc_target_options,
    soname: *const c_char,
) -> ifunc_status {
    enter(|| {
        let (options, soname) = (object_mut!(options), text!(soname).to_owned());
        // SAFETY: the promise that the header asks for.
        options.set(move |builder| unsafe { builder.allow_library(soname.clone()) })
    })
}

/// Whether accepted ifuncs may replace exports by functions and variables of their own images. Default: no. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_allow_remote_exports(
    options: *mut ifunc_target_options,
    yes: bool,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.allow_remote_exports(yes))
    })
}

/// Largest payload, in bytes. Default 64 MiB. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_max_payload(
    options: *mut ifunc_target_options,
    bytes: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.limit(|quotas| quotas.payload_bytes(bytes))
    })
}

/// Largest image, in bytes. Default 16 MiB. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_max_image(
    options: *mut ifunc_target_options,
    bytes: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.limit(|quotas| quotas.image_bytes(bytes))
    })
}

/// Largest memory of one image, zero-initialised data included, in bytes. Default 64 MiB. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_max_image_memory(
    options: *mut ifunc_target_options,
    bytes: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.max_image_memory(bytes))
    })
}

/// Largest answer, in bytes. Default 64 MiB. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_max_answer(
    options: *mut ifunc_target_options,
    bytes: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.limit(|quotas| quotas.answer_bytes(bytes))
    })
}

/// Maximum number of handles per connection. Default 4096. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_max_handles(
    options: *mut ifunc_target_options,
    handles: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.max_handles(handles))
    })
}

/// Maximum number of connections. Default 1024. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_max_connections(
    options: *mut ifunc_target_options,
    connections: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.max_connections(connections))
    })
}

/// Memory for payloads and images that arrive in fragments and are not complete, of all connections, and how long, in nanoseconds, one may
/// take. Default 256 MiB and 60 s. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_unfinished_bodies(
    options: *mut ifunc_target_options,
    bytes: usize,
    age_ns: u64,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.unfinished_bodies(bytes, duration(age_ns)))
    })
}

/// Memory of the images that one connection has bound, in bytes, and their number. Default 64 MiB and 1024. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_code_per_connection(
    options: *mut ifunc_target_options,
    bytes: usize,
    images: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.limit(|quotas| quotas.code_bytes(bytes).images(images))
    })
}

/// Address space for installed code of all connections, in bytes, and its maximum number of images. Default 256 MiB and 4096. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_code_cache(
    options: *mut ifunc_target_options,
    bytes: usize,
    images: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.code_cache(bytes, images))
    })
}

/// Stack of injected code, in bytes, at least 512 KiB. Default 4 MiB. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_stack(
    options: *mut ifunc_target_options,
    bytes: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.admit(|policy| policy.stack(bytes))
    })
}

/// Bytes of invocations for other nodes of the group that were not sent yet. Default 16 MiB. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_outbox(
    options: *mut ifunc_target_options,
    bytes: usize,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.outbox(bytes))
    })
}

/// Frames in flight per connection and direction, a power of two of at least 2. Default 4096; over shared memory 1024 beside 64 other
/// connections, and 256 beside 256. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_credits(
    options: *mut ifunc_target_options,
    frames: u32,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.credits(frames))
    })
}

/// Memory for the bodies of frames in flight, in bytes, per connection and direction, a power of two of at least 64 KiB. Default 2 MiB for
/// requests and 1 MiB for answers. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_ring(
    options: *mut ifunc_target_options,
    bytes: u32,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.ring(bytes))
    })
}

/// How long an invocation may run, in nanoseconds; it then ends as IFUNC_FAILURE_DEADLINE. Default: without a limit. An invocation in an
/// exported function ends when that returns. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_max_run_time(
    options: *mut ifunc_target_options,
    ns: u64,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.admit(|policy| policy.max_run_time(Duration::from_nanos(ns)))
    })
}

/// How long a source that vanished with its host may be silent, in nanoseconds, before it is taken for dead. Default 5 s. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_peer_timeout(
    options: *mut ifunc_target_options,
    ns: u64,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.peer_timeout(duration(ns)))
    })
}

/// Whether every payload is copied out of the transport's memory before use. Default: only those of other users. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_copy_payloads(
    options: *mut ifunc_target_options,
    yes: bool,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.copy_payloads(yes))
    })
}

/// Whether sources can read the counters of the target. Default: those of the same user. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_share_stats(
    options: *mut ifunc_target_options,
    yes: bool,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.set(move |builder| builder.share_stats(yes))
    })
}

/// What ends an invocation alone: an `ifunc_level`. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_level(
    options: *mut ifunc_target_options,
    level: u32,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        let level = match level {
            0 => Level::Panics,
            1 => Level::Contained,
            2 => Level::Process,
            other => return Err(Fault::invalid(format!("{other} is no `ifunc_level`"))),
        };
        options.admit(|policy| policy.level(level))
    })
}

/// Which invocations are timed: an `ifunc_timing`. `options` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_timing(
    options: *mut ifunc_target_options,
    timing: u32,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        let timing = match timing {
            0 => Timing::Sampled,
            1 => Timing::All,
            2 => Timing::Off,
            other => return Err(Fault::invalid(format!("{other} is no `ifunc_timing`"))),
        };
        options.set(move |builder| builder.time_invocations(timing))
    })
}

/// What the host does after an invocation ended early, by a panic, a fault, its deadline or too little stack. The function is called on the
/// thread that serves, before the next invocation. `user` is passed to it, and may be null; it lives as long as the targets. Nothing else may
/// be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_on_escape(
    options: *mut ifunc_target_options,
    on_escape: ifunc_escape_function,
    user: *mut c_void,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        let Some(on_escape) = on_escape else {
            return Err(Fault::new(
                ifunc_status::NullArgument,
                "`on_escape` is a null pointer",
            ));
        };
        let user = User::new(user);
        let hook = move |escaped: &mut Escaped<'_>| {
            let (ifunc, detail) = (c_string(escaped.ifunc()), c_string(&escaped.detail()));
            let escaped = ifunc_escaped {
                ifunc: ifunc.as_ptr(),
                source: source_info(escaped.source()),
                why: ifunc_failure::of(escaped.why()),
                detail: detail.as_ptr(),
                target_args: escaped.target_ptr(),
            };
            // SAFETY: callers in C pass a function of this type.
            match unsafe { on_escape(&raw const escaped, user.get()) } {
                0 => AfterEscape::Continue,
                _ => AfterEscape::Stop,
            }
        };
        options.set(move |builder| builder.on_escape(hook))
    })
}

fn source_info(source: &SourceInfo) -> ifunc_source_info {
    ifunc_source_info {
        connection: source.connection,
        uid: source.uid.map_or(-1, i64::from),
        pid: source.pid.map_or(-1, i64::from),
    }
}

/// Symbols of functions and variables in C.
pub(crate) mod symbol {
    use std::ffi::c_void;

    use ifunc::host::ExportKind;
    use ifunc_rt::Symbol;

    use super::ifunc_function;
    use crate::guard::Fault;
    use crate::status::ifunc_status;

    pub(crate) fn function(
        name: &str,
        signature: Option<&str>,
        function: ifunc_function,
    ) -> Result<Symbol, Fault> {
        let address = function.ok_or_else(|| null("function"))?;
        of(name, signature, address as *const c_void, ExportKind::Function)
    }

    pub(crate) fn data(name: &str, signature: Option<&str>, data: *mut c_void) -> Result<Symbol, Fault> {
        if data.is_null() {
            return Err(null("data"));
        }
        of(name, signature, data, ExportKind::Data)
    }

    fn null(argument: &str) -> Fault {
        Fault::new(
            ifunc_status::NullArgument,
            format!("`{argument}` is a null pointer"),
        )
    }

    fn of(
        name: &str,
        signature: Option<&str>,
        address: *const c_void,
        kind: ExportKind,
    ) -> Result<Symbol, Fault> {
        if name.is_empty() {
            return Err(Fault::invalid("`name` is empty"));
        }
        let name = name.to_owned();
        let Some(signature) = signature else {
            // SAFETY: the promise that the header asks for.
            return Ok(unsafe { Symbol::untyped(name, address) }.of_kind(kind));
        };
        let is_data = signature.starts_with("static ");
        if is_data != (kind == ExportKind::Data) || !signature.contains(&*name) {
            let what = match kind {
                ExportKind::Data => "a variable, such as `static level:u64`",
                _ => "a function, such as `fn score(u32)->u32`",
            };
            return Err(Fault::invalid(format!(
                "`{signature}` is not the type of `{name}` as {what}"
            )));
        }
        // SAFETY: as above.
        Ok(unsafe { Symbol::typed(name, signature.to_owned(), address) })
    }
}
