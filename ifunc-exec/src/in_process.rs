//! The executor that runs images in the process that receives them.

use std::ffi::c_void;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifunc_abi::context::{self, Context};
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::{ABI_VERSION, ImageId};

use crate::debug::{DebugInfo, DebugRegistry};
use crate::ended::{end, log};
use crate::executor::{Executor, Invocation, Observer};
use crate::gate::{CALL_GATE, CURRENT, Escape, Gate, HOST_STACK_ROOM, Side, ifunc_exec_enter};
use crate::image::cache::CodeCache;
use crate::image::original::Kept;
use crate::image::validate;
use crate::services::Services;
use crate::stack::{Listing, Stack};
use crate::{HostSymbols, InstalledEntry, InstalledImage, Interfaces, ValidImage};

/// Sizes and settings of an [`InProcess`] executor.
#[derive(Debug)]
pub struct InProcessOptions {
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
}

/// Installs images into this process and runs them on its threads: nothing confines them but the call gate.
#[derive(Debug)]
pub struct InProcess {
    symbols: HostSymbols,
    cache: Mutex<CodeCache>,
    max_image_memory: usize,
    stack_bytes: usize,
}

impl InProcess {
    /// Reserves address space for code. Images import from `symbols`; `observer` learns of what is installed.
    ///
    /// # Errors
    /// The kernel's, for memory.
    pub fn new(
        options: InProcessOptions,
        symbols: HostSymbols,
        observer: Arc<dyn Observer>,
    ) -> io::Result<Self> {
        ifunc::host::set_call_gate(&CALL_GATE);
        let debug = DebugRegistry::new(options.debug, options.library_folders);
        let cache = CodeCache::new(options.code_bytes, options.max_images, debug, observer)?;
        Ok(Self {
            symbols,
            cache: Mutex::new(cache),
            max_image_memory: options.max_image_memory,
            stack_bytes: options.stack_bytes,
        })
    }

    /// The interfaces that its images may take.
    #[must_use]
    pub fn interfaces(&self) -> &Interfaces {
        self.symbols.interfaces()
    }

    /// Held while an image is placed; invocations do without it.
    fn cache(&self) -> MutexGuard<'_, CodeCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor for InProcess {
    type Image = InstalledImage;
    type Entry = InstalledEntry;
    type Thread = ExecThread;
    type Session<'t> = Session<'t>;

    fn validate<'a>(&self, id: &ImageId, bytes: &'a [u8]) -> Result<ValidImage<'a>, Refusal> {
        validate(id, bytes, self.max_image_memory)
    }

    fn install(&self, image: &ValidImage<'_>) -> Result<Arc<InstalledImage>, Refusal> {
        // Symbols do not change while an executor lives: what was resolved once need not be again.
        if let Some(installed) = self.cache().get(&image.id) {
            return Ok(installed);
        }
        let got = self.symbols.resolve(image.image())?;
        let kept = Arc::new(Kept::of(image.image(), image.bytes));
        // Meanwhile another thread may have installed it.
        let mut cache = self.cache();
        match cache.get(&image.id) {
            Some(installed) => Ok(installed),
            None => cache.insert(image, &got, &kept),
        }
    }

    fn entries(image: &Arc<InstalledImage>) -> impl ExactSizeIterator<Item = InstalledEntry> {
        InstalledEntry::all(image)
    }

    fn image_count(&self) -> usize {
        self.cache().len()
    }

    fn thread(&self) -> io::Result<ExecThread> {
        Ok(ExecThread::new(self.stack_bytes)?)
    }

    #[inline(always)]
    fn run(
        session: &mut Session<'_>,
        invocation: Invocation<'_>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>> {
        let room = answer.as_ref().map(|answer| answer.len());
        let (answer, answer_capacity) = match answer {
            Some(answer) => (answer.as_mut_ptr(), answer.len()),
            None => (std::ptr::null_mut(), 0),
        };
        let mut ctx = Context {
            version: ABI_VERSION.into(),
            size: size_of::<Context>() as u32,
            sender: invocation.sender,
            answer,
            answer_capacity,
            answer_len: 0,
            log,
            host: (&raw const *invocation.entry).cast_mut().cast(),
        };
        let (payload, size) = (invocation.payload, invocation.size);
        // SAFETY: the entry is borrowed, so its image is installed; the context is a local, and the answer is borrowed; the rest is what
        // `Invocation::new` was promised.
        let code = unsafe {
            session.enter(
                invocation.entry.main,
                payload,
                size,
                invocation.target,
                &raw mut ctx,
            )
        };
        if code == context::MAIN_OK {
            // By the local values: an ifunc can overwrite its context.
            match room {
                // No caller waits: the answer is dropped, and that is no failure.
                None => return Ok(0),
                Some(room) if ctx.answer_len <= room => return Ok(ctx.answer_len),
                Some(_) => {}
            }
        }
        let Invocation {
            entry, size, sender, ..
        } = invocation;
        end(session, entry, (size, sender), code, ctx.answer_len, room)
    }
}

