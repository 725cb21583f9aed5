//! Images on the target: what was installed from the frames that came.
//!
//! Every frame brings its code. The first time that it comes, the code is copied out of the frame, hashed, parsed, relocated, and written
//! into executable memory, as in any target of this project. From then on a frame's code is compared byte by byte with what was
//! installed, and what was installed runs: a frame is never executed where it lies. What is kept is bounded; code that was
//! forgotten is installed again from the next frame that brings it.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use ifunc_abi::image::Image;
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::status::Rejection;
use ifunc_exec::{
    ContainOptions, DebugInfo, ExecThread, Executor, HostSymbols, ImageExecutor, ImageExecutorOptions,
    InstalledEntry, Invocation, NamedSet, Symbol,
};

use crate::doubt::Doubts;
use crate::frame::Head;
use crate::slot::Slot;
use crate::storing::Storing;
use crate::{c, report, sum};

/// Most images that are kept, and bytes of frames kept for comparison.
const MOST: usize = 1024;
const MOST_BYTES: usize = 64 << 20;
/// Stack of an invocation. A main thread has as much.
const STACK: usize = 8 << 20;
/// Most invocations of a thread inside of one another.
const MOST_NESTED: usize = 32;

/// Code that came in a frame and was installed.
#[derive(Debug)]
pub(crate) struct Known {
    /// As it came.
    bytes: Box<[u8]>,
    entries: Box<[Arc<InstalledEntry>]>,
    /// When a thread last looked it up.
    used: AtomicU64,
}

impl Known {
    #[inline]
    fn is_in(&self, slot: Slot, head: &Head) -> bool {
        let Head { layout, .. } = head;
        layout.image_len == self.bytes.len() && slot.holds(layout.image_at(), &self.bytes)
    }

    /// An entry of it.
    #[inline]
    pub(crate) fn entry(&self, index: u16) -> Option<&InstalledEntry> {
        self.entries.get(usize::from(index)).map(|entry| &**entry)
    }
}

/// The code of a frame.
pub(crate) enum Code {
    Known(Found),
    /// It has not come before, and its sum is the one of the head.
    New(Vec<u8>),
}

/// Why a frame has no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCode {
    /// Its sum is not the one of the head.
    Differs,
    /// There is no memory for a copy.
    NoMemory,
}

/// Everything that is installed in this process.
struct Images {
    executor: ImageExecutor,
    known: RwLock<HashMap<u64, Arc<Known>>>,
    clock: AtomicU64,
    /// Names of the process that are exported to images.
    exported: Mutex<HashSet<String>>,
}

/// What a thread keeps.
#[derive(Default)]
pub(crate) struct Here {
    /// The code that it ran last.
    last: RefCell<Option<Rc<Last>>>,
    /// Stacks that are not in use. Each invocation inside of another one takes one.
    spare: RefCell<Vec<ExecThread>>,
    nested: Cell<usize>,
    /// Frames whose sums are wrong.
    pub(crate) doubts: Doubts,
    /// The frame that is being stored.
    pub(crate) storing: Storing,
}

/// Code by the sum that heads have of it. Counted by its thread: a count that threads share costs more than to look at a head.
struct Last {
    image_sum: u64,
    known: Arc<Known>,
}

thread_local! {
    static HERE: Here = const { Here::new() };
}

/// Calls `with` for what the thread keeps. `None` in a thread that ends.
#[inline]
pub(crate) fn here<T>(with: impl FnOnce(&Here) -> T) -> Option<T> {
    HERE.try_with(with).ok()
}

/// Code that a thread found or installed.
pub(crate) struct Found(Rc<Last>);

impl Deref for Found {
    type Target = Known;

    #[inline]
    fn deref(&self) -> &Known {
        &self.0.known
    }
}

impl Here {
    const fn new() -> Self {
        Self {
            last: RefCell::new(None),
            spare: RefCell::new(Vec::new()),
            nested: Cell::new(0),
            doubts: Doubts::new(),
            storing: Storing::new(),
        }
    }

    fn remember(&self, image_sum: u64, known: Arc<Known>) -> Found {
        let last = Rc::new(Last { image_sum, known });
        let before = self.last.borrow_mut().replace(Rc::clone(&last));
        // Without the borrow: to release code may run more than a drop.
        drop(before);
        Found(last)
    }

