//! Cargo's look: right-aligned verbs, `error:` and `help:`, on standard error.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};

use crate::cli::{Global, When};

const VERB: Style = AnsiColor::Green.on_default().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HELP: Style = AnsiColor::Cyan.on_default().bold();

/// Columns of the verbs.
const COLUMNS: usize = 12;

/// Makes `CARGO_TERM_COLOR` count for everything from here on, the usage errors of clap included. `NO_COLOR` and
/// `CLICOLOR_FORCE` are heard by `anstream` itself.
pub(crate) fn color_from_environment() {
    let choice = match std::env::var("CARGO_TERM_COLOR").as_deref() {
        Ok("always") => ColorChoice::Always,
        Ok("never") => ColorChoice::Never,
        _ => return,
    };
    choice.write_global();
}

/// Standard error, as loud as it was asked to be.
#[derive(Debug)]
pub(crate) struct Shell {
    verbose: bool,
    quiet: bool,
}

impl Shell {
    pub(crate) fn new(global: &Global) -> Self {
        match global.color {
            Some(When::Always) => ColorChoice::Always.write_global(),
            Some(When::Never) => ColorChoice::Never.write_global(),
            Some(When::Auto) => ColorChoice::Auto.write_global(),
            None => {}
        }
        Self {
            verbose: global.verbose,
            quiet: global.quiet,
        }
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether standard error is coloured.
    pub(crate) fn colors(&self) -> bool {
        anstream::AutoStream::choice(&std::io::stderr()) != ColorChoice::Never
    }

    /// The same, for the builder.
    pub(crate) fn color(&self) -> ifunc_build::Color {
        match self.colors() {
            true => ifunc_build::Color::Always,
            false => ifunc_build::Color::Never,
        }
    }

    /// Whether somebody watches standard error.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// `   Compiling add`
    pub(crate) fn status(&mut self, verb: &str, what: impl Display) {
        if !self.quiet {
            self.line(format_args!("{VERB}{verb:>COLUMNS$}{VERB:#} {what}"));
        }
    }

    /// As [`status`](Self::status), for those who asked for more.
    pub(crate) fn detail(&mut self, verb: &str, what: impl Display) {
        if self.verbose {
            self.status(verb, what);
        }
    }

    /// `warning: …`
    pub(crate) fn warning(&mut self, what: impl Display) {
        if !self.quiet {
            self.line(format_args!("{WARNING}warning{WARNING:#}: {what}"));
        }
    }

    /// `error: …`, and each of its lines that begins with `help: ` in the colour of help.
    pub(crate) fn error(&mut self, what: impl Display) {
        let text = what.to_string();
        let mut lines = text.trim_end().lines();
        self.line(format_args!(
            "{ERROR}error{ERROR:#}: {}",
            lines.next().unwrap_or_default()
        ));
        for line in lines {
            match line.strip_prefix("help: ") {
                Some(help) => self.line(format_args!("{HELP}help{HELP:#}: {help}")),
                None => self.line(format_args!("{line}")),
            }
        }
    }

    /// A line as it is, unless quiet.
    pub(crate) fn verbatim(&mut self, line: impl Display) {
        if !self.quiet {
            self.line(format_args!("{line}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Nobody is left to be told that standard error is closed.
        let _ = writeln!(anstream::stderr().lock(), "{line}");
    }
}

/// A path as a person wants to read it: relative to the current directory where it lies below.
pub(crate) fn shown(path: &std::path::Path) -> std::path::Display<'_> {
    let below = std::env::current_dir()
        .ok()
        .and_then(|here| path.strip_prefix(here).ok());
    below.unwrap_or(path).display()
}
