//! Exports that change while sources call ifuncs that import them.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::images::reads_versions;
use super::running::{accepting, place, roomy, source, unique};
use crate::{ByName, Error, ExportError, Handle, Rejection, Source, Symbol, TargetBuilder};

const VERSION: &str = "fn version()->u64";
const LEVEL: &str = "static level:u64";

/// Code and data of a version, which fault or are wrong as soon as it is dropped.
struct Version {
    code: *mut c_void,
    level: *mut u64,
    alive: Arc<AtomicUsize>,
}

// SAFETY: memory that belongs to this value.
unsafe impl Send for Version {}
// SAFETY: it is not changed until it is dropped.
unsafe impl Sync for Version {}

impl Version {
    fn new(number: u32, alive: &Arc<AtomicUsize>) -> Arc<Self> {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
        // mov eax, number ; ret
        let [a, b, c, d] = number.to_le_bytes();
        let code = [0xb8, a, b, c, d, 0xc3];
        // SAFETY: a fresh mapping, which is written before it becomes executable.
        let code = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let memory = mmap_anonymous(std::ptr::null_mut(), 4096, protection, MapFlags::PRIVATE).unwrap();
            memory.cast::<[u8; 6]>().write(code);
            mprotect(memory, 4096, MprotectFlags::READ | MprotectFlags::EXEC).unwrap();
            memory
        };
        alive.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            code,
            level: Box::into_raw(Box::new(u64::from(number))),
            alive: alive.clone(),
        })
    }

    fn symbols(self: &Arc<Self>) -> [Symbol; 2] {
        // SAFETY: the code is such a function, the box such a variable, and both are as old as their guard.
        let symbols = unsafe {
            [
                Symbol::typed("version", VERSION, self.code),
                Symbol::typed("level", LEVEL, self.level.cast()),
            ]
        };
        symbols.map(|symbol| symbol.owned_by(self.clone()))
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        // SAFETY: no invocation uses them: that is what the test is about.
        unsafe {
            self.level.write_volatile(u64::MAX);
            drop(Box::from_raw(self.level));
            rustix::mm::munmap(self.code, 4096).unwrap();
        }
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

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
    let address = target.address();
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
