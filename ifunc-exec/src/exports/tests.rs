//! Exports that change under an image that calls a function and reads a variable.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ifunc_abi::image::{ImageFlags, ImageParts, ImportFlags, ImportPart, Relocation};
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::status::{Rejection, Status};
use proptest::prelude::*;

use super::{ExportError, Exports};
use crate::tests::{executor, image, install};
use crate::{ExecThread, Executor, InProcess, InstalledImage, Invocation, Symbol, fingerprint};

const VERSION: &str = "fn version()->u64";
const LEVEL: &str = "static level:u64";

fn import(symbol: &str, text: &str, flags: ImportFlags) -> ImportPart {
    ImportPart {
        symbol: symbol.into(),
        flags,
        fingerprint: if text.is_empty() { 0 } else { fingerprint::of(text) },
    }
}

/// Answers what `version()` returns and, after it, what `level` holds.
fn reads() -> ImageParts {
    let mut rx = vec![
        0x53, // push rbx
        0x48, 0x89, 0xcb, // mov rbx, rcx
        0x48, 0x8b, 0x05, 0x35, 0, 0, 0, // mov rax, [rip+0x35] → 0x40
        0xff, 0x10, // call [rax]
        0x48, 0x8b, 0x15, 0x2c, 0, 0, 0, // mov rdx, [rip+0x2c] → 0x40
        0x48, 0x8b, 0x52, 0x08, // mov rdx, [rdx+8]
        0x48, 0x8b, 0x12, // mov rdx, [rdx]
        0x48, 0x8b, 0x7b, 0x10, // mov rdi, [rbx+16]
        0x48, 0x89, 0x07, // mov [rdi], rax
        0x48, 0x89, 0x57, 0x08, // mov [rdi+8], rdx
        0x48, 0xc7, 0x43, 0x20, 16, 0, 0, 0, // mov qword [rbx+32], 16
        0x31, 0xc0, // xor eax, eax
        0x5b, 0xc3, // pop rbx ; ret
    ];
    rx.resize(0x48, 0xcc);
    ImageParts {
        slot: Some(0x40),
        imports: vec![
            import("version", VERSION, ImportFlags::NONE),
            import("level", LEVEL, ImportFlags::DATA),
        ],
        ..image("reads", rx)
    }
}

/// Answers the address that `symbol` is bound to: `mov rax, [rip+slot] ; mov rax, [rax] ; mov rdi, [rcx+16] ; mov [rdi], rax ;
/// mov qword [rcx+32], 8 ; xor eax, eax ; ret`.
fn finds(symbol: &str, text: &str, flags: ImportFlags) -> ImageParts {
    let mut rx = vec![
        0x48, 0x8b, 0x05, 0x19, 0, 0, 0, 0x48, 0x8b, 0x00, 0x48, 0x8b, 0x79, 0x10, 0x48, 0x89, 0x07, 0x48,
        0xc7, 0x41, 0x20, 8, 0, 0, 0, 0x31, 0xc0, 0xc3,
    ];
    rx.resize(0x28, 0xcc);
    ImageParts {
        slot: Some(0x20),
        imports: vec![import(symbol, text, flags)],
        ..image("finds", rx)
    }
}

