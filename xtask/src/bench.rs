//! `cargo xtask bench`: builds the runner and the ifuncs, and runs it. What it does is in `benches`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::process::{built, cargo, end, ifunc, last_line, output, status};
use crate::steps::Steps;

/// What a whole run leaves behind, and the page is made of.
const RESULTS: &str = "docs/performance/results.json";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// To measure, with these options of the runner's.
    Run { options: Vec<String>, quick: bool },
    /// To make the page, of these results or those that it has.
    Render { results: Option<PathBuf> },
}

/// The command.
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(judge(options).and_then(|asked| match asked {
        Asked::Run { options, quick } => run(&options, quick, status),
        Asked::Render { results } => render(results.as_deref()),
    }))
}

/// Whether the runner and one figure work.
pub(crate) fn one_figure(steps: &mut Steps) {
    steps.step("a figure, briefly", || quick(&["--only", "lat-am"]));
}

/// Whether every figure works, and every peer builds.
pub(crate) fn every_figure(steps: &mut Steps) {
    steps.step("every figure, briefly", || quick(&[]));
    steps.step("the runner with every peer", || release().map(|_| String::new()));
}

/// A quick run; what it says last.
fn quick(options: &[&str]) -> Result<String, String> {
    let mut said = String::new();
    let options: Vec<String> = ["--quick"]
        .iter()
        .chain(options)
        .map(|&option| option.into())
        .collect();
    run(&options, true, |bench| {
        said = last_line(&output(bench)?);
        Ok(())
    })?;
    Ok(said)
}

/// The runner takes a while to be built.
fn judge(args: &[String]) -> Result<Asked, String> {
    let mut options = Vec::new();
    let (mut quick, mut is_kept) = (false, true);
    let mut left = args.iter();
    while let Some(arg) = left.next() {
        match arg.as_str() {
            "--render" => {
                let results = left.next().map(PathBuf::from);
                return match options.is_empty() && left.next().is_none() {
                    true => Ok(Asked::Render { results }),
                    false => Err("`--render` stands alone, or with the file to render".into()),
                };
            }
            "--quick" => quick = true,
            "--only" | "--json" => {
                let value = left.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
                is_kept &= arg != "--json";
                options.extend([arg.clone(), value.clone()]);
                continue;
            }
            _ => return Err(format!("`cargo xtask bench` has no option `{arg}`")),
        }
        options.push(arg.clone());
    }
    if is_kept {
        let results = crate::root().join(RESULTS);
        options.extend(["--record".into(), results.to_string_lossy().into_owned()]);
    }
    Ok(Asked::Run { options, quick })
}

/// A quick run is of the program as the tests have built it, with the features of the whole workspace, and without the peers
/// that are features; ifuncs are always optimised.
fn run(
    options: &[String],
    quick: bool,
    start: impl FnOnce(&mut Command) -> Result<(), String>,
) -> Result<(), String> {
    let program = match quick {
        true => runner()?,
        false => release()?,
    };
    status(&mut ifunc(&[
        "build",
        "--quiet",
        "--package",
        "ifunc-bench-ifuncs",
    ])?)?;
    let mut bench = Command::new(program);
    bench
        .arg("run")
        .args(options)
        .env("IFUNC_LIB_DIR", crate::target().join("ifunc/release"))
        .stdin(Stdio::null());
    start(&mut bench)
}

fn render(results: Option<&Path>) -> Result<(), String> {
    let mut bench = Command::new(runner()?);
    bench
        .args(["render", "--docs"])
        .arg(crate::root().join("docs"))
        .args(results);
    status(bench.stdin(Stdio::null()))
}

/// The runner as it measures, with every peer.
fn release() -> Result<PathBuf, String> {
    status(&mut cargo([
        "build",
        "--locked",
        "--release",
        "--package",
        "ifunc-bench",
        "--package",
        "ifunc-instructions",
        "--all-features",
    ]))?;
    Ok(crate::target().join("release/ifunc-bench"))
}

/// The runner as the tests have built it.
fn runner() -> Result<PathBuf, String> {
    Ok(built(&["ifunc-bench", "ifunc-instructions"])?.join("ifunc-bench"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Asked, judge};

    #[test]
    fn options_are_judged_before_anything_is_built() {
        let judge = |text: &str| judge(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(
            judge("--quick --only lat-am --json x.json"),
            Ok(Asked::Run {
                options: ["--quick", "--only", "lat-am", "--json", "x.json"]
                    .map(str::to_owned)
                    .into(),
                quick: true,
            })
        );
        // What is not written elsewhere is kept for the page, if it is whole: the runner judges that.
        let Ok(Asked::Run { options, .. }) = judge("") else {
            panic!("to measure")
        };
        assert!(options[0] == "--record" && options[1].ends_with("docs/performance/results.json"));
        assert_eq!(judge("--render"), Ok(Asked::Render { results: None }));
        let Ok(Asked::Render { results: Some(file) }) = judge("--render /tmp/x.json") else {
            panic!("to render a file")
        };
        assert_eq!(file, Path::new("/tmp/x.json"));
        assert!(judge("--json").unwrap_err().contains("needs a value"));
        assert!(judge("--quick --render").unwrap_err().contains("stands alone"));
        assert!(judge("--fast").unwrap_err().contains("no option `--fast`"));
    }
}
