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
    {
        let recorded = match options.only.is_empty() {
            true => Some(all),
            false => with_newer(read(file)?, &all),
        };
        if let Some(recorded) = recorded {
            write(file, &recorded)?;
            rows.status().say("Wrote", file.display());
        }
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

/// The rows of a complete run, and after them those of figures that it did not have yet, whose notes say when they were measured. `None`:
/// it had them all.
fn with_newer(mut complete: Vec<Row>, run: &[Row]) -> Option<Vec<Row>> {
    let machine = |rows: &[Row]| rows.iter().find_map(|row| row.machine.clone());
    let cpu = machine(&complete).map(|machine| machine.cpu);
    let when = machine(run).map_or_else(String::new, |machine| {
        let elsewhere = cpu.as_ref() != Some(&machine.cpu);
        let on = if elsewhere {
            format!(", on another machine: {}", machine.cpu)
        } else {
            String::new()
        };
        let disturbed = machine.disturbed.iter().map(|reason| format!("; {reason}"));
        let disturbed: String = disturbed.collect();
        format!(
            "measured after the other figures, {} of version {}{on}{disturbed}",
            machine.date, machine.commit
        )
    });
    let is_newer = |row: &&Row| row.machine.is_none() && complete.iter().all(|old| old.figure != row.figure);
    let mut newer: Vec<Row> = run.iter().filter(is_newer).cloned().collect();
    for row in &mut newer {
        let parts = [row.note.as_str(), &when].map(str::to_owned);
        row.note = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
    }
    if newer.is_empty() {
        return None;
    }
    complete.append(&mut newer);
    Some(complete)
}

fn read(file: &Path) -> Result<Vec<Row>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} holds no results", file.display()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn row(figure: &str, ours: f64) -> Row {
        Row {
            figure: figure.into(),
            ours,
            ..Row::default()
        }
    }

    #[test]
    fn only_figures_that_a_complete_run_lacks_are_added_to_it() {
        let machine = |cpu: &str| Row {
            machine: Some(Machine {
                cpu: cpu.into(),
                commit: "abc".into(),
                date: "today".into(),
                ..Machine::default()
            }),
            ..row("machine", 0.0)
        };
        let (elsewhere, machine) = (machine("B"), machine("A"));
        let complete = vec![machine.clone(), row("old", 1.0)];
        let mut run = [machine, row("old", 2.0), row("new", 3.0), row("new", 4.0)];
        assert_eq!(with_newer(complete.clone(), &run[..2]), None);
        let both = with_newer(complete.clone(), &run).unwrap();
        assert_eq!(both[..2], complete);
        let added: Vec<(&str, f64, &str)> = both[2..]
            .iter()
            .map(|row| (row.figure.as_str(), row.ours, row.note.as_str()))
            .collect();
        let note = "measured after the other figures, today of version abc";
        assert_eq!(added, [("new", 3.0, note), ("new", 4.0, note)]);
        run[0] = elsewhere;
        let both = with_newer(complete, &run).unwrap();
        assert_eq!(both[2].note, format!("{note}, on another machine: B"));
    }
}
