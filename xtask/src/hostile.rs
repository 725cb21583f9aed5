//! `cargo xtask hostile`: builds the program and the ifuncs, and runs it. The program is `tests/src/bin/hostile`.

use std::process::{Command, ExitCode, Stdio};

use crate::process::{WHOLE, build_ifuncs, cargo, end, last_line, output, status};
use crate::steps::Steps;
use crate::transports::key;

/// Options with a value.
const VALUES: [&str; 3] = ["--seconds", "--transport", "--seed"];

/// The command. Its last line is the program's: how many passed.
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(check(options).and_then(|()| run(options)).map(drop))
}

/// A minute over each transport, as a step.
pub(crate) fn full(steps: &mut Steps) {
    steps.step("hostile peers", || run(&[]));
}

/// Checks the options before anything is built.
fn check(args: &[String]) -> Result<(), String> {
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if !VALUES.contains(&arg) {
            return Err(crate::help::no_option("hostile", arg));
        }
        args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
    }
    Ok(())
}

fn run(args: &[String]) -> Result<String, String> {
    let build = ["build", "--quiet", "--release", "--bin", "hostile"];
    status(cargo(build).args(WHOLE))?;
    build_ifuncs("ifunc-tests-ifuncs")?;
    let target = crate::target();
    let mut hostile = Command::new(target.join("release/hostile"));
    hostile
        .args(args)
        .envs(key()?)
        .env("IFUNC_LIB_DIR", target.join("ifunc/release"))
        .stdin(Stdio::null());
    output(&mut hostile).map(|said| last_line(&said))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn options_are_checked_before_anything_is_built() {
        let check = |text: &str| check(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(check("--seconds 600 --transport shm"), Ok(()));
        assert!(check("--seconds").unwrap_err().contains("needs a value"));
        assert!(check("--quick").unwrap_err().contains("no option `--quick`"));
    }
}
