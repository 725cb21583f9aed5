//! The reasons against an image, each as rule, symbol, referrers and help.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use crate::demangle::demangle;

/// What an image cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The entry is not defined.
    NoEntry,
    /// Two entries of an image are one function.
    SameEntry,
    /// The image reaches more ifuncs than an image has entries.
    TooManyEntries,
    /// Two objects define the symbol, and neither definition yields.
    Duplicate,
    /// A thread-local variable.
    ThreadLocal,
    /// A constructor or destructor that would have to run when the image is installed.
    Constructor,
    /// Code that needs an executable stack.
    ExecutableStack,
    /// An indirect function of GNU C (`STT_GNU_IFUNC`), resolved when a program starts.
    GnuIfunc,
    /// Code that is not position-independent.
    TextRelocation,
    /// Code that reaches an external symbol without the GOT.
    DirectExternal,
    /// Code that needs the GOT of a linked file (a code model).
    GotRelative,
    /// A relocation that this linker does not know.
    UnsupportedRelocation,
    /// A hidden symbol that no object defines. Only the image itself could.
    Hidden,
    /// Unwinding: exceptions of C++. An image has no unwind tables.
    Unwinding,
    /// A symbol that nothing defines and no import declares.
    Undeclared,
    /// A symbol that only the linker of a program defines.
    LinkerSymbol,
    /// A symbol whose name an import table cannot hold.
    SymbolName,
    /// A symbol of a certain version (`.symver`), which only a dynamic linker can find.
    SymbolVersion,
    /// An absolute symbol (assembler constant, linker script).
    AbsoluteSymbol,
    /// A section of a kind that images do not hold.
    Section,
    /// Something that needs a larger alignment than a page.
    Alignment,
    /// The image would be larger than 2 GiB, or has more imports than the format counts.
    TooLarge,
    /// The object contradicts itself.
    Malformed,
}