/// The way into injected code and out of it: a stack, and the state that the shims share. One per serving thread.
#[derive(Debug)]
pub struct ExecThread {
    /// Boxed: the imports find it by address while an invocation runs.
    gate: Box<Gate>,
    // Debuggers know of the stack as long as it is mapped.
    _listing: Listing,
    _stack: Stack,
}

// SAFETY: between sessions nothing points to the gate (`Session` restores `CURRENT`), so it may move between threads.
unsafe impl Send for ExecThread {}

impl ExecThread {
    /// Maps a stack of `stack_size` bytes.
    pub(crate) fn new(stack_size: usize) -> rustix::io::Result<Self> {
        let stack = Stack::new(stack_size.max(2 * HOST_STACK_ROOM))?;
        let gate = Box::new(Gate::new(&stack));
        Ok(Self {
            _listing: Listing::new(gate.stack()),
            gate,
            _stack: stack,
        })
    }

    /// Offers the services of a node to the invocations that run on this thread, or none.
    pub fn set_services(&mut self, services: Option<Arc<dyn Services>>) {
        self.gate.set_services(services);
    }

    /// Makes this the gate of the current thread for several invocations.
    #[inline]
    #[must_use]
    pub fn session(&mut self) -> Session<'_> {
        let gate = &*self.gate;
        let outer = CURRENT.replace(&raw const *gate);
        Session { gate, outer }
    }
}

/// While it lives, host functions that injected code calls on this thread find the gate.
#[derive(Debug)]
pub struct Session<'a> {
    /// Of an [`ExecThread`] that is borrowed mutably.
    gate: &'a Gate,
    outer: *const Gate,
}

impl Session<'_> {
    /// Calls an entry on the gate's stack. Returns its result, or 1 after an escape: see [`take_escape`](Self::take_escape).
    ///
    /// # Safety
    /// `main` is the entry of code that stays mapped during the call. During the call, `payload` is readable for `size` bytes,
    /// `target` is what the entry takes, and `ctx` is null or valid for reads and writes. This session is the innermost of its
    /// thread.
    #[inline(always)]
    pub(crate) unsafe fn enter(
        &mut self,
        main: *const c_void,
        payload: *const u8,
        size: usize,
        target: *mut c_void,
        ctx: *mut Context,
    ) -> u32 {
        let gate = self.gate;
        gate.side.set(Side::Ifunc);
        // SAFETY: the gate is alive and describes a mapped stack that nothing else runs on (`&mut self`); the rest is the
        // caller's promise.
        let code = unsafe { ifunc_exec_enter(payload, size, target, ctx, main, (&raw const *gate).cast()) };
        gate.side.set(Side::Idle);
        code
    }

    /// Why the last invocation ended other than by return.
    pub(crate) fn take_escape(&mut self) -> Option<Box<Escape>> {
        // SAFETY: `&mut self` excludes an invocation.
        unsafe { self.gate.take_escape() }
    }

    /// The words that the last invocation left on its stack, from address `from` on; none if that is not on it.
    pub(crate) fn left_behind(&mut self, from: usize) -> impl Iterator<Item = usize> {
        let stack = self.gate.stack();
        let from = Some(from).filter(|from| stack.contains(from) && from.is_multiple_of(align_of::<usize>()));
        (from.unwrap_or(stack.end)..stack.end)
            .step_by(size_of::<usize>())
            // SAFETY: aligned and within the usable part of a mapped stack, on which nothing runs (`&mut self`).
            .map(|at| unsafe { std::ptr::with_exposed_provenance::<usize>(at).read() })
    }
}

impl Drop for Session<'_> {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}
