//! The executor as its users see it, with images whose machine code is written out here.

mod allocations;
mod ended;
pub(crate) mod kernel;
mod refuse;
mod unguarded;

use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ifunc_abi::image::{EntryPart, ImageFlags, ImageParts, ImportFlags, ImportPart, RawHeader};
use ifunc_abi::refusal::{Failed, Refusal};
use ifunc_abi::status::{Failure, FaultDetail, PanicDetail, Rejection, Status};

use crate::arch::ARCH;
use crate::arch::testing::code::{self, LOOPS_AT, READS_AT};
use crate::runner::RunnerCounts;
use crate::{
    ContainOptions, DebugInfo, Executor, HostSymbols, ImageExecutor, ImageExecutorOptions, ImageProperties,
    InstalledImage, Invocation, Observer,
};

/// What an executor reported.
#[derive(Debug, Default)]
pub(crate) struct Events(pub(crate) Mutex<Vec<String>>, Mutex<(u64, u64)>);

impl Events {
    /// The numbers of the latest change of exports, and of the latest that has ended.
    pub(crate) fn changes(&self) -> (u64, u64) {
        *self.1.lock().unwrap()
    }
}

impl Observer for Events {
    fn installed(&self, image: &InstalledImage) {
        self.0.lock().unwrap().push(format!("+{}", image.names()));
    }

    fn evicted(&self, _: &ImageProperties) {
        self.0.lock().unwrap().push("-".into());
    }

    fn exports_changed(&self, change: u64) {
        self.1.lock().unwrap().0 = change;
    }

    fn change_ended(&self, change: u64, _: Duration) {
        self.1.lock().unwrap().1 = change;
    }

    fn runners_changed(&self, _: RunnerCounts) {}
}

pub(crate) fn executor(code_bytes: usize, max_images: usize) -> (ImageExecutor, Arc<Events>) {
    executor_with(
        code_bytes,
        max_images,
        DebugInfo::default(),
        ContainOptions::default(),
    )
}

pub(crate) fn options() -> ImageExecutorOptions {
    ImageExecutorOptions {
        code_bytes: 1 << 16,
        max_images: 8,
        max_image_memory: 1 << 16,
        stack_bytes: 1 << 20,
        debug: DebugInfo::default(),
        library_folders: Vec::new,
        contain: ContainOptions::default(),
        answers: None,
        runners: None,
    }
}

pub(crate) fn executor_with(
    code_bytes: usize,
    max_images: usize,
    debug: DebugInfo,
    contain: ContainOptions,
) -> (ImageExecutor, Arc<Events>) {
    let options = ImageExecutorOptions {
        code_bytes,
        max_images,
        debug,
        contain,
        ..options()
    };
    let events = Arc::<Events>::default();
    let executor = ImageExecutor::new(options, HostSymbols::new().unwrap(), events.clone()).unwrap();
    (executor, events)
}

pub(crate) fn install(executor: &ImageExecutor, parts: &ImageParts) -> Result<Arc<InstalledImage>, Refusal> {
    let bytes = parts.encode().unwrap();
    let id = *blake3::hash(&bytes).as_bytes();
    executor.install(&executor.validate(&id, &bytes)?, None)
}

pub(crate) fn image(name: &str, rx: Vec<u8>) -> ImageParts {
    ImageParts {
        entries: vec![EntryPart::new(name)],
        arch: ARCH,
        rx_align_log2: 4,
        rx,
        ..ImageParts::default()
    }
}

/// Adds the payload to the target and answers the payload's length.
fn add() -> ImageParts {
    image("add", code::add())
}

/// Panics with the message `ouch`, through the slot.
fn panics() -> ImageParts {
    let (rx, slot) = code::panics();
    ImageParts {
        slot: Some(slot),
        imports: vec![
            ImportPart {
                symbol: "__ifunc_panic".into(),
                flags: ImportFlags::NONE,
                fingerprint: 0,
            },
            ImportPart {
                symbol: "not_there".into(),
                flags: ImportFlags::WEAK,
                fingerprint: 0,
            },
        ],
        ..image("panics", rx)
    }
}

