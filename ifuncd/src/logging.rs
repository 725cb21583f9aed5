//! The log on standard error, and the audit log: every refusal as a line of JSON.

use std::fmt::{self, Debug};
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer, fmt as text};

use crate::audit;
use crate::config::Log;

/// The file of the audit log. Clones write to the same one.
#[derive(Clone, Debug)]
pub struct AuditLog(Arc<Audit>);

#[derive(Debug)]
struct Audit {
    path: PathBuf,
    file: Mutex<File>,
}

impl AuditLog {
    /// Opens the file, or makes it. Its user alone reads it, and their group.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let file = Mutex::new(Self::file(&path)?);
        Ok(Self(Arc::new(Audit { path, file })))
    }

    fn file(path: &PathBuf) -> io::Result<File> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .open(path)
    }

    /// Opens the file again, after it was renamed.
    ///
    /// # Errors
    /// The system's; the file is the old one then.
    pub fn reopen(&self) -> io::Result<()> {
        let file = Self::file(&self.0.path)?;
        *self.0.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }

    fn write(&self, line: &Map<String, Value>) {
        let Ok(mut line) = serde_json::to_vec(line) else {
            return;
        };
        line.push(b'\n');
        let mut file = self.0.file.lock().unwrap_or_else(PoisonError::into_inner);
        // One write, so that lines are whole. A full disk stops nothing but this log.
        let _ = file.write_all(&line);
    }
}

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
    let audit = audit.map(|audit| audit.with_filter(LevelFilter::INFO));
    tracing_subscriber::registry()
        .with(on_error)
        .with(audit)
        .try_init()
}

/// The fields of a span or an event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }
}

/// Whether an event is a refusal, or what explains one.
fn is_refusal(event: &Event<'_>) -> bool {
    let about = event.metadata();
    let is_warning = *about.level() <= Level::WARN;
    is_warning && (about.target() == audit::TARGET || about.target().starts_with("ifunc_rt"))
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for AuditLog {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() != "connection" {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if !is_refusal(event) {
            return;
        }
        let mut line = Map::new();
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        line.insert("time".into(), now.to_string().into());
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(Fields(fields)) = span.extensions().get() {
                line.extend(fields.clone());
            }
        }
        let mut fields = Fields(line);
        event.record(&mut fields);
        self.write(&fields.0);
    }
}

impl fmt::Display for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.path.display())
    }
}
