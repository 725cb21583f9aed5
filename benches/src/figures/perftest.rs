//! `perftest`: UCX's own benchmark on the same cores in the same setting, which validates our UCX peer.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Figure;
use super::settings::{Setting, name};
use crate::Bench;
use crate::pair::{Pair, Pattern};
use crate::row::Row;
use crate::slots::{Payload, Slot, median, take_turns};

pub(crate) const FIGURE: Figure = Figure {
    id: "perftest",
    title: "our UCX peer, beside UCX's own benchmark: payloads are neither written nor read",
    run,
};

/// Largest accepted difference.
const TOLERANCE: f64 = 0.15;
/// Payload sizes.
const SIZES: [usize; 3] = [8, 1 << 10, 64 << 10];
const SETTING: Setting = &[("UCX_TLS", "posix,self"), ("UCX_RNDV_THRESH", "inf")];
/// Timeout of one of its runs.
const TIMEOUT: Duration = Duration::from_secs(20);
const PROGRAM: &str = "ucx_perftest";

fn run(bench: &mut Bench) -> Result<()> {
    if Command::new(PROGRAM).arg("-h").output().is_err() {
        bench.rows.status().warning(format_args!(
            "our UCX peer was not compared with `{PROGRAM}`, which is not installed; help: apt-get install ucx-utils"
        ));
        return Ok(());
    }
    let mut pair = Pair::start("ucx-am", bench.cores, SETTING)?;
    let sizes = if bench.plan.quick { &SIZES[..1] } else { &SIZES };
    for pattern in [Pattern::PingPong, Pattern::Stream] {
        for &size in sizes {
            let row = compare(bench, &mut pair, pattern, size)?;
            if !row.note.is_empty() && !bench.plan.quick {
                let text = format!("{} ({}, {size} bytes)", row.note, row.case);
                bench.rows.status().warning(text);
            }
            bench.rows.push(row);
        }
    }
    Ok(())
}

fn compare(bench: &Bench, pair: &mut Pair, pattern: Pattern, size: usize) -> Result<Row> {
    let (case, test, unit) = match pattern {
        Pattern::PingPong => ("latency", "ucp_am_lat", "ns"),
        Pattern::Stream => ("rate", "ucp_am_bw", "messages/s"),
    };
    let slot = Slot::new(size, Payload::Untouched);
    let (rounds, time) = if bench.plan.quick { (1, 1e7) } else { (3, 1e8) };
    let (mut ours, mut its) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let [series] = take_turns(&bench.plan.trial(), slot, [&mut pair.side(pattern)])?;
        ours.push(series.median());
        its.push(nanoseconds(bench, test, size, (time / series.median()) as u64)?);
    }
    let value = |ns: f64| if pattern == Pattern::Stream { 1e9 / ns } else { ns };
    let (ours, its) = (value(median(ours)), value(median(its)));
    let differs = ours / its - 1.0;
    Ok(Row {
        figure: FIGURE.id.into(),
        case: case.into(),
        size: size as u64,
        ours,
        peer: Some(its),
        peer_name: Some(format!("{PROGRAM} -t {test}, {}", name(SETTING))),
        ratio: Some(ours / its),
        unit: unit.into(),
        carried_by: [Some(pair.carried_by().into()), None],
        note: if differs.abs() <= TOLERANCE {
            String::new()
        } else {
            format!(
                "our UCX peer differs from `{PROGRAM}` by {:+.0} %",
                differs * 100.0
            )
        },
        ..Row::default()
    })
}

/// Nanoseconds per message of one run.
fn nanoseconds(bench: &Bench, test: &str, size: usize, messages: u64) -> Result<f64> {
    // The program takes a port number only, so another process could bind the port first; it then fails and
    // reports it.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port()
        .to_string();
    let start = |cpu: usize| {
        let mut command = Command::new(PROGRAM);
        command
            .args(["-p", &port, "-c", &cpu.to_string()])
            .envs(SETTING.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    };
    let mut server = Running::start(start(bench.cores.target).stdout(Stdio::null()))?;
    let messages = messages.max(100).to_string();
    let warm_up = (messages.len() * 100).to_string();
    let until = Instant::now() + TIMEOUT;
    loop {
        let mut client = start(bench.cores.source);
        client.args(["127.0.0.1", "-f", "-v", "-t", test, "-s", &size.to_string()]);
        client
            .args(["-n", &messages, "-w", &warm_up])
            .stderr(Stdio::null());
        let mut client = Running::start(&mut client)?;
        if let Some(text) = client.output(until)? {
            return parse(&text, test).with_context(|| format!("`{PROGRAM} -t {test}` printed {text:?}"));
        }
        // The server does not listen yet.
        if Instant::now() > until || server.0.try_wait()?.is_some() {
            bail!("`{PROGRAM} -t {test}` does not run");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Parses the last line of comma-separated values: the overall average of a latency in µs, or the rate of a
/// bandwidth.
fn parse(text: &str, test: &str) -> Option<f64> {
    let line = text.lines().rfind(|line| line.contains(','))?;
    let values: Vec<f64> = line
        .split(',')
        .filter_map(|value| value.trim().parse().ok())
        .collect();
    // iterations, percentile, average and overall latency, average and overall bandwidth, average and overall rate
    match (test, &values[..]) {
        ("ucp_am_lat", [_, _, _, overall, ..]) => Some(overall * 1e3),
        ("ucp_am_bw", [.., overall]) if *overall > 0.0 => Some(1e9 / overall),
        _ => None,
    }
}

/// A program that ends with this value.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("starting `{PROGRAM}`"))?;
        Ok(Self(child))
    }

    /// Its output, if it succeeds. The output fits into a pipe.
    fn output(&mut self, until: Instant) -> Result<Option<String>> {
        loop {
            match self.0.try_wait()? {
                Some(status) if status.success() => break,
                Some(_) => return Ok(None),
                None if Instant::now() > until => {
                    bail!("`{PROGRAM}` has not ended for {} s", TIMEOUT.as_secs())
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let mut text = String::new();
        if let Some(mut out) = self.0.stdout.take() {
            out.read_to_string(&mut text)?;
        }
        Ok(Some(text))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