fn run(
    executor: &ImageExecutor,
    image: &Arc<InstalledImage>,
    answer: Option<&mut [u8]>,
) -> (u64, Result<usize, Failed>) {
    let payload = 5u64.to_le_bytes();
    let mut target = 37u64;
    let mut thread = executor.thread().unwrap();
    let mut session = thread.session();
    let entry = ImageExecutor::entries(image).next().unwrap();
    // SAFETY: the images above are well-behaved and take eight bytes of payload and a `u64`; the payload is aligned as they
    // ask.
    let invocation = unsafe {
        let target = (&raw mut target).cast::<c_void>();
        Invocation::new(&*entry, payload.as_ptr(), payload.len(), target, 1)
    };
    let outcome = ImageExecutor::run(&mut session, || invocation, answer);
    drop(session);
    (target, outcome.map_err(|failed| *failed))
}

#[test]
fn an_entry_has_a_function_for_batches_if_its_image_states_one() {
    let (executor, _) = executor(1 << 16, 4);
    for batch in [None, Some(0)] {
        let mut parts = add();
        parts.entries[0].batch = batch;
        let installed = install(&executor, &parts).unwrap();
        let entry = ImageExecutor::entries(&installed).next().unwrap();
        assert_eq!(ImageExecutor::has_batch(&entry), batch.is_some());
    }
}

#[test]
fn an_image_is_installed_once_and_runs() {
    let (executor, events) = executor(1 << 16, 4);
    let added = install(&executor, &add()).unwrap();
    assert!(Arc::ptr_eq(&added, &install(&executor, &add()).unwrap()));
    assert_eq!(executor.image_count(), 1);
    assert_eq!(*events.0.lock().unwrap(), ["+add"]);
    assert_eq!(run(&executor, &added, Some(&mut [0; 8])), (42, Ok(8)));
    assert_eq!(run(&executor, &added, None), (42, Ok(0)));
    let (_, outcome) = run(&executor, &added, Some(&mut [0; 4]));
    assert_eq!(outcome.unwrap_err().status, Status::Failed(Failure::Answer));
}

#[test]
fn a_payload_lies_where_its_type_may_lie() {
    let (executor, _) = executor(1 << 16, 4);
    let added = install(&executor, &add()).unwrap();
    let entry = ImageExecutor::entries(&added).next().unwrap();
    let align = entry.payload_align;
    for (at, may_lie) in [
        (64 * align, true),
        (65 * align, true),
        (64 * align + 1, align == 1),
    ] {
        assert_eq!(
            entry.is_aligned(std::ptr::without_provenance(at)),
            may_lie,
            "{at}"
        );
    }
}

#[test]
fn an_image_keeps_its_bytes_and_the_entries_of_its_got() {
    let (executor, _) = executor(1 << 16, 4);
    let panics = panics();
    let installed = install(&executor, &panics).unwrap();
    let original = installed.original().unwrap();
    assert_eq!(original[..], panics.encode().unwrap()[..]);
    let entries: Vec<_> = original
        .got_entries()
        .map(|entry| (entry.import.symbol.to_owned(), entry.value))
        .collect();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].0, "__ifunc_panic");
    assert_ne!(entries[0].1, 0);
    assert_eq!(entries[1], ("not_there".into(), 0));
    let (_, outcome) = run(&executor, &installed, None);
    let failed = outcome.unwrap_err();
    assert_eq!(failed.status, Status::Failed(Failure::Panic));
    let detail = PanicDetail::parse(&failed.detail).unwrap();
    assert_eq!((detail.message, detail.file), ("ouch", ""));
}

#[test]
fn what_is_kept_of_originals_counts_for_the_room_of_the_cache() {
    if kernel::is_emulated() {
        eprintln!(
            "SKIPPED: this emulator keeps what it translated, so the room of an image that goes is not used again"
        );
        return;
    }
    // Each takes a kilobyte of code, and what is beside the code in its bytes.
    let numbered = |number: u8| ImageParts {
        ..image(
            &format!("seven_{number}"),
            [&code::returns(7)[..], &[number; 1000]].concat(),
        )
    };
    let (executor, events) = executor(8 << 10, 1000);
    let first = install(&executor, &numbered(0)).unwrap();
    let fits = (8 << 10) / first.footprint();
    assert!(fits < (8 << 10) / 1024, "code alone would leave room for more");
    for number in 1..20 {
        install(&executor, &numbered(number)).unwrap();
    }
    assert_eq!(executor.image_count(), fits);
    let evicted = events
        .0
        .lock()
        .unwrap()
        .iter()
        .filter(|event| *event == "-")
        .count();
    assert_eq!(evicted, 20 - fits);
    // It is bound, so it stays.
    assert!(Arc::ptr_eq(&first, &install(&executor, &numbered(0)).unwrap()));
    let large = image("large", [&code::returns(7)[..], &[0; 8000]].concat());
    let refusal = install(&executor, &large).unwrap_err();
    assert_eq!(refusal.reason, Rejection::CacheFull);
    assert!(refusal.detail.starts_with("no room for"), "{}", refusal.detail);
}

