//! Target and source in one process: `cargo ifunc run --transport loopback`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::var("IFUNC_ADDR")?;
    let target = addr.clone();
    // Ends with the process, when the source is done.
    std::thread::spawn(move || {
        if let Err(e) = {{crate}}::target(&target) {
            eprintln!("target: {e}");
            std::process::exit(1);
        }
    });
    {{crate}}::source(&addr)
}
