//! The output of a run while it works, in cargo's style. On a terminal, the last line shows the progress. It
//! changes between slots only: a line that moves by itself would need a thread on the measured cores.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};

use crate::report::format;
use crate::row::Row;

const VERB: Style = AnsiColor::Green.on_default().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Width of the verbs in columns.
const COLUMNS: usize = 12;

/// Standard error, and the progress line.
pub(crate) struct Status {
    bar: ProgressBar,
}

impl Status {
    /// A status for this number of figures. `indicatif` shows nothing without a terminal.
    pub(crate) fn new(figures: usize) -> Self {
        let bar = ProgressBar::new(figures as u64);
        let template = "{prefix:>12.cyan.bold} [{bar:24}] {pos}/{len} ({elapsed}): {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix("Measuring");
        Self { bar }
    }

    /// A figure begins.
    pub(crate) fn begins(&mut self, id: &str, title: &str) {
        self.say("Measuring", format_args!("{id}: {title}"));
        self.bar.set_message(id.to_owned());
        self.bar.tick();
    }

    /// A row was found.
    pub(crate) fn found(&mut self, row: &Row) {
        let (figure, what) = (&row.figure, row.name());
        let found = format::value(row.ours, &row.unit);
        let ratio = row
            .ratio
            .map(|ratio| format!(", {} of the peer's", format::ratio(ratio)));
        self.bar
            .set_message(format!("{figure}, {what}: {found}{}", ratio.unwrap_or_default()));
        self.bar.tick();
    }

    /// A figure is finished.
    pub(crate) fn finished(&mut self) {
        self.bar.inc(1);
    }

    /// `   Measuring lat-am`
    pub(crate) fn say(&mut self, verb: &str, what: impl Display) {
        self.above(format_args!("{VERB}{verb:>COLUMNS$}{VERB:#} {what}"));
    }

    /// `warning: …`
    pub(crate) fn warning(&mut self, what: impl Display) {
        self.above(format_args!("{WARNING}warning{WARNING:#}: {what}"));
    }

    /// `error: …`
    pub(crate) fn error(&mut self, what: impl Display) {
        self.above(format_args!("{ERROR}error{ERROR:#}: {what}"));
    }

    /// Prints to standard output above the progress line.
    pub(crate) fn print(&mut self, text: impl Display) {
        self.bar.suspend(|| anstream::print!("{text}"));
    }

    fn above(&mut self, what: impl Display) {
        self.bar.suspend(|| anstream::eprintln!("{what}"));
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