/// Runs an image, and returns the words of its answer.
fn run(thread: &mut ExecThread, image: &Arc<InstalledImage>) -> Result<Vec<u64>, Failed> {
    let mut answer = [0; 64];
    let mut session = thread.session();
    let entry = InProcess::entries(image).next().unwrap();
    // SAFETY: the images above take no payload and no target arguments.
    let invocation = unsafe { Invocation::new(&*entry, [].as_ptr(), 0, std::ptr::null_mut::<c_void>(), 1) };
    let len = InProcess::run(&mut session, invocation, Some(&mut answer)).map_err(|failed| *failed)?;
    let (words, []) = answer[..len].as_chunks() else {
        panic!("{len} bytes")
    };
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

fn rejected(outcome: Result<Vec<u64>, Failed>, reason: Rejection) -> String {
    let failed = outcome.unwrap_err();
    assert_eq!(failed.status, Status::Rejected(reason));
    String::from_utf8(failed.detail).unwrap()
}

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
        // Waits a little: `mov ecx, 50 ; 1: pause ; dec ecx ; jnz 1b ; mov eax, number ; ret`.
        let mut code = vec![0xb9, 50, 0, 0, 0, 0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa, 0xb8];
        code.extend_from_slice(&number.to_le_bytes());
        code.push(0xc3);
        // SAFETY: a fresh mapping, which is written before it becomes executable.
        let code = unsafe {
            let memory = mmap_anonymous(
                std::ptr::null_mut(),
                4096,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .unwrap();
            memory
                .cast::<u8>()
                .copy_from_nonoverlapping(code.as_ptr(), code.len());
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
        // SAFETY: no invocation uses them: that is what the tests are about.
        unsafe {
            self.level.write_volatile(u64::MAX);
            drop(Box::from_raw(self.level));
            rustix::mm::munmap(self.code, 4096).unwrap();
        }
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A variable of any type: only its address counts.
fn variable(name: &'static str, text: &'static str) -> (Symbol, u64) {
    let address = Box::leak(Box::new(0u64));
    // SAFETY: never read.
    let symbol = unsafe { Symbol::typed(name, text, (&raw const *address).cast()) };
    (symbol, (&raw const *address).addr() as u64)
}

#[test]
fn a_replacement_is_seen_at_once_and_the_old_version_is_dropped() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let alive = Arc::default();
    Version::new(1, &alive)
        .symbols()
        .into_iter()
        .for_each(|symbol| exports.add(symbol).unwrap());
    let reads = install(&executor, &reads()).unwrap();
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
    let ((enter, entered), (go, go_on)) = (channel(), channel());
    *GATE.lock().unwrap() = Some((enter, go_on));
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports().with_timeout(Duration::from_millis(20));
    let (alive, dropped) = (Arc::default(), Arc::new(()));
    let [_, level] = Version::new(1, &alive).symbols();
    let blocks = blocks as extern "C" fn() -> u64;
    // SAFETY: it is of that type.
    let version = unsafe { Symbol::typed("version", VERSION, blocks as *const c_void) };
    exports.add(version.owned_by(dropped.clone())).unwrap();
    exports.add(level).unwrap();
    let reads = install(&executor, &reads()).unwrap();
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
        assert_eq!((exports.waiting(), Arc::strong_count(&dropped)), (1, 2));
        executor.drop_replaced();
        assert_eq!(exports.waiting(), 1);
        go.send(()).unwrap();
        assert_eq!(running.join().unwrap(), Ok(vec![7, 1]));
        executor.drop_replaced();
        assert_eq!(Arc::strong_count(&dropped), 1);
        update().unwrap();
        assert_eq!(run(&mut executor.thread().unwrap(), &reads), Ok(vec![2, 2]));
    });
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
    let reads = install(&executor, &reads()).unwrap();
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

#[test]
fn what_is_removed_ends_the_images_that_use_it_until_it_comes_back() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let alive = Arc::default();
    let first = Version::new(1, &alive);
    first
        .symbols()
        .into_iter()
        .for_each(|symbol| exports.add(symbol).unwrap());
    let parts = reads();
    let reads = install(&executor, &parts).unwrap();
    let mut thread = executor.thread().unwrap();
    exports.remove("level").unwrap();
    assert_eq!(
        rejected(run(&mut thread, &reads), Rejection::MissingImport),
        "level"
    );
    let refusal = install(&executor, &parts).unwrap_err();
    assert_eq!(refusal, Refusal::new(Rejection::MissingImport, "level"));
    assert!(matches!(
        exports.remove("level"),
        Err(ExportError::NotExported { .. })
    ));
    // Of another type: of no use to that image.
    let (other, _) = variable("level", "static level:u32");
    exports.add(other).unwrap();
    let why = rejected(run(&mut thread, &reads), Rejection::ImportSignature);
    assert_eq!(why, "level static level:u32");
    let [_, level] = Version::new(2, &alive).symbols();
    exports
        .update(|update| {
            update.remove("level");
            update.add(level);
        })
        .unwrap();
    assert_eq!(run(&mut thread, &reads), Ok(vec![1, 2]));
    // What no connection has bound goes, and does not come back as it was.
    drop(reads);
    exports.remove("version").unwrap();
    assert_eq!(executor.image_count(), 0);
}

