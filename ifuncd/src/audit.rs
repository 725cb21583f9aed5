//! The audit log: every refusal as a line of JSON, or counted by one.
//!
//! A refusal is an event with the field `refused`: of the runtime, which refuses connections, frames, images and invocations, and of the
//! daemon, which refuses calls of its interfaces and requests at the address of its metrics. Both limit what they log. The lines that these limits
//! leave out are events of the target [`SUPPRESSED_EVENTS`], which this log enables, so that it is given every refusal once.
//!
//! It has a limit of its own, for each kind of refusal: what was refused, of which source, and why. After a hundred lines, the kind has one line per
//! second: that of its latest refusal, and `suppressed` counts those before it that have no line. So a line stands for itself and
//! for as many refusals as its `suppressed` says, and the sum is exact once [`AuditLog::flush`] was called.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ifunc_rt::SUPPRESSED_EVENTS;
use ifuncd_interfaces::NodeError;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::capability::Capability;
use crate::node::Data;
use crate::peer::{Identity, Peers};
use crate::rate::Rate;

/// Lines of one kind that are written at once.
const BURST: u32 = 100;
/// After them, one line is written in this time.
const INTERVAL: Duration = Duration::from_secs(1);
/// Kinds that are told apart. They are those of sources that have connected; further ones share a limit.
const MAX_KINDS: usize = 4096;
/// Lines per second that the log on standard error has of one refusal of the daemon's own.
const LOGGED_PER_SECOND: u32 = 10;
/// Bytes of what a peer wrote, such as a path, that a line has.
const MAX_TEXT: usize = 256;

/// The target of the daemon's own refusals.
const TARGET: &str = "ifuncd::audit";

type Line = Map<String, Value>;

/// The file of the audit log. Clones write to the same one.
#[derive(Clone, Debug)]
pub struct AuditLog(Arc<Audit>);

#[derive(Debug)]
struct Audit {
    path: PathBuf,
    /// Whose the connections are.
    data: OnceLock<Arc<Data>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    kinds: HashMap<String, Kind>,
    /// All refusals, by what was refused.
    refused: BTreeMap<String, u64>,
}

/// Refusals that share a limit.
#[derive(Debug, Default)]
struct Kind {
    /// Lines that were written, less the intervals since.
    written: u32,
    /// The latest refusal that has no line yet, and how many have none.
    latest: Option<Line>,
    without_line: u64,
}

impl AuditLog {
    /// Opens the file, or makes it. Its user alone reads it, and their group.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let state = State {
            file: open(&path)?,
            kinds: HashMap::new(),
            refused: BTreeMap::new(),
        };
        let state = Mutex::new(state);
        let data = OnceLock::new();
        Ok(Self(Arc::new(Audit { path, data, state })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the file again, after it was renamed.
    ///
    /// # Errors
    /// The system's; the file is the old one then.
    pub fn reopen(&self) -> io::Result<()> {
        let file = open(&self.0.path)?;
        self.state().file = file;
        Ok(())
    }

    /// How many refusals there were, by what was refused.
    #[must_use]
    pub fn refused(&self) -> BTreeMap<String, u64> {
        self.state().refused.clone()
    }

    /// Lines name the peers of this from now on.
    pub(crate) fn name_peers(&self, data: &Arc<Data>) {
        let _ = self.0.data.set(Arc::clone(data));
    }

    /// Writes a line for refusals that have none. A second is over.
    pub fn flush(&self) {
        self.state().flush();
    }

    /// Starts the thread that [flushes](Self::flush) it, as long as the process lives.
    ///
    /// # Errors
    /// The system's.
    pub fn flush_regularly(&self) -> io::Result<()> {
        let log = self.clone();
        let flush = move || {
            loop {
                thread::sleep(INTERVAL);
                log.flush();
            }
        };
        thread::Builder::new().name("audit".into()).spawn(flush).map(drop)
    }

    /// The log as a layer that is given what it writes.
    pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(self) -> impl Layer<S> {
        let enabled = Targets::new()
            .with_default(LevelFilter::INFO)
            .with_target(SUPPRESSED_EVENTS, LevelFilter::DEBUG);
        self.with_filter(enabled)
    }
}

fn open(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}

impl State {
    fn write(&mut self, line: &Line) {
        let Ok(mut line) = serde_json::to_vec(line) else {
            return;
        };
        line.push(b'\n');
        // One write, so that lines are whole. A full disk stops nothing but this log.
        let _ = self.file.write_all(&line);
    }

    fn refuse(&mut self, refused: &str, line: Line) {
        *self.refused.entry(refused.to_owned()).or_default() += 1;
        let mut name = name_of(refused, &line);
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(&name) {
            refused.clone_into(&mut name);
        }
        let kind = self.kinds.entry(name).or_default();
        if kind.written < BURST {
            kind.written += 1;
            self.write(&line);
        } else {
            kind.without_line += 1;
            kind.latest = Some(line);
        }
    }

    fn flush(&mut self) {
        let mut lines = Vec::new();
        self.kinds.retain(|_, kind| {
            match kind.latest.take() {
                Some(mut line) => {
                    let others = std::mem::take(&mut kind.without_line) - 1;
                    if others > 0 {
                        line.insert("suppressed".into(), others.into());
                    }
                    lines.push(line);
                }
                None => kind.written -= 1,
            }
            kind.written > 0
        });
        for line in &lines {
            self.write(line);
        }
    }
}

/// The name of the kind of a refusal.
fn name_of(refused: &str, line: &Line) -> String {
    // A peer that has not connected may call itself whatever it likes, each time.
    let is_known = !matches!(refused, "connection" | "request");
    let of_source = ["peer", "name", "key", "uid"].iter().filter(|_| is_known);
    let fields = of_source.chain(&["capability", "reason", "message"]);
    let mut name = refused.to_owned();
    for value in fields.filter_map(|field| line.get(*field)) {
        name.push('\n');
        name.push_str(&value.to_string());
    }
    name
}

/// The name of the peer that a connection is one of.
fn peer_of(connection: &Line, peers: &Peers) -> Option<String> {
    let text = |field| connection.get(field).and_then(Value::as_str);
    let key = text("key").and_then(|key| key.parse().ok());
    let uid = connection.get("uid").and_then(Value::as_u64);
    let uid = uid.and_then(|uid| u32::try_from(uid).ok());
    let peer = peers.by_identity(&Identity::of(text("name"), key, uid)?)?;
    Some(peer.settings().name.to_string())
}

/// The fields of a span or an event.
#[derive(Default)]
struct Fields(Line);

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

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for AuditLog {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() != "connection" {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let Fields(line) = &mut fields;
        if let Some(peer) = self.0.data.get().and_then(|data| peer_of(line, &data.peers)) {
            line.insert("peer".into(), peer.into());
        }
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let about = event.metadata();
        let is_refusal = about.fields().field("refused").is_some();
        // What the runtime warns of explains refusals.
        let explains = *about.level() <= Level::WARN && about.target().starts_with("ifunc_rt");
        if !is_refusal && !explains {
            return;
        }
        let mut line = Line::new();
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        line.insert("time".into(), now.to_string().into());
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(Fields(fields)) = span.extensions().get() {
                line.extend(fields.clone());
            }
        }
        let mut fields = Fields(line);
        event.record(&mut fields);
        let mut line = fields.0;
        match line.get("refused").and_then(Value::as_str).map(str::to_owned) {
            Some(refused) => {
                // What the limit of the runtime left out came as events.
                line.remove("suppressed");
                self.state().refuse(&refused, line);
            }
            None => self.state().write(&line),
        }
    }
}

