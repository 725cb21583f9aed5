//! A run: measures figure after figure and writes the results.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::Run;
use crate::cores::Cores;
use crate::figures::{FIGURES, Figure};
use crate::machine::Observation;
use crate::plan::Plan;
use crate::report::{csv, terminal};
use crate::results::Results;
use crate::row::Row;
use crate::status::Status;

/// The context of a figure.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    pub(crate) cores: Cores,
    pub(crate) rows: Results,
}

/// Runs the measurements. A figure that fails does not prevent the others.
///
/// # Errors
/// A figure failed, or a file cannot be written.
pub(crate) fn run(options: &Run) -> Result<()> {
    let figures = chosen(&options.only)?;
    let mut bench = Bench {
        plan: if options.quick { Plan::QUICK } else { Plan::FULL },
        cores: Cores::choose()?,
        rows: Results::new(Status::new(figures.len())),
    };
    let observation = Observation::start(bench.cores);
    bench
        .rows
        .status()
        .print(terminal::machine(observation.machine()));
    let mut failed = Vec::new();
    for figure in &figures {
        bench.rows.status().begins(figure.id, figure.title);
        let before = bench.rows.len();
        let result = (figure.run)(&mut bench);
        if let Err(error) = result {
            bench
                .rows
                .status()
                .error(format_args!("`{}` failed: {error:#}", figure.id));
            bench.rows.truncate(before);
            failed.push(figure.id);
        }
        let text = terminal::tables(&bench.rows[before..], !bench.plan.quick);
        bench.rows.status().print(text);
        bench.rows.status().finished();
    }
    let machine = observation.finish(&bench.rows);
    let Bench { plan, mut rows, .. } = bench;
    if !plan.quick {
        let text = terminal::goals(&rows);
        rows.status().print(text);
        for reason in machine.machine.iter().flat_map(|machine| &machine.disturbed) {
            rows.status()
                .warning(format_args!("the figures are unreliable: {reason}"));
        }
    }
    let all: Vec<Row> = std::iter::once(machine).chain(rows.iter().cloned()).collect();
    if let Some(file) = &options.json {
        write(file, &all)?;
        csv::write(&file.with_extension("csv"), &all)?;
        rows.status().say("Wrote", file.display());
    }
    if !failed.is_empty() {
        bail!(
            "{} of {} figures failed: {}",
            failed.len(),
            figures.len(),
            failed.join(", ")
        );
    }
    if let Some(file) = &options.record
        && !plan.quick
        && options.only.is_empty()
    {
        write(file, &all)?;
        rows.status().say("Wrote", file.display());
    }
    let verb = if plan.quick { "work" } else { "were measured" };
    let summary = format!("{} figures {verb}, {} rows\n", figures.len(), rows.len());
    rows.status().print(summary);
    Ok(())
}

/// The figures selected by name, or all.
fn chosen(only: &[String]) -> Result<Vec<&'static Figure>> {
    for name in only {
        ensure!(
            FIGURES.iter().any(|figure| figure.id == name),
            "there is no figure `{name}`; help: {}",
            FIGURES
                .iter()
                .map(|figure| figure.id)
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let selected = |figure: &&Figure| only.is_empty() || only.iter().any(|name| name == figure.id);
    Ok(FIGURES.iter().filter(selected).collect())
}

fn write(file: &Path, rows: &[Row]) -> Result<()> {
    // One line per row, so that diffs are readable.
    let lines = rows
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<Vec<_>, _>>()?;
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}
