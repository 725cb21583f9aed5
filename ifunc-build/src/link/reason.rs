//! Why objects make no image: every reason, each as rule, symbol, who refers to it, and how to mend it.

use std::fmt;

/// What an image cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The entry is not defined.
    NoEntry,
    /// Two objects define the symbol, and neither definition yields.
    Duplicate,
    /// A thread-local variable.
    ThreadLocal,
    /// A constructor or destructor that would have to run when the image is installed.
    Constructor,
    /// An indirect function of GNU C (`STT_GNU_IFUNC`), resolved when a program starts.
    GnuIfunc,
    /// Code that is not position-independent.
    TextRelocation,
    /// Code that reaches an external symbol without the GOT.
    DirectExternal,
    /// Code that needs the GOT of a linked file.
    GotRelative,
    /// A relocation that this linker does not know.
    UnsupportedRelocation,
    /// A symbol that nothing defines and no import declares.
    Undeclared,
    /// A symbol that only the linker of a program defines.
    LinkerSymbol,
    /// A symbol whose name an import table cannot hold.
    SymbolName,
    /// An absolute symbol (assembler constant, linker script).
    AbsoluteSymbol,
    /// A section that an image has no place for.
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
            Self::Duplicate => "symbol that is defined twice",
            Self::ThreadLocal => "thread-local variable",
            Self::Constructor => "constructor or destructor",
            Self::GnuIfunc => "GNU indirect function (STT_GNU_IFUNC)",
            Self::TextRelocation => "text relocation: the code is not position-independent",
            Self::DirectExternal => "external symbol reached without the GOT",
            Self::GotRelative => "code model that counts from the GOT",
            Self::UnsupportedRelocation => "unsupported relocation",
            Self::Undeclared => "undefined symbol that no import declares",
            Self::LinkerSymbol => "symbol that only the linker of a program defines",
            Self::SymbolName => "symbol whose name cannot be imported",
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
    /// Who refers to it, in the order it was found.
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

/// Why objects make no image.
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

/// The name as it stands in the source.
pub(crate) fn demangle(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

/// Collects reasons; the same rule and symbol become one reason with several referrers.
#[derive(Debug, Default)]
pub(super) struct Reasons(Vec<Reason>);

impl Reasons {
    pub(super) fn add(&mut self, rule: Rule, symbol: &str, detail: &str, by: Option<String>, help: &str) {
        let known = self
            .0
            .iter_mut()
            .find(|r| r.rule == rule && r.symbol == symbol && r.detail == detail);
        let reason = match known {
            Some(reason) => reason,
            None => {
                self.0.push(Reason {
                    rule,
                    symbol: symbol.into(),
                    detail: detail.into(),
                    referenced_by: Vec::new(),
                    help: help.into(),
                });
                let last = self.0.len() - 1;
                &mut self.0[last]
            }
        };
        if let Some(by) = by
            && !reason.referenced_by.contains(&by)
        {
            reason.referenced_by.push(by);
        }
    }

    /// `value`, unless there are reasons against it.
    pub(super) fn unless_any<T>(self, ifunc: &str, value: T) -> Result<T, LinkError> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self.into_error(ifunc))
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_error(mut self, ifunc: &str) -> LinkError {
        self.0
            .sort_by(|a, b| (a.rule, &a.symbol, &a.detail).cmp(&(b.rule, &b.symbol, &b.detail)));
        LinkError {
            ifunc: ifunc.into(),
            reasons: self.0,
        }
    }
}
