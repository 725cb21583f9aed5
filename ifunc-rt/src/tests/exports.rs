//! Exports that change while sources call ifuncs that import them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::running::{accepting, place, roomy, source, unique};
use super::version::{Version, reads_versions};
use crate::{ByName, Error, ExportError, Handle, Rejection, Source, Symbol, TargetBuilder};

fn load(source: &Source) -> Handle<ByName> {
    source.load_bytes(&reads_versions().encode().unwrap()).unwrap()
}

/// The version of the function and that of the variable that an invocation used.
fn versions(answer: &[u8]) -> (u64, u64) {
    let (words, []) = answer.as_chunks() else {
        panic!("{} bytes", answer.len())
    };
    (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
}

/// `calls` from four sources, while function and variable are replaced `changes` times.
fn no_call_fails_while_exports_change(builder: TargetBuilder, threads: usize, calls: u64, changes: u64) {
    const SOURCES: u64 = 4;
    const AT_ONCE: u64 = 8;
    let alive = Arc::default();
    let target = builder
        .exports(Version::new(0, &alive).symbols())
        .listen(&place("shm"))
        .unwrap();
    let exports = target.exports().with_timeout(Duration::from_secs(60));
    let (address, stats) = (target.address(), target.stats_handle());
    let serving = match threads {
        1 => target.spawn(0u64).map(|serving| (Some(serving), None)),
        _ => target
            .spawn_shared(Arc::new(AtomicU64::new(0)), threads)
            .map(|serving| (None, Some(serving))),
    };
    let serving = serving.unwrap();
    let (answered, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..SOURCES {
            scope.spawn(|| {
                let source = source(&address);
                let reads = load(&source);
                let mut last = 0;
                for _ in 0..calls / SOURCES / AT_ONCE {
                    let calls: Vec<_> = (0..AT_ONCE).map(|_| reads.call(&[]).unwrap()).collect();
                    for call in calls {
                        let (version, level) = versions(&call.wait().unwrap());
                        assert_eq!(version, level, "one call saw two versions");
                        assert!(version >= last, "{version} after {last}");
                        seen.fetch_add(u64::from(version > last), Ordering::Relaxed);
                        last = version;
                    }
                    answered.fetch_add(AT_ONCE, Ordering::Relaxed);
                }
            });
        }
        for number in 1..=changes {
            // Spread over the calls.
            while answered.load(Ordering::Relaxed) < (number - 1) * (calls / 2) / changes {
                thread::yield_now();
            }
            let next = Version::new(number as u32, &alive);
            exports
                .update(|update| {
                    next.symbols()
                        .into_iter()
                        .for_each(|symbol| update.replace(symbol))
                })
                .unwrap();
            drop(next);
            assert_eq!(
                alive.load(Ordering::Relaxed),
                1,
                "old versions after change {number}"
            );
        }
    });
    assert_eq!(exports.waiting(), 0);
    // The latest change has ended: no old version waits.
    let counted = stats.read().exports;
    assert_eq!(counted.changes, changes);
    assert!(
        counted.last_ns.is_some_and(|took| took < 60_000_000_000),
        "{counted:?}"
    );
    println!(
        "{} calls on {threads} threads, {changes} changes, {} of them seen by a source",
        answered.load(Ordering::Relaxed),
        seen.load(Ordering::Relaxed)
    );
    assert!(seen.load(Ordering::Relaxed) > changes / 100);
    drop(serving);
}

#[test]
fn no_call_fails_while_exports_change_on_one_thread() {
    no_call_fails_while_exports_change(roomy(), 1, 8_000, 100);
}

#[test]
fn no_call_fails_while_exports_change_on_several_threads() {
    no_call_fails_while_exports_change(roomy(), 3, 8_000, 100);
}

#[test]
#[ignore = "nightly: a million calls, twice"]
fn no_call_of_a_million_fails_while_exports_change() {
    no_call_fails_while_exports_change(roomy(), 1, 1_000_000, 10_000);
    no_call_fails_while_exports_change(roomy(), 4, 1_000_000, 10_000);
}

#[test]
fn two_targets_of_a_process_export_different_things() {
    let alive = Arc::default();
    let start = |number| {
        let version = Version::new(number, &alive);
        let builder = roomy().exports(version.symbols());
        let target = builder.listen(&unique("loopback")).unwrap();
        (target.exports(), target.spawn(0u64).unwrap())
    };
    let ((first, serving_first), (_, serving_second)) = (start(1), start(2));
    // What a process exports by default.
    let none = accepting()
        .exports([] as [Symbol; 0])
        .listen(&unique("loopback"))
        .unwrap();
    assert_eq!(none.exports().list(), []);
    let none = none.spawn(0u64).unwrap();
    let call = |address: &str| load(&source(address)).call(&[]).unwrap().wait();
    assert_eq!(versions(&call(serving_first.address()).unwrap()), (1, 1));
    let third = Version::new(3, &alive);
    first.replace(third.symbols()[1].clone()).unwrap();
    assert_eq!(versions(&call(serving_first.address()).unwrap()), (1, 3));
    assert_eq!(versions(&call(serving_second.address()).unwrap()), (2, 2));
    let error = call(none.address()).unwrap_err().to_string();
    assert!(error.contains("version") && error.contains("level"), "{error}");
    serving_first.stop().unwrap();
    assert_eq!(first.remove("level"), Err(ExportError::TargetGone));
}

#[test]
fn a_call_after_a_removal_says_what_was_removed() {
    let alive = Arc::default();
    let version = Version::new(1, &alive);
    let target = roomy()
        .exports(version.symbols())
        .listen(&unique("loopback"))
        .unwrap();
    let (exports, serving) = (target.exports(), target.spawn(0u64).unwrap());
    let source = source(serving.address());
    let reads = load(&source);
    assert_eq!(versions(&reads.call(&[]).unwrap().wait().unwrap()), (1, 1));
    exports.remove("level").unwrap();
    match reads.call(&[]).unwrap().wait() {
        Err(Error::Rejected {
            why: reason, detail, ..
        }) => {
            assert_eq!(reason, Rejection::MissingImport);
            assert!(detail.contains("level"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    exports.add(version.symbols()[1].clone()).unwrap();
    assert_eq!(versions(&reads.call(&[]).unwrap().wait().unwrap()), (1, 1));
}
