//! Target and source in one process: `cargo ifunc run --transport loopback`.

use std::process::ExitCode;
use std::thread;

fn main() -> ExitCode {
    let addr = std::env::var("IFUNC_ADDR").unwrap_or_else(|_| "loopback:11-timeseries".into());
    let target_addr = addr.clone();
    // The thread ends with the process.
    thread::spawn(move || {
        if let Err(e) = example_11_timeseries::target(&target_addr) {
            eprintln!("error: target: {e}");
            std::process::exit(1);
        }
    });
    match example_11_timeseries::source(&addr) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
