//! Target and source in one process, for `IFUNC_TRANSPORT=loopback`.

use std::{process, thread};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::var("IFUNC_ADDR")?;
    let target_addr = addr.clone();
    // It ends with the process, when the source is done.
    thread::spawn(move || {
        if let Err(e) = example_02_compressed_insert::target(&target_addr) {
            eprintln!("target: {e}");
            process::exit(1);
        }
    });
    example_02_compressed_insert::source(&addr)
}
