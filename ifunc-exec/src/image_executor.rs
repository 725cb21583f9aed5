//! The executor of images: in the process that receives them, or in a runner process.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ifunc::host::{NameConflict, NamedType, NamedTypes};
use ifunc_abi::context::{self, Context};
use ifunc_abi::image::EntryFlags;
use ifunc_abi::rare::rarely;
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::status::Rejection;
use ifunc_abi::{ABI_VERSION, ImageId};

use crate::answer::AnswerMemory;
use crate::arena::ArenaError;
use crate::contain::watchdog::Watchdog;
use crate::contain::{ContainOptions, install};
use crate::debug::{DebugInfo, DebugRegistry};
use crate::ended::{end, log};
use crate::executor::{Batch, BatchAnswers, BatchEnd, Executor, Invocation, Observer};
use crate::exports::{Exports, LatestChange, ReplacedVersions};
use crate::gate::{CALL_GATE, Containment};
use crate::held::HoldsForRunner;
use crate::image::cache::{CodeCache, Record};
use crate::image::imports::Imports;
use crate::image::{Remote, validate};
use crate::runner::{BodyLimits, RemoteInvocation, RunnerOptions, Runners, Tenant, functions_of};
use crate::session::{ExecThread, Session};
use crate::threads::Threads;
use crate::{HostSymbols, InstalledEntry, InstalledImage, Interfaces, Symbol, ValidImage};

/// Sizes and settings of an [`ImageExecutor`] executor.
#[derive(Debug)]
pub struct ImageExecutorOptions {
    /// Size of the arena, and the limit of the sum of all images' footprints.
    pub code_bytes: usize,
    /// Most installed images.
    pub max_images: usize,
    /// Most address space of one image.
    pub max_image_memory: usize,
    /// Stack of a thread's invocations.
    pub stack_bytes: usize,
    /// What debuggers and profilers learn of images.
    pub debug: DebugInfo,
    /// The folders in which [`DebugInfo::lines`] finds libraries.
    pub library_folders: fn() -> Vec<PathBuf>,
    /// What ends an invocation that does not end by itself.
    pub contain: ContainOptions,
    /// How long answers may be; `None`: no longer than the memory that invocations are lent.
    pub answers: Option<Arc<dyn AnswerMemory>>,
    /// Runner processes for the images of tenants, and how long bodies may be there; `None`: all images run in this process.
    pub runners: Option<(RunnerOptions, BodyLimits)>,
}

/// Installs images into this process and runs them on its threads, where nothing confines them but the call gate; or into the [runner
/// process](crate::runner) of a tenant, where it waits for them.
#[derive(Debug)]
pub struct ImageExecutor {
    shared: Arc<Shared>,
    interfaces: Interfaces,
    max_image_memory: usize,
    stack_bytes: usize,
    containment: Containment,
    answers: Option<Arc<dyn AnswerMemory>>,
    runners: Option<Arc<Runners>>,
    watchdog: Option<Watchdog>,
}

/// State that an executor shares with those that change what it exports. Locks are taken in this order: changes, symbols, cache.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Number of changes made. Held during a change: one after the other.
    pub(crate) changes: Mutex<u64>,
    /// Held for reading until an image that was resolved is installed: a change concerns every installed image.
    pub(crate) symbols: RwLock<HostSymbols>,
    cache: Mutex<CodeCache>,
    /// What names stand for, from the first use on: an invocation may hold a reference to a value of the type.
    names: Mutex<NamedTypes>,
    pub(crate) threads: Arc<Threads>,
    pub(crate) replaced: ReplacedVersions,
    pub(crate) latest_change: LatestChange,
    pub(crate) observer: Arc<dyn Observer>,
}

impl Shared {
    /// Held while an image is placed; invocations do without it.
    pub(crate) fn cache(&self) -> MutexGuard<'_, CodeCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the versions of exports that no invocation uses any more, and reports the end of the latest change.
    pub(crate) fn drop_replaced(&self) {
        self.replaced.collect(&self.threads);
        if let Some(change) = self.latest_change.ended(&self.threads) {
            self.observer.change_ended(change.number, change.began.elapsed());
        }
    }

