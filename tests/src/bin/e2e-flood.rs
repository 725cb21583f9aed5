//! A source that sends and sends until it is killed. Its argument is a library.

use std::io::Write;

use ifunc_rt::Source;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let library = std::env::args_os().nth(1).ok_or("an ifunc library")?;
    let source = Source::connect(&std::env::var("IFUNC_ADDR")?)?;
    let image = std::fs::read(library)?;
    let add = source.load_bytes(&image)?;
    add.send(&0u64.to_le_bytes())?;
    println!("flooding");
    std::io::stdout().flush()?;
    loop {
        add.send(&0u64.to_le_bytes())?;
    }
}
