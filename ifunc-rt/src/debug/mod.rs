//! What debuggers and profilers are told of installed images.
//!
//! | what | who reads it | file |
//! |---|---|---|
//! | a symbol file in memory | gdb, through the interface for just-in-time compilers | `gdb`, `symfile` |
//! | the companion of an image, from its library | gdb, and whoever reads the log of a panic | `companion` |
//! | a dump of the code that ran | `perf inject --jit` | `perf` |
//! | which calls led to a panic | the source and the target's log | `trail` |

pub(crate) mod companion;
mod gdb;
mod perf;
mod symfile;
pub(crate) mod trail;

use std::ops::Range;

use ifunc_abi::ImageId;
use ifunc_abi::image::Image;

use companion::Companion;

/// Overrides what the program says: words separated by commas. `gdb`: as [`DebugInfo::lines`]; `perf`: as
/// [`DebugInfo::perf`]; `none`: nothing.
const VARIABLE: &str = "IFUNC_DEBUG";

/// What a target tells debuggers and profilers of the images that it installs:
/// [`TargetBuilder::debug_info`](crate::TargetBuilder::debug_info).
///
/// The environment variable `IFUNC_DEBUG`, if it is set, replaces what the program says: `IFUNC_DEBUG=gdb,perf`.
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

    /// gdb shows an image as the function `NAME_main`, can break there, and finds the way from there to the frames of
    /// the host. The default: it costs well below a microsecond per image, and nothing per invocation.
    #[must_use]
    pub fn names() -> Self {
        Self {
            names: true,
            ..Self::none()
        }
    }

    /// gdb shows functions, lines and frames within an image too, where its library is found when it is installed: a
    /// file `NAME.so` in the folders that a source looks in, whose image is the very same. It is read and never opened
    /// as code. Costs a look into some folders per image, and reading the library.
    #[must_use]
    pub fn lines(self) -> Self {
        Self {
            names: true,
            lines: true,
            ..self
        }
    }

    /// What runs is dumped for `perf`, to `jit-PID.dump` in the folder that `JITDUMPDIR` names or the one for temporary
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

    /// What the environment says, or else this.
    fn or_environment(self) -> Self {
        let Some(words) = std::env::var_os(VARIABLE) else {
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

/// Tells debuggers and profilers of the images of one target. The default tells nothing.
#[derive(Debug)]
pub(crate) struct Debugger {
    info: DebugInfo,
}

/// Where an image was installed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'i> {
    pub(crate) id: &'i ImageId,
    pub(crate) image: &'i Image<'i>,
    /// Address of the image.
    pub(crate) base: usize,
    /// Its read-execute part after relocation.
    pub(crate) code: &'i [u8],
}

/// What is known of an installed image. Dropped, debuggers are told that it is gone.
#[derive(Debug, Default)]
pub(crate) struct Described {
    /// Where its code is.
    code: Range<usize>,
    companion: Option<Companion>,
    _registration: Option<gdb::Registration>,
}

impl Default for Debugger {
    fn default() -> Self {
        Self {
            info: DebugInfo::none(),
        }
    }
}

impl Debugger {
    /// As the program or the environment wants it.
    pub(crate) fn new(info: DebugInfo) -> Self {
        let info = info.or_environment();
        if info.perf {
            perf::start();
        }
        Self { info }
    }

    /// Tells of an image that was installed.
    pub(crate) fn installed(&self, place: &Place<'_>) -> Described {
        let code = place.base..place.base + place.image.rx().len();
        let mut described = Described {
            code,
            ..Described::default()
        };
        if self.info.lines {
            described.companion = Companion::find(place.image.name(), place.id);
        }
        if self.info.names {
            let symfile = described
                .companion
                .as_ref()
                .and_then(|companion| symfile::placed(companion, place))
                .unwrap_or_else(|| symfile::named(place));
            described._registration = Some(gdb::Registration::new(symfile));
        }
        if self.info.perf {
            perf::loaded(place, described.companion.as_ref());
        }
        described
    }
}

impl Described {
    /// The calls in the image that a stack tells of, as offsets: see [`trail`].
    pub(crate) fn calls(&self, stack: impl Iterator<Item = usize>) -> Vec<u32> {
        trail::words(self.code.start, self.bytes(), stack)
    }

    /// The function that they led to.
    pub(crate) fn describe(&self, name: &str, calls: &[u32]) -> String {
        let functions = self.companion.as_ref().map(Companion::functions);
        trail::describe(name, self.bytes(), calls, functions)
    }

    /// The image's code, as it is installed.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the read-execute part of an image that is installed for as long as this lives; nobody writes to it.
        unsafe {
            std::slice::from_raw_parts(
                std::ptr::with_exposed_provenance(self.code.start),
                self.code.len(),
            )
        }
    }
}
