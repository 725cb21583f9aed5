//! `cargo xtask bench`: builds the runner and the ifuncs, and runs it. The runner itself is in `benches`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::debian;
use crate::process::{build_ifuncs, built, cargo, end, last_line, output, status};
use crate::steps::Steps;

/// The file that a whole run writes; the page is rendered from it.
const RESULTS: &str = "docs/performance/results.json";

/// What the command line requests.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// Measure, with these options of the runner.
    Run { options: Vec<String>, quick: bool },
    /// Render the page from this file, or from [`RESULTS`].
    Render { results: Option<PathBuf> },
}

/// The command.
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(parse(options).and_then(|request| match request {
        Request::Run { options, quick } => run(&options, quick, status),
        Request::Render { results } => render(results.as_deref()),
    }))
}

/// Runs one figure, to see that the runner works.
pub(crate) fn one_figure(steps: &mut Steps) {
    steps.step("a figure, briefly", || quick(&["--only", "lat-am"]));
}

/// Runs every figure, and builds the runner with every peer.
pub(crate) fn every_figure(steps: &mut Steps) {
    steps.step("every figure, briefly", || quick(&[]));
    steps.step("the runner with every peer", || release().map(|_| String::new()));
}

/// A quick run. Returns its last line.
fn quick(options: &[&str]) -> Result<String, String> {
    let mut last = String::new();
    let options: Vec<String> = ["--quick"]
        .iter()
        .chain(options)
        .map(|&option| option.into())
        .collect();
    run(&options, true, |bench| {
        last = last_line(&output(bench)?);
        Ok(())
    })?;
    Ok(last)
}

/// Parses the options before anything is built.
fn parse(args: &[String]) -> Result<Request, String> {
    let mut options = Vec::new();
    let (mut quick, mut is_kept) = (false, true);
    let mut left = args.iter();
    while let Some(arg) = left.next() {
        match arg.as_str() {
            "--render" => {
                let results = left.next().map(PathBuf::from);
                return match options.is_empty() && left.next().is_none() {
                    true => Ok(Request::Render { results }),
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
            _ => return Err(crate::help::no_option("bench", arg)),
        }
        options.push(arg.clone());
    }
    if is_kept {
        let results = crate::root().join(RESULTS);
        options.extend(["--record".into(), results.to_string_lossy().into_owned()]);
    }
    Ok(Request::Run { options, quick })
}

/// Builds the runner and the ifuncs, and starts it. A quick run takes the runner that the tests have built, without the peers
/// that are features. Ifuncs are always optimised.
fn run(
    options: &[String],
    quick: bool,
    start: impl FnOnce(&mut Command) -> Result<(), String>,
) -> Result<(), String> {
    let program = match quick {
        true => runner()?,
        false => release()?,
    };
    build_ifuncs("ifunc-bench-ifuncs")?;
    if !options.iter().any(|option| option == "--only") || options.iter().any(|option| option == "kv") {
        debian::ensure_peers()?;
    }
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

    use super::{Request, parse};

    #[test]
    fn options_are_parsed_before_anything_is_built() {
        let parse = |text: &str| parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(
            parse("--quick --only lat-am --json x.json"),
            Ok(Request::Run {
                options: ["--quick", "--only", "lat-am", "--json", "x.json"]
                    .map(str::to_owned)
                    .into(),
                quick: true,
            })
        );
        // Without `--json` the runner keeps a whole run for the page.
        let Ok(Request::Run { options, .. }) = parse("") else {
            panic!("to measure")
        };
        assert!(options[0] == "--record" && options[1].ends_with("docs/performance/results.json"));
        assert_eq!(parse("--render"), Ok(Request::Render { results: None }));
        let Ok(Request::Render { results: Some(file) }) = parse("--render /tmp/x.json") else {
            panic!("to render a file")
        };
        assert_eq!(file, Path::new("/tmp/x.json"));
        assert!(parse("--json").unwrap_err().contains("needs a value"));
        assert!(parse("--quick --render").unwrap_err().contains("stands alone"));
        assert!(parse("--fast").unwrap_err().contains("no option `--fast`"));
    }
}
