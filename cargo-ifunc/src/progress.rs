//! Shows the progress of a build.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ifunc_abi::image::Image;
use ifunc_abi::symbols::{COMPILER_IMPORTS, RUNTIME_IMPORTS};
use ifunc_build::{BuiltIfunc, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::shell::{Shell, shown};

/// Imports that a line names.
const MAX_IMPORTS: usize = 12;
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
            other_slices,
            fresh,
            ..
        } = ifunc;
        let slices: String = other_slices
            .iter()
            .map(|slice| format!(", {} for {}", slice.image.len(), slice.machine))
            .collect();
        let what = format!("{name} ({} bytes of image{slices}, {})", image.len(), shown(path));
        let imports = imports_of(image);
        self.above(|shell| match fresh {
            true => shell.detail("Fresh", what),
            false => {
                shell.status("Linking", what);
                if let Some(imports) = imports {
                    shell.status("Imports", imports);
                }
            }
        });
    }

    fn command(&mut self, line: &str) {
        self.above(|shell| shell.detail("Running", format_args!("`{line}`")));
    }
}

/// The symbols that an image imports of its target, without those that every target provides; `None` if there are none.
pub(crate) fn imports_of(image: &[u8]) -> Option<String> {
    let image = Image::parse(image).ok()?;
    let everywhere = |symbol: &str| RUNTIME_IMPORTS.contains(&symbol) || COMPILER_IMPORTS.contains(&symbol);
    let mut names: Vec<&str> = image
        .imports()
        .map(|import| import.symbol)
        .filter(|symbol| !everywhere(symbol))
        .collect();
    names.sort_unstable();
    let others = names.len().saturating_sub(MAX_IMPORTS);
    names.truncate(MAX_IMPORTS);
    let more = match others {
        0 => String::new(),
        others => format!(" and {others} more (`cargo ifunc inspect` lists them)"),
    };
    (!names.is_empty()).then(|| format!("{} of the target{more}", names.join(", ")))
}