    /// The code of the frame in `slot`.
    ///
    /// # Errors
    /// The code has not arrived, or there is no memory for it.
    #[inline]
    pub(crate) fn find(&self, slot: Slot, head: &Head) -> Result<Code, NoCode> {
        let last = self.last.borrow();
        match &*last {
            Some(last) if last.image_sum == head.image_sum && last.known.is_in(slot, head) => {
                Ok(Code::Known(Found(Rc::clone(last))))
            }
            _ => {
                drop(last);
                self.find_among_all(slot, head)
            }
        }
    }

    #[cold]
    fn find_among_all(&self, slot: Slot, head: &Head) -> Result<Code, NoCode> {
        if let Some(Ok(images)) = IMAGES.get()
            && let Some(known) = images.get(head.image_sum)
            && known.is_in(slot, head)
        {
            images.touch(&known);
            return Ok(Code::Known(self.remember(head.image_sum, known)));
        }
        let bytes = slot.to_vec(head.layout.image_at(), head.layout.image_len);
        let bytes = bytes.ok_or(NoCode::NoMemory)?;
        match sum::of(&bytes) == head.image_sum {
            true => Ok(Code::New(bytes)),
            false => Err(NoCode::Differs),
        }
    }

    /// Installs code.
    ///
    /// # Errors
    /// Why it is not.
    #[cold]
    pub(crate) fn install(&self, image_sum: u64, bytes: Vec<u8>) -> Result<Found, Refusal> {
        let images = IMAGES.get_or_init(Images::new);
        let images = images
            .as_ref()
            .map_err(|why| Refusal::new(Rejection::Resources, why))?;
        let known = images.install(image_sum, bytes, self)?;
        Ok(self.remember(image_sum, known))
    }

    /// Whether this thread may run another invocation inside of those that it runs.
    #[inline]
    pub(crate) fn may_nest(&self) -> bool {
        self.nested.get() < MOST_NESTED
    }

    /// Runs an invocation.
    ///
    /// # Safety
    /// The process trusts its peers' code. The payload is readable and writable for `len` bytes, and aligned as the entry asks;
    /// `target_args` are what the code takes.
    ///
    /// # Errors
    /// It did not end well.
    #[inline]
    pub(crate) unsafe fn run(
        &self,
        entry: &InstalledEntry,
        payload: *mut u8,
        len: usize,
        target_args: *mut c_void,
    ) -> Result<(), Box<Failed>> {
        let _nested = Nested::new(&self.nested);
        let spare = self.spare.borrow_mut().pop();
        let mut thread = match spare {
            Some(thread) => thread,
            None => new_thread()?,
        };
        // SAFETY: the caller's promise.
        let invocation = unsafe { Invocation::new(entry, payload, len, target_args, 0) };
        let ended = ImageExecutor::run(&mut thread.session(), || invocation, None);
        self.spare.borrow_mut().push(thread);
        ended.map(|_| ())
    }
}

/// While it lives, an invocation of this thread runs.
struct Nested<'a>(&'a Cell<usize>);

impl<'a> Nested<'a> {
    #[inline]
    fn new(nested: &'a Cell<usize>) -> Self {
        nested.set(nested.get() + 1);
        Self(nested)
    }
}

impl Drop for Nested<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cold]
fn new_thread() -> Result<ExecThread, Box<Failed>> {
    let failed = |why: &str| Box::<Failed>::from(Refusal::new(Rejection::Resources, why));
    // Its entry was installed by it.
    let Some(Ok(images)) = IMAGES.get() else {
        return Err(failed("nothing is installed"));
    };
    images
        .executor
        .thread()
        .map_err(|error| failed(&format!("no stack: {error}")))
}

static IMAGES: OnceLock<Result<Images, String>> = OnceLock::new();

