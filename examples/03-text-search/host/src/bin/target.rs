//! The target.

use std::process::ExitCode;

fn main() -> ExitCode {
    let addr = std::env::var("IFUNC_ADDR").unwrap_or_else(|_| "shm:03-text-search".into());
    match example_03_text_search::target(&addr) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