    /// Held for a moment: what holds it waits for nothing.
    pub(crate) fn names(&self) -> MutexGuard<'_, NamedTypes> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why an executor cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The kernel's, for memory.
    #[error(transparent)]
    Os(#[from] io::Error),
    /// A name in the signatures of the exports stands for two types.
    #[error(transparent)]
    Names(#[from] NameConflict),
    /// Runner processes do not start.
    #[error(transparent)]
    Runner(io::Error),
}

impl ImageExecutor {
    /// Reserves address space for code. Images import from `symbols`; `observer` learns of what is installed.
    ///
    /// # Errors
    /// The kernel's, for memory. Two exports use different types by one name.
    pub fn new(
        options: ImageExecutorOptions,
        symbols: HostSymbols,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, SetupError> {
        // SAFETY: the functions of this gate do what its fields say.
        unsafe { ifunc::host::set_call_gate(&CALL_GATE) };
        let runners = options.runners.as_ref();
        let runners =
            runners.map(|(chosen, limits)| Runners::new(chosen, *limits, &options, Arc::clone(&observer)));
        let runners = runners.transpose().map_err(SetupError::Runner)?;
        let names = symbols.named_types()?;
        let debug = DebugRegistry::new(options.debug, options.library_folders);
        let cache = CodeCache::new(
            options.code_bytes,
            options.max_images,
            debug,
            Arc::clone(&observer),
        )
        .map_err(io::Error::from)?;
        let ContainOptions { faults, deadline } = options.contain;
        install(deadline.is_some())?;
        let containment = Containment {
            code: cache.code(),
            contains: faults,
            has_unguarded: symbols.has_unguarded(),
            limit: deadline,
        };
        let threads = Arc::new(Threads::new());
        let watchdog = deadline.map(|limit| Watchdog::start(Arc::clone(&threads), limit));
        Ok(Self {
            interfaces: symbols.interfaces().clone(),
            shared: Arc::new(Shared {
                changes: Mutex::new(0),
                symbols: RwLock::new(symbols),
                cache: Mutex::new(cache),
                names: Mutex::new(names),
                threads,
                replaced: ReplacedVersions::default(),
                latest_change: LatestChange::default(),
                observer,
            }),
            max_image_memory: options.max_image_memory,
            stack_bytes: options.stack_bytes,
            containment,
            answers: options.answers,
            runners,
            watchdog: watchdog.transpose()?,
        })
    }

    /// The interfaces that its images may take.
    #[must_use]
    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// Limits the time of the invocations that begin in this session from now on, beside the [deadline](ContainOptions::deadline) of all
    /// invocations, and to a millisecond at least; `None`: no longer. An executor without deadlines has no such limits either.
    pub fn limit_run_time(&self, session: &mut Session<'_>, limit: Option<std::time::Duration>) {
        if let (Some(watchdog), Some(limit)) = (&self.watchdog, limit) {
            watchdog.expect(limit);
        }
        let limit = limit.filter(|_| self.has_deadlines());
        session.gate.passages.set_run_time(limit);
    }

    /// Whether invocations have a deadline.
    #[must_use]
    pub fn has_deadlines(&self) -> bool {
        self.containment.limit.is_some()
    }

    /// Lets images use values of this type by its name. `user`, for messages: what has such values.
    ///
    /// # Errors
    /// The name stands for another type here: in the signature of an export, or for what was served before.
    pub fn name_type(&self, named: NamedType, user: &str) -> Result<(), NameConflict> {
        self.shared.names().add(named, user)
    }

    /// For tests that change it.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Changes what images import, while they run.
    #[must_use]
    pub fn exports(&self) -> Exports {
        Exports::of(&self.shared)
    }

    /// The file of code memory.
    pub(crate) fn arena_file(&self) -> Arc<File> {
        self.shared
            .cache()
            .file()
            .upgrade()
            .expect("the cache lives as long as the executor")
    }

    /// Lets images import a function of another process, whose number is in these instructions.
    pub(crate) fn forward_import(&self, name: &str, instructions: &[u8]) -> Result<(), ArenaError> {
        let address = self.shared.cache().write_code(instructions)?;
        let address = std::ptr::with_exposed_provenance(address);
        // SAFETY: the instructions stay as long as the executor; they take the arguments of every function.
        let symbol = unsafe { Symbol::forwarding(name.to_owned(), address) };
        let mut symbols = self
            .shared
            .symbols
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // A symbol without a signature is replaced.
        symbols.allow(symbol).map_err(|_| ArenaError::Full(0))
    }

    /// Installs an image in the process of a tenant.
    fn install_remote(
        &self,
        image: &ValidImage<'_>,
        tenant: &Tenant,
    ) -> Result<Arc<InstalledImage>, Refusal> {
        let Some(runners) = &self.runners else {
            let why = "the target has no runner processes";
            return Err(Refusal::new(Rejection::Resources, why));
        };
        let imports = Imports::of(image.image());
        let functions = {
            let symbols = self.shared.symbols.read().unwrap_or_else(PoisonError::into_inner);
            // Refuses what is refused in this process, too.
            symbols.resolve(&imports)?;
            functions_of(image, &imports, &symbols)?
        };
        let remote = runners.install(image, tenant, functions)?;
        let remote = Remote::new(remote, image, Arc::clone(&self.shared.observer));
        let installed = self.shared.cache().remote(image, remote, imports);
        let installed = installed.map_err(|error| Refusal::new(Rejection::Resources, error.to_string()))?;
        self.shared.observer.installed(&installed);
        Ok(Arc::new(installed))
    }

    /// Drops the versions of exports that were replaced and that no invocation uses any more. Cheap if there are none.
    pub fn drop_replaced(&self) {
        self.shared.drop_replaced();
    }
}

impl Executor for ImageExecutor {
    type Image = InstalledImage;
    type Entry = InstalledEntry;
    type Thread = ExecThread;
    type Session<'t> = Session<'t>;

    fn validate<'a>(&self, id: &ImageId, bytes: &'a [u8]) -> Result<ValidImage<'a>, Refusal> {
        validate(id, bytes, self.max_image_memory)
    }

    fn install(
        &self,
        image: &ValidImage<'_>,
        tenant: Option<&Tenant>,
    ) -> Result<Arc<InstalledImage>, Refusal> {
        if let Some(tenant) = tenant {
            return self.install_remote(image, tenant);
        }
        self.drop_replaced();
        let symbols = self.shared.symbols.read().unwrap_or_else(PoisonError::into_inner);
        let known = |cache: &mut CodeCache| {
            let installed = cache.get(&image.id)?;
            let refusal = installed.door.refusal();
            Some(refusal.map_or(Ok(installed), Err))
        };
        if let Some(installed) = known(&mut self.shared.cache()) {
            return installed;
        }
        let record = Record::of(image);
        let bound = symbols.resolve(&record.imports)?;
        // Meanwhile another thread may have installed it.
        let mut cache = self.shared.cache();
        known(&mut cache).unwrap_or_else(|| cache.insert(image, &bound, &record))
    }

    fn entries(image: &Arc<InstalledImage>) -> impl ExactSizeIterator<Item = Arc<InstalledEntry>> {
        InstalledEntry::all(image)
    }

    fn image_count(&self) -> usize {
        let remote = self.runners.as_ref().map_or(0, |runners| runners.images());
        self.shared.cache().len() + remote
    }

    fn thread(&self) -> io::Result<ExecThread> {
        let threads = Arc::clone(&self.shared.threads);
        let mut thread = ExecThread::new(self.stack_bytes, threads, self.containment.clone())?;
        thread.gate.set_exports(self.exports());
        thread.gate.answers.clone_from(&self.answers);
        Ok(thread)
    }

    #[inline(always)]
    fn run<'a>(
        session: &mut Session<'_>,
        invocation: impl Fn() -> Invocation<'a>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let Invocation {
            entry,
            payload,
            size,
            target,
            sender,
        } = invocation();
        let room = answer.as_ref().map(|answer| answer.len());
        let (answer, answer_capacity) = match answer {
            Some(answer) => (answer.as_mut_ptr(), answer.len()),
            None => (std::ptr::null_mut(), 0),
        };
        let mut ctx = Context {
            version: ABI_VERSION.into(),
            size: size_of::<Context>() as u32,
            sender,
            answer,
            answer_capacity,
            answer_len: 0,
            log,
            host: (&raw const *entry).cast_mut().cast(),
        };
        // SAFETY: the entry is borrowed, so its image is installed; the context is a local, and the answer is borrowed; the rest is what
        // `Invocation::new` was promised.
        let code = unsafe { session.enter(&entry.entrance, payload, size, target, &raw mut ctx) };
        if code == context::MAIN_OK {
            // By the local values: an ifunc can overwrite its context.
            match room {
                // No caller waits: the answer is dropped, and that is no failure.
                None => return Ok(0),
                Some(room) if ctx.answer_len <= room => return Ok(ctx.answer_len),
                Some(_) => {}
            }
        }
        rarely(move || without_success(session, invocation(), code, &ctx, room))
    }

    fn has_batch(entry: &InstalledEntry) -> bool {
        entry.batch.is_some()
    }

    fn run_batch(
        session: &mut Session<'_>,
        batch: Batch<'_>,
        mut answers: Option<BatchAnswers<'_>>,
    ) -> BatchEnd {
        let Batch {
            first:
                Invocation {
                    entry,
                    payload,
                    size,
                    target,
                    sender,
                },
            stride,
            count,
        } = &batch;
        let (entry, payload, size) = (*entry, *payload, *size);
        let (target, sender, stride, count) = (*target, *sender, *stride, *count);
        let entrance = entry
            .batch
            .as_ref()
            .expect("an entry with a function for batches");
        let room = answers.as_ref().map(|answers| answers.max_answer);
        // Without answers, all lengths are written here.
        let mut ignored = 0;
        let (memory, answers_capacity, answer_lens, answer_lens_stride) = match &mut answers {
            Some(answers) => {
                let capacity = answers.memory.len();
                assert!(capacity >= answers.max_answer && answers.lens.len() >= count);
                answers.lens[..count].fill(0);
                let lens = answers.lens.as_mut_ptr();
                (answers.memory.as_mut_ptr(), capacity, lens, size_of::<u32>())
            }
            None => (std::ptr::null_mut(), 0, &raw mut ignored, 0),
        };
        let described = context::Batch {
            version: ABI_VERSION.into(),
            size: size_of::<context::Batch>() as u32,
            payloads: payload,
            payload_size: size,
            stride,
            count: count as u32,
            started: 0,
            answers: memory,
            answers_capacity,
            max_answer: room.unwrap_or(0),
            answer_lens,
            answer_lens_stride,
        };
        let mut ctx = Context {
            version: ABI_VERSION.into(),
            size: size_of::<Context>() as u32,
            sender,
            answer: memory,
            answer_capacity: room.unwrap_or(0),
            answer_len: 0,
            log,
            host: (&raw const *entry).cast_mut().cast(),
        };
        // SAFETY: nothing runs on this gate, which the session has for itself (`&mut`).
        let raw = unsafe { session.gate.passages.begin_run(&described) };
        // SAFETY: as in `run`; `X_batch` takes the batch as its payload, which describes what `Batch::new` was promised.
        let code = unsafe {
            session.enter(
                entrance,
                raw.cast_const().cast(),
                size_of::<context::Batch>(),
                target,
                &raw mut ctx,
            )
        };
        if code != context::MAIN_OK && session.gate.take_turned_away() {
            return match entry.image().door.wait() {
                Ok(()) => Self::run_batch(session, batch, answers),
                Err(refusal) => BatchEnd {
                    executed: 0,
                    failed: Some(refusal.into()),
                },
            };
        }
        // By the local values: an ifunc can overwrite the batch.
        let started = (session.gate.passages.started() as usize).clamp(1, count);
        let is_in_place = match &mut answers {
            None => true,
            Some(answers) => {
                answers.validate(started);
                ctx.answer_len <= answers.max_answer
            }
        };
        if code == context::MAIN_OK && is_in_place {
            return BatchEnd {
                executed: started,
                failed: None,
            };
        }
        let last = end(session, entry, (size, sender), code, ctx.answer_len, room);
        let executed = match &last {
            // A result that means no failure, after an entry whose answer no source awaits.
            Ok(_) => started,
            // It failed, or its answer lies elsewhere.
            Err(_) => started - 1,
        };
        BatchEnd {
            executed,
            failed: last.err(),
        }
    }
}

