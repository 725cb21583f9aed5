//! The build settings of the corpus.

use std::fmt;

use ifunc_build::OptLevel;

/// Optimisation levels, with the compilers' names.
pub(crate) const LEVELS: [(OptLevel, &str); 5] = [
    (OptLevel::O0, "O0"),
    (OptLevel::O1, "O1"),
    (OptLevel::O2, "O2"),
    (OptLevel::O3, "O3"),
    (OptLevel::Os, "Os"),
];

const RUSTC: &str = "rustc";

/// C compilers.
pub(crate) const COMPILERS: [&str; 2] = ["gcc", "clang"];

/// How much of the corpus is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Every case of this program with the release setting, a few of those in C with one other setting. Another one of Rust compiles the SDK's
    /// macros again.
    Brief,
    /// Every case with the release setting, a few of them with all others.
    Usual,
    /// Every case with every setting.
    Full,
}

impl Extent {
    /// Whether the setting of this index builds every case or a few; `None` if it builds none.
    pub(crate) fn takes_all(self, number: usize, settings: &[Setting]) -> Option<bool> {
        let is_rust = settings[number].compiler == RUSTC;
        match self {
            Self::Full => Some(true),
            _ if number == 0 => Some(true),
            Self::Brief if is_rust || number + 1 != settings.len() => None,
            _ => Some(false),
        }
    }
}

/// One build setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) compiler: &'static str,
    pub(crate) level: OptLevel,
    pub(crate) level_name: &'static str,
    /// Rust: LTO over all crates. C: calls through a PLT, the compilers' default.
    pub(crate) usual: bool,
}

impl Setting {
    /// All settings for Rust; the release setting comes first.
    pub(crate) fn rust() -> Vec<Self> {
        with_first(all(&[RUSTC]), |setting| {
            setting.level == OptLevel::O3 && setting.usual
        })
    }

    /// All settings for C; the release setting comes first.
    pub(crate) fn c() -> Vec<Self> {
        with_first(all(&COMPILERS), |setting| {
            setting.compiler == "gcc" && setting.level == OptLevel::O2 && setting.usual
        })
    }

    /// Minimum number of passed cases: of all cases, or of those built with every setting.
    pub(crate) fn least(&self, all: bool) -> usize {
        match (self.compiler, all) {
            ("rustc", true) => 40,
            ("rustc", false) => 10,
            (_, true) => 25,
            (_, false) => 2,
        }
    }

    /// The setting's third dimension, besides compiler and level.
    pub(crate) fn third(&self) -> &'static str {
        match (self.compiler, self.usual) {
            ("rustc", true) => "lto fat",
            ("rustc", false) => "lto off",
            (_, true) => "plt",
            (_, false) => "no-plt",
        }
    }
}

fn all(compilers: &[&'static str]) -> Vec<Setting> {
    let mut all = Vec::new();
    for compiler in compilers {
        for usual in [true, false] {
            for (level, level_name) in LEVELS {
                all.push(Setting {
                    compiler,
                    level,
                    level_name,
                    usual,
                });
            }
        }
    }
    all
}

fn with_first(mut settings: Vec<Setting>, first: impl Fn(&Setting) -> bool) -> Vec<Setting> {
    settings.sort_by_key(|setting| !first(setting));
    settings
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.compiler, self.level_name, self.third())
    }
}
