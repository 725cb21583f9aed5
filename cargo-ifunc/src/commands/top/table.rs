//! A sample as aligned tables.

use std::cmp::Ordering;

use anstyle::{AnsiColor, Style};
use ifunc_rt::stats::{IfuncStats, Reason, SourceStats, Stats, Tally};

use super::figures::{bytes, count, many, nanoseconds, uptime};
use super::rates::{Rates, hex};
use super::screen::{Area, Line, clipped};

const HEAD: Style = AnsiColor::Green.on_default().bold();
const NAMES: Style = Style::new().bold();
const PLAIN: Style = Style::new();
const DIM: Style = Style::new().dimmed();

/// Width of the verbs in the head, in columns.
const VERBS: usize = 12;
/// Longest text of a peer that is shown, in characters.
const LONGEST: usize = 40;

/// Default number of rows per table without a terminal.
const USUAL_ROWS: usize = 20;
/// Lines of both tables that are not rows: the column names, and a blank line before each.
const FRAME: usize = 4;

/// The head and both tables, with at most `asked` rows each, or as many as fit.
pub(super) fn lines(stats: &Stats, rates: &Rates, area: Area, asked: Option<usize>) -> Vec<Line> {
    let mut lines = head(stats, rates, area.columns);
    let (ifunc_rows, source_rows) = match (asked, area.lines) {
        (Some(rows), _) => (rows, rows),
        (None, None) => (USUAL_ROWS, USUAL_ROWS),
        (None, Some(all)) => shared(
            all.saturating_sub(lines.len() + FRAME),
            stats.ifuncs.len().max(1),
            stats.sources.len(),
        ),
    };
    lines.push(line(PLAIN, String::new()));
    ifuncs(stats, rates, ifunc_rows, area.columns, &mut lines);
    lines.push(line(PLAIN, String::new()));
    sources(stats, rates, source_rows, area.columns, &mut lines);
    lines
}

/// Divides `lines` rows between both tables; one table gets what the other does not need.
fn shared(lines: usize, ifuncs: usize, sources: usize) -> (usize, usize) {
    let half = lines / 2;
    let for_ifuncs = ifuncs.min(half.max(lines.saturating_sub(sources)));
    // A table that is cut has a line that says so.
    let rows = |area: usize, all: usize| match all <= area {
        true => all,
        false => area.saturating_sub(1).max(1),
    };
    (rows(for_ifuncs, ifuncs), rows(lines - for_ifuncs, sources))
}

fn line(style: Style, text: String) -> Line {
    Line { style, text }
}

