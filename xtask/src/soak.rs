//! `cargo xtask soak`: builds the program and the ifuncs, and runs it. The program is `tests/src/bin/soak`.

use std::process::{Command, ExitCode, Stdio};

use crate::process::{WHOLE, build_ifuncs, cargo, end, last_line, output, status};
use crate::steps::Steps;
use crate::transports::key;

/// Options without and with a value.
const FLAGS: &[&str] = &["--quick"];
const VALUES: &[&str] = &[
    "--messages",
    "--rounds",
    "--visits",
    "--transport",
    "--part",
    "--seed",
];

/// The command. Its last line is the program's: how many passed.
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(check(options).and_then(|()| run(options)).map(drop))
}

/// Checks the options before anything is built.
fn check(args: &[String]) -> Result<(), String> {
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if VALUES.contains(&arg) {
            args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
        } else if !FLAGS.contains(&arg) {
            return Err(crate::help::no_option("soak", arg));
        }
    }
    Ok(())
}

/// Half a minute of it, as a step.
pub(crate) fn quick(steps: &mut Steps) {
    steps.step("a short soak", || run(&["--quick".to_owned()]));
}

/// All of it, as a step.
pub(crate) fn full(steps: &mut Steps) {
    steps.step("the soak", || run(&[]));
}

/// Builds and runs the soak. A quick one takes the program that the tests have built. Ifuncs are always optimised.
pub(crate) fn run(args: &[String]) -> Result<String, String> {
    let quick = args.iter().any(|arg| arg == "--quick");
    let profile = if quick { "dev" } else { "release" };
    let build = ["build", "--quiet", "--bin", "soak"];
    status(cargo(build).args(["--profile", profile]).args(WHOLE))?;
    build_ifuncs("ifunc-tests-ifuncs")?;
    let target = crate::target();
    let mut soak = Command::new(target.join(if quick { "debug" } else { "release" }).join("soak"));
    soak.args(args)
        .envs(key()?)
        .env("IFUNC_LIB_DIR", target.join("ifunc/release"))
        .stdin(Stdio::null());
    output(&mut soak).map(|said| last_line(&said))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn options_are_checked_before_anything_is_built() {
        let check = |text: &str| check(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(check("--quick --messages 1000 --transport shm,ucx"), Ok(()));
        assert!(check("--messages").unwrap_err().contains("needs a value"));
        assert!(check("--slow").unwrap_err().contains("no option `--slow`"));
    }
}
