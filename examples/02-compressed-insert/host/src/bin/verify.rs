//! `verify DIR DATABASE`: a separate process that opens the database and compares it with the files.

use std::path::PathBuf;
use std::process::ExitCode;

use example_02_compressed_insert::verify::verify;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(folder), Some(database), None) = (args.next(), args.next(), args.next()) else {
        eprintln!("usage: verify DIR DATABASE");
        return ExitCode::from(2);
    };
    match verify(&folder, &database) {
        Ok(verified) => {
            println!("{verified}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
