//! Outlining what is rare.

use alloc::boxed::Box;

/// A count, or an error: a `Result` in parts.
struct Parts<E> {
    count: usize,
    error: Option<Box<E>>,
}

/// Runs what is rare in a function of its own. Where its result joins that of the fast path, the compiler still knows what the latter is:
/// it passes a `Result` of two registers on as one value, and would test a tag that it has just made of a constant.
///
/// The closure moves what it takes, so that nothing of it lies in memory on the fast path.
#[inline(always)]
pub fn rarely<E>(run: impl FnOnce() -> Result<usize, Box<E>>) -> Result<usize, Box<E>> {
    #[cold]
    #[inline(never)]
    fn outlined<E>(run: impl FnOnce() -> Result<usize, Box<E>>) -> Parts<E> {
        let (count, error) = match run() {
            Ok(count) => (count, None),
            Err(error) => (0, Some(error)),
        };
        Parts { count, error }
    }
    let Parts { count, error } = outlined(run);
    match error {
        None => Ok(count),
        Some(error) => Err(error),
    }
}
