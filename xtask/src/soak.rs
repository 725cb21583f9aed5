//! `cargo xtask soak`: builds the program and the ifuncs, and runs it. What it does is in `tests/src/bin/soak`.

use std::process::{Command, ExitCode, Stdio};

use crate::process::{WHOLE, cargo, end, ifunc, last_line, output, status};
use crate::steps::Steps;

/// The options that stand alone, and those that have a value.
const FLAGS: &[&str] = &["--quick"];
const VALUES: &[&str] = &[
    "--messages",
    "--rounds",
    "--visits",
    "--transport",
    "--part",
    "--seed",
];

/// The command, whose last line is its program's: how many passed.
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(judge(options).and_then(|()| run(options)).map(drop))
}

/// Whether the program knows these options: it takes a while to be built.
fn judge(args: &[String]) -> Result<(), String> {
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if VALUES.contains(&arg) {
            args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
        } else if !FLAGS.contains(&arg) {
            return Err(format!("`cargo xtask soak` has no option `{arg}`"));
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

/// Runs the soak. A quick one is of the program as the tests have built it, with the features of the whole workspace; ifuncs
/// are always optimised.
pub(crate) fn run(args: &[String]) -> Result<String, String> {
    let quick = args.iter().any(|arg| arg == "--quick");
    let profile = if quick { "dev" } else { "release" };
    // With the hook that lengthens UCX's sleep: see `wakes`.
    let build = [
        "build",
        "--quiet",
        "--bin",
        "soak",
        "--features",
        "ifunc-tests/failpoints",
    ];
    status(cargo(build).args(["--profile", profile]).args(WHOLE))?;
    status(&mut ifunc(&[
        "build",
        "--quiet",
        "--package",
        "ifunc-tests-ifuncs",
    ])?)?;
    let target = crate::target();
    let mut soak = Command::new(target.join(if quick { "debug" } else { "release" }).join("soak"));
    soak.args(args)
        .env("IFUNC_LIB_DIR", target.join("ifunc/release"))
        .stdin(Stdio::null());
    output(&mut soak).map(|said| last_line(&said))
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn options_are_judged_before_anything_is_built() {
        let judge = |text: &str| judge(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(judge("--quick --messages 1000 --transport shm,ucx"), Ok(()));
        assert!(judge("--messages").unwrap_err().contains("needs a value"));
        assert!(judge("--slow").unwrap_err().contains("no option `--slow`"));
    }
}