#[test]
fn a_pinned_image_outlives_its_executor() {
    let (executor, _) = executor(1 << 16, 4);
    let pinned = ImageParts {
        flags: ImageFlags::PINNED,
        ..image("seven", code::returns(7))
    };
    let installed = install(&executor, &pinned).unwrap();
    let entry = ImageExecutor::entries(&installed).next().unwrap();
    // SAFETY: `mov eax, 7 ; ret` is this function, and the image is installed.
    let seven: extern "C" fn() -> u32 = unsafe { std::mem::transmute(entry.entrance.address()) };
    drop(entry);
    drop(installed);
    drop(executor);
    assert_eq!(seven(), 7);
}

#[test]
fn a_pinned_image_is_not_evicted() {
    let numbered = |number: u8, flags: ImageFlags| ImageParts {
        flags,
        ..image(
            &format!("seven_{number}"),
            [&code::returns(7)[..], &[number]].concat(),
        )
    };
    let (executor, events) = executor(1 << 16, 2);
    let pinned = install(&executor, &numbered(0, ImageFlags::PINNED)).unwrap();
    let weak = Arc::downgrade(&pinned);
    drop(pinned);
    // It was bound longest ago.
    for number in 1..10 {
        install(&executor, &numbered(number, ImageFlags::NONE)).unwrap();
    }
    assert!(weak.upgrade().is_some());
    let events = events.0.lock().unwrap();
    assert_eq!(events.iter().filter(|event| *event == "-").count(), 8);
}

#[test]
fn other_bytes_than_those_of_the_id_are_refused() {
    let (executor, _) = executor(1 << 16, 4);
    let bytes = add().encode().unwrap();
    let refusal = executor.validate(&[0; 32], &bytes).unwrap_err();
    assert_eq!(refusal.reason, Rejection::IdMismatch);
}

#[test]
fn images_of_another_version_and_damaged_ones_are_refused() {
    let (executor, _) = executor(1 << 16, 4);
    let refused = |change: fn(&mut Vec<u8>)| {
        let mut bytes = add().encode().unwrap();
        change(&mut bytes);
        let id = *blake3::hash(&bytes).as_bytes();
        executor.validate(&id, &bytes).unwrap_err()
    };
    let refusal = refused(|bytes| bytes[offset_of!(RawHeader, abi)] = 0xfe);
    assert_eq!(refusal.reason, Rejection::AbiVersion);
    assert!(
        refusal.detail.contains("image uses ABI 254") && refusal.detail.contains("help: rebuild it"),
        "{refusal:?}"
    );
    let refusal = refused(|bytes| bytes.truncate(bytes.len() - 1));
    assert_eq!(refusal.reason, Rejection::BadImage);
    assert!(refusal.detail.contains("the header states"), "{refusal:?}");
}

#[test]
fn a_host_function_that_finds_little_stack_ends_the_invocation() {
    let (rx, slot) = code::deep();
    let deep = ImageParts {
        slot: Some(slot),
        imports: vec![ImportPart {
            symbol: "__ifunc_alloc".into(),
            flags: ImportFlags::NONE,
            fingerprint: 0,
        }],
        ..image("deep", rx)
    };
    let (executor, _) = executor(1 << 16, 4);
    let deep = install(&executor, &deep).unwrap();
    let failed = run(&executor, &deep, None).1.unwrap_err();
    assert_eq!(failed.status, Status::Failed(Failure::StackLow));
    let detail = String::from_utf8(failed.detail).unwrap();
    assert_eq!(detail, "help: `Policy::stack(..)` gives more");
}

#[test]
fn a_result_that_is_not_defined_fails_the_invocation() {
    let (executor, _) = executor(1 << 16, 4);
    let seven = install(&executor, &image("seven", code::returns(7))).unwrap();
    let failed = run(&executor, &seven, None).1.unwrap_err();
    assert_eq!(failed.status, Status::Failed(Failure::UnknownResult));
    let detail = String::from_utf8(failed.detail).unwrap();
    assert_eq!(
        detail,
        "code 7; help: return 0, or declare the function without a result"
    );
}

