//! The node.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Ifuncs run in processes of their own, for which a target starts its program again.
    ifunc_rt::run_if_started_by_target();
    match example_10_near_data::target() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