impl Rule {
    fn title(self) -> &'static str {
        match self {
            Self::NoEntry => "entry not found",
            Self::SameEntry => "two entries that are one function",
            Self::TooManyEntries => "too many entries",
            Self::Duplicate => "symbol that is defined twice",
            Self::ThreadLocal => "thread-local variable",
            Self::Constructor => "constructor or destructor",
            Self::ExecutableStack => "code that needs an executable stack",
            Self::GnuIfunc => "GNU indirect function (STT_GNU_IFUNC)",
            Self::TextRelocation => "text relocation: the code is not position-independent",
            Self::DirectExternal => "external symbol reached without the GOT",
            Self::GotRelative => "code model that counts from the GOT",
            Self::UnsupportedRelocation => "unsupported relocation",
            Self::Hidden => "hidden symbol that no object defines",
            Self::Unwinding => "unwinding",
            Self::Undeclared => "undefined symbol that no import declares",
            Self::LinkerSymbol => "symbol that only the linker of a program defines",
            Self::SymbolName => "symbol whose name cannot be imported",
            Self::SymbolVersion => "symbol of a certain version",
            Self::AbsoluteSymbol => "absolute symbol",
            Self::Section => "section that an image has no place for",
            Self::Alignment => "alignment beyond a page",
            Self::TooLarge => "image too large",
            Self::Malformed => "malformed object",
        }
    }
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The rule.
    pub rule: Rule,
    /// The symbol, section or object that breaks it, as the linker names it.
    pub symbol: String,
    /// What exactly was found; may be empty.
    pub detail: String,
    /// The functions and objects that refer to it, in the order of the walk: name in the source, file, lines if the object
    /// has debug information, and the reference chain from the entry. At most twenty, then a line with the number of others.
    pub referenced_by: Vec<String>,
    /// What to do.
    pub help: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`", self.rule.title(), demangle(&self.symbol))?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        for by in &self.referenced_by {
            write!(f, "\n    referenced by {by}")?;
        }
        write!(f, "\n    help: {}", self.help)
    }
}

/// Every reason why objects make no image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// Name of the ifunc.
    pub ifunc: String,
    /// Every reason that was found; never empty.
    pub reasons: Vec<Reason>,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = if self.reasons.len() == 1 {
            "reason"
        } else {
            "reasons"
        };
        write!(
            f,
            "cannot link the image of `{}`: {} {reasons}",
            self.ifunc,
            self.reasons.len()
        )?;
        for reason in &self.reasons {
            write!(f, "\n  {reason}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LinkError {}

/// A function or object that refers to something that is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Referrer {
    /// Its name in the source, and its file.
    pub(crate) name: String,
    /// The line of the source.
    pub(crate) at: Option<String>,
    /// The reference chain between it and the entry, the nearest first.
    pub(crate) through: Vec<String>,
}

/// Maximum number of referrers of a reason, and of lines of a referrer, that a message shows.
const MAX_SHOWN: usize = 20;

/// A referrer with all the lines where it refers.
#[derive(Debug)]
struct Referrers {
    name: String,
    at: Vec<String>,
    /// All lines, with those that are not shown.
    lines: HashSet<String>,
    through: Vec<String>,
}

impl fmt::Display for Referrers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.at.is_empty() {
            write!(f, " at {}", self.at.join(", "))?;
            let more = self.lines.len() - self.at.len();
            if more > 0 {
                write!(f, " and {more} more")?;
            }
        }
        for (index, step) in self.through.iter().enumerate() {
            f.write_str(if index == 0 { ", reached through " } else { ", " })?;
            match &**step {
                "…" => f.write_str(step)?,
                name => write!(f, "`{name}`")?,
            }
        }
        Ok(())
    }
}

/// The referrers of a reason, and its help.
#[derive(Debug, Default)]
struct Evidence {
    /// The first [`MAX_SHOWN`].
    referrers: Vec<Referrers>,
    /// The number of every referrer: an index in `referrers` for the first [`MAX_SHOWN`].
    by_name: HashMap<String, usize>,
    help: String,
}

impl Evidence {
    fn shown(&self) -> Vec<String> {
        let mut shown: Vec<String> = self.referrers.iter().map(ToString::to_string).collect();
        let more = self.by_name.len() - self.referrers.len();
        if more > 0 {
            shown.push(format!("{more} more"));
        }
        shown
    }
}

/// Collects reasons; the same rule, symbol and detail become one reason with several referrers.
#[derive(Debug, Default)]
pub(crate) struct Reasons(BTreeMap<(Rule, String, String), Evidence>);

impl Reasons {
    pub(crate) fn add(&mut self, rule: Rule, symbol: &str, detail: &str, by: Option<Referrer>, help: &str) {
        let evidence = self
            .0
            .entry((rule, symbol.into(), detail.into()))
            .or_insert_with(|| Evidence {
                help: help.into(),
                ..Evidence::default()
            });
        let Some(Referrer { name, at, through }) = by else {
            return;
        };
        let next = evidence.by_name.len();
        let index = *evidence.by_name.entry(name).or_insert_with_key(|name| {
            if next < MAX_SHOWN {
                evidence.referrers.push(Referrers {
                    name: name.clone(),
                    at: Vec::new(),
                    lines: HashSet::new(),
                    through,
                });
            }
            next
        });
        if let Some(referrer) = evidence.referrers.get_mut(index)
            && let Some(at) = at
            && referrer.lines.insert(at.clone())
            && referrer.at.len() < MAX_SHOWN
        {
            referrer.at.push(at);
        }
    }

    /// `value`, unless there are reasons against it.
    pub(crate) fn unless_any<T>(self, ifunc: &str, value: T) -> Result<T, LinkError> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self.into_error(ifunc))
        }
    }

    /// Whether there is a reason of this rule against a symbol.
    pub(crate) fn names(&self, rule: Rule, symbol: &str) -> bool {
        self.0
            .keys()
            .any(|(known, named, _)| (*known, &**named) == (rule, symbol))
    }

    /// Whether there is a reason of this rule.
    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.0.keys().any(|(evidence, ..)| *evidence == rule)
    }

    pub(crate) fn into_error(self, ifunc: &str) -> LinkError {
        let reasons = self
            .0
            .into_iter()
            .map(|((rule, symbol, detail), evidence)| Reason {
                rule,
                symbol,
                detail,
                referenced_by: evidence.shown(),
                help: evidence.help,
            });
        LinkError {
            ifunc: ifunc.into(),
            reasons: reasons.collect(),
        }
    }
}
