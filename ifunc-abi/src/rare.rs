//! Outlining what is rare.

use alloc::boxed::Box;

/// Runs what is rare in a function of its own. The closure moves what it takes, so that nothing of it lies in memory on the fast path.
#[cold]
#[inline(never)]
pub fn outlined<R>(run: impl FnOnce() -> R) -> R {
    run()
}

/// A count, or an error: a `Result` in parts.
struct Parts<E> {
    count: usize,
    error: Option<Box<E>>,
}

/// As [`outlined`], of what returns a count. Where its result joins that of the fast path, the compiler still knows what the latter is: it
/// passes a `Result` of two registers on as one value, and would test a tag that it has just made of a constant.
#[inline(always)]
pub fn rarely<E>(run: impl FnOnce() -> Result<usize, Box<E>>) -> Result<usize, Box<E>> {
    let Parts { count, error } = outlined(move || {
        let (count, error) = match run() {
            Ok(count) => (count, None),
            Err(error) => (0, Some(error)),
        };
        Parts { count, error }
    });
    match error {
        None => Ok(count),
        Some(error) => Err(error),
    }
}
