//! The source.

use std::process::ExitCode;

fn main() -> ExitCode {
    let addr = std::env::var("IFUNC_ADDR").unwrap_or_else(|_| "shm:06-top-k".into());
    match example_06_top_k::source(&addr) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
