//! A look as aligned tables.

use std::cmp::Ordering;

use anstyle::{AnsiColor, Style};
use ifunc_rt::stats::{IfuncStats, Reason, SourceStats, Stats, Tally};

use super::figures::{bytes, count, nanoseconds, uptime};
use super::rates::{Rates, hex};
use super::screen::Line;

const HEAD: Style = AnsiColor::Green.on_default().bold();
const NAMES: Style = Style::new().bold();
const PLAIN: Style = Style::new();
const DIM: Style = Style::new().dimmed();

/// Columns of the verbs of the head.
const VERBS: usize = 12;
/// Longest text of a peer's, in characters.
const LONGEST: usize = 40;

/// The head and both tables, of at most `rows` rows each.
pub(super) fn lines(stats: &Stats, rates: &Rates, rows: usize) -> Vec<Line> {
    let mut lines = head(stats, rates);
    lines.push(line(PLAIN, String::new()));
    ifuncs(stats, rates, rows, &mut lines);
    lines.push(line(PLAIN, String::new()));
    sources(stats, rates, rows, &mut lines);
    lines
}

fn line(style: Style, text: String) -> Line {
    Line { style, text }
}

fn head(stats: &Stats, rates: &Rates) -> Vec<Line> {
    let Stats { total, code, .. } = stats;
    let us = stats
        .sources
        .iter()
        .find(|source| source.connection == stats.asked_by);
    let lanes = us.map_or_else(String::new, |us| escaped(&us.lanes.join(" ")));
    let installed = count(code.images as f64);
    let mut trouble = Vec::new();
    for (what, tally) in [("rejected", &total.rejected), ("images refused", &total.refused)] {
        trouble.extend(reasons(what, tally));
    }
    trouble.extend(reasons("failed", &total.failed));
    let mut head = vec![
        line(
            HEAD,
            format!(
                "{:>VERBS$} {}, process {}, up {}, ifunc-rt {}, seen over {lanes}",
                "Target",
                escaped(&stats.address),
                stats.pid,
                uptime(stats.uptime_ns),
                escaped(&stats.runtime)
            ),
        ),
        line(
            PLAIN,
            format!(
                "{:>VERBS$} {} invocations/s, {} frames/s, {}/s in, {}/s out; {} frames so far",
                "Traffic",
                count(rates.invocations),
                count(rates.frames),
                bytes(rates.bytes_in),
                bytes(rates.bytes_out),
                count(total.frames as f64)
            ),
        ),
        line(
            PLAIN,
            format!(
                "{:>VERBS$} {} connected, {} so far; {installed} images in {} of {} for code",
                "Sources",
                stats.sources.len(),
                stats.connected,
                bytes(code.used as f64),
                bytes(code.limit as f64)
            ),
        ),
    ];
    if !trouble.is_empty() {
        head.push(line(
            PLAIN,
            format!("{:>VERBS$} {}", "Trouble", trouble.join("; ")),
        ));
    }
    head
}

/// `rejected: 3 Policy, 1 Unbound`; nothing if there is nothing.
fn reasons<R: Reason>(what: &str, tally: &Tally<R>) -> Option<String> {
    let said: Vec<_> = tally
        .iter()
        .map(|(reason, times)| format!("{times} {}", reason.name()))
        .collect();
    (!said.is_empty()).then(|| format!("{what}: {}", said.join(", ")))
}

fn ifuncs(stats: &Stats, rates: &Rates, rows: usize, lines: &mut Vec<Line>) {
    let rate = |ifunc: &IfuncStats| rates.ifuncs.get(&hex(&ifunc.id)).copied().unwrap_or(0.0);
    let mut sorted: Vec<&IfuncStats> = stats.ifuncs.iter().collect();
    // Behind what is done now, in the order in which they came: most hits first.
    sorted.sort_by(|a, b| descending(rate(a), rate(b)));
    let names = [
        "IFUNC", "/S", "IN/S", "HITS", "FAILED", "REFUSED", "P50", "P99", "MAX", "SIZE", "BOUND", "ID",
    ];
    let mut table = Table::new(&names, &[0, 11]);
    for ifunc in sorted.iter().take(rows) {
        let counts = &ifunc.counts;
        let id = hex(&ifunc.id);
        let name = escaped(&ifunc.name);
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".into(), nanoseconds);
        table.row(
            if ifunc.installed { PLAIN } else { DIM },
            [
                if ifunc.installed {
                    name
                } else {
                    format!("({name})")
                },
                count(rate(ifunc)),
                bytes(rates.ifunc_bytes.get(&id).copied().unwrap_or(0.0)),
                count(counts.hits as f64),
                count(counts.failed as f64),
                count(counts.refused.total() as f64),
                time(counts.times.quantile_ns(0.5)),
                time(counts.times.quantile_ns(0.99)),
                time((counts.times.count() > 0).then_some(counts.times.max_ns)),
                bytes(ifunc.size as f64),
                count(ifunc.bound as f64),
                id[..12].to_owned(),
            ],
        );
    }
    table.end(sorted.len().saturating_sub(rows), lines);
    if sorted.is_empty() {
        lines.push(line(DIM, "(none has come yet)".into()));
    }
}