impl Images {
    fn new() -> Result<Self, String> {
        let mut symbols = HostSymbols::new().map_err(|error| error.to_string())?;
        // The interface itself, whose names a program that is linked with the archive does not export.
        for (name, address) in c::importable() {
            // SAFETY: functions of this crate, which code in C takes for what the headers say.
            let symbol = unsafe { Symbol::untyped(name, address) };
            symbols.allow(symbol).map_err(|error| error.to_string())?;
        }
        // Before the names of the process: here `abort` and a failed `assert` end the invocation, not the process.
        let libc = NamedSet::Libc.symbols();
        let exported = libc.iter().map(|symbol| symbol.name().to_owned()).collect();
        libc.into_iter().for_each(|symbol| symbols.allow_of_set(symbol));
        let options = ImageExecutorOptions {
            code_bytes: 256 << 20,
            max_images: 2 * MOST,
            max_image_memory: 64 << 20,
            stack_bytes: STACK,
            debug: DebugInfo::names(),
            library_folders: Vec::new,
            contain: ContainOptions::default(),
            answers: None,
            runners: None,
        };
        let executor =
            ImageExecutor::new(options, symbols, Arc::new(())).map_err(|error| error.to_string())?;
        Ok(Self {
            executor,
            known: RwLock::default(),
            clock: AtomicU64::new(0),
            exported: Mutex::new(exported),
        })
    }

    fn get(&self, image_sum: u64) -> Option<Arc<Known>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&image_sum).cloned()
    }

    fn touch(&self, known: &Known) {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        known.used.store(now, Ordering::Relaxed);
    }

    fn install(&self, image_sum: u64, bytes: Vec<u8>, here: &Here) -> Result<Arc<Known>, Refusal> {
        let id = *blake3::hash(&bytes).as_bytes();
        let valid = self.executor.validate(&id, &bytes)?;
        self.export_process(valid.image());
        let installed = self.executor.install(&valid, None).or_else(|refusal| {
            if refusal.reason != Rejection::CacheFull {
                return Err(refusal);
            }
            // What is kept here is in use to the executor.
            self.forget_all(here);
            self.executor.install(&valid, None)
        })?;
        let known = Arc::new(Known {
            entries: ImageExecutor::entries(&installed).collect(),
            bytes: bytes.into(),
            used: AtomicU64::new(0),
        });
        self.touch(&known);
        let mut all = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut kept: usize = all.values().map(|known| known.bytes.len()).sum();
        while !all.is_empty() && (all.len() >= MOST || kept + known.bytes.len() > MOST_BYTES) {
            let oldest = all
                .iter()
                .min_by_key(|(_, known)| known.used.load(Ordering::Relaxed));
            let Some(oldest) = oldest.map(|(sum, _)| *sum) else {
                break;
            };
            kept -= all.remove(&oldest).map_or(0, |known| known.bytes.len());
        }
        // Code whose sum is equal takes its place, and is given it back by the next frame that brings it.
        all.insert(image_sum, Arc::clone(&known));
        Ok(known)
    }

    fn forget_all(&self, here: &Here) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).clear();
        drop(here.last.take());
    }

    /// Lets the image import what the process has of its imports, and opens the libraries that it needs. In the systems before this
    /// one the loader did both, when it opened the ifunc's library on the target.
    fn export_process(&self, image: &Image<'_>) {
        let exports = self.executor.exports();
        for soname in image.needed() {
            // SAFETY: the process trusts its peers' code: a library of the system does no more than that may do.
            if let Err(error) = unsafe { exports.load_library(soname) } {
                report::refused(format_args!("`{soname}` cannot be opened: {error}"));
            }
        }
        let process = libloading::os::unix::Library::this();
        let mut exported = self.exported.lock().unwrap_or_else(PoisonError::into_inner);
        for import in image.imports() {
            if exported.contains(import.symbol) {
                continue;
            }
            // SAFETY: the address is not used here. Code that the process trusts takes it for what its headers say.
            let found = unsafe { process.get::<*const c_void>(import.symbol.as_bytes()) };
            let Ok(found) = found else { continue };
            // SAFETY: as above. The objects that the process was started with stay; one that it closes, it closes under its own code, too.
            let symbol = unsafe { Symbol::untyped(import.symbol.to_owned(), found.into_raw().cast_const()) };
            // It fails if the runtime or this interface has the name.
            let _ = exports.add(symbol);
            exported.insert(import.symbol.to_owned());
        }
    }
}
