//! One line for each thing that was tried, and how many went well.

use std::time::Instant;

use crate::Failure;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    /// What the name of a thing must contain for it to be tried.
    pub(crate) only: String,
}

impl Report {
    /// Tries something; what there is to say of it, or what went wrong.
    pub(crate) fn try_this(&mut self, name: &str, what: impl FnOnce() -> Result<String, Failure>) {
        if !name.contains(&self.only) {
            return;
        }
        let began = Instant::now();
        let result = what();
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok(figures) => {
                self.passed += 1;
                println!("ok      {name}, {seconds:.1} s: {figures}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED  {name}, {seconds:.1} s: {error}");
            }
        }
    }
}
