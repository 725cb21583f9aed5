//! Shows a build while it works.

use std::fmt::{Display, Write};
use std::time::Duration;

use ifunc_build::{BuiltIfunc, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::shell::Shell;

/// Work that is done sooner shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Prints what a build does and, on a terminal, a line that moves while it takes its time.
pub(crate) struct BuildProgress<'a> {
    shell: &'a mut Shell,
    bar: ProgressBar,
}

impl<'a> BuildProgress<'a> {
    pub(crate) fn new(shell: &'a mut Shell) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if shell.is_watched() {
            let late = |state: &ProgressState, out: &mut dyn Write| {
                if state.elapsed() > PATIENCE {
                    let _ = write!(out, "{:>12} {}s", "Building", state.elapsed().as_secs());
                }
            };
            if let Ok(style) = ProgressStyle::with_template("{late} {msg}") {
                bar.set_style(style.with_key("late", late));
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(Duration::from_millis(250));
            }
        }
        Self { shell, bar }
    }

    fn above(&mut self, say: impl FnOnce(&mut Shell)) {
        let Self { shell, bar } = self;
        bar.suspend(|| say(shell));
    }

    fn status(&mut self, verb: &str, what: impl Display) {
        self.above(|shell| shell.status(verb, what));
    }
}

impl Drop for BuildProgress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for BuildProgress<'_> {
    fn compiling(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.status("Compiling", what);
    }

    fn cargo(&mut self, line: &str) {
        self.above(|shell| shell.verbatim(line));
    }

    fn diagnostic(&mut self, rendered: &str) {
        // Errors are said even when quiet: cargo does so, too.
        self.bar.suspend(|| anstream::eprint!("{rendered}"));
    }

    fn linking(&mut self, ifunc: &str) {
        self.bar.set_message(ifunc.to_owned());
        self.status("Linking", ifunc);
    }

    fn built(&mut self, ifunc: &BuiltIfunc) {
        let verb = if ifunc.fresh { "Fresh" } else { "Built" };
        let BuiltIfunc {
            name, path, image, ..
        } = ifunc;
        let what = format!(
            "{name} ({} bytes of image, {})",
            image.len(),
            crate::shell::shown(path)
        );
        self.above(|shell| {
            if ifunc.fresh {
                shell.detail(verb, what)
            } else {
                shell.status(verb, what)
            }
        });
    }

    fn command(&mut self, line: &str) {
        self.above(|shell| shell.detail("Running", format_args!("`{line}`")));
    }
}
