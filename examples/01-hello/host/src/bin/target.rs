//! The target.

use std::process::ExitCode;

fn main() -> ExitCode {
    let addr = std::env::var("IFUNC_ADDR").unwrap_or_else(|_| "shm:01-hello".into());
    match example_01_hello::target(&addr) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
