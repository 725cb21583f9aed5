//! `instructions`: the number of instructions of a message whose code is installed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Figure;
use crate::Bench;
use crate::row::Row;

pub(crate) const FIGURE: Figure = Figure {
    id: "instructions",
    title: "instructions of a message of 8 bytes over shm whose code is installed",
    run,
};

const NOTE: &str = "Counted by single-stepping a process that is both source and target. \
    `cargo xtask instructions` checks them against a budget.";

fn run(bench: &mut Bench) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name("ifunc-instructions");
    let output = Command::new(&program)
        .arg("count")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {}", program.display()))?;
    ensure!(output.status.success(), "`ifunc-instructions`: {}", output.status);
    let stdout = String::from_utf8(output.stdout)?;
    for line in stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, count, own, _budget] = words[..] else {
            anyhow::bail!("`ifunc-instructions` printed {line:?}")
        };
        bench.rows.push(Row {
            figure: FIGURE.id.into(),
            case: explained(what),
            size: 8,
            ours: count.parse()?,
            unit: "instructions".into(),
            carried_by: [Some("shm".into()), None],
            note: match own {
                "0" => NOTE.into(),
                own => format!("{NOTE} The ifunc's own {own} per message are not included."),
            },
            ..Row::default()
        });
    }
    Ok(())
}

/// The case of a count.
fn explained(what: &str) -> String {
    let (what, tick) = match what.strip_suffix("-in-a-new-tick") {
        Some(what) => (what, ", including work done once per clock tick"),
        None => (what, ""),
    };
    let what = match what {
        "send" => "source: send",
        "poll" => "target: a poll that finds one",
        "poll-many" => "target: a poll that finds eight",
        "poll-contained" => "target: a poll that finds one, where faults are contained",
        "call" => "source and target: a call",
        "call-contained" => "source and target: a call, where faults are contained",
        "batch-send" => "source: send, 256 in a batch",
        "batch-poll" => "target: polls that run a batch of 256",
        "batch-call" => "source: call, 256 in a batch",
        "batch-answer" => "target: polls that run a batch of 256 and answer it",
        "batch-receive" => "source: receives the answers to a batch of 256",
        other => other,
    };
    format!("{what}{tick}")
}
