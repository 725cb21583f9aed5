//! Every refusal is a line of the audit log, or counted by one: no more, and no fewer.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::node::Node;

/// Longer than the daemon takes to write what it has counted.
const QUIET: Duration = Duration::from_millis(2500);
/// Longer than handshakes take that do not go on.
const MOST: Duration = Duration::from_secs(60);

/// Compares the log with the counters, which those who are refused have left alone by now. Returns how many refusals there were.
pub(crate) fn compare(node: &Node) -> Result<u64, Failure> {
    let began = Instant::now();
    let mut before = counted(node)?;
    let (written, counted) = loop {
        thread::sleep(QUIET);
        let written = written(node)?;
        let now = counted(node)?;
        if now == before {
            break (written, now);
        }
        if began.elapsed() > MOST {
            return Err(format!("refusals go on: {before:?}, then {now:?}").into());
        }
        before = now;
    };
    for (refused, count) in &written {
        println!("audit log: {count} × {refused}");
    }
    if written != counted {
        return Err(format!("{counted:?} were counted, and the audit log has {written:?}").into());
    }
    // The log counts what it is given. These are counted where they are refused.
    for (refused, counter) in [
        ("image", "ifunc_refused_total"),
        ("invocation", "ifunc_rejected_total"),
        ("call", "ifuncd_refused_calls_total"),
    ] {
        let (audited, counted) = (
            written.get(refused).copied().unwrap_or(0),
            node.metric(counter)? as u64,
        );
        if audited != counted || counted == 0 {
            return Err(
                format!("{counter} is {counted}, and the audit log has {audited} × {refused}").into(),
            );
        }
    }
    Ok(written.values().sum())
}

/// What was refused, by the lines of the log.
fn written(node: &Node) -> Result<BTreeMap<String, u64>, Failure> {
    let mut written = BTreeMap::new();
    for line in std::fs::read_to_string(node.path("audit.jsonl"))?.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        if let Some(refused) = line["refused"].as_str() {
            *written.entry(refused.to_owned()).or_default() += 1 + line["suppressed"].as_u64().unwrap_or(0);
        }
    }
    Ok(written)
}

/// What was refused, by the counters.
fn counted(node: &Node) -> Result<BTreeMap<String, u64>, Failure> {
    let samples = node.samples("ifuncd_refusals_total")?;
    let of = |(name, value): (String, f64)| Some((name.split('"').nth(1)?.to_owned(), value as u64));
    Ok(samples.into_iter().filter_map(of).collect())
}
