//! When a replacement is seen, and when the old version is dropped.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ifunc_abi::image::{ImageFlags, ImageParts, ImportFlags};

use super::version::{LEVEL, VERSION, Version, reads_versions};
use super::{finds, run, variable};
use crate::exports::{ExportError, Exports};
use crate::tests::kernel::refuse;
use crate::tests::{executor, install};
use crate::{Executor, Symbol};

#[test]
fn a_replacement_is_seen_at_once_and_the_old_version_is_dropped() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let alive = Arc::default();
    Version::new(1, &alive)
        .symbols()
        .into_iter()
        .for_each(|symbol| exports.add(symbol).unwrap());
    let reads = install(&executor, &reads_versions()).unwrap();
    let mut thread = executor.thread().unwrap();
    assert_eq!(run(&mut thread, &reads), Ok(vec![1, 1]));
    let [version, level] = Version::new(2, &alive).symbols();
    exports.replace(version).unwrap();
    assert_eq!(run(&mut thread, &reads), Ok(vec![2, 1]));
    assert_eq!(alive.load(Ordering::Relaxed), 2, "`level` is of the first");
    exports.replace(level).unwrap();
    assert_eq!(run(&mut thread, &reads), Ok(vec![2, 2]));
    assert_eq!((alive.load(Ordering::Relaxed), exports.waiting()), (1, 0));
    let named = |name| {
        exports
            .list()
            .into_iter()
            .find(|export| export.name == name)
            .unwrap()
    };
    assert_eq!(named("level").images, 1);
    assert_eq!(named("version").signature.as_deref(), Some(VERSION));
    drop((reads, thread, executor));
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    assert_eq!(exports.remove("level"), Err(ExportError::TargetGone));
}

/// `version` blocks until it is told to go on.
#[test]
fn an_invocation_that_runs_keeps_the_version_that_it_entered() {
    static GATE: Mutex<Option<(std::sync::mpsc::Sender<()>, std::sync::mpsc::Receiver<()>)>> =
        Mutex::new(None);
    extern "C" fn blocks() -> u64 {
        let (entered, go_on) = GATE.lock().unwrap().take().unwrap();
        entered.send(()).unwrap();
        go_on.recv().unwrap();
        7
    }
    for has_owner in [true, false] {
        let ((enter, entered), (go, go_on)) = (channel(), channel());
        *GATE.lock().unwrap() = Some((enter, go_on));
        let (executor, events) = executor(1 << 16, 8);
        let exports = executor.exports().with_timeout(Duration::from_millis(20));
        let (alive, dropped) = (Arc::default(), Arc::new(()));
        let [_, level] = Version::new(1, &alive).symbols();
        let blocks = blocks as extern "C" fn() -> u64;
        // SAFETY: it is of that type.
        let version = unsafe { Symbol::typed("version", VERSION, blocks as *const c_void) };
        let version = match has_owner {
            true => version.owned_by(dropped.clone()),
            false => version,
        };
        exports.add(version).unwrap();
        exports.add(level).unwrap();
        let reads = install(&executor, &reads_versions()).unwrap();
        thread::scope(|scope| {
            let running = scope.spawn(|| run(&mut executor.thread().unwrap(), &reads));
            entered.recv().unwrap();
            // An update waits for it, and changes nothing when it gives up.
            let second = Version::new(2, &alive);
            let update =
                || exports.update(|update| second.symbols().into_iter().for_each(|new| update.replace(new)));
            assert_eq!(update(), Err(ExportError::Timeout(Duration::from_millis(20))));
            assert_eq!(Arc::strong_count(&second), 1);
            // A single change does not wait to take effect.
            exports.replace(second.symbols()[0].clone()).unwrap();
            assert_eq!(run(&mut executor.thread().unwrap(), &reads), Ok(vec![2, 1]));
            // Two were added, and one replaced.
            assert_eq!(events.changes(), (3, 2));
            let owned = usize::from(has_owner);
            assert_eq!(
                (exports.waiting(), Arc::strong_count(&dropped)),
                (owned, 1 + owned)
            );
            executor.drop_replaced();
            assert_eq!((exports.waiting(), events.changes()), (owned, (3, 2)));
            go.send(()).unwrap();
            assert_eq!(running.join().unwrap(), Ok(vec![7, 1]));
            executor.drop_replaced();
            assert_eq!((Arc::strong_count(&dropped), events.changes()), (1, (3, 3)));
            update().unwrap();
            assert_eq!(run(&mut executor.thread().unwrap(), &reads), Ok(vec![2, 2]));
        });
    }
}