fn head(stats: &Stats, rates: &Rates, columns: usize) -> Vec<Line> {
    let Stats { total, code, .. } = stats;
    let us = stats
        .sources
        .iter()
        .find(|source| source.connection == stats.asked_by);
    let lanes = us.map_or_else(String::new, |us| escaped(&us.lanes.join(" "), LONGEST));
    let mut head = Vec::new();
    let target = [
        escaped(&stats.address, LONGEST),
        format!("process {}", stats.pid),
        format!("up {}", uptime(stats.uptime_ns)),
        format!("ifunc-rt {}", escaped(&stats.runtime, LONGEST)),
        format!("seen over {lanes}"),
    ];
    push_parts(HEAD, "Target", ", ", &target, columns, &mut head);
    let traffic = [
        format!("{} invocations/s", count(rates.invocations)),
        format!("{} frames/s", count(rates.frames)),
        format!("{}/s in", bytes(rates.bytes_in)),
        format!("{}/s out", bytes(rates.bytes_out)),
        format!("{} so far", many(total.frames as f64, "frame")),
    ];
    push_parts(PLAIN, "Traffic", ", ", &traffic, columns, &mut head);
    let memory = format!("{} of {}", bytes(code.used as f64), bytes(code.limit as f64));
    let sources = [
        format!("{} connected", stats.sources.len()),
        format!("{} so far", stats.connected),
        format!("{} in {memory} for code", many(code.images as f64, "image")),
    ];
    push_parts(PLAIN, "Sources", ", ", &sources, columns, &mut head);
    if let Some(group) = &stats.group {
        let node = [
            format!(
                "node {}, linked to {}",
                group.node,
                many(group.linked as f64, "other")
            ),
            format!("{} sent to them", many(group.invocations as f64, "invocation")),
            format!("{} of replies", many(group.replies as f64, "frame")),
            format!(
                "{} of bookkeeping",
                many((group.weights + group.others) as f64, "frame")
            ),
            format!(
                "{} and {} under way",
                many(group.slots as f64, "call"),
                many(group.scopes as f64, "scope")
            ),
            format!("{} to be sent", bytes(group.outbox_bytes as f64)),
        ];
        push_parts(PLAIN, "Group", ", ", &node, columns, &mut head);
    }
    if stats.exports.changes > 0 {
        let exports = &stats.exports;
        let changes = [
            many(exports.changes as f64, "change"),
            exports.last_ns.map_or_else(
                || "invocations that began before the last one still run".into(),
                |took| {
                    format!(
                        "the last one took {} until none ran that began before",
                        nanoseconds(took)
                    )
                },
            ),
        ];
        push_parts(PLAIN, "Exports", ", ", &changes, columns, &mut head);
    }
    if let Some(runners) = &stats.runners {
        let processes = [
            format!(
                "{} of at most {}",
                many(runners.running as f64, "process"),
                count(runners.max as f64)
            ),
            many(runners.crashes as f64, "crash"),
            many(runners.restarts as f64, "restart"),
            match runners.landlock {
                0 => "without Landlock".into(),
                version => format!("Landlock {version}"),
            },
        ];
        push_parts(PLAIN, "Runners", ", ", &processes, columns, &mut head);
    }
    let mut trouble = Vec::new();
    for (what, tally) in [("rejected", &total.rejected), ("images refused", &total.refused)] {
        trouble.extend(reasons(what, tally));
    }
    trouble.extend(reasons("failed", &total.failed));
    push_parts(PLAIN, "Trouble", "; ", &trouble, columns, &mut head);
    head
}

/// Appends a verb and its parts, on as many lines as needed; appends nothing without parts.
fn push_parts(
    style: Style,
    verb: &str,
    between: &str,
    parts: &[String],
    columns: usize,
    lines: &mut Vec<Line>,
) {
    let Some((first, rest)) = parts.split_first() else {
        return;
    };
    let mut text = format!("{verb:>VERBS$} {first}");
    for part in rest {
        // Accounts for the separators before and after the part.
        if text.chars().count() + part.chars().count() + 2 * between.len() - 1 > columns {
            lines.push(line(style, format!("{text}{}", between.trim_end())));
            text = format!("{:VERBS$} {part}", "");
        } else {
            text.push_str(between);
            text.push_str(part);
        }
    }
    lines.push(line(style, text));
}

/// `rejected: 3 Policy, 1 Unbound`; `None` for an empty tally.
fn reasons<R: Reason>(what: &str, tally: &Tally<R>) -> Option<String> {
    let reasons: Vec<_> = tally
        .iter()
        .map(|(reason, times)| format!("{times} {}", reason.name()))
        .collect();
    (!reasons.is_empty()).then(|| format!("{what}: {}", reasons.join(", ")))
}