/// Code that calls its only import with these arguments, of 32 bits each: through the slot, as compiled code does.
fn calls(import: &str, arguments: [u32; 3]) -> ImageParts {
    let (rx, slot) = code::calls(arguments);
    ImageParts {
        slot: Some(slot),
        imports: vec![ImportPart {
            symbol: import.into(),
            flags: ImportFlags::NONE,
            fingerprint: 0,
        }],
        ..image("calls", rx)
    }
}

/// The reason and the text of an invocation that failed.
fn failure(executor: &ImageExecutor, parts: &ImageParts) -> (Failure, String, Vec<u32>) {
    let installed = install(executor, parts).unwrap();
    let failed = run(executor, &installed, None).1.unwrap_err();
    let detail = FaultDetail::parse(&failed.detail).unwrap();
    let Status::Failed(why) = failed.status else {
        panic!("{failed:?}")
    };
    (why, detail.text.to_owned(), detail.offsets().collect())
}

#[test]
fn faults_and_deadlines_of_images_end_their_invocations() {
    let contain = ContainOptions {
        faults: true,
        deadline: Some(std::time::Duration::from_millis(10)),
    };
    let (executor, _) = executor_with(1 << 16, 16, DebugInfo::default(), contain);
    let reads = image("reads", code::reads_null());
    let jumps = image("jumps", code::jumps());
    let loops = image("loops", code::loops());
    let added = install(&executor, &add()).unwrap();
    for _ in 0..10 {
        let (why, text, calls_of) = failure(&executor, &reads);
        assert_eq!(
            text,
            format!("SIGSEGV (not mapped), address 0x0, at offset {READS_AT:#x} of the image")
        );
        assert_eq!((why, calls_of.first()), (Failure::Fault, Some(&(READS_AT + 1))));
        let (why, text, calls_of) = failure(&executor, &jumps);
        assert_eq!(text, "SIGSEGV (not mapped), address 0x40, outside of the image");
        assert_eq!((why, calls_of.first()), (Failure::Fault, None));
        assert_eq!(run(&executor, &added, None), (42, Ok(0)));
    }
    let (why, text, calls_of) = failure(&executor, &loops);
    let at = format!("it ran for longer than 10ms, at offset {LOOPS_AT:#x} of the image");
    assert_eq!(text, at);
    assert_eq!(
        (why, calls_of.first()),
        (Failure::Deadline, Some(&(LOOPS_AT + 1)))
    );
    // A function of memory may be left. Where its extent is not known, this would end the process.
    if crate::contain::memory::contains(crate::imports::memory_functions().next().unwrap()) {
        let (why, text, _) = failure(&executor, &calls("memcpy", [16, 16, 300]));
        assert!(text.starts_with("SIGSEGV (not mapped), address 0x"), "{text}");
        assert_eq!(why, Failure::Fault);
    }
    assert_eq!(run(&executor, &added, None), (42, Ok(0)));
}

unsafe extern "C" fn reads(address: *const u32) -> u32 {
    // SAFETY: none: the fault is the test.
    unsafe { address.read_volatile() }
}

/// Calls the C library's `memcpy`, and goes on when that has returned.
unsafe extern "C" fn copies(from: *const u8) -> u32 {
    let mut copy = [0_u8; 64];
    let len = std::hint::black_box(copy.len());
    // SAFETY: none: the fault is the test.
    unsafe { libc::memcpy(copy.as_mut_ptr().cast(), from.cast(), len) };
    std::hint::black_box(copy)[7].into()
}

/// A handler that relies on `SA_RESETHAND`: it returns to the instruction that faulted.
extern "C" fn reports_once(_: libc::c_int) {
    const SEEN: &[u8] = b"the handler of the host ran\n";
    // SAFETY: reads the constant.
    unsafe { libc::write(2, SEEN.as_ptr().cast(), SEEN.len()) };
}

