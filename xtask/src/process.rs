//! Starting other programs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;

use crate::tail::Tail;

/// The features of the whole workspace: what is built with these arguments shares what is compiled, with `cargo ifunc` of this
/// checkout, too. Without the one package that needs Arrow, which compiles for long: the nightly run of its example builds and tests it. Clippy
/// and the documentation have it.
pub(crate) const WHOLE: [&str; 4] = ["--workspace", "--exclude", ARROW, "--locked"];
pub(crate) const ARROW: &str = "example-06-top-k";

/// The checkout's dev profile, for other workspaces: those that use its target directory share what is compiled, and others compile as
/// little debug information.
pub(crate) const OUR_PROFILE: [&str; 6] = [
    "--config",
    "profile.dev.debug=\"line-tables-only\"",
    "--config",
    "profile.dev.package.\"*\".debug=false",
    "--config",
    "profile.dev.build-override.debug=\"line-tables-only\"",
];

/// A cargo command in the checkout. Nothing that these commands start reads from a terminal.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(crate::root()).stdin(Stdio::null());
    command
}

/// The folder of these programs, built as the tests are: nothing is compiled again for them.
pub(crate) fn built(bins: &[&str]) -> Result<PathBuf, String> {
    let mut build = cargo(["build", "--quiet"]);
    build.args(WHOLE);
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

/// Builds the ifuncs of a package, which programs of the tests or the benchmarks send.
pub(crate) fn build_ifuncs(package: &str) -> Result<(), String> {
    status(&mut ifunc(&["build", "--quiet", "--package", package])?)
}

/// The exit code of a command that is no list of steps.
pub(crate) fn end(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command to its end; what it prints is passed on.
pub(crate) fn status(command: &mut Command) -> Result<(), String> {
    if std::io::stderr().is_terminal() {
        // The command sees the terminal, and shows progress and colours.
        let name = announced(command);
        let status = command.status();
        return ended(&name, status, &Tail::default());
    }
    lines(command, |_| ())
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

/// The last line that is not empty: programs that count end with what they counted.
pub(crate) fn last_line(said: &str) -> String {
    let line = said.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or_default().trim().to_owned()
}

/// Runs a command to its end; what it prints is passed on, and its standard output is shown to `each`, line by line. The error of
/// a command that failed ends with the last lines that it printed.
pub(crate) fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<(), String> {
    let name = announced(command);
    if std::env::var_os("UCX_LOG_FILE").is_none() {
        // UCX writes its warnings to standard output otherwise, in the middle of other lines.
        command.env("UCX_LOG_FILE", "stderr");
    }
    let with_terminal = std::io::stderr().is_terminal();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(if with_terminal {
            Stdio::inherit()
        } else {
            Stdio::piped()
        })
        .spawn()
        .map_err(|e| format!("`{name}` does not start: {e}"))?;
    let tail = Mutex::new(Tail::default());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = thread::scope(|scope| {
        // A closed output of our own does not stop the command.
        scope.spawn(|| {
            err.map_or(Ok(()), |err| {
                pass_on(err, &tail, |line| drop(writeln!(std::io::stderr(), "{line}")))
            })
        });
        out.map_or(Ok(()), |out| {
            pass_on(out, &tail, |line| {
                let _ = writeln!(std::io::stdout(), "{line}");
                each(line);
            })
        })
    });
    let status = child.wait();
    read.map_err(|e| format!("cannot read from `{name}`: {e}"))?;
    ended(&name, status, &tail.into_inner().unwrap_or_default())
}

/// Shows every line of `from` to `each`, and keeps it in `tail`.
fn pass_on(from: impl Read, tail: &Mutex<Tail>, mut each: impl FnMut(&str)) -> std::io::Result<()> {
    for line in BufReader::new(from).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Ok(mut tail) = tail.lock() {
            tail.push(&line);
        }
        each(&line);
    }
    Ok(())
}

/// Prints the command's line, and returns it.
fn announced(command: &Command) -> String {
    let name = shown(command);
    eprintln!("    {name}");
    name
}

/// An error for a command that did not start or failed.
fn ended(name: &str, status: std::io::Result<ExitStatus>, tail: &Tail) -> Result<(), String> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{name}`: {status}{tail}")),
        Err(error) => Err(format!("`{name}` does not run: {error}")),
    }
}

/// The command line as a user would type it.
pub(crate) fn shown(command: &Command) -> String {
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