#[test]
fn a_replacement_of_another_type_is_refused_with_both_texts() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let (level, at) = variable("level", LEVEL);
    exports.add(level.clone()).unwrap();
    let finds = install(&executor, &finds("level", LEVEL, ImportFlags::DATA)).unwrap();
    let (other, _) = variable("level", "static level:u32");
    let error = exports.replace(other).unwrap_err().to_string();
    assert!(
        error.contains(LEVEL) && error.contains("static level:u32") && error.contains("help: "),
        "{error}"
    );
    // SAFETY: never read.
    let untyped = unsafe { Symbol::untyped("level", std::ptr::null()) };
    let error = exports.replace(untyped.clone()).unwrap_err().to_string();
    assert!(error.contains(LEVEL) && error.contains("not stated"), "{error}");
    assert!(matches!(exports.add(level), Err(ExportError::Exists { .. })));
    assert!(matches!(
        exports.replace(untyped.named("levels")),
        Err(ExportError::NotExported { .. })
    ));
    for name in ["memcpy", "__ifunc_panic"] {
        assert!(matches!(exports.remove(name), Err(ExportError::OfRuntime { .. })));
    }
    // All of an update, or nothing of it.
    let error = exports.update(|update| {
        update.replace(variable("level", LEVEL).0);
        update.remove("levels");
    });
    assert!(matches!(error, Err(ExportError::NotExported { .. })));
    assert_eq!(run(&mut executor.thread().unwrap(), &finds), Ok(vec![at]));
}

#[test]
fn a_type_that_becomes_known_must_be_that_of_the_images() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    // SAFETY: never read.
    exports
        .add(unsafe { Symbol::untyped("level", std::ptr::null()) })
        .unwrap();
    let _finds = install(&executor, &finds("level", LEVEL, ImportFlags::DATA)).unwrap();
    let error = exports
        .replace(variable("level", "static level:u32").0)
        .unwrap_err();
    assert!(
        matches!(&error, ExportError::Image { image, .. } if image == "finds"),
        "{error}"
    );
    exports.replace(variable("level", LEVEL).0).unwrap();
}

#[test]
fn a_weak_import_is_bound_as_soon_as_there_is_one() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let finds = install(&executor, &finds("level", "", ImportFlags::WEAK)).unwrap();
    let mut thread = executor.thread().unwrap();
    assert_eq!(run(&mut thread, &finds), Ok(vec![0]));
    let (level, at) = variable("level", LEVEL);
    exports.add(level).unwrap();
    assert_eq!(run(&mut thread, &finds), Ok(vec![at]));
    exports.remove("level").unwrap();
    assert_eq!(run(&mut thread, &finds), Ok(vec![0]));
}

#[test]
fn an_address_in_static_data_is_not_replaced_while_the_image_is_bound() {
    let (executor, events) = executor(1 << 16, 8);
    let exports = executor.exports();
    exports.add(variable("level", LEVEL).0).unwrap();
    let parts = ImageParts {
        relocations: vec![Relocation::Import {
            offset: 0x28,
            import: 0,
            addend: 0,
        }],
        ..finds("level", LEVEL, ImportFlags::DATA)
    };
    let mut parts = parts;
    parts.rx.resize(0x30, 0);
    let holds = install(&executor, &parts).unwrap();
    for change in [
        exports.replace(variable("level", LEVEL).0),
        exports.remove("level"),
    ] {
        let error = change.unwrap_err();
        assert!(
            matches!(&error, ExportError::AddressInData { images, .. } if images == &["finds"]),
            "{error}"
        );
    }
    drop(holds);
    let (level, at) = variable("level", LEVEL);
    exports.replace(level).unwrap();
    assert_eq!(*events.0.lock().unwrap(), ["+finds", "-"]);
    let again = install(&executor, &parts).unwrap();
    assert_eq!(run(&mut executor.thread().unwrap(), &again), Ok(vec![at]));
}

#[test]
fn what_a_pinned_image_imports_is_never_dropped() {
    let (executor, _) = executor(1 << 16, 8);
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
    assert_eq!(Arc::strong_count(&guard), 2);
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
        let reads = install(&executor, &reads()).unwrap();
        let mut thread = executor.thread().unwrap();
        assert_eq!(run(&mut thread, &reads), Ok(vec![5, 1]));
        assert_eq!(run(&mut thread, &reads), Ok(vec![1, 1]));
        assert_eq!((exports.waiting(), Arc::strong_count(&guard)), (0, 1));
    }
}

/// A library that defines these things.
fn library(folder: &std::path::Path, name: &str, source: &str) -> std::path::PathBuf {
    let (c, library) = (
        folder.join(name).with_extension("c"),
        folder.join(name).with_extension("so"),
    );
    std::fs::write(&c, source).unwrap();
    let mut cc = std::process::Command::new("cc");
    let status = cc
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&c)
        .status()
        .unwrap();
    assert!(status.success());
    library
}

