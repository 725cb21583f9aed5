//! What an invocation's end is reported as, and what ifuncs write to the log.

use std::fmt;
use std::sync::{Arc, Mutex};

use ifunc_abi::context::Context;
use ifunc_abi::image::{EntryFlags, EntryPart, ImageParts, ImportFlags, ImportPart};
use ifunc_abi::status::{Failure, Status};

use super::{add, executor, image, install, options, run};
use crate::arch::testing::code;
use crate::ended::{LogMessage, forward_logs, log, log_message};
use crate::{AnswerMemory, Executor as _, HostSymbols, ImageExecutor, ImageExecutorOptions};

/// States an answer of 8 bytes and returns this code.
fn states_eight(code: u8) -> ImageParts {
    image(&format!("states_{code}"), code::states_eight(code))
}

#[test]
fn an_answer_that_does_not_encode_is_told_from_one_that_is_too_long() {
    let (executor, _) = executor(1 << 16, 4);
    let bad = install(&executor, &states_eight(2)).unwrap();
    let detail = |room: usize| {
        let failed = run(&executor, &bad, Some(&mut vec![0; room])).1.unwrap_err();
        assert_eq!(failed.status, Status::Failed(Failure::Answer));
        String::from_utf8(failed.detail).unwrap()
    };
    assert_eq!(detail(9), "the answer does not encode");
    assert_eq!(detail(8), "the answer does not encode");
    assert_eq!(
        detail(7),
        "the ifunc states an answer of 8 bytes and was lent 7; help: `ctx.answer(..)`, or `ctx.answer_writer()`"
    );
    // No caller waits for it.
    assert_eq!(run(&executor, &bad, None).1, Ok(0));
}

/// Refuses every answer of more than a hundred bytes.
#[derive(Debug)]
struct Hundred;

impl AnswerMemory for Hundred {
    fn max_answer(&self, _: u64) -> usize {
        100
    }

    fn too_long(&self, _: u64, len: usize) -> String {
        format!("{len} bytes are too many")
    }

    fn hold(&self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn release(&self, _: usize) {}
}

#[test]
fn an_ifunc_that_was_refused_memory_may_give_a_short_answer() {
    let asks = |code: u8, flags| {
        let (rx, slot) = code::asks(code);
        ImageParts {
            entries: vec![EntryPart {
                flags,
                ..EntryPart::new("asks")
            }],
            slot: Some(slot),
            imports: vec![ImportPart {
                symbol: "__ifunc_answer".into(),
                flags: ImportFlags::NONE,
                fingerprint: 0,
            }],
            ..image("asks", rx)
        }
    };
    let options = ImageExecutorOptions {
        answers: Some(Arc::new(Hundred)),
        ..options()
    };
    let executor = ImageExecutor::new(options, HostSymbols::new().unwrap(), Arc::new(())).unwrap();
    for (code, flags) in [(0, EntryFlags::NONE), (7, EntryFlags::IGNORE_RESULT)] {
        let asks = install(&executor, &asks(code, flags)).unwrap();
        assert_eq!(run(&executor, &asks, Some(&mut [0; 16])).1, Ok(8));
        // Its answer does not fit, for the reason that it was refused.
        let failed = run(&executor, &asks, Some(&mut [0; 4])).1.unwrap_err();
        assert_eq!(failed.detail, b"5000 bytes are too many");
    }
}

#[test]
fn an_image_that_waits_for_its_handle_keeps_few_of_its_entries() {
    let (executor, _) = executor(1 << 16, 4);
    let added = install(&executor, &add()).unwrap();
    let bound: Vec<_> = (0..6).flat_map(|_| ImageExecutor::entries(&added)).collect();
    assert_eq!(added.door.entries(), 6);
    for _ in 0..1000 {
        drop(ImageExecutor::entries(&added).collect::<Vec<_>>());
    }
    assert!(added.door.entries() <= 16, "{}", added.door.entries());
    drop(bound);
}

/// What a subscriber is given: level, target and fields of each event.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<String>>);

impl tracing::Subscriber for Seen {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                self.0 += &format!(" {}={value:?}", field.name());
            }
        }
        let mut fields = Fields(format!(
            "{} {}",
            event.metadata().level(),
            event.metadata().target()
        ));
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_message_is_logged_at_its_level() {
    let seen = Arc::<Seen>::default();
    tracing::subscriber::with_default(Arc::clone(&seen), || {
        for level in 0..=6 {
            log_message("add", 7, &LogMessage { level, text: "x\ny" });
        }
    });
    let levels = ["TRACE", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "TRACE"];
    let expected = levels.map(|level| format!(r#"{level} ifunc message=x\ny ifunc="add" source=7"#));
    assert_eq!(*seen.0.lock().unwrap(), expected);
}

/// In a process of its own, whose messages go elsewhere.
#[test]
fn messages_go_where_they_are_forwarded_to() {
    const NAME: &str = "tests::ended::messages_go_where_they_are_forwarded_to";
    const CHILD: &str = "IFUNC_TEST_FORWARD";
    static FORWARDED: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", NAME]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let (executor, _) = executor(1 << 16, 4);
    let added = install(&executor, &add()).unwrap();
    let entry = ImageExecutor::entries(&added).next().unwrap();
    let mut context = Context {
        version: 0,
        size: size_of::<Context>() as u32,
        sender: 7,
        answer: std::ptr::null_mut(),
        answer_capacity: 0,
        answer_len: 0,
        log,
        host: (&raw const *entry).cast_mut().cast(),
    };
    let mut says = |level, text: &str| {
        // SAFETY: the context is one of an entry that lives, and the text has that length.
        unsafe { log(&raw mut context, level, text.as_ptr(), text.len()) };
    };
    let seen = Arc::<Seen>::default();
    tracing::subscriber::with_default(Arc::clone(&seen), || {
        says(3, "here");
        forward_logs(|message| {
            let LogMessage { level, text } = *message;
            FORWARDED.lock().unwrap().push((level, text.to_owned()));
        });
        says(2, "there");
        // SAFETY: it reads no message.
        unsafe { log(std::ptr::null_mut(), 1, std::ptr::null(), 8) };
    });
    assert_eq!(
        *seen.0.lock().unwrap(),
        [r#"INFO ifunc message=here ifunc="add" source=7"#]
    );
    assert_eq!(*FORWARDED.lock().unwrap(), [(2, "there".to_owned())]);
}
