//! Everything that the daemon counts, as Prometheus reads it.

use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering;

use ifunc_rt::stats::{Reason, Stats, Tally};

use crate::audit::AuditLog;
use crate::capability::Capability;
use crate::node::Data;

/// The type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text, of the counters of each target and of what they share.
#[must_use]
pub fn text(targets: &[Stats], data: &Data, audit: Option<&AuditLog>, is_draining: bool) -> String {
    let mut page = Page::default();
    // Writing to a string does not fail.
    let _ = page.targets(targets);
    let _ = page.ifuncs(targets);
    let _ = page.peers(data);
    if let Some(audit) = audit {
        let _ = page.refused(audit);
    }
    let _ = page.family("ifuncd_draining", "gauge", "Whether the daemon is about to stop.");
    let _ = page.line("ifuncd_draining", &[], u64::from(is_draining));
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) -> fmt::Result {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}")
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) -> fmt::Result {
        self.0.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            self.0.push(if number == 0 { '{' } else { ',' });
            write!(self.0, "{label}=\"{}\"", Escaped(value))?;
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        writeln!(self.0, " {value}")
    }

    /// One line for each target.
    fn of_each(
        &mut self,
        targets: &[Stats],
        (name, kind, help): (&str, &str, &str),
        value: impl Fn(&Stats) -> u64,
    ) -> fmt::Result {
        self.family(name, kind, help)?;
        targets
            .iter()
            .try_for_each(|stats| self.line(name, &[("address", &stats.address)], value(stats)))
    }

    fn reasons<R: Reason>(
        &mut self,
        targets: &[Stats],
        (name, help): (&str, &str),
        tally: impl Fn(&Stats) -> &Tally<R>,
    ) -> fmt::Result {
        self.family(name, "counter", help)?;
        for stats in targets {
            for (reason, count) in tally(stats).iter() {
                self.line(
                    name,
                    &[("address", &stats.address), ("reason", reason.name())],
                    count,
                )?;
            }
        }
        Ok(())
    }

    fn refused(&mut self, audit: &AuditLog) -> fmt::Result {
        let help = "Refusals that the audit log has or counts, by what was refused.";
        self.family("ifuncd_refusals_total", "counter", help)?;
        for (refused, count) in audit.refused() {
            self.line("ifuncd_refusals_total", &[("refused", &refused)], count)?;
        }
        Ok(())
    }

    fn targets(&mut self, targets: &[Stats]) -> fmt::Result {
        self.family("ifuncd_info", "gauge", "The version of the runtime.")?;
        if let Some(stats) = targets.first() {
            self.line("ifuncd_info", &[("version", &stats.runtime)], 1)?;
        }
        self.of_each(
            targets,
            ("ifunc_uptime_seconds", "gauge", "Time since the target listens."),
            |stats| stats.uptime_ns / 1_000_000_000,
        )?;
        self.of_each(
            targets,
            ("ifunc_connections", "gauge", "Connected sources."),
            |stats| stats.sources.len() as u64,
        )?;
        self.of_each(
            targets,
            (
                "ifunc_connections_total",
                "counter",
                "Connections that were accepted.",
            ),
            |stats| stats.connected,
        )?;
        self.of_each(
            targets,
            ("ifunc_frames_total", "counter", "Frames from sources."),
            |stats| stats.total.frames,
        )?;
        self.of_each(
            targets,
            (
                "ifunc_received_bytes_total",
                "counter",
                "Bytes of payloads and images.",
            ),
            |stats| stats.total.bytes_in,
        )?;
        self.of_each(
            targets,
            (
                "ifunc_sent_bytes_total",
                "counter",
                "Bytes of answers and reasons.",
            ),
            |stats| stats.total.bytes_out,
        )?;
        self.of_each(
            targets,
            ("ifunc_installs_total", "counter", "Images that were installed."),
            |stats| stats.total.installs,
        )?;
        self.of_each(
            targets,
            ("ifunc_executed_total", "counter", "Invocations that succeeded."),
            |stats| stats.total.executed,
        )?;
        self.of_each(
            targets,
            (
                "ifunc_stalls_total",
                "counter",
                "How often frames waited because a source did not read its answers.",
            ),
            |stats| stats.total.stalls,
        )?;
        self.reasons(
            targets,
            ("ifunc_failed_total", "Invocations that began and failed."),
            |stats| &stats.total.failed,
        )?;
        self.reasons(
            targets,
            ("ifunc_rejected_total", "Invocations that did not begin."),
            |stats| &stats.total.rejected,
        )?;
        self.reasons(
            targets,
            ("ifunc_refused_total", "Images that were not installed."),
            |stats| &stats.total.refused,
        )?;
        self.of_each(
            targets,
            ("ifunc_code_bytes", "gauge", "Memory of installed images."),
            |stats| stats.code.used,
        )?;
        self.of_each(targets, ("ifunc_images", "gauge", "Installed images."), |stats| {
            stats.code.images
        })?;
        let has_runners: Vec<_> = targets
            .iter()
            .filter(|stats| stats.runners.is_some())
            .cloned()
            .collect();
        let runners = |stats: &Stats| stats.runners.unwrap_or_default();
        self.of_each(
            &has_runners,
            ("ifunc_runners", "gauge", "Processes that run ifuncs."),
            |stats| runners(stats).running,
        )?;
        self.of_each(
            &has_runners,
            (
                "ifunc_runner_crashes_total",
                "counter",
                "Processes of ifuncs that ended by themselves or were ended.",
            ),
            |stats| runners(stats).crashes,
        )
    }

    fn ifuncs(&mut self, targets: &[Stats]) -> fmt::Result {
        self.family("ifunc_hits_total", "counter", "Invocations that began, by ifunc.")?;
        let mut times = Page::default();
        times.family(
            "ifunc_duration_seconds",
            "summary",
            "Time of invocations that were timed, by ifunc.",
        )?;
        for stats in targets {
            for ifunc in &stats.ifuncs {
                let id: String = ifunc
                    .id
                    .iter()
                    .take(6)
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                let labels = [
                    ("address", stats.address.as_str()),
                    ("ifunc", ifunc.name.as_str()),
                    ("id", id.as_str()),
                ];
                self.line("ifunc_hits_total", &labels, ifunc.counts.hits)?;
                let seconds = |ns: u64| ns as f64 / 1e9;
                for (quantile, part) in [("0.5", 0.5), ("0.99", 0.99)] {
                    if let Some(ns) = ifunc.counts.times.quantile_ns(part) {
                        let labels = [labels[0], labels[1], labels[2], ("quantile", quantile)];
                        times.line("ifunc_duration_seconds", &labels, seconds(ns))?;
                    }
                }
                if let Some(mean) = ifunc.counts.times.mean_ns() {
                    let count = ifunc.counts.times.count();
                    times.line(
                        "ifunc_duration_seconds_sum",
                        &labels,
                        seconds(mean) * count as f64,
                    )?;
                    times.line("ifunc_duration_seconds_count", &labels, count)?;
                }
            }
        }
        self.0.push_str(&times.0);
        Ok(())
    }

    fn peers(&mut self, data: &Data) -> fmt::Result {
        let peers = data.peers.all();
        let each = |page: &mut Self,
                    name: &str,
                    kind: &str,
                    help: &str,
                    value: &dyn Fn(&crate::peer::Peer) -> Option<u64>| {
            page.family(name, kind, help)?;
            peers.iter().try_for_each(|peer| match value(peer) {
                Some(value) => page.line(name, &[("peer", &peer.settings().name)], value),
                None => Ok(()),
            })
        };
        for (name, help, is_refused) in [
            ("ifuncd_calls_total", "Calls of the node's interfaces.", false),
            (
                "ifuncd_refused_calls_total",
                "Calls that the peer may not make, or not so often.",
                true,
            ),
        ] {
            self.family(name, "counter", help)?;
            for peer in &peers {
                let counts = peer.counts();
                let counts = if is_refused {
                    &counts.refused_calls
                } else {
                    &counts.calls
                };
                for capability in Capability::ALL {
                    let count = counts[capability as usize].load(Ordering::Relaxed);
                    let labels = [
                        ("peer", &*peer.settings().name),
                        ("capability", capability.name()),
                    ];
                    self.line(name, &labels, count)?;
                }
            }
        }
        each(
            self,
            "ifuncd_images_total",
            "counter",
            "Images that were accepted.",
            &|peer| Some(peer.counts().images.load(Ordering::Relaxed)),
        )?;
        each(
            self,
            "ifuncd_refused_images_total",
            "counter",
            "Images that the peer may not send.",
            &|peer| Some(peer.counts().refused_images.load(Ordering::Relaxed)),
        )?;
        each(
            self,
            "ifuncd_moved_bytes_total",
            "counter",
            "Bytes that calls read and wrote.",
            &|peer| Some(peer.counts().bytes.load(Ordering::Relaxed)),
        )?;
        each(
            self,
            "ifuncd_in_flight",
            "gauge",
            "Invocations that run.",
            &|peer| Some(peer.allowance().in_flight() as u64),
        )?;
        each(
            self,
            "ifuncd_store_bytes",
            "gauge",
            "Keys and values of the peer's namespace.",
            &|peer| data.store.as_ref()?.used(&peer.settings().namespace).ok(),
        )?;
        each(
            self,
            "ifuncd_memory_bytes",
            "gauge",
            "Regions of the peer's namespace.",
            &|peer| Some(data.memory.as_ref()?.used(&peer.settings().namespace)),
        )
    }
}

/// The value of a label.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}
