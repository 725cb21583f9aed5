//! Every refusal of the daemon's own is a line of the audit log, or counted by one.

use std::collections::BTreeMap;

use crate::Failure;
use crate::node::Node;

/// Compares the log with the counters. Returns how many refusals there were.
pub(crate) fn compare(node: &Node) -> Result<u64, Failure> {
    // Lines that were left out are counted by the next one of their kind: those after the last line are not.
    let text = std::fs::read_to_string(node.path("audit.jsonl"))?;
    let (mut written, mut kinds) = (0, BTreeMap::<String, u64>::new());
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        let suppressed = line["suppressed"].as_u64().unwrap_or(0);
        let message = line["message"].as_str().unwrap_or_default();
        let kind = message.split(':').next().unwrap_or_default();
        *kinds.entry(kind.to_owned()).or_default() += 1 + suppressed;
        if line["peer"].is_string() || message.starts_with("image refused: no `[[peer]]`") {
            written += 1 + suppressed;
        }
    }
    for (kind, count) in &kinds {
        println!("audit log: {count} × {kind}");
    }
    let counted = node.metric("ifuncd_refused_calls_total")? + node.metric("ifuncd_refused_images_total")?;
    let counted = counted as u64;
    let by_runtime = node.metric("ifunc_refused_total")? as u64;
    println!("counters: {counted} refused by the daemon's checks, {by_runtime} images refused in all");
    if written > counted || counted - written > counted / 10 + 1000 {
        return Err(format!("{counted} refusals were counted, and the audit log has {written}").into());
    }
    Ok(counted)
}