/// Reports a refusal of the daemon's own. The log on standard error has so many per second.
macro_rules! refuse {
    ($($event:tt)+) => {{
        static LOGGED: Rate = Rate::new();
        if LOGGED.take(Some(LOGGED_PER_SECOND), Instant::now()) {
            tracing::warn!(target: TARGET, $($event)+);
        } else {
            tracing::debug!(target: SUPPRESSED_EVENTS, $($event)+);
        }
    }};
}

/// A call of an interface was refused.
pub(crate) fn call_refused(peer: &str, capability: Capability, why: NodeError, what: &str) {
    let what = cut(what);
    refuse!(refused = "call", peer, %capability, reason = ?why, what, "call refused: {why}");
}

/// A request at the address of the metrics was refused.
pub(crate) fn request_refused(from: Option<SocketAddr>, reason: &str) {
    refuse!(
        refused = "request",
        from = from.map(tracing::field::display),
        reason,
        "request for metrics refused"
    );
}

/// As much of what a peer wrote as a line has.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("path"), "path");
        let long = "ä".repeat(4096);
        assert_eq!(cut(&long), &long[..MAX_TEXT]);
        assert_eq!(cut(&format!("a{long}")).len(), MAX_TEXT - 1);
    }

    /// What the lines of a file say: `suppressed` of each.
    fn lines(path: &PathBuf) -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap();
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        text.lines()
            .map(|text| line(text)["suppressed"].as_u64().unwrap_or(0))
            .collect()
    }

    #[test]
    fn a_flood_is_a_burst_and_a_line_per_interval_and_all_of_it_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let log = AuditLog::open(path.clone()).unwrap();
        let refuse = |refused: &str, peer: &str, times: u64| {
            for _ in 0..times {
                let mut line = Line::new();
                line.insert("peer".into(), peer.into());
                log.state().refuse(refused, line);
            }
        };
        refuse("image", "ada", 1000);
        // Another kind has a burst of its own. Whatever a peer calls itself that does not connect, it is one kind.
        refuse("image", "bob", 1);
        (0..150).for_each(|number| refuse("connection", &number.to_string(), 1));
        assert_eq!(lines(&path), [0; 201]);
        log.flush();
        let mut flushed = lines(&path).split_off(201);
        flushed.sort_unstable();
        assert_eq!(flushed, [49, 899]);
        // No burst again, until as many intervals have passed without a refusal.
        refuse("image", "ada", 10);
        assert_eq!(lines(&path).len(), 203);
        log.flush();
        assert_eq!(lines(&path).split_off(203), [9]);
        (0..2).for_each(|_| log.flush());
        refuse("image", "ada", 3);
        assert_eq!(lines(&path).len(), 206);
        (0..=BURST).for_each(|_| log.flush());
        assert!(log.state().kinds.is_empty());
        let written: u64 = lines(&path).iter().map(|suppressed| 1 + suppressed).sum();
        let counted = log.refused();
        assert_eq!((counted["image"], counted["connection"]), (1014, 150));
        assert_eq!(written, 1164);
    }

    #[test]
    fn kinds_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditLog::open(folder.path().join("audit")).unwrap();
        for number in 0..MAX_KINDS + 500 {
            let mut line = Line::new();
            line.insert("peer".into(), number.into());
            log.state().refuse("image", line);
        }
        assert_eq!(log.state().kinds.len(), MAX_KINDS + 1);
    }
}
