//! Output in cargo's style: right-aligned verbs, `error:` and `help:`, on standard error.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};

use crate::cli::{Global, When};

const VERB: Style = AnsiColor::Green.on_default().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HELP: Style = AnsiColor::Cyan.on_default().bold();

/// Width of the verbs, in columns.
const COLUMNS: usize = 12;

/// Applies `CARGO_TERM_COLOR` to all output, including clap's usage errors. `anstream` itself handles
/// `NO_COLOR` and `CLICOLOR_FORCE`.
pub(crate) fn color_from_environment() {
    let choice = match std::env::var("CARGO_TERM_COLOR").as_deref() {
        Ok("always") => ColorChoice::Always,
        Ok("never") => ColorChoice::Never,
        _ => return,
    };
    choice.write_global();
}

/// Standard error, with the requested verbosity.
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

    /// The colour setting for the builder.
    pub(crate) fn color(&self) -> ifunc_build::Color {
        match self.colors() {
            true => ifunc_build::Color::Always,
            false => ifunc_build::Color::Never,
        }
    }

    /// Whether to show progress: standard error is a terminal, and not quiet.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// `   Compiling add`
    pub(crate) fn status(&mut self, verb: &str, what: impl Display) {
        if !self.quiet {
            self.line(format_args!("{VERB}{verb:>COLUMNS$}{VERB:#} {what}"));
        }
    }

    /// As [`status`](Self::status), with `--verbose` only.
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

    /// `error: …`; lines that begin with `help: ` get the colour of help.
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

    /// A line without formatting, unless quiet.
    pub(crate) fn verbatim(&mut self, line: impl Display) {
        if !self.quiet {
            self.line(format_args!("{line}"));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // An error means that standard error is closed; there is no way to report it.
        let _ = writeln!(anstream::stderr().lock(), "{line}");
    }
}

/// A path relative to the current directory, if it lies below it.
pub(crate) fn shown(path: &std::path::Path) -> std::path::Display<'_> {
    let below = std::env::current_dir()
        .ok()
        .and_then(|here| path.strip_prefix(here).ok());
    below.unwrap_or(path).display()
}
