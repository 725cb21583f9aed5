//! Steps, one behind the other; a failed one does not hide what the next would say.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    name: String,
    /// What there is to say beside how it went.
    note: String,
    result: Result<(), String>,
    time: Duration,
}

/// How many tests passed and failed, as the test harness counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Steps {
    /// Does `work`, whose answer is a note for the summary or a reason.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<String, String>) -> bool {
        eprintln!("\n==> {name}");
        let started = Instant::now();
        let (note, result) = match work() {
            Ok(note) => (note, Ok(())),
            Err(reason) => {
                eprintln!("error: {reason}");
                (String::new(), Err(reason))
            }
        };
        let well = result.is_ok();
        self.done.push(Step {
            name: name.into(),
            note,
            result,
            time: started.elapsed(),
        });
        well
    }

    /// Runs a command; it is the step.
    pub(crate) fn command(&mut self, name: &str, command: &mut Command) -> bool {
        self.step(name, || status(command).map(|()| String::new()))
    }

    /// Runs a command that prints what Rust's test harness prints, and adds its counts up.
    pub(crate) fn tests(&mut self, name: &str, command: &mut Command) -> bool {
        self.step(name, || {
            let (counts, remarks, result) = counted(command);
            let Counts {
                passed,
                failed,
                ignored,
            } = counts;
            let mut note = format!("{passed} passed, {failed} failed, {ignored} ignored");
            for remark in remarks {
                note = format!("{note}; {remark}");
            }
            match result {
                Ok(()) if passed == 0 => Err("no test ran".into()),
                Ok(()) => Ok(note),
                Err(reason) => Err(format!("{reason} ({note})")),
            }
        })
    }

    /// Prints what was done, and how it went.
    pub(crate) fn summary(&self) -> ExitCode {
        eprintln!("\n==> summary");
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0);
        let mut well = true;
        for Step {
            name,
            note,
            result,
            time,
        } in &self.done
        {
            let (mark, note) = match result {
                Ok(()) => ("ok    ", note.as_str()),
                Err(reason) => {
                    well = false;
                    ("FAILED", reason.as_str())
                }
            };
            let note = note.lines().next().unwrap_or_default();
            eprintln!("{mark}  {name:width$}  {:7.1} s  {note}", time.as_secs_f64());
        }
        eprintln!(
            "{}",
            if well {
                "all is well"
            } else {
                "something failed; its output is above"
            }
        );
        if well {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// A cargo command in the checkout. Nothing of what these commands start may wait for somebody to type.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(crate::root()).stdin(Stdio::null());
    command
}

/// Where these programs of ours are, as the tests have built them: with the features of the whole workspace, nothing is
/// compiled again for them.
pub(crate) fn built(bins: &[&str]) -> Result<PathBuf, String> {
    let mut build = cargo(["build", "--quiet", "--locked", "--workspace"]);
    for bin in bins {
        build.args(["--bin", bin]);
    }
    status(&mut build)?;
    Ok(crate::target().join("debug"))
}

/// This checkout's `cargo ifunc ARGS`.
pub(crate) fn ifunc(args: &[&str]) -> Result<Command, String> {
    let mut command = Command::new(built(&["cargo-ifunc"])?.join("cargo-ifunc"));
    command
        .arg("ifunc")
        .args(args)
        .current_dir(crate::root())
        .stdin(Stdio::null());
    Ok(command)
}

/// How a command of ours ends that is no list of steps.
pub(crate) fn end(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command to its end.
pub(crate) fn status(command: &mut Command) -> Result<(), String> {
    eprintln!("    {}", shown(command));
    let status = command
        .status()
        .map_err(|e| format!("`{}` does not start: {e}", shown(command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}`: {status}", shown(command)))
    }
}

/// Runs a command to its end; what it prints is passed on, and returned.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let mut all = String::new();
    let result = lines(command, |line| {
        all.push_str(line);
        all.push('\n');
    });
    result.map(|()| all)
}

/// The last line that says something: programs that count end with what they counted.
pub(crate) fn last_line(said: &str) -> String {
    let line = said.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or_default().trim().to_owned()
}

/// What tests say beside how they went, and the summary repeats.
const REMARK: &str = "first run of a new project: ";
/// What a test says that means nothing over a transport; the summary has their number.
const NOT_TESTED: &str = "not tested over ";

fn counted(command: &mut Command) -> (Counts, Vec<String>, Result<(), String>) {
    let mut all = Counts::default();
    let mut remarks = Vec::new();
    let mut not_tested = 0;
    let result = lines(command, |line| {
        // The harness may have begun the line.
        if let Some(at) = line.find(REMARK) {
            remarks.push(line[at..].trim().to_owned());
        }
        not_tested += u64::from(line.contains(NOT_TESTED));
        if let Some(counts) = Counts::parse(line) {
            all.passed += counts.passed;
            all.failed += counts.failed;
            all.ignored += counts.ignored;
        }
    });
    if not_tested > 0 {
        remarks.push(format!(
            "{not_tested} of them not over this transport, as they say"
        ));
    }
    (all, remarks, result)
}

/// Runs a command to its end; what it prints is passed on, and shown to `each`, line by line.
pub(crate) fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<(), String> {
    eprintln!("    {}", shown(command));
    let name = shown(command);
    if std::env::var_os("UCX_LOG_FILE").is_none() {
        // UCX warns on standard output otherwise, in the middle of the lines of others.
        command.env("UCX_LOG_FILE", "stderr");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("`{name}` does not start: {e}"))?;
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).split(b'\n') {
            let line = line.map_err(|e| format!("cannot read from `{name}`: {e}"))?;
            let line = String::from_utf8_lossy(&line);
            // Nobody is left to be told that standard output is closed.
            let _ = writeln!(std::io::stdout(), "{line}");
            each(&line);
        }
    }
    let status = child
        .wait()
        .map_err(|e| format!("cannot wait for `{name}`: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{name}`: {status}"))
    }
}

fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let mut text = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

impl Counts {
    /// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; …`.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut counts = Self::default();
        for part in rest.split("; ") {
            match part.split_once(' ') {
                Some((n, "passed")) => counts.passed = n.parse().ok()?,
                Some((n, "failed")) => counts.failed = n.parse().ok()?,
                Some((n, "ignored")) => counts.ignored = n.parse().ok()?,
                _ => {}
            }
        }
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn counts_what_the_harness_prints() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(
            Counts::parse(line),
            Some(Counts {
                passed: 5,
                failed: 2,
                ignored: 1
            })
        );
        assert_eq!(Counts::parse("running 5 tests"), None);
    }
}
