//! Blocks of commands and what they print:
//!
//! ```text
//! $ cargo ifunc build
//! …
//! add.so  312 B
//! ```
//!
//! A line `…` stands for any lines, and `…` in a line for any text. Words after `console`: `unordered` (two processes print), `fails`
//! (the exit code is not 0), `background` (the command runs until the page ends; the lines must come within a minute).

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Shell;
use crate::blocks::Block;

/// How long a command in the background may take to print what it should. It may build first.
const PATIENCE: Duration = Duration::from_secs(600);

/// A line after `$ `, with those that continue it, and what it prints.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) command: String,
    expected: Vec<String>,
}

/// The commands of a block.
pub(super) fn steps(text: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        if is_open {
            if let Some(step) = steps.last_mut() {
                step.command.push('\n');
                step.command.push_str(line);
            }
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.into(),
                expected: Vec::new(),
            });
        } else {
            let step = steps.last_mut().ok_or("a console block begins with `$ `")?;
            step.expected.push(line.trim_end().into());
            continue;
        }
        is_open = line.ends_with('\\');
    }
    Ok(steps)
}

/// Runs a block that leaves nothing in the background.
pub(super) fn run(shell: &Shell, block: &Block<'_>) -> Result<String, String> {
    for step in steps(&block.text)? {
        once(shell, block, &step)?;
    }
    Ok(String::new())
}

/// Runs a command to its end and compares.
pub(super) fn once(shell: &Shell, block: &Block<'_>, step: &Step) -> Result<(), String> {
    let output = merged(shell, step)
        .output()
        .map_err(|e| format!("`bash` does not start: {e}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    eprint!("    $ {}\n{printed}", step.command);
    if output.status.success() == block.has("fails") {
        return Err(format!("`{}`: {}\n{printed}", step.command, output.status));
    }
    compare(block, step, &printed)
}

/// Starts a command that goes on, and waits for what it prints first.
pub(super) fn background(shell: &Shell, block: &Block<'_>, step: &Step, log: &Path) -> Result<Child, String> {
    let file = File::create(log).map_err(|e| format!("cannot write `{}`: {e}", log.display()))?;
    let mut child = merged(shell, step)
        .stdout(file)
        .spawn()
        .map_err(|e| format!("`bash` does not start: {e}"))?;
    let began = Instant::now();
    loop {
        let printed = fs::read_to_string(log).unwrap_or_default();
        let result = compare(block, step, &printed);
        let has_ended = !matches!(child.try_wait(), Ok(None));
        match result {
            Ok(()) => return Ok(child),
            Err(_) if !has_ended && began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(50)),
            Err(why) => {
                stop(&mut child);
                return Err(why);
            }
        }
    }
}

/// Ends a command in the background, and what it started.
pub(super) fn stop(child: &mut Child) {
    // A command that has ended needs no signal.
    let _ = Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", child.id())])
        .stderr(Stdio::null())
        .status();
    let _ = child.wait();
}

/// The command, in a process group of its own, with both outputs in one.
fn merged(shell: &Shell, step: &Step) -> Command {
    let mut bash = shell.bash(&format!("exec 2>&1\n{}", step.command));
    bash.process_group(0).stderr(Stdio::inherit());
    if std::env::var_os("UCX_LOG_FILE").is_none() {
        bash.env("UCX_LOG_FILE", "stderr");
    }
    bash
}

fn compare(block: &Block<'_>, step: &Step, printed: &str) -> Result<(), String> {
    let expected: Vec<&str> = step.expected.iter().map(String::as_str).collect();
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let is_as_expected = match block.has("unordered") {
        true => expected
            .iter()
            .all(|line| *line == "…" || printed.iter().any(|printed| is_line(line, printed))),
        false => are_lines(&expected, &printed),
    };
    match is_as_expected {
        true => Ok(()),
        false => Err(format!(
            "line {}: `{}` should print\n{}\nand printed\n{}",
            block.line,
            step.command,
            expected.join("\n"),
            printed.join("\n")
        )),
    }
}

fn are_lines(expected: &[&str], printed: &[&str]) -> bool {
    match expected.split_first() {
        None => printed.iter().all(|line| line.is_empty()),
        Some((&"…", rest)) => (0..=printed.len()).any(|skipped| are_lines(rest, &printed[skipped..])),
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, printed)| is_line(line, first) && are_lines(rest, printed)),
    }
}

fn is_line(expected: &str, printed: &str) -> bool {
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_commands_and_what_they_print() {
        let all = steps("$ a \\\n  b\nx\n\n$ c\n").unwrap();
        assert_eq!(all[0].command, "a \\\n  b");
        assert_eq!(all[0].expected, ["x", ""]);
        assert_eq!((all[1].command.as_str(), all[1].expected.len()), ("c", 0));
        assert!(steps("x\n").is_err());
    }

    #[test]
    fn an_ellipsis_stands_for_anything() {
        assert!(is_line("a…b…c", "a1b2b3c"));
        assert!(!is_line("a…b", "ab "));
        assert!(!is_line("ab", "abc"));
        assert!(are_lines(&["…", "b", "…"], &["a", "b", "b", "c"]));
        assert!(!are_lines(&["a"], &["a", "b"]));
        assert!(are_lines(&["a"], &["a", ""]));
    }
}