/// In processes of their own, which they end.
#[test]
fn what_cannot_be_left_ends_the_process_with_a_message() {
    use std::os::unix::process::ExitStatusExt as _;
    const CHILD: &str = "IFUNC_TEST_UNCONTAINED";
    let name = "tests::what_cannot_be_left_ends_the_process_with_a_message";
    if let Ok(case) = std::env::var(CHILD) {
        let contain = ContainOptions {
            faults: case.starts_with("unguarded"),
            deadline: None,
        };
        if case == "default" {
            // SAFETY: plain data, for which zeros are valid; the handler only writes.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = reports_once as *const () as usize;
                action.sa_flags = libc::SA_RESETHAND;
                libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
            }
        }
        let options = ImageExecutorOptions { contain, ..options() };
        let mut symbols = HostSymbols::new().unwrap();
        for (name, address) in [
            ("reads", reads as *const c_void),
            ("copies", copies as *const c_void),
            ("overflows", unguarded::overflows as *const c_void),
        ] {
            // SAFETY: the functions take an address.
            symbols
                .allow(unsafe { crate::Symbol::untyped(name, address) })
                .unwrap();
        }
        let executor = ImageExecutor::new(options, symbols, Arc::<Events>::default()).unwrap();
        let parts = match &*case {
            "unguarded" => calls("reads", [8, 0, 0]),
            "unguarded overflow" => calls("overflows", [8, 0, 0]),
            "unguarded copy" => calls("copies", [8, 0, 0]),
            _ => image("reads_null", code::reads_null()),
        };
        let _ = run(&executor, &install(&executor, &parts).unwrap(), None);
        return;
    }
    let cases = [
        (
            "unguarded",
            "in an invocation of `calls` for source 1, at 0x",
            "without a guard",
        ),
        (
            "unguarded overflow",
            "in an invocation of `calls` for source 1, at 0x",
            "without a guard",
        ),
        (
            "unguarded copy",
            "in an invocation of `calls` for source 1, at 0x",
            "without a guard",
        ),
        ("default", "the handler of the host ran", "Level::Contained"),
        (
            "default",
            &format!("`reads_null` for source 1, at offset {READS_AT:#x} of its image, address 0x0"),
            "Level::Contained",
        ),
    ];
    for (case, what, why) in cases {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output = again
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, case)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{case}: {text}");
        assert!(
            text.contains("ifunc: SIGSEGV in an invocation of"),
            "{case}: {text}"
        );
        assert!(text.contains(what) && text.contains(why), "{case}: {text}");
    }
}

/// Nanoseconds of an install, of which the registration with debuggers may be one twentieth.
#[test]
#[ignore = "nightly: a measurement"]
fn measured_an_install_with_and_without_debuggers() {
    const INSTALLS: usize = 1000;
    let images: Vec<_> = (0..INSTALLS)
        .map(|number| {
            let parts = ImageParts {
                entries: vec![EntryPart::new(format!("panics_{number}"))],
                ..panics()
            };
            let bytes = parts.encode().unwrap();
            (*blake3::hash(&bytes).as_bytes(), bytes)
        })
        .collect();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..30 {
        for (times, debug) in times.iter_mut().zip([DebugInfo::none(), DebugInfo::names()]) {
            let (executor, _) = executor_with(1 << 24, INSTALLS, debug, ContainOptions::default());
            let began = std::time::Instant::now();
            for (id, bytes) in &images {
                let valid = executor.validate(id, bytes).unwrap();
                executor.install(&valid, None).unwrap();
            }
            times.push(began.elapsed().as_nanos() as usize / INSTALLS);
        }
    }
    for (times, what) in times.iter_mut().zip(["nothing", "names"]) {
        times.sort_unstable();
        let (least, median) = (times[0], times[times.len() / 2]);
        println!("debuggers learn {what}: {least} ns at least, {median} ns in the median");
    }
}

#[test]
fn a_variable_is_no_function() {
    #[ifunc::export]
    fn weight(of: u64) -> u64 {
        of
    }
    let (executor, _) = executor(1 << 16, 4);
    let takes = |symbol: &str, flags| {
        let import = ImportPart {
            symbol: symbol.into(),
            flags,
            fingerprint: 0,
        };
        let image = ImageParts {
            slot: Some(8),
            imports: vec![import],
            ..image("takes", [&code::returns(7)[..], &[0; 10]].concat())
        };
        install(&executor, &image).map(|_| ()).map_err(|refusal| {
            assert_eq!(refusal.reason, Rejection::ImportSignature);
            refusal.detail.to_string()
        })
    };
    assert_eq!(takes("weight", ImportFlags::NONE), Ok(()));
    assert_eq!(takes("weight", ImportFlags::FUNCTION), Ok(()));
    assert_eq!(
        takes("weight", ImportFlags::DATA),
        Err("weight fn weight(u64)->u64".into())
    );
    assert_eq!(
        takes("memcpy", ImportFlags::DATA),
        Err("memcpy a function".into())
    );
}
