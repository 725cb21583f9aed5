//! Terminal output: the machine, a table per figure, and a summary of the goals.

use std::fmt::Write;

use super::goals::{self, Verdict};
use super::table::{Cell, Emphasis, Side, Table};
use super::{figure, format};
use crate::machine::Machine;
use crate::row::Row;

const NAME: anstyle::Style = anstyle::Style::new().bold();
const DIM: anstyle::Style = anstyle::Style::new().dimmed();

/// One line per property of the machine.
pub(crate) fn machine(machine: &Machine) -> String {
    let mut text = String::new();
    for (name, value) in facts(machine) {
        let _ = writeln!(text, "{NAME}{name:>12}{NAME:#} {value}");
    }
    text
}

/// The properties of the machine, with names.
pub(super) fn facts(machine: &Machine) -> Vec<(&'static str, String)> {
    let Machine {
        cpu,
        processors,
        cores: [source, target],
        threads_of_one_core,
        frequency,
        virtualised,
        kernel,
        ucx,
        rustc,
        commit,
        date,
        seconds,
        load,
        others,
        stolen,
        floors,
        disturbed: _,
    } = machine;
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let mut processor = cpu.clone();
    if !frequency.is_empty() {
        let _ = write!(processor, ", {frequency}");
    }
    if *virtualised {
        processor.push_str(", of a virtual machine");
    }
    let mut cores = format!("source on {source}, target on {target}, of {processors}");
    if *threads_of_one_core {
        cores.push_str("; threads of one core");
    }
    let mut when = date.clone();
    if *seconds > 0.0 {
        let _ = write!(when, ", {seconds} s");
    }
    let _ = write!(when, ", load {load} before");
    if let Some(others) = others {
        let _ = write!(when, ", others used {} of a processor", percent(*others));
    }
    if let (Some(stolen), true) = (stolen, *virtualised) {
        let _ = write!(when, ", {} of the time was the host's", percent(*stolen));
    }
    let mut facts = vec![
        ("Processor", processor),
        ("Cores", cores),
        ("Kernel", kernel.clone()),
        (
            "UCX",
            if ucx.is_empty() {
                "not found".into()
            } else {
                ucx.clone()
            },
        ),
        ("Compiler", rustc.clone()),
        ("Version", commit.clone()),
        ("Measured", when),
    ];
    if let [Some(one), Some(two)] = floors {
        let [one, two] = [one, two].map(|ns| format::value(*ns, "ns"));
        facts.push((
            "Floors",
            format!("{one} one way with one cache line, {two} with one per direction"),
        ));
    }
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

/// The table and the notes of each figure. `with_goals` is false for a quick run.
pub(crate) fn tables(rows: &[Row], with_goals: bool) -> String {
    let mut text = String::new();
    for id in figures(rows) {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.figure == id).collect();
        let _ = writeln!(text, "\n{NAME}{id}{NAME:#}");
        text.push_str(&figure::table(&rows, with_goals).terminal());
        for note in figure::notes(&rows) {
            let _ = writeln!(text, "  {DIM}{note}{DIM:#}");
        }
    }
    text.push('\n');
    text
}

/// The result of each goal: the number of rows that meet it, and the row furthest from it.
pub(crate) fn goals(rows: &[Row]) -> String {
    let table = goals_table(rows);
    table.map_or_else(String::new, |table| table.terminal())
}

/// The goals as a table; `None` if no row has a goal.
pub(super) fn goals_table(rows: &[Row]) -> Option<Table> {
    let mut table = Table::new(&[
        ("figure", Side::Left),
        ("goal", Side::Left),
        ("met by", Side::Left),
        ("reached", Side::Left),
        ("furthest from it", Side::Left),
        ("", Side::Left),
    ]);
    let mut any = false;
    for id in figures(rows) {
        let with_goals: Vec<(&Row, Verdict)> = rows
            .iter()
            .filter(|row| row.figure == id)
            .filter_map(|row| Some((row, goals::verdict(row)?)))
            .collect();
        let mut texts: Vec<String> = Vec::new();
        for (_, verdict) in &with_goals {
            let text = verdict.goal.text();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        for text in texts {
            let group: Vec<&(&Row, Verdict)> = with_goals
                .iter()
                .filter(|(_, verdict)| verdict.goal.text() == text)
                .collect();
            let order = |a: &&&(&Row, Verdict), b: &&&(&Row, Verdict)| a.1.excess().total_cmp(&b.1.excess());
            let (Some(best), Some(worst)) = (group.iter().min_by(order), group.iter().max_by(order)) else {
                continue;
            };
            any = true;
            let met = group.iter().filter(|(_, verdict)| verdict.is_met()).count();
            let emphasis = if met == group.len() {
                Emphasis::Good
            } else {
                Emphasis::Bad
            };
            let reached = match (best.1.value_text(), worst.1.value_text()) {
                (best, worst) if best == worst => worst,
                (best, worst) => format!("{best} … {worst}"),
            };
            table.row(vec![
                id.into(),
                text.as_str().into(),
                format!("{met} of {}", group.len()).into(),
                reached.into(),
                worst.0.name().into(),
                Cell::new(worst.1.text(), emphasis),
            ]);
        }
    }
    any.then_some(table)
}

/// The figures in their order.
pub(super) fn figures(rows: &[Row]) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.machine.is_none()) {
        if !ids.contains(&row.figure.as_str()) {
            ids.push(&row.figure);
        }
    }
    ids
}

/// The figures with a missed goal.
pub(super) fn missed(rows: &[Row]) -> Vec<&str> {
    let misses = |id: &&str| {
        let mut of = rows.iter().filter(|row| row.figure == **id);
        of.any(|row| goals::verdict(row).is_some_and(|verdict| !verdict.is_met()))
    };
    figures(rows).into_iter().filter(misses).collect()
}
