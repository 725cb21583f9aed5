//! The report as aligned lines or as JSON.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use super::finding::{Finding, Mark};

const AREA: Style = Style::new().bold();
const HELP: Style = AnsiColor::Cyan.on_default().bold();

/// Columns of the marks and of the names.
const MARKS: usize = 7;
const NAMES: usize = 17;

fn mark(mark: Mark) -> (&'static str, Style) {
    match mark {
        Mark::Ok => ("ok", AnsiColor::Green.on_default().bold()),
        Mark::None => ("-", Style::new().dimmed()),
        Mark::Warning => ("warning", AnsiColor::Yellow.on_default().bold()),
        Mark::Missing => ("missing", AnsiColor::Red.on_default().bold()),
    }
}

/// Prints all areas, and a summary in the last line.
pub(super) fn print(areas: &[(&str, Vec<Finding>)], out: &mut impl Write) -> io::Result<()> {
    for (name, findings) in areas {
        writeln!(out, "{AREA}{name}{AREA:#}")?;
        for finding in findings {
            let (word, style) = mark(finding.mark);
            writeln!(
                out,
                "  {style}{word:MARKS$}{style:#}  {:NAMES$}  {}",
                finding.name, finding.found
            )?;
            if let Some(help) = &finding.help {
                writeln!(out, "  {:MARKS$}  {HELP}help{HELP:#}: {help}", "")?;
            }
        }
    }
    let all = || areas.iter().flat_map(|(_, findings)| findings);
    let of = |mark| all().filter(|finding| finding.mark == mark).count();
    let verdict = match (of(Mark::Missing), of(Mark::Warning)) {
        (0, 0) => "nothing required is missing".to_owned(),
        (0, warnings) => format!("nothing required is missing; warnings: {warnings}"),
        (missing, _) => format!("required and missing: {missing}"),
    };
    writeln!(out, "{verdict}")
}

/// The report as JSON.
pub(super) fn json(areas: &[(&str, Vec<Finding>)]) -> Value {
    let well = areas
        .iter()
        .flat_map(|(_, findings)| findings)
        .all(|finding| finding.mark != Mark::Missing);
    let areas: Vec<Value> = areas
        .iter()
        .map(|(name, findings)| json!({ "area": name, "checks": findings }))
        .collect();
    json!({ "ok": well, "areas": areas })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas(last: Finding) -> [(&'static str, Vec<Finding>); 1] {
        [("tools", vec![Finding::ok("one", "1.0"), last])]
    }

    #[test]
    fn lines_are_aligned_and_end_with_a_summary() {
        let print = |last| {
            let mut out = Vec::new();
            print(&areas(last), &mut out).expect("writing to a `Vec` succeeds");
            anstream::adapter::strip_str(&String::from_utf8(out).expect("text")).to_string()
        };
        assert_eq!(
            print(Finding::missing("two", "absent", "`install two`")),
            "tools\n  ok       one                1.0\n  missing  two                absent\n           help: `install two`\nrequired and missing: 1\n"
        );
        assert!(print(Finding::none("two", "absent", "x")).ends_with("nothing required is missing\n"));
        assert!(print(Finding::warning("two", "old", "x")).ends_with("missing; warnings: 1\n"));
    }

    #[test]
    fn json_has_the_same_findings() {
        let value = json(&areas(Finding::missing("two", "absent", "install")));
        assert_eq!(value["ok"], false);
        assert_eq!(value["areas"][0]["checks"][0]["mark"], "ok");
        assert_eq!(value["areas"][0]["checks"][0].get("help"), None);
        assert_eq!(value["areas"][0]["checks"][1]["help"], "install");
        assert_eq!(json(&areas(Finding::ok("two", "")))["ok"], true);
    }
}
