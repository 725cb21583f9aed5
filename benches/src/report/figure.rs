//! The table of a figure, and its notes.

use super::format;
use super::goals;
use super::table::{Cell, Emphasis, Side, Table};
use crate::row::Row;

const COLUMNS: &[(&str, Side)] = &[
    ("case", Side::Left),
    ("size", Side::Right),
    ("image", Side::Right),
    ("ours", Side::Right),
    ("peer", Side::Right),
    ("ours ÷ peer", Side::Right),
    ("quartiles", Side::Right),
    ("floor", Side::Right),
    ("above it", Side::Right),
    ("floor ÷ peer", Side::Right),
    ("goal", Side::Left),
    ("", Side::Left),
    ("p50 / p99 / p99.9", Side::Right),
    ("the peer's", Side::Right),
    ("processor time: clients + server", Side::Right),
    ("the peer's", Side::Right),
    ("bytes: ours, peer", Side::Right),
    ("peer is", Side::Left),
];

/// The table of one figure's rows. Empty columns are left out. A peer common to all rows appears in [`notes`]
/// instead. `with_goals` adds the goals.
pub(crate) fn table(rows: &[&Row], with_goals: bool) -> Table {
    let mut table = Table::new(COLUMNS);
    let one_peer = the_peer(rows).is_some();
    for row in rows {
        let number =
            |value: Option<f64>| value.map_or_else(String::new, |value| format::value(value, &row.unit));
        let percentiles =
            |of: Option<[f64; 3]>| of.map_or_else(String::new, |of| format::percentiles(of, "ns"));
        let verdict = goals::verdict(row).filter(|_| with_goals);
        let emphasis = match verdict {
            Some(verdict) if verdict.is_met() => Emphasis::Good,
            Some(_) => Emphasis::Bad,
            None => Emphasis::Plain,
        };
        let peer = row.peer_name.as_deref().unwrap_or_default();
        let of_peer = |part: f64| format::ratio(part);
        table.row(vec![
            row.case.as_str().into(),
            format::bytes(row.size).into(),
            // A column of its own only if it differs from the size.
            row.image
                .filter(|image| *image != row.size)
                .map_or_else(String::new, format::bytes)
                .into(),
            format::value(row.ours, &row.unit).into(),
            number(row.peer).into(),
            Cell::new(row.ratio.map_or_else(String::new, of_peer), emphasis),
            row.spread
                .map_or_else(String::new, |[low, high]| {
                    format!("{} – {}", of_peer(low), of_peer(high))
                })
                .into(),
            number(row.floor).into(),
            above_floor(row).into(),
            row.floor_ratio.map_or_else(String::new, of_peer).into(),
            verdict
                .map_or_else(String::new, |verdict| verdict.goal.text())
                .into(),
            Cell::new(verdict.map_or_else(String::new, goals::Verdict::text), emphasis),
            percentiles(row.percentiles[0]).into(),
            percentiles(row.percentiles[1]).into(),
            processor(row, 0).into(),
            processor(row, 1).into(),
            row.bytes
                .map_or_else(String::new, |[ours, peer]| format!("{ours:.0}, {peer:.0}"))
                .into(),
            Cell::new(if one_peer { "" } else { peer }, Emphasis::Dim),
        ]);
    }
    table.without_empty_columns()
}

/// What one side's operation costs its clients and its server.
fn processor(row: &Row, side: usize) -> String {
    row.processor.map_or_else(String::new, |sides| {
        let [clients, server] = sides[side].map(|time| format::value(time, "ns"));
        format!("{clients} + {server}")
    })
}

/// Distance between a time and its lower bound.
fn above_floor(row: &Row) -> String {
    match row.floor {
        Some(floor) if row.unit == "ns" => format::value(row.ours - floor, "ns"),
        Some(floor) => format!("× {}", format::ratio(row.ours / floor)),
        None => String::new(),
    }
}

/// The peer common to all rows that have one.
fn the_peer<'a>(rows: &[&'a Row]) -> Option<&'a str> {
    let mut peers = rows.iter().filter_map(|row| row.peer_name.as_deref());
    let first = peers.next()?;
    peers.all(|peer| peer == first).then_some(first)
}

/// The notes: the peer, the transports, and each remark with the sizes that it concerns.
pub(crate) fn notes(rows: &[&Row]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(peer) = the_peer(rows) {
        notes.push(format!("The peer is {peer}."));
    }
    for (side, name) in ["Ours", "The peer"].into_iter().enumerate() {
        for (carrier, about) in gathered(rows, |row| row.carried_by[side].as_deref().unwrap_or_default()) {
            notes.push(format!("{name} was carried by {carrier}{about}."));
        }
    }
    for (floor, about) in gathered(rows, |row| row.floor_name.as_deref().unwrap_or_default()) {
        notes.push(format!("The floor is {floor}{about}."));
    }
    for (note, about) in gathered(rows, |row| &row.note) {
        notes.push(format!("{note}{about}"));
    }
    notes
}

/// Each text once, with the rows that it concerns unless it concerns all of them.
fn gathered<'a>(rows: &[&'a Row], text: impl Fn(&'a Row) -> &'a str) -> Vec<(&'a str, String)> {
    let mut texts: Vec<(&str, Vec<String>)> = Vec::new();
    for &row in rows {
        let note = text(row);
        if note.is_empty() {
            continue;
        }
        match texts.iter_mut().find(|(text, _)| *text == note) {
            Some((_, about)) => about.push(row.name()),
            None => texts.push((note, vec![row.name()])),
        }
    }
    let whole = |about: &[String]| about.len() == rows.len();
    texts
        .into_iter()
        .map(|(text, about)| {
            let about = match about.as_slice() {
                all if whole(all) => String::new(),
                [first, _, .., last] => format!(" ({first} … {last})"),
                few => format!(" ({})", few.join("; ")),
            };
            (text, about)
        })
        .collect()
}
