//! The plots: latency and message rate, ours and the peers', over the size, with both axes logarithmic.

use super::chart::{Axis, Chart, Line, Owner};
use super::format;
use crate::row::Row;

/// A plot, and the rows that it shows.
struct Plot {
    file: &'static str,
    title: &'static str,
    figure: &'static str,
    /// Selects the rows' cases; other cases are in the tables only.
    case: fn(&str) -> bool,
    along: Along,
    across: &'static str,
}

/// The horizontal axis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Along {
    Payload,
    Image,
    /// Number of operations in flight, from a case such as `…, 16 in flight`.
    InFlight,
}

const PLOTS: &[Plot] = &[
    Plot {
        file: "latency-shm",
        title: "Latency over shared memory, one way",
        figure: "lat-am",
        case: is_fresh,
        along: Along::Payload,
        across: "one way",
    },
    Plot {
        file: "rate-shm",
        title: "Message rate over shared memory",
        figure: "rate-am",
        case: is_fresh,
        along: Along::Payload,
        across: "messages per second",
    },
    Plot {
        file: "latency-tcp",
        title: "Latency over TCP, one way",
        figure: "lat-ucx",
        case: |case| !case.starts_with("two workers"),
        along: Along::Payload,
        across: "one way",
    },
    Plot {
        file: "rate-tcp",
        title: "Message rate over TCP",
        figure: "rate-ucx",
        case: |case| !case.starts_with("two workers"),
        along: Along::Payload,
        across: "messages per second",
    },
    Plot {
        file: "first-arrival",
        title: "Unknown code, until it has run",
        figure: "first-arrival",
        case: |case| case != "signed",
        along: Along::Image,
        across: "first arrival",
    },
    Plot {
        file: "calls-shm",
        title: "Calls over shared memory, by number in flight",
        figure: "calls",
        case: |case| case.starts_with("shm"),
        along: Along::InFlight,
        across: "calls per second",
    },
    Plot {
        file: "calls-tcp",
        title: "Calls over TCP, by number in flight",
        figure: "calls",
        case: |case| case.starts_with("ucx over TCP"),
        along: Along::InFlight,
        across: "calls per second",
    },
];

/// Whether a case is the one with goals, in which the source writes every payload anew.
fn is_fresh(case: &str) -> bool {
    !case.contains("static")
}

/// The charts of a figure. A plot needs at least two points.
pub(super) fn of(figure: &str, rows: &[&Row]) -> Vec<Chart> {
    let plots = PLOTS.iter().filter(|plot| plot.figure == figure);
    plots.filter_map(|plot| plot.chart(rows)).collect()
}

impl Plot {
    fn chart(&self, rows: &[&Row]) -> Option<Chart> {
        let mut ours = Vec::new();
        let mut floor = Vec::new();
        let mut peers: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        let mut unit = "";
        for row in rows.iter().filter(|row| (self.case)(&row.case)) {
            let Some(at) = self.place(row) else { continue };
            let value = |value: f64| match (self.along, row.unit.as_str()) {
                // With one call at a time the row is a time; the plot shows a rate.
                (Along::InFlight, "ns") => 1e9 / value,
                _ => value,
            };
            unit = &row.unit;
            ours.push((at, value(row.ours)));
            floor.extend(row.floor.map(|floor| (at, value(floor))));
            if let Some((name, peer)) = row.peer_name.as_deref().zip(row.peer) {
                // The text after the comma is the configuration, which differs between sizes.
                let name = name.split([',', ':']).next().unwrap_or(name);
                match peers.iter_mut().find(|(other, _)| other == name) {
                    Some((_, points)) => points.push((at, value(peer))),
                    None => peers.push((name.to_owned(), vec![(at, value(peer))])),
                }
            }
        }
        let mut lines = vec![Line::new("ours", Owner::Ours, ours)];
        for (nth, (name, points)) in peers.into_iter().enumerate() {
            lines.push(Line::new(name, Owner::Peer(nth), points));
        }
        lines.push(Line::new("floor", Owner::Floor, floor));
        lines.retain(|line| line.points.len() >= 2);
        if lines.first()?.owner != Owner::Ours {
            return None;
        }
        let (label, text): (_, fn(f64) -> String) = match self.along {
            Along::Payload => ("payload", |at| format::bytes(at as u64)),
            Along::Image => ("image", |at| format::bytes(at as u64)),
            Along::InFlight => ("calls in flight", |at| format!("{at}")),
        };
        let unit = unit.to_owned();
        Some(Chart {
            file: self.file,
            title: self.title,
            along: Axis {
                label,
                text: Box::new(text),
            },
            across: Axis {
                label: self.across,
                text: Box::new(move |value| format::value(value, &unit)),
            },
            lines,
        })
    }

    /// A row's position on the horizontal axis.
    fn place(&self, row: &Row) -> Option<f64> {
        let place = match self.along {
            Along::Payload => row.size,
            Along::Image => row.image?,
            Along::InFlight => {
                let (before, _) = row.case.split_once(" in flight")?;
                before.rsplit(' ').next()?.parse().ok()?
            }
        };
        Some(place as f64)
    }
}
