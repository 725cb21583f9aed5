//! The source.

use std::process::ExitCode;

fn main() -> ExitCode {
    let addr = std::env::var("IFUNC_ADDR").unwrap_or_else(|_| "shm:02-compressed-insert".into());
    match example_02_compressed_insert::source(&addr) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
