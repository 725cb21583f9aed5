//! What debuggers and profilers learn of installed images.
//!
//! | what | reader | file |
//! |---|---|---|
//! | a symbol file in memory | gdb, through its interface for just-in-time compilers | `gdb`, `symfile` |
//! | the debug object of an image, from its library | gdb, and the log of a panic | `object` |
//! | a dump of the installed code | `perf inject --jit` | `perf` |
//! | the calls that led to a panic | the source and the target's log | `backtrace` |

mod backtrace;
mod gdb;
mod object;
mod perf;
mod symfile;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use ifunc_abi::ImageId;
use ifunc_abi::image::{Entry, Image};

pub use backtrace::{describe, describe_fault};
pub use object::{DebugObject, Functions};

/// Overrides the program's choice: words separated by commas. `gdb`: as [`DebugInfo::lines`]; `perf`: as
/// [`DebugInfo::perf`]; `none`: nothing.
const VARIABLE: &str = "IFUNC_DEBUG";

/// What debuggers and profilers learn of the images that a target installs: set by `debug_info` of its builder.
///
/// The environment variable `IFUNC_DEBUG`, if it is set, replaces the program's choice: `IFUNC_DEBUG=gdb,perf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugInfo {
    names: bool,
    lines: bool,
    perf: bool,
}

impl Default for DebugInfo {
    fn default() -> Self {
        Self::names()
    }
}

impl DebugInfo {
    /// Nothing.
    #[must_use]
    pub fn none() -> Self {
        Self {
            names: false,
            lines: false,
            perf: false,
        }
    }

    /// gdb shows an image as its functions `NAME_main`, one per entry, can break there, and unwinds from there to the frames of the host. The default: it costs well below a microsecond per image of one entry, and nothing per invocation.
    #[must_use]
    pub fn names() -> Self {
        Self {
            names: true,
            ..Self::none()
        }
    }

    /// gdb shows functions, lines and frames within an image too, where its library is found when it is installed: a
    /// file `NAME.so` in the folders that a source looks in, whose image is the very same. It is read and never opened
    /// as code. Costs a search of some folders per image, and reading the library.
    #[must_use]
    pub fn lines(self) -> Self {
        Self {
            names: true,
            lines: true,
            ..self
        }
    }

    /// Installed code is dumped for `perf`, to `jit-PID.dump` in the folder that `JITDUMPDIR` names or the one for temporary
    /// files:
    ///
    /// ```sh
    /// IFUNC_DEBUG=perf perf record -k mono -o perf.data ./target
    /// perf inject --jit -i perf.data -o jit.data && perf report -i jit.data
    /// ```
    #[must_use]
    pub fn perf(self) -> Self {
        Self { perf: true, ..self }
    }

    /// The choice of [`VARIABLE`], if it is set, or else this.
    fn or(self, words: Option<OsString>) -> Self {
        let Some(words) = words else {
            return self;
        };
        let mut chosen = Self::none();
        for word in words.to_string_lossy().split(',').map(str::trim) {
            match word {
                "" | "none" => {}
                "gdb" => chosen = chosen.lines(),
                "perf" => chosen = chosen.perf(),
                other => tracing::warn!(
                    "{VARIABLE} does not know `{other}`; help: `gdb`, `perf`, both with a comma between, or `none`"
                ),
            }
        }
        chosen
    }
}

/// Registers the images of one target with debuggers and profilers.
#[derive(Debug)]
pub(crate) struct DebugRegistry {
    info: DebugInfo,
    /// The folders in which libraries lie.
    folders: fn() -> Vec<PathBuf>,
}

/// Where an image is installed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement<'i> {
    pub(crate) id: &'i ImageId,
    pub(crate) image: &'i Image<'i>,
    /// Address of the image.
    pub(crate) base: usize,
    /// Its read-execute part after relocation.
    pub(crate) code: &'i [u8],
}

impl<'i> Placement<'i> {
    /// The code of an image of which only the entries are known, cut at the entries: the offset and the length of each part, and
    /// the entry that it is named after. What precedes the first entry belongs to that one.
    fn parts(&self) -> Vec<(usize, usize, Entry<'i>)> {
        let mut entries: Vec<_> = self.image.entries().collect();
        entries.sort_by_key(|entry| entry.main);
        let len = self.image.rx().len();
        let ends = entries.iter().skip(1).map(|entry| entry.main as usize);
        let ends: Vec<usize> = ends.chain([len]).collect();
        let mut at = 0;
        let part = |(entry, end): (Entry<'i>, usize)| {
            let part = (at, end - at, entry);
            at = end;
            part
        };
        entries.into_iter().zip(ends).map(part).collect()
    }
}

/// What is known of an installed image. Dropping it deregisters the image.
#[derive(Debug)]
pub(crate) struct DebugRecord {
    /// Where its code is.
    code: Range<usize>,
    object: Option<DebugObject>,
    _registration: Option<gdb::Registration>,
}

impl DebugRegistry {
    /// As the program or the environment chooses.
    pub(crate) fn new(info: DebugInfo, folders: fn() -> Vec<PathBuf>) -> Self {
        let info = info.or(std::env::var_os(VARIABLE));
        if info.perf {
            perf::start();
        }
        Self { info, folders }
    }

    /// Registers an image that was installed.
    pub(crate) fn register(&self, placement: &Placement<'_>) -> DebugRecord {
        let mut record = DebugRecord {
            code: placement.base..placement.base + placement.image.rx().len(),
            object: None,
            _registration: None,
        };
        if self.info.lines {
            let folders = (self.folders)();
            record.object = placement
                .image
                .entries()
                .find_map(|entry| DebugObject::find(&folders, entry.name, placement.id));
        }
        if self.info.names {
            let symfile = record
                .object
                .as_ref()
                .and_then(|object| symfile::placed(object, placement))
                .unwrap_or_else(|| symfile::named(placement));
            record._registration = Some(gdb::Registration::new(symfile));
        }
        if self.info.perf {
            perf::loaded(placement, record.object.as_ref());
        }
        record
    }
}

impl DebugRecord {
    /// Of an image without code in this process.
    pub(crate) fn none() -> Self {
        Self {
            code: 0..0,
            object: None,
            _registration: None,
        }
    }

    /// Where the image's code is.
    pub(crate) fn code(&self) -> Range<usize> {
        self.code.clone()
    }

    /// The calls in the image that a stack shows, as offsets: see [`backtrace`].
    pub(crate) fn calls(&self, stack: impl Iterator<Item = usize>) -> Vec<u32> {
        backtrace::calls(self.code.start, self.bytes(), stack)
    }

    /// The function that they led to.
    pub(crate) fn describe(&self, name: &str, calls: &[u32]) -> String {
        let functions = self.object.as_ref().map(DebugObject::functions);
        describe(name, self.bytes(), calls, functions)
    }

    /// As [`describe`](Self::describe), of a fault.
    pub(crate) fn describe_fault(&self, name: &str, calls: &[u32], is_placed: bool) -> String {
        let functions = self.object.as_ref().map(DebugObject::functions);
        describe_fault(name, self.bytes(), calls, functions, is_placed)
    }

    /// The image's code, as it is installed.
    fn bytes(&self) -> &[u8] {
        if self.code.is_empty() {
            return &[];
        }
        // SAFETY: the read-execute part of an image that is installed as long as this lives; nothing writes to it.
        unsafe {
            std::slice::from_raw_parts(
                std::ptr::with_exposed_provenance(self.code.start),
                self.code.len(),
            )
        }
    }
}
