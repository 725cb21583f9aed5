//! Lines on the standard error, as UCX writes them: the interface has statuses and no texts.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reports what an application did wrong, or what is wrong with its files.
pub(crate) fn error(text: fmt::Arguments<'_>) {
    // There is no other place to say that this one is closed.
    let _ = writeln!(std::io::stderr().lock(), "ifunc: error: {text}");
}

/// Reports what a peer caused: the first eight times, and then ever more rarely.
pub(crate) fn refused(text: fmt::Arguments<'_>) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if count <= 8 {
        let _ = writeln!(std::io::stderr().lock(), "ifunc: warning: {text}");
    } else if count.is_power_of_two() {
        let _ = writeln!(
            std::io::stderr().lock(),
            "ifunc: warning: {text} (one of {count} messages that failed)"
        );
    }
}
