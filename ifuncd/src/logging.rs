//! The log on standard error, beside the [audit log](crate::audit).

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer as _, fmt as text};

use crate::audit::AuditLog;
use crate::config::Log;

/// Starts both logs.
///
/// # Errors
/// The process has a log already, or a variable sets no filter.
pub fn start(log: &Log, audit: Option<AuditLog>) -> Result<(), TryInitError> {
    let default = LevelFilter::from_level(log.level).into();
    let filter = EnvFilter::builder()
        .with_default_directive(default)
        .from_env_lossy();
    let on_error = text::layer()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .with_filter(filter);
    tracing_subscriber::registry()
        .with(on_error)
        .with(audit.map(AuditLog::layer))
        .try_init()
}
