//! The client.

use std::process::ExitCode;

fn main() -> ExitCode {
    match example_10_near_data::source() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
