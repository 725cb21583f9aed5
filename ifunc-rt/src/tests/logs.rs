//! Events that a target logs for the actions of a source.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::images;
use super::machine::PANICS_BEFORE;
use super::running::{accepting, source, unique};
use crate::{Call, Error, Target};

/// Keeps every event up to a level, as a line.
#[derive(Clone)]
pub(crate) struct Log {
    up_to: Level,
    lines: Arc<Mutex<Vec<(Level, String)>>>,
}

impl Log {
    pub(crate) fn new(up_to: Level) -> Self {
        Self {
            up_to,
            lines: Arc::default(),
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|(_, line)| line.clone()).collect()
    }

    fn panics(&self) -> Vec<(Level, String)> {
        let lines = self.lines.lock().unwrap();
        let panics = lines.iter().filter(|(_, line)| line.contains("message=panicked"));
        panics.cloned().collect()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() <= self.up_to
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let mut lines = self.lines.lock().unwrap();
        lines.push((*event.metadata().level(), line.0));
    }

    fn new_span(&self, about: &Attributes<'_>) -> Id {
        let mut line = Line(format!("span {}", about.metadata().name()));
        if let Some(parent) = about.parent() {
            write!(line.0, " in {}", parent.into_u64()).unwrap();
        }
        about.record(&mut line);
        let mut lines = self.lines.lock().unwrap();
        lines.push((*about.metadata().level(), line.0));
        Id::from_u64(lines.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        let at = span.into_u64() as usize - 1;
        self.lines.lock().unwrap()[at].1 += &line.0;
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn finish<A>(target: &mut Target, mut call: Call<A>) -> Result<A, Error> {
    // Each poll handles everything that has arrived.
    for _ in 0..100 {
        target.poll(&mut 0u64);
        if let Some(result) = call.try_wait() {
            return result;
        }
    }
    panic!("no answer");
}

#[test]
fn a_panic_is_told_to_who_asks_and_escaped() {
    let said = |level: Level| {
        let log = Log::new(level);
        tracing::subscriber::with_default(log.clone(), || {
            let address = unique("loopback");
            let mut target = accepting().listen(&address).unwrap();
            let source = source(&address);
            let mut image = images::panics();
            // What clears a terminal.
            let at = image.rx.len() - 8;
            image.rx[at..at + 4].copy_from_slice(b"\x1b[2J");
            let panics = source.load_bytes(&image.encode().unwrap()).unwrap();
            match finish(&mut target, panics.try_call(b"").unwrap()) {
                Err(Error::Panic { message, .. }) => assert_eq!(message, "\x1b[2J"),
                other => panic!("{other:?}"),
            }
        });
        log.panics()
    };
    assert_eq!(said(Level::INFO), []);
    match &said(Level::DEBUG)[..] {
        [(Level::DEBUG, line)] => {
            assert!(line.contains(r"\u{1b}[2J") && !line.contains('\x1b'), "{line}");
            assert!(
                line.contains(&format!("panics+[{PANICS_BEFORE:#x}]")) && line.contains("x.rs"),
                "{line}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_invocation_is_a_span_of_its_connection_for_those_who_trace() {
    let spans = |level: Level| {
        let log = Log::new(level);
        tracing::subscriber::with_default(log.clone(), || {
            let address = unique("loopback");
            let mut target = accepting().listen(&address).unwrap();
            let source = source(&address);
            let add = source.load_bytes(&images::add().encode().unwrap()).unwrap();
            finish(&mut target, add.try_call(&5u64.to_le_bytes()).unwrap()).unwrap();
            finish(&mut target, add.try_call(b"bad").unwrap()).unwrap_err();
        });
        let lines = log.lines.lock().unwrap();
        let spans = lines.iter().filter(|(_, line)| line.starts_with("span "));
        spans.map(|(_, line)| line.clone()).collect::<Vec<_>>()
    };
    assert_eq!(spans(Level::DEBUG).len(), 1);
    match &spans(Level::TRACE)[..] {
        [connection, well, unwell] => {
            assert!(
                connection.starts_with("span connection source=1 "),
                "{connection}"
            );
            assert!(connection.contains(" over="), "{connection}");
            assert!(well.starts_with("span invocation in "), "{well}");
            let fields = |line: &str| line.split_once(" ifunc=").unwrap().1.to_owned();
            assert_eq!(fields(well), "add sequence=2 payload_bytes=8 answer_bytes=8");
            let failed = "add sequence=3 payload_bytes=3 failed=the payload does not decode";
            assert_eq!(fields(unwell), failed);
        }
        other => panic!("{other:#?}"),
    }
}

#[test]
fn a_source_that_connects_again_and_again_fills_no_log() {
    let log = Log::new(Level::INFO);
    let lines = Arc::clone(&log.lines);
    let _here = tracing::subscriber::set_default(log);
    let address = unique("loopback");
    let mut target = accepting().listen(&address).unwrap();
    let start = Instant::now();
    let mut connect = || {
        let source = source(&address);
        while target.connections() == 0 {
            target.poll(&mut 0u64);
        }
        drop(source);
        while target.connections() > 0 {
            target.poll(&mut 0u64);
        }
    };
    for _ in 0..300 {
        connect();
    }
    let of = |message: &str| -> Vec<String> {
        let lines = lines.lock().unwrap();
        let message = format!("message={message}");
        let lines = lines.iter().filter(|(_, line)| line.contains(&message));
        lines.map(|(_, line)| line.clone()).collect()
    };
    let most = 10 + start.elapsed().as_secs() as usize + 1;
    for message in ["source connected", "source left"] {
        let lines = of(message);
        assert!(lines.len() <= most, "{} lines: {lines:?}", lines.len());
    }
    // The next line that is logged counts the others. Other tests of this process share the limit, and each may log that line, so this
    // one asks for a count of any size: `LogLimit`'s own test compares the numbers.
    while !of("source connected")
        .iter()
        .any(|line| line.contains("suppressed="))
    {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{:?}",
            of("source connected")
        );
        std::thread::sleep(Duration::from_millis(100));
        connect();
    }
}