/// Invocations on `threads` threads, while function and variable are replaced together.
fn every_invocation_sees_one_version(threads: usize, changes: u32) {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports().with_timeout(Duration::from_secs(60));
    let alive = Arc::default();
    Version::new(0, &alive)
        .symbols()
        .into_iter()
        .for_each(|symbol| exports.add(symbol).unwrap());
    let reads = install(&executor, &reads_versions()).unwrap();
    let (done, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut thread = executor.thread().unwrap();
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let words = run(&mut thread, &reads).unwrap();
                    assert_eq!(words[0], words[1]);
                    assert!(words[0] >= last, "{} after {last}", words[0]);
                    last = words[0];
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 1..=changes {
            let next = Version::new(number, &alive);
            exports
                .update(|update| {
                    next.symbols()
                        .into_iter()
                        .for_each(|symbol| update.replace(symbol))
                })
                .unwrap();
            drop(next);
            assert_eq!(alive.load(Ordering::Relaxed), 1, "after change {number}");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        run(&mut executor.thread().unwrap(), &reads).unwrap()[0],
        u64::from(changes)
    );
    println!("{} invocations, {changes} changes", calls.load(Ordering::Relaxed));
}

#[test]
fn every_invocation_sees_one_version_on_one_thread() {
    every_invocation_sees_one_version(1, 300);
}

#[test]
fn every_invocation_sees_one_version_on_several_threads() {
    every_invocation_sees_one_version(3, 300);
}

/// `version` replaces itself: the change must not wait for the invocation that makes it.
#[test]
fn an_invocation_may_change_what_it_uses() {
    static EXPORTS: Mutex<Option<(Exports, Symbol, bool)>> = Mutex::new(None);
    extern "C" fn replaces_itself() -> u64 {
        let (exports, symbol, whole) = EXPORTS.lock().unwrap().take().unwrap();
        if whole {
            exports.update(|update| update.replace(symbol)).unwrap();
        } else {
            exports.replace(symbol).unwrap();
        }
        assert_eq!(exports.waiting(), 1, "this code runs");
        5
    }
    for whole in [false, true] {
        let (executor, _) = executor(1 << 16, 8);
        let exports = executor.exports();
        let (alive, guard) = (Arc::default(), Arc::new(()));
        let [version, level] = Version::new(1, &alive).symbols();
        *EXPORTS.lock().unwrap() = Some((exports.clone(), version, whole));
        let replaces_itself = replaces_itself as extern "C" fn() -> u64;
        // SAFETY: it is of that type.
        let first = unsafe { Symbol::typed("version", VERSION, replaces_itself as *const c_void) };
        exports.add(first.owned_by(guard.clone())).unwrap();
        exports.add(level).unwrap();
        let reads = install(&executor, &reads_versions()).unwrap();
        let mut thread = executor.thread().unwrap();
        assert_eq!(run(&mut thread, &reads), Ok(vec![5, 1]));
        assert_eq!(run(&mut thread, &reads), Ok(vec![1, 1]));
        assert_eq!((exports.waiting(), Arc::strong_count(&guard)), (0, 1));
    }
}

#[test]
fn what_a_pinned_image_imports_is_never_dropped() {
    let (executor, events) = executor(1 << 16, 8);
    let exports = executor.exports();
    let guard = Arc::new(());
    exports
        .add(variable("level", LEVEL).0.owned_by(guard.clone()))
        .unwrap();
    let pinned = ImageParts {
        flags: ImageFlags::PINNED,
        ..finds("level", LEVEL, ImportFlags::DATA)
    };
    let pinned = install(&executor, &pinned).unwrap();
    let (level, at) = variable("level", LEVEL);
    exports.replace(level).unwrap();
    assert_eq!(run(&mut executor.thread().unwrap(), &pinned), Ok(vec![at]));
    executor.drop_replaced();
    assert_eq!((Arc::strong_count(&guard), events.changes()), (2, (2, 1)));
}

#[test]
fn without_a_barrier_several_exports_do_not_change_together() {
    let alone = thread::spawn(|| {
        if !refuse(libc::SYS_membarrier) {
            return;
        }
        let (executor, _) = executor(1 << 16, 8);
        let exports = executor.exports();
        let alive = Arc::default();
        for symbol in Version::new(1, &alive).symbols() {
            exports.add(symbol).unwrap();
        }
        let reads = install(&executor, &reads_versions()).unwrap();
        let second = Version::new(2, &alive).symbols();
        let replaced =
            exports.update(|update| second.clone().into_iter().for_each(|new| update.replace(new)));
        assert_eq!(replaced, Err(ExportError::NoBarrier));
        let text = ExportError::NoBarrier.to_string();
        assert!(
            text.contains("`membarrier`") && text.contains("help: Linux 4.14"),
            "{text}"
        );
        // One at a time they change.
        second.into_iter().for_each(|new| exports.replace(new).unwrap());
        assert_eq!(run(&mut executor.thread().unwrap(), &reads), Ok(vec![2, 2]));
    });
    alone.join().unwrap();
}