#[test]
fn a_library_is_loaded_and_replaced() {
    const LIBM: &str = "libm.so.6";
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let parts = ImageParts {
        needed: vec![LIBM.into()],
        ..finds("cosf", "", ImportFlags::NONE)
    };
    assert_eq!(
        install(&executor, &parts).unwrap_err().reason,
        Rejection::NeededLibrary
    );
    let absent = "libifunc-is-not-there.so.7";
    // SAFETY: there is no such library, and the tests are linked with the other one anyway.
    let (error, loaded) = unsafe { (exports.load_library(absent), exports.load_library(LIBM)) };
    assert!(matches!(error, Err(ExportError::Library { .. })), "{error:?}");
    loaded.unwrap();
    let finds = install(&executor, &parts).unwrap();
    let mut thread = executor.thread().unwrap();
    let first = run(&mut thread, &finds).unwrap();

    let folder = std::env::temp_dir().join(format!("ifunc-exports-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let one = library(&folder, "one", "float cosf(float x) { return x; }");
    let two = library(&folder, "two", "float cosf(float x) { return -x; }");
    let other = library(&folder, "other", "float sinf(float x) { return x; }");
    // SAFETY: they have no constructors, and the image calls nothing.
    let replace = |file| unsafe { exports.replace_library(LIBM, file) };
    replace(&one).unwrap();
    let second = run(&mut thread, &finds).unwrap();
    let is_open = |file: &std::path::Path| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(file.to_str().unwrap())
    };
    assert!(is_open(&one));
    let error = replace(&other).unwrap_err();
    assert!(
        matches!(&error, ExportError::Image { detail, .. } if detail.starts_with("cosf")),
        "{error}"
    );
    replace(&two).unwrap();
    let third = run(&mut thread, &finds).unwrap();
    assert!(first != second && second != third && first != third);
    assert!(is_open(&two) && !is_open(&one));
    std::fs::remove_dir_all(folder).unwrap();
}

/// Replaces `version` by a function of its own, which returns 9.
fn replaces_by_its_own(signature: &[u8; 17]) -> ImageParts {
    let mut rx = vec![
        0x53, // push rbx
        0x48, 0x89, 0xcf, // mov rdi, rcx
        0x48, 0x8d, 0x35, 0x3d, 0, 0, 0, // lea rsi, [rip+0x3d] → 0x48
        0xba, 7, 0, 0, 0, // mov edx, 7
        0x48, 0x8d, 0x0d, 0x39, 0, 0, 0, // lea rcx, [rip+0x39] → 0x50
        0x41, 0xb8, 17, 0, 0, 0, // mov r8d, 17
        0x4c, 0x8d, 0x0d, 0x0c, 0, 0, 0, // lea r9, [rip+0xc] → 0x30
        0x48, 0x8b, 0x05, 0x15, 0, 0, 0, // mov rax, [rip+0x15] → 0x40
        0xff, 0x10, // call [rax]
        0x5b, 0xc3, // pop rbx ; ret
        0xcc, 0xb8, 9, 0, 0, 0, 0xc3, // mov eax, 9 ; ret
    ];
    rx.resize(0x48, 0xcc);
    rx.extend_from_slice(b"version\0");
    rx.extend_from_slice(signature);
    ImageParts {
        slot: Some(0x40),
        imports: vec![import("__ifunc_replace_export", "", ImportFlags::NONE)],
        ..image("replaces", rx)
    }
}

#[test]
fn an_image_replaces_exports_by_its_own_code_if_it_is_allowed() {
    let (executor, events) = executor(1 << 16, 8);
    let parts = replaces_by_its_own(b"fn version()->u64");
    assert_eq!(
        install(&executor, &parts).unwrap_err().reason,
        Rejection::MissingImport
    );
    executor.shared().symbols.write().unwrap().allow_remote_exports();
    let exports = executor.exports();
    let alive = Arc::default();
    let first = Version::new(1, &alive);
    first
        .symbols()
        .into_iter()
        .for_each(|symbol| exports.add(symbol).unwrap());
    let reads = install(&executor, &reads()).unwrap();
    let mut thread = executor.thread().unwrap();
    let replaces = install(&executor, &parts).unwrap();
    assert_eq!(run(&mut thread, &replaces), Ok(vec![]));
    drop(replaces);
    assert_eq!(run(&mut thread, &reads), Ok(vec![9, 1]));
    // Of another type: refused. A code of an ifunc that is no success is a failure.
    let other = install(&executor, &replaces_by_its_own(b"fn version()->i64")).unwrap();
    assert!(run(&mut thread, &other).is_err());
    assert_eq!(run(&mut thread, &reads), Ok(vec![9, 1]));
    exports.replace(first.symbols()[0].clone()).unwrap();
    assert_eq!(run(&mut thread, &reads), Ok(vec![1, 1]));
    assert_eq!((exports.waiting(), executor.image_count()), (0, 3));
    assert_eq!(events.0.lock().unwrap().len(), 3);
}

/// A step of the model.
#[derive(Clone, Debug)]
enum Step {
    Add(usize, bool),
    Replace(usize, bool),
    Remove(usize),
    Install(usize),
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    prop_oneof![
        (name.clone(), any::<bool>()).prop_map(|(name, text)| Step::Add(name, text)),
        (name.clone(), any::<bool>()).prop_map(|(name, text)| Step::Replace(name, text)),
        name.clone().prop_map(Step::Remove),
        (0..IMAGES).prop_map(Step::Install),
        (0..IMAGES).prop_map(Step::Release),
    ]
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const TEXTS: [&str; 2] = ["static x:u32", "static x:u64"];
/// An image for each name, type and kind of import.
const IMAGES: usize = NAMES.len() * 3 * 2;

/// What image `number` imports: a name, a text (none: 2), and whether it may be missing.
fn imports(number: usize) -> (usize, usize, bool) {
    (number % 3, number / 3 % 3, number / 9 == 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn images_are_bound_as_a_model_says(steps in proptest::collection::vec(step(), 1..60)) {
        let (executor, _) = executor(1 << 20, 64);
        let exports = executor.exports();
        let mut thread = executor.thread().unwrap();
        // Name → text and address; number → image.
        let mut model = BTreeMap::<usize, (usize, u64)>::new();
        let mut bound = BTreeMap::<usize, Arc<InstalledImage>>::new();
        // What an image finds: its answer, or why there is none.
        let finds_what = |model: &BTreeMap<usize, (usize, u64)>, number| {
            let (name, text, is_weak) = imports(number);
            match model.get(&name) {
                None if is_weak => Ok(0),
                None => Err(Rejection::MissingImport),
                Some((exported, at)) if text == 2 || *exported == text => Ok(*at),
                Some(_) => Err(Rejection::ImportSignature),
            }
        };
        for step in steps {
            match step {
                Step::Add(name, text) => {
                    let (symbol, at) = variable(NAMES[name], TEXTS[usize::from(text)]);
                    let exists = model.contains_key(&name);
                    prop_assert_eq!(exports.add(symbol).is_err(), exists);
                    model.entry(name).or_insert((text.into(), at));
                }
                Step::Replace(name, text) => {
                    let (symbol, at) = variable(NAMES[name], TEXTS[usize::from(text)]);
                    let fits = model.get(&name).is_some_and(|(exported, _)| *exported == usize::from(text));
                    prop_assert_eq!(exports.replace(symbol).is_ok(), fits);
                    if fits {
                        model.insert(name, (text.into(), at));
                    }
                }
                Step::Remove(name) => {
                    prop_assert_eq!(exports.remove(NAMES[name]).is_ok(), model.remove(&name).is_some());
                }
                Step::Install(number) => {
                    let (name, text, is_weak) = imports(number);
                    let flags = if is_weak { ImportFlags::WEAK } else { ImportFlags::NONE };
                    let parts = finds(NAMES[name], TEXTS.get(text).unwrap_or(&""), flags);
                    match (install(&executor, &parts), finds_what(&model, number)) {
                        (Ok(image), Ok(_)) => drop(bound.insert(number, image)),
                        (Err(refusal), Err(reason)) => prop_assert_eq!(refusal.reason, reason),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                Step::Release(number) => drop(bound.remove(&number)),
            }
            for (number, image) in &bound {
                match (run(&mut thread, image), finds_what(&model, *number)) {
                    (Ok(found), Ok(at)) => prop_assert_eq!(found, vec![at]),
                    (Err(failed), Err(reason)) => prop_assert_eq!(failed.status, Status::Rejected(reason)),
                    other => prop_assert!(false, "image {number}: {other:?}"),
                }
            }
        }
        prop_assert_eq!(exports.waiting(), 0);
    }
}