fn ifuncs(stats: &Stats, rates: &Rates, rows: usize, columns: usize, lines: &mut Vec<Line>) {
    let rate = |ifunc: &IfuncStats| rates.ifuncs.get(&hex(&ifunc.id)).copied().unwrap_or(0.0);
    let mut sorted: Vec<&IfuncStats> = stats.ifuncs.iter().collect();
    // Sorts by the current rate; ties keep their order, most hits first.
    sorted.sort_by(|a, b| descending(rate(a), rate(b)));
    let names = [
        "IFUNC", "/S", "IN/S", "HITS", "FAILED", "REFUSED", "P50", "P99", "MAX", "SIZE", "BOUND", "ID",
    ];
    let mut table = Table::new(&names, &[0, 11], &[10, 9, 11, 2, 8, 5, 4, 7, 6, 3]);
    let longest = longest(columns);
    for ifunc in sorted.iter().take(rows) {
        let counts = &ifunc.counts;
        let id = hex(&ifunc.id);
        let name = escaped(&ifunc.name, longest);
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
    table.end(sorted.len().saturating_sub(rows), columns, lines);
    if sorted.is_empty() {
        lines.push(line(DIM, "(none yet)".into()));
    }
}

fn sources(stats: &Stats, rates: &Rates, rows: usize, columns: usize, lines: &mut Vec<Line>) {
    let rate = |source: &SourceStats| rates.sources.get(&source.connection).copied().unwrap_or(0.0);
    let mut sorted: Vec<&SourceStats> = stats.sources.iter().collect();
    sorted.sort_by(|a, b| descending(rate(a), rate(b)));
    let names = [
        "SOURCE", "PID", "UID", "/S", "IN/S", "EXECUTED", "FAILED", "REJECTED", "STALLS", "UP", "OVER",
    ];
    let mut table = Table::new(&names, &[0, 10], &[2, 8, 4, 9, 7, 6, 1, 10, 5]);
    let longest = longest(columns);
    for source in sorted.iter().take(rows) {
        let counts = &source.counts;
        let number = source.connection;
        let or_dash = |id: Option<String>| id.unwrap_or_else(|| "-".into());
        let us = if number == stats.asked_by { " (top)" } else { "" };
        let stalls = count(counts.stalls as f64);
        table.row(
            PLAIN,
            [
                format!("{number}{us}"),
                or_dash(source.pid.map(|pid| pid.to_string())),
                or_dash(source.uid.map(|uid| uid.to_string())),
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
                escaped(&source.lanes.join(" "), longest),
            ],
        );
    }
    table.end(sorted.len().saturating_sub(rows), columns, lines);
}

fn descending(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}

/// A peer's text: escaped to printable ASCII and truncated.
fn escaped(text: &str, longest: usize) -> String {
    let escaped: String = text.escape_default().collect();
    clipped(&escaped, longest)
}

/// Longest text of a peer in a table of at most this width.
fn longest(columns: usize) -> usize {
    (columns / 4).clamp(12, LONGEST)
}

struct Table<'a, const N: usize> {
    /// Left-aligned columns; the others are numbers.
    left: &'a [usize],
    /// Columns to drop if the table is too wide, in this order.
    dispensable: &'a [usize],
    rows: Vec<(Style, [String; N])>,
}

impl<'a, const N: usize> Table<'a, N> {
    fn new(names: &[&str; N], left: &'a [usize], dispensable: &'a [usize]) -> Self {
        Self {
            left,
            dispensable,
            rows: vec![(NAMES, names.map(str::to_owned))],
        }
    }

    fn row(&mut self, style: Style, cells: [String; N]) {
        self.rows.push((style, cells));
    }

    /// Aligns the rows; `more` rows are not listed.
    fn end(self, more: usize, columns: usize, lines: &mut Vec<Line>) {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|(_, cells)| cells[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        let mut shown: Vec<usize> = (0..N).collect();
        for left_out in self.dispensable {
            let blanks = 2 * (shown.len() - 1);
            if shown.iter().map(|column| widths[*column]).sum::<usize>() + blanks <= columns {
                break;
            }
            shown.retain(|column| column != left_out);
        }
        for (style, cells) in &self.rows {
            let mut text = String::new();
            for (at, column) in shown.iter().enumerate() {
                let (cell, width) = (&cells[*column], widths[*column]);
                if at > 0 {
                    text.push_str("  ");
                }
                text += &match self.left.contains(column) {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                };
            }
            lines.push(line(*style, text.trim_end().to_owned()));
        }
        if more > 0 {
            lines.push(line(DIM, format!("… and {more} more")));
        }
    }
}

#[cfg(test)]
mod tests {
    use ifunc_rt::stats::RunnerStats;

    use super::*;

