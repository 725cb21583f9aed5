//! A real target that installs what mutants became, and never runs a mutated instruction.

use std::ffi::c_void;
use std::thread::{JoinHandle, spawn};

use ifunc_abi::image::{Image, Relocation};
use ifunc_rt::{Error, Policy, Rejection, Source, StopHandle, Target};

/// `xor eax, eax; ret`
const RETURN: [u8; 3] = [0x31, 0xc0, 0xc3];
/// Largest memory of an image on this target.
const MEMORY: usize = 16 << 20;

/// What became of an image on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Relocated, in the arena, and its entry was reached.
    Installed,
    /// Valid, but it imports a name that the target does not export.
    ImportMissing,
    /// It needs more memory than this target gives to an image.
    TooLarge,
    /// It is installed by the parser's word alone: its entry cannot be made harmless.
    NotTried,
}

/// A target in a thread of its own.
pub(crate) struct Loader {
    source: Source,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Starts it. `names` may be imported; their addresses do not matter, because they are never called.
    pub(crate) fn start(names: &[String]) -> Self {
        static NOTHING: [u64; 8] = [0; 8];
        // SAFETY: what arrives here is made harmless below.
        let mut builder = Target::builder()
            .policy(unsafe { Policy::trust_every_peer() })
            .max_image_memory(MEMORY);
        for name in names {
            builder = builder.allow(name.clone(), NOTHING.as_ptr().cast::<c_void>());
        }
        let mut target = builder.listen("loopback:mutations").unwrap();
        let stop = target.stop_handle();
        let thread = spawn(move || target.serve(&mut 0_u64).unwrap());
        Self {
            source: Source::connect("loopback:mutations").unwrap(),
            stop,
            thread: Some(thread),
        }
    }

    /// Sends an image, with its first instructions replaced by a return, and calls it.
    ///
    /// Everything else is as the linker made it, so what the target's loader says of it is what it says of the mutant.
    pub(crate) fn install(&self, bytes: &[u8]) -> Outcome {
        let image = Image::parse(bytes).unwrap();
        let entry = image.entries().next().unwrap().main as usize;
        let end = entry + RETURN.len();
        let rewritten = |at: usize| at < end && entry < at + 8;
        if end > image.rx().len()
            || image
                .relocations()
                .map(Relocation::offset)
                .any(|at| rewritten(at as usize))
            || image.slot().is_some_and(|at| rewritten(at as usize))
        {
            return Outcome::NotTried;
        }
        let memory = image
            .rw_range()
            .map_or(image.rx().len(), |(at, len)| at as usize + len as usize);
        let mut harmless = bytes.to_vec();
        let rx = bytes.len() - image.rx().len() - image.rw().len();
        harmless[rx + entry..rx + end].copy_from_slice(&RETURN);
        let loaded = self.source.load_bytes(&harmless).unwrap();
        match loaded.call(b"").unwrap().wait() {
            Ok(_) => Outcome::Installed,
            Err(Error::Rejected {
                why: Rejection::MissingImport,
                ..
            }) => Outcome::ImportMissing,
            Err(Error::Rejected {
                why: Rejection::TooLarge,
                ..
            }) if memory > MEMORY => Outcome::TooLarge,
            Err(error) => panic!("the loader refuses what the linker made: {error}"),
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
