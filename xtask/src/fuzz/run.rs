//! Running a target, and what it says of its run.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::build;

/// Most memory of a target, and of one allocation, in MiB. No input has so much of it that a target may take more.
const MEMORY: &str = "-rss_limit_mb=2048";
const ALLOCATION: &str = "-malloc_limit_mb=128";
/// An input that takes longer is a hang.
const SECONDS_OF_INPUT: &str = "-timeout=20";
/// Longest input. Objects and images are the longest of what the targets read.
const LONGEST: usize = 16 << 10;

/// What a target ran.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Run {
    target: String,
    executions: u64,
    per_second: u64,
    /// Edges that were reached, of all that the program has.
    covered: u64,
    edges: u64,
    corpus: u64,
    memory: u64,
    /// Why it ended before its time.
    pub(super) failed: Option<String>,
}

impl Run {
    pub(super) const HEAD: &str =
        "target         executions      per second    edges reached           corpus    MiB";

    pub(super) fn line(&self) -> String {
        let Self {
            target,
            executions,
            per_second,
            covered,
            edges,
            corpus,
            memory,
            failed,
        } = self;
        let mark = if failed.is_some() { "  FAILED" } else { "" };
        format!(
            "{target:12} {executions:>12} {per_second:>15} {covered:>10} of {edges:<8} {corpus:>9} {memory:>6}{mark}"
        )
    }

    /// Reads a line of libFuzzer's.
    fn read(&mut self, line: &str) {
        let number = |text: &str| {
            let digits = text.trim_start().split(|c: char| !c.is_ascii_digit()).next();
            digits.and_then(|digits| digits.parse::<u64>().ok())
        };
        let after = |what: &str| line.split_once(what).and_then(|(_, rest)| number(rest));
        let fields: [(&str, &mut u64); 5] = [
            ("stat::number_of_executed_units:", &mut self.executions),
            ("stat::average_exec_per_sec:", &mut self.per_second),
            ("stat::peak_rss_mb:", &mut self.memory),
            (" cov: ", &mut self.covered),
            (" corp: ", &mut self.corpus),
        ];
        for (what, field) in fields {
            if let Some(value) = after(what) {
                *field = value;
            }
        }
        if let Some((_, rest)) = line.split_once("PC tables (") {
            self.edges = number(rest).unwrap_or(0);
        }
    }
}

/// What all targets ran.
pub(super) struct Total {
    executions: u64,
    covered: u64,
    targets: usize,
    failed: usize,
}

impl Total {
    pub(super) fn of(runs: &[Run]) -> Self {
        Self {
            executions: runs.iter().map(|run| run.executions).sum(),
            covered: runs.iter().map(|run| run.covered).sum(),
            targets: runs.len(),
            failed: runs.iter().filter(|run| run.failed.is_some()).count(),
        }
    }

    pub(super) fn line(&self) -> String {
        let Self {
            executions,
            covered,
            targets,
            failed,
        } = self;
        format!("{executions} executions of {targets} targets, {covered} edges reached, {failed} failed")
    }

    /// All runs as one line of JSON. Names of targets need no escapes.
    pub(super) fn json(&self, runs: &[Run]) -> String {
        let mut text = format!(
            "{{\"executions\":{},\"edges_reached\":{},\"failed\":{},\"targets\":[",
            self.executions, self.covered, self.failed
        );
        for (index, run) in runs.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(
                text,
                "{comma}{{\"target\":\"{}\",\"executions\":{},\"per_second\":{},\"edges_reached\":{},\"edges\":{},\"corpus\":{},\"mib\":{},\"failed\":{}}}",
                run.target,
                run.executions,
                run.per_second,
                run.covered,
                run.edges,
                run.corpus,
                run.memory,
                run.failed.is_some()
            );
        }
        text + "]}"
    }
}

/// The committed inputs of a target.
fn committed(target: &str) -> PathBuf {
    build::package().join("corpus").join(target)
}

/// The inputs that this checkout's runs have found.
fn found(target: &str) -> PathBuf {
    build::scratch().join("corpus").join(target)
}

