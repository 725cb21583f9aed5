//! `cargo xtask aarch64`: ifuncs between machines of different architectures, with AArch64's programs under QEMU.

mod emulated;
mod tools;

use std::process::ExitCode;

use crate::process::end;
use tools::Tools;

/// The command.
pub(crate) fn command(options: &[String]) -> ExitCode {
    match options.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tools"] => end(tools()),
        _ => {
            eprintln!("error: help: cargo xtask aarch64 tools");
            ExitCode::from(2)
        }
    }
}

/// Fetches the tools, and says how a shell gets the environment in which cargo uses them.
fn tools() -> Result<(), String> {
    let tools = Tools::ensure()?;
    emulated::ensure(&tools)?;
    println!(". {}", tools.exports().display());
    Ok(())
}
