//! Shows the progress of a build.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ifunc_build::{BuiltIfunc, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::shell::{Shell, shown};

/// Delay before a progress line appears.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// Prints what a build did, except for up-to-date ifuncs, and on a terminal a progress line.
pub(crate) struct BuildProgress<'a> {
    shell: &'a mut Shell,
    bar: ProgressBar,
    /// The current work item.
    now: Arc<Mutex<String>>,
}

impl<'a> BuildProgress<'a> {
    pub(crate) fn new(shell: &'a mut Shell) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let now = Arc::new(Mutex::new(String::new()));
        let what = Arc::clone(&now);
        let late = move |state: &ProgressState, out: &mut dyn Write| {
            if state.elapsed() > SHOW_AFTER {
                let what = what.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = write!(out, "{:>12} {what} ({}s)", "Building", state.elapsed().as_secs());
            }
        };
        if shell.shows_progress()
            && let Ok(style) = ProgressStyle::with_template("{late}")
        {
            bar.set_style(style.with_key("late", late));
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Self { shell, bar, now }
    }

    fn now(&mut self, what: &str) {
        what.clone_into(&mut self.now.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn above(&mut self, say: impl FnOnce(&mut Shell)) {
        let Self { shell, bar, .. } = self;
        bar.suspend(|| say(shell));
    }
}

impl Drop for BuildProgress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for BuildProgress<'_> {
    fn compiling(&mut self, what: &str) {
        self.now(what);
        self.above(|shell| shell.detail("Compiling", shown(what.as_ref())));
    }

    fn cargo(&mut self, line: &str) {
        // Cargo reports the end of one of several packages; the build continues.
        let is_noise = line.contains("Finished");
        self.above(|shell| {
            if !is_noise || shell.is_verbose() {
                shell.verbatim(line);
            }
        });
    }

    fn diagnostic(&mut self, rendered: &str) {
        // Errors are printed even with `--quiet`, as cargo does.
        self.bar.suspend(|| anstream::eprint!("{rendered}"));
    }

    fn linking(&mut self, ifunc: &str) {
        self.now(ifunc);
    }

    fn built(&mut self, ifunc: &BuiltIfunc) {
        let BuiltIfunc {
            name,
            path,
            image,
            fresh,
            ..
        } = ifunc;
        let what = format!("{name} ({} bytes of image, {})", image.len(), shown(path));
        self.above(|shell| match fresh {
            true => shell.detail("Fresh", what),
            false => shell.status("Linking", what),
        });
    }

    fn command(&mut self, line: &str) {
        self.above(|shell| shell.detail("Running", format_args!("`{line}`")));
    }
}
