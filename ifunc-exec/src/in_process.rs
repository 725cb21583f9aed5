//! The executor that runs images in the process that receives them.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifunc_abi::context::{self, Context};
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::{ABI_VERSION, ImageId};

use crate::debug::{DebugInfo, DebugRegistry};
use crate::ended::{end, log};
use crate::executor::{Executor, Invocation, Observer};
use crate::gate::{CALL_GATE, ExecThread, Session};
use crate::image::cache::CodeCache;
use crate::image::validate;
use crate::{HostSymbols, InstalledImage, SharedBytes, ValidImage};

/// Sizes and settings of an [`InProcess`] executor.
#[derive(Debug)]
pub struct InProcessOptions {
    /// Address space for code, and most bytes that images take with their originals.
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

    /// Held while an image is placed; invocations do without it.
    fn cache(&self) -> MutexGuard<'_, CodeCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor for InProcess {
    type Image = InstalledImage;
    type Thread = ExecThread;
    type Session<'t> = Session<'t>;

    fn validate<'a>(&self, id: &ImageId, bytes: &'a SharedBytes) -> Result<ValidImage<'a>, Refusal> {
        validate(id, bytes, self.max_image_memory)
    }

    fn install(&self, image: &ValidImage<'_>) -> Result<Arc<InstalledImage>, Refusal> {
        // Symbols do not change while an executor lives: what was resolved once need not be again.
        if let Some(installed) = self.cache().get(&image.id) {
            return Ok(installed);
        }
        let got = self.symbols.resolve(image.image())?;
        // Meanwhile another thread may have installed it.
        let mut cache = self.cache();
        match cache.get(&image.id) {
            Some(installed) => Ok(installed),
            None => cache.insert(image, &got),
        }
    }

    fn image_count(&self) -> usize {
        self.cache().len()
    }

    fn thread(&self) -> io::Result<ExecThread> {
        Ok(ExecThread::new(self.stack_bytes)?)
    }

    #[inline]
    fn session<'t>(&self, thread: &'t mut ExecThread) -> Session<'t> {
        thread.session()
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
            host: (&raw const *invocation.image).cast_mut().cast(),
        };
        // SAFETY: the image is borrowed, so it is installed; the rest is what `Invocation::new` was promised.
        let code = unsafe {
            session.run(
                invocation.image.main,
                invocation.payload,
                invocation.size,
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
            image, size, sender, ..
        } = invocation;
        end(session, image, (size, sender), code, ctx.answer_len, room)
    }
}