fn make(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// A command of a target's program.
fn program(target: &str, programs: &Path) -> Command {
    let mut command = Command::new(programs.join(target));
    command
        // Two copies of a static of a generic crate are no error here; what the runtime keeps for ever is no leak.
        .env("ASAN_OPTIONS", "detect_odr_violation=0:detect_leaks=0")
        .args([MEMORY, ALLOCATION, SECONDS_OF_INPUT])
        .arg(format!("-max_len={LONGEST}"))
        .stdin(Stdio::null());
    command
}

/// Runs a target for so many seconds. It goes on with what was found before.
pub(super) fn run(target: &str, programs: &Path, seconds: u64) -> Result<Run, String> {
    let (found, committed) = (found(target), committed(target));
    let artifacts = build::scratch().join("artifacts");
    for folder in [&found, &committed, &artifacts] {
        make(folder)?;
    }
    let mut command = program(target, programs);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg("-print_final_stats=1")
        .arg(format!("-artifact_prefix={}/{target}-", artifacts.display()))
        .args([&found, &committed])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("`{target}` does not start: {error}"))?;
    let mut run = Run {
        target: target.to_owned(),
        ..Run::default()
    };
    // What it says when it fails: the panic or the report, and where the input is.
    let mut said = Vec::new();
    if let Some(out) = child.stderr.take() {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            run.read(&line);
            if !line.starts_with('#') && said.len() < 200 {
                said.push(line.into_owned());
            }
        }
    }
    let status = child.wait().map_err(|error| format!("`{target}`: {error}"))?;
    if !status.success() {
        run.failed = Some(format!("fuzz target `{target}`: {status}\n{}", said.join("\n")));
    }
    Ok(run)
}

/// Replaces the committed inputs by the fewest that reach as much as all that was found.
pub(super) fn merge(targets: &[String], programs: &Path) -> Result<String, String> {
    let mut count = 0;
    for target in targets {
        let (found, committed) = (found(target), committed(target));
        let merged = build::scratch().join("merged").join(target);
        let _ = std::fs::remove_dir_all(&merged);
        for folder in [&found, &committed, &merged] {
            make(folder)?;
        }
        let mut command = program(target, programs);
        command
            .arg("-set_cover_merge=1")
            .args([&merged, &committed, &found]);
        let status = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|error| format!("`{target}` does not start: {error}"))?;
        if !status.success() {
            return Err(format!("`{target}` cannot merge its corpus: {status}"));
        }
        let failed = |error| format!("{}: {error}", committed.display());
        std::fs::remove_dir_all(&committed).map_err(failed)?;
        make(&committed)?;
        for file in std::fs::read_dir(&merged).map_err(failed)?.flatten() {
            std::fs::copy(file.path(), committed.join(file.file_name())).map_err(failed)?;
            count += 1;
        }
    }
    Ok(format!("{count} inputs in `fuzz/corpus`"))
}

#[cfg(test)]
mod tests {
    use super::{Run, Total};

    #[test]
    fn what_libfuzzer_says_is_read() {
        let mut run = Run {
            target: "hello".into(),
            ..Run::default()
        };
        for line in [
            "INFO: Loaded 1 PC tables (4711 PCs): 4711 [0x5,0x6),",
            "#65536\tpulse  cov: 210 ft: 400 corp: 30/2Kb lim: 77 exec/s: 32768 rss: 60Mb",
            "#131072\tDONE   cov: 215 ft: 410 corp: 33/2Kb lim: 77 exec/s: 32768 rss: 61Mb",
            "stat::number_of_executed_units: 131072",
            "stat::average_exec_per_sec:     32768",
            "stat::peak_rss_mb:              61",
        ] {
            run.read(line);
        }
        let expected = Run {
            target: "hello".into(),
            executions: 131_072,
            per_second: 32_768,
            covered: 215,
            edges: 4711,
            corpus: 33,
            memory: 61,
            failed: None,
        };
        assert_eq!(run, expected);
        let runs = [
            run,
            Run {
                failed: Some("why".into()),
                ..expected
            },
        ];
        let total = Total::of(&runs);
        assert_eq!(
            total.line(),
            "262144 executions of 2 targets, 430 edges reached, 1 failed"
        );
        let json = total.json(&runs);
        assert!(
            json.starts_with("{\"executions\":262144,") && json.ends_with("\"failed\":true}]}"),
            "{json}"
        );
    }
}
