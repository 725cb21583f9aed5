//! Steps, one after the other; a failed one does not hide what the next would report.

use std::process::{Command, ExitCode};
use std::rc::Rc;

use crate::counts::Tally;
use crate::plan::Tier;
use crate::process::{lines, status};
use crate::programs::Program;
use crate::usage::{Stopwatch, Usage};

/// The steps that have run.
#[derive(Debug)]
pub(crate) struct Steps {
    tier: Tier,
    done: Vec<Step>,
    /// The test programs, once they are built.
    pub(crate) programs: Option<Rc<[Program]>>,
    is_over: bool,
}

#[derive(Debug)]
struct Step {
    name: String,
    /// A note for the summary, or a reason: a line, and the output that tells more.
    result: Result<String, String>,
    usage: Usage,
}

impl Steps {
    pub(crate) fn new(tier: Tier) -> Self {
        Self {
            tier,
            done: Vec::new(),
            programs: None,
            is_over: false,
        }
    }

    /// How much is run.
    pub(crate) fn tier(&self) -> Tier {
        self.tier
    }

    /// No further part is worth running.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Runs `work`, which returns a note for the summary, or a reason: a line, and the output that the summary repeats. Returns
    /// whether it succeeded.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<String, String>) -> bool {
        eprintln!("\n==> {name}");
        let stopwatch = Stopwatch::start();
        let result = work();
        if let Err(reason) = &result {
            eprintln!("error: {}", first_line(reason));
        }
        self.add(name, stopwatch.read(), result)
    }

    /// Adds a step that ran elsewhere. Returns whether it succeeded.
    pub(crate) fn add(&mut self, name: &str, usage: Usage, result: Result<String, String>) -> bool {
        let is_ok = result.is_ok();
        eprintln!("    {}  {usage}  {name}", if is_ok { "ok    " } else { "FAILED" });
        self.done.push(Step {
            name: name.into(),
            result,
            usage,
        });
        is_ok
    }

    /// Runs a command; it is the step.
    pub(crate) fn command(&mut self, name: &str, command: &mut Command) -> bool {
        self.step(name, || status(command).map(|()| String::new()))
    }

    /// Runs a command that prints what Rust's test harness prints, and adds its counts up.
    pub(crate) fn tests(&mut self, name: &str, command: &mut Command) -> bool {
        self.step(name, || {
            let mut tally = Tally::default();
            let result = lines(command, |line| tally.read(line));
            let note = tally.note();
            match result {
                Ok(()) if tally.counts.passed == 0 => Err("no test ran".into()),
                Ok(()) => Ok(note),
                Err(reason) => match reason.split_once('\n') {
                    Some((reason, output)) => Err(format!("{reason} ({note})\n{output}")),
                    None => Err(format!("{reason} ({note})")),
                },
            }
        })
    }

    /// Prints the result of each step, and at the end why some failed.
    pub(crate) fn summary(&self) -> ExitCode {
        eprintln!("\n==> summary");
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0);
        let mut failed = 0;
        let mut all = Usage::default();
        for Step { name, result, usage } in &self.done {
            let (mark, note) = match result {
                Ok(note) => ("ok    ", note.as_str()),
                Err(reason) => {
                    failed += 1;
                    ("FAILED", reason.as_str())
                }
            };
            all += *usage;
            eprintln!("{mark}  {name:width$}  {usage}  {}", first_line(note));
        }
        eprintln!("        {:width$}  {all}", "all steps");
        if failed == 0 {
            eprintln!("all steps passed");
            ExitCode::SUCCESS
        } else {
            for step in &self.done {
                if let Err(reason) = &step.result {
                    eprintln!("\nerror: {}: {reason}", step.name);
                }
            }
            eprintln!("\n{failed} steps failed");
            ExitCode::FAILURE
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
