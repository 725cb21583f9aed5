//! `instructions`: how many of them a message takes whose code is there.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Figure;
use crate::Bench;
use crate::row::Row;

pub(crate) const FIGURE: Figure = Figure {
    id: "instructions",
    title: "instructions of a message of 8 bytes over shm whose code is there",
    run,
};

const NOTE: &str = "Counted instruction by instruction, by a processor that stops behind each, in a process that is source and target. \
    `cargo xtask instructions` keeps a budget of each.";

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
            anyhow::bail!("`ifunc-instructions` said {line:?}")
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
                own => format!("{NOTE} The ifunc's own, {own} for each message, are not among them."),
            },
            ..Row::default()
        });
    }
    Ok(())
}

/// What a count is of.
fn explained(what: &str) -> String {
    let (what, tick) = match what.strip_suffix("-in-a-new-tick") {
        Some(what) => (what, ", with what is done once in a tick of the clock"),
        None => (what, ""),
    };
    let what = match what {
        "send" => "source: send",
        "poll" => "target: a poll that finds one",
        "poll-many" => "target: a poll that finds eight",
        "call" => "source and target: a call",
        other => other,
    };
    format!("{what}{tick}")
}
