//! `verify DIR DATABASE`: another process, which opens the database and compares.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(folder), Some(database)) = (args.next(), args.next()) else {
        return Err("usage: verify DIR DATABASE".into());
    };
    println!(
        "{}",
        example_02_compressed_insert::verify::verify(&folder, &database)?
    );
    Ok(())
}