/// The outcome of an invocation that did not return [`MAIN_OK`](context::MAIN_OK) with an answer that fits. If it was turned away, it
/// runs as soon as its image is open again.
fn without_success(
    session: &mut Session<'_>,
    again: Invocation<'_>,
    code: u32,
    ctx: &Context,
    room: Option<usize>,
) -> Result<usize, Box<Failed>> {
    let Invocation {
        entry,
        payload,
        size,
        target,
        sender,
    } = again;
    // What ends an invocation early, and closed entries, return `MAIN_BAD_PAYLOAD`. So this one returned by itself, and what is no result.
    if code > context::MAIN_BAD_PAYLOAD && room.is_none() && entry.flags.contains(EntryFlags::IGNORE_RESULT) {
        return Ok(0);
    }
    if !session.gate.take_turned_away() {
        return end(session, entry, (size, sender), code, ctx.answer_len, room);
    }
    let image = entry.image();
    if let Some(remote) = &image.remote {
        let invocation = RemoteInvocation {
            entry,
            index: image
                .entries
                .iter()
                .position(|other| other.main == entry.main)
                .unwrap_or_default(),
            payload: (payload, size),
            target,
            lent: session.gate.lent.take(),
            host: session.gate.host(),
            sender,
            run_time: session.gate.passages.run_time(),
            answers: session.gate.answers.as_ref(),
        };
        // SAFETY: the invocation did not begin, so its context is as it was made, of an answer that is still borrowed.
        let answer = room.map(|room| unsafe { std::slice::from_raw_parts_mut(ctx.answer, room) });
        let _holds = HoldsForRunner::new(session.gate);
        // SAFETY: as the caller of `Invocation::new` promised.
        return unsafe { remote.image().run(invocation, answer) };
    }
    image.door.wait()?;
    // SAFETY: the invocation did not begin, so its context is as it was made, of an answer that is still borrowed.
    let answer = room.map(|room| unsafe { std::slice::from_raw_parts_mut(ctx.answer, room) });
    ImageExecutor::run(session, || again, answer)
}
