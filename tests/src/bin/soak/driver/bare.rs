//! Bare UCX, beside which our transport is judged.

use std::time::Duration;

use ifunc_tests::role::Role;

use super::options::Options;
use super::process;

/// What our transport sets as well: the environment configures UCX.
const SETTINGS: [(&str, &str); 3] = [
    ("UCX_MM_ERROR_HANDLING", "y"),
    ("UCX_NET_DEVICES", "lo"),
    ("UCX_KEEPALIVE_INTERVAL", "2s"),
];

/// A target, and the address of its worker.
pub(super) fn target(options: &Options) -> Result<(Role, String), String> {
    let mut target = process::start_with(options, "bare-target", &[], &SETTINGS)?;
    let worker = target.wait_for("ready ")?;
    Ok((target, worker))
}

/// A source that sends so many messages, or for so long, about `connection` of them on each connection.
pub(super) fn source(
    options: &Options,
    worker: &str,
    source: u64,
    messages: u64,
    time: Duration,
    connection: u64,
) -> Result<Role, String> {
    let args = [
        ("worker", worker.to_owned()),
        ("messages", messages.to_string()),
        ("milliseconds", time.as_millis().to_string()),
        ("connection", connection.to_string()),
        ("seed", (options.seed + source).to_string()),
    ];
    process::start_with(options, "bare-source", &args, &SETTINGS)
}