    #[test]
    fn texts_of_peers_are_escaped_and_rows_counted() {
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
        let mut stats = Stats {
            uptime_ns: 1_000_000_000,
            ifuncs: vec![
                ifunc("rare\x1b[2J", 1),
                ifunc("often", 50_000),
                ifunc(&"x".repeat(300), 2),
            ],
            ..Stats::default()
        };
        let text = |stats: &Stats, rows| {
            let area = Area {
                columns: usize::MAX,
                lines: None,
            };
            let lines = lines(stats, &Rates::between(None, stats), area, Some(rows));
            lines.into_iter().map(|line| line.text).collect::<Vec<_>>()
        };
        let all = text(&stats, 9);
        assert!(all.iter().all(|line| !line.contains('\x1b')), "{all:?}");
        let row = |what: &str| all.iter().position(|line| line.starts_with(what)).unwrap();
        assert!(
            row("often") < row("xxx") && row("xxx") < row("rare\\u{1b}[2J"),
            "{all:?}"
        );
        assert!(all[row("often")].contains("50.0 k"), "{all:?}");
        assert!(all.iter().all(|line| line.chars().count() < 200), "{all:?}");
        assert!(text(&stats, 1).iter().any(|line| line == "… and 2 more"));

        let exports = |stats: &Stats| text(stats, 1).into_iter().find(|line| line.contains("Exports"));
        assert_eq!(exports(&stats), None);
        stats.exports.changes = 1;
        assert_eq!(
            exports(&stats).as_deref(),
            Some("     Exports 1 change, invocations that began before the last one still run")
        );
        stats.exports.changes = 12;
        stats.exports.last_ns = Some(3_000_000);
        assert_eq!(
            exports(&stats).as_deref(),
            Some("     Exports 12 changes, the last one took 3.0 ms until none ran that began before")
        );
        let runners = |stats: &Stats| text(stats, 1).into_iter().find(|line| line.contains("Runners"));
        assert_eq!(runners(&stats), None);
        stats.runners = Some(RunnerStats {
            running: 1,
            max: 64,
            crashes: 2,
            restarts: 1,
            landlock: 6,
        });
        assert_eq!(
            runners(&stats).as_deref(),
            Some("     Runners 1 process of at most 64, 2 crashes, 1 restart, Landlock 6")
        );
        stats.runners = Some(RunnerStats::default());
        assert!(runners(&stats).unwrap().contains("without Landlock"));
    }

    #[test]
    fn a_sample_fits_the_terminal_and_no_number_is_cut() {
        let mut stats = Stats {
            address: "ucx://127.0.0.1:34567".into(),
            uptime_ns: 100_000_000_000_000,
            asked_by: 1,
            ..Stats::default()
        };
        stats.total.rejected.add(ifunc_rt::Rejection::Policy, 123_456_789);
        stats.total.refused.add(ifunc_rt::Rejection::MissingImport, 17);
        stats.total.failed.add(ifunc_rt::Failure::Panic, 1_234);
        for number in 0..30 {
            let mut ifunc = IfuncStats {
                name: format!("{}_{number}", "long".repeat(number as usize)),
                installed: true,
                id: [number; 32],
                size: 123_456,
                ..IfuncStats::default()
            };
            ifunc.counts.hits = 123_456_789;
            ifunc.counts.times.record(123_456);
            stats.ifuncs.push(ifunc);
        }
        let source = |connection| SourceStats {
            connection,
            uid: Some(1000),
            pid: Some(4_194_303),
            lanes: vec!["tcp/enp0s31f6".into(), "rc_verbs/mlx5_0:1".into()],
            connected_ns: 100_000_000_000_000,
            stalled: true,
            ..SourceStats::default()
        };
        stats.sources = (1..50).map(source).collect();
        for columns in 60..220 {
            for height in [22, 48] {
                let area = Area {
                    columns,
                    lines: Some(height),
                };
                let lines = lines(&stats, &Rates::between(None, &stats), area, None);
                let text: Vec<_> = lines.iter().map(|line| &*line.text).collect();
                assert!(text.len() <= height, "{columns}×{height}: {text:#?}");
                assert!(
                    text.iter().all(|line| line.chars().count() <= columns),
                    "{columns}×{height}: {text:#?}"
                );
                let last = text.last().unwrap();
                assert!(last.starts_with("… and "), "{last}");
                let all = text
                    .iter()
                    .any(|line| line.contains(" UID ") && line.contains(" OVER"));
                assert!(all || columns < 140, "{columns}: {text:#?}");
                assert!(!all || columns > 80, "{columns}: {text:#?}");
            }
        }
    }

    #[test]
    fn tables_share_the_rows() {
        assert_eq!(shared(20, 3, 4), (3, 4));
        assert_eq!(shared(20, 10, 10), (10, 10));
        assert_eq!(shared(20, 11, 10), (9, 10));
        assert_eq!(shared(20, 2, 300), (2, 17));
        assert_eq!(shared(20, 300, 2), (17, 2));
        assert_eq!(shared(20, 300, 300), (9, 9));
        assert_eq!(shared(0, 1, 1), (1, 1));
    }
}