fn sources(stats: &Stats, rates: &Rates, rows: usize, lines: &mut Vec<Line>) {
    let rate = |source: &SourceStats| rates.sources.get(&source.connection).copied().unwrap_or(0.0);
    let mut sorted: Vec<&SourceStats> = stats.sources.iter().collect();
    sorted.sort_by(|a, b| descending(rate(a), rate(b)));
    let names = [
        "SOURCE", "PID", "UID", "/S", "IN/S", "EXECUTED", "FAILED", "REJECTED", "STALLS", "UP", "OVER",
    ];
    let mut table = Table::new(&names, &[0, 10]);
    for source in sorted.iter().take(rows) {
        let counts = &source.counts;
        let number = source.connection;
        let known = |id: Option<String>| id.unwrap_or_else(|| "-".into());
        let us = if number == stats.asked_by { " (top)" } else { "" };
        let stalls = count(counts.stalls as f64);
        table.row(
            PLAIN,
            [
                format!("{number}{us}"),
                known(source.pid.map(|pid| pid.to_string())),
                known(source.uid.map(|uid| uid.to_string())),
                count(rate(source)),
                bytes(rates.source_bytes.get(&number).copied().unwrap_or(0.0)),
                count(counts.executed as f64),
                count(counts.failed.total() as f64),
                count(counts.rejected.total() as f64),
                if source.stalled {
                    format!("{stalls} now")
                } else {
                    stalls
                },
                uptime(source.connected_ns),
                escaped(&source.lanes.join(" ")),
            ],
        );
    }
    table.end(sorted.len().saturating_sub(rows), lines);
}

fn descending(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}

/// A text of a peer's: printable ASCII, and not long.
fn escaped(text: &str) -> String {
    let escaped: String = text.escape_default().collect();
    if escaped.len() <= LONGEST {
        return escaped;
    }
    format!("{}…", &escaped[..LONGEST - 1])
}

struct Table<'a, const N: usize> {
    /// Columns that are aligned to the left; the others are numbers.
    left: &'a [usize],
    rows: Vec<(Style, [String; N])>,
}

impl<'a, const N: usize> Table<'a, N> {
    fn new(names: &[&str; N], left: &'a [usize]) -> Self {
        Self {
            left,
            rows: vec![(NAMES, names.map(str::to_owned))],
        }
    }

    fn row(&mut self, style: Style, cells: [String; N]) {
        self.rows.push((style, cells));
    }

    /// Aligns what was put in; `more` rows were left out.
    fn end(self, more: usize, lines: &mut Vec<Line>) {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|(_, cells)| cells[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        for (style, cells) in &self.rows {
            let mut text = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let width = widths[column];
                if column > 0 {
                    text.push_str("  ");
                }
                text += &match self.left.contains(&column) {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                };
            }
            lines.push(line(*style, text.trim_end().to_owned()));
        }
        if more > 0 {
            lines.push(line(DIM, format!("(and {more} more)")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_say_is_escaped_and_rows_are_counted() {
        let ifunc = |name: &str, hits| {
            let mut ifunc = IfuncStats {
                name: name.into(),
                installed: true,
                id: [hits as u8; 32],
                ..IfuncStats::default()
            };
            ifunc.counts.hits = hits;
            ifunc
        };
        let stats = Stats {
            uptime_ns: 1_000_000_000,
            ifuncs: vec![
                ifunc("rare\x1b[2J", 1),
                ifunc("often", 50_000),
                ifunc(&"x".repeat(300), 2),
            ],
            ..Stats::default()
        };
        let text = |rows| {
            let lines = lines(&stats, &Rates::between(None, &stats), rows);
            lines.into_iter().map(|line| line.text).collect::<Vec<_>>()
        };
        let all = text(9);
        assert!(all.iter().all(|line| !line.contains('\x1b')), "{all:?}");
        let row = |what: &str| all.iter().position(|line| line.starts_with(what)).unwrap();
        assert!(
            row("often") < row("xxx") && row("xxx") < row("rare\\u{1b}[2J"),
            "{all:?}"
        );
        assert!(all[row("often")].contains("50.0 k"), "{all:?}");
        assert!(all.iter().all(|line| line.chars().count() < 200), "{all:?}");
        assert!(text(1).iter().any(|line| line == "(and 2 more)"));
    }
}
