//! Optional tools: debuggers and profilers.

use super::finding::{Finding, output_of, setting};

pub(super) fn checks() -> Vec<Finding> {
    vec![
        program(
            "gdb",
            output_of("gdb", ["--version"]).as_deref(),
            "names injected functions in backtraces: `apt-get install gdb` (Debian), `dnf install gdb` (Fedora)",
        ),
        ptrace(setting("kernel/yama/ptrace_scope")),
        program(
            "perf",
            output_of("perf", ["--version"]).as_deref(),
            "names injected functions in profiles: `apt-get install linux-perf` (Debian), `dnf install perf` (Fedora)",
        ),
        perf_events(setting("kernel/perf_event_paranoid")),
    ]
}

fn program(name: &'static str, version: Option<&str>, help: &str) -> Finding {
    match version.and_then(|text| text.lines().next()) {
        Some(version) => Finding::ok(name, version.trim()),
        None => Finding::none(name, "absent", help),
    }
}

fn ptrace(scope: Option<i64>) -> Finding {
    let name = "ptrace";
    match scope {
        None => Finding::ok(name, "not restricted (no Yama)"),
        Some(0) => Finding::ok(name, "kernel.yama.ptrace_scope = 0"),
        Some(scope) => Finding::none(
            name,
            format!("kernel.yama.ptrace_scope = {scope}: gdb can attach to its own children only"),
            "to attach to a running target: `sysctl -w kernel.yama.ptrace_scope=0`, or run gdb as root",
        ),
    }
}

fn perf_events(paranoid: Option<i64>) -> Finding {
    let name = "perf events";
    match paranoid {
        None => Finding::none(
            name,
            "not in this kernel",
            "`perf` needs a kernel with CONFIG_PERF_EVENTS",
        ),
        Some(level @ ..=2) => Finding::ok(name, format!("kernel.perf_event_paranoid = {level}")),
        Some(level) => Finding::none(
            name,
            format!("kernel.perf_event_paranoid = {level}: for root only"),
            "`sysctl -w kernel.perf_event_paranoid=2`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Mark;
    use super::*;

    #[test]
    fn optional_tools_are_never_missing() {
        for finding in [
            program("gdb", None, "install"),
            ptrace(Some(1)),
            perf_events(Some(4)),
            perf_events(None),
        ] {
            assert_eq!(finding.mark, Mark::None, "{finding:?}");
            assert!(finding.help.is_some());
        }
        for finding in [
            program("gdb", Some("GNU gdb 13.1\nCopyright"), ""),
            ptrace(None),
            ptrace(Some(0)),
            perf_events(Some(-1)),
        ] {
            assert_eq!(finding.mark, Mark::Ok, "{finding:?}");
        }
    }
}
