//! What C authors write, built from its sources and run by a target of this process.

mod common;

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use common::{Process, connect, static_target, unique_shm, unique_within};
use ifunc_abi::image::Image;
use ifunc_build::{BuiltIfunc, COptions, Cpu, Quiet, build_c};
use ifunc_rt::{
    ByName, Error, Failure, Handle, LibraryError, NamedSet, Policy, Rejection, Source, StopHandle, Symbol,
    Target, TargetBuilder,
};
use ifunc_tests::State;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/c")
        .join(name)
}

/// C files of the fixtures, built in a folder that goes with this.
struct Built {
    folder: tempfile::TempDir,
    ifuncs: Vec<BuiltIfunc>,
}

impl Built {
    fn new(files: &[&str], options: COptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<_> = files.iter().map(|file| fixture(file)).collect();
        let options = COptions {
            target_dir: Some(folder.path().to_owned()),
            ..options
        };
        let ifuncs = build_c(&files, &options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
        Self { folder, ifuncs }
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(format!("release/{name}.so"));
        assert!(self.ifuncs.iter().any(|ifunc| ifunc.path == path), "{name}");
        path
    }

    fn load(&self, source: &Source, name: &str) -> Handle<ByName> {
        // SAFETY: built from the fixtures of these tests.
        unsafe { source.load_path(self.path(name)) }.unwrap()
    }
}

/// A target on a thread of the test.
struct Running {
    stop: StopHandle,
    thread: Option<JoinHandle<State>>,
    source: Source,
}

impl Running {
    fn start(builder: TargetBuilder) -> Self {
        let mut target = builder.listen(&unique_within()).unwrap();
        let address = target.address();
        let stop = target.stop_handle();
        let thread = std::thread::spawn(move || {
            let mut state = State::default();
            target.serve(&mut state).unwrap();
            state
        });
        Self {
            stop,
            thread: Some(thread),
            source: connect(&address),
        }
    }

    /// Stops it; what it owned.
    fn finish(mut self) -> State {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn accepting() -> TargetBuilder {
    // SAFETY: the ifuncs of these tests.
    Target::builder().policy(unsafe { Policy::trust_every_peer() })
}

/// Calls, and reads the answer as numbers.
fn numbers(ifunc: &Handle<ByName>, args: &[u8]) -> Vec<u64> {
    let answer = ifunc.call(args).unwrap().wait().unwrap();
    let (numbers, rest) = answer.as_chunks::<8>();
    assert!(rest.is_empty());
    numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

fn rejection(ifunc: &Handle<ByName>, args: &[u8]) -> (Rejection, String) {
    match ifunc.call(args).unwrap().wait() {
        Err(Error::Rejected { why, detail, .. }) => (why, detail),
        other => panic!("{other:?}"),
    }
}

/// The compilers that are there: `cc` always.
fn compilers() -> Vec<String> {
    let there = |compiler: &&str| {
        std::process::Command::new(compiler)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
    };
    let mut compilers = vec!["cc".to_owned()];
    compilers.extend(["clang"].into_iter().filter(there).map(str::to_owned));
    // A compiler of several words, as `CC="ccache gcc"` names it.
    let wrapper = fixture("wrapper.sh");
    compilers.push(format!("sh {} {}", wrapper.display(), compilers[0]));
    compilers
}

fn options(compiler: &str) -> COptions {
    COptions {
        compiler: Some(compiler.to_owned()),
        ..COptions::default()
    }
}

#[test]
fn both_argument_orders_unmodified_in_one_file() {
    for compiler in compilers() {
        let built = Built::new(&["orders.c"], options(&compiler));
        assert_eq!(built.ifuncs.len(), 2);
        let target = Running::start(accepting());
        let slides = built.load(&target.source, "slides");
        let paper = built.load(&target.source, "paper");
        slides.call(&[1, 2, 3]).unwrap().wait().unwrap();
        // The paper's payload is as large as it said first: the rest of it is ones.
        paper.call(&[4, 5]).unwrap().wait().unwrap();
        assert!(matches!(
            slides.call(&[]),
            Err(Error::PayloadInit { code: 7, .. })
        ));
        let state = target.finish();
        assert_eq!((state.counter, state.changes), (26, 4), "{compiler}");
    }
}

#[test]
fn several_files_their_headers_and_flags() {
    let flags = [
        &format!("-I{}", fixture("several/include").display()),
        "-DOFFSET=7",
        "-DUNIT=\"two words\"",
    ];
    for compiler in compilers() {
        let built = Built::new(
            &["several/weigh.c", "several/helper.c"],
            COptions {
                cflags: flags.iter().map(|&flag| flag.into()).collect(),
                ..options(&compiler)
            },
        );
        let image = Image::parse(&built.ifuncs[0].image).unwrap();
        assert_eq!(image.imports().len(), 0, "the helper is inside");
        let target = Running::start(accepting());
        let weigh = built.load(&target.source, "weigh");
        weigh.call(&[1, 2, 3, 4]).unwrap().wait().unwrap();
        weigh.call(&[0]).unwrap().wait().unwrap();
        let state = target.finish();
        assert_eq!((state.counter, state.changes), (1007, 10), "{compiler}");
    }
}

static HOST_TABLE: [u64; 4] = [2, 3, 5, 7];

extern "C" fn host_twice(x: u64) -> u64 {
    2 * x
}

extern "C" fn host_each(
    n: u64,
    visit: unsafe extern "C" fn(u64, *mut c_void) -> u64,
    with: *mut c_void,
) -> u64 {
    // SAFETY: the ifunc passes a function of this type, and what it wants to be called with.
    (0..n).fold(0, |_, at| unsafe { visit(at, with) })
}

#[test]
fn functions_and_data_of_the_host() {
    for compiler in compilers() {
        let built = Built::new(&["globals.c"], options(&compiler));
        let mut counter = Box::new(10_u64);
        let builder = accepting()
            .allow("host_counter", (&raw mut *counter).cast())
            .allow("host_table", HOST_TABLE.as_ptr().cast())
            .allow("host_twice", host_twice as *const c_void)
            .allow("host_each", host_each as *const c_void);
        let target = Running::start(builder);
        let globals = built.load(&target.source, "globals");
        let callback = 3 + 2 * 5 + 3 * 7 + 4 * 2;
        assert_eq!(
            numbers(&globals, &[]),
            [42, 5, 5, 22, 9 + u64::from(b'i'), callback, 0, 1],
            "{compiler}"
        );
        assert_eq!(numbers(&globals, &[])[3], 24);
        match globals.call(&[1]).unwrap().wait() {
            Err(Error::Failed {
                why: Failure::Payload,
                ..
            }) => {}
            other => panic!("{other:?}"),
        }
        drop(globals);
        target.finish();
        assert_eq!(*counter, 12, "{compiler}");
    }
}

#[test]
fn an_image_replaces_what_the_host_exports() {
    static LEVEL: u64 = 5;
    for compiler in compilers() {
        let warnings = ["-Wall", "-Wextra", "-Werror"].map(Into::into).into();
        let options = COptions {
            cflags: warnings,
            ..options(&compiler)
        };
        let built = Built::new(&["replaces.c"], options);
        // SAFETY: such a function and such a variable.
        let symbols = unsafe {
            [
                Symbol::typed(
                    "host_twice",
                    "fn host_twice(u64)->u64",
                    host_twice as *const c_void,
                ),
                Symbol::typed("host_level", "static host_level:u64", (&raw const LEVEL).cast()),
            ]
        };
        let builder = accepting().exports(symbols).allow_remote_exports(true);
        let target = Running::start(builder);
        let reads = built.load(&target.source, "reads");
        assert_eq!(numbers(&reads, &[]), [10, 5]);
        let replaces = built.load(&target.source, "replaces");
        // The third is of another type.
        assert_eq!(numbers(&replaces, &[]), [0, 0, 1]);
        drop(replaces);
        assert_eq!(numbers(&reads, &[]), [15, 77], "{compiler}");
        drop(reads);
        target.finish();
    }
}

#[test]
fn tables_of_jumps_and_of_pointers() {
    for compiler in compilers() {
        for level in ["-O0", "-O2", "-O3", "-Os"] {
            let built = Built::new(
                &["jumps.c"],
                COptions {
                    cflags: vec![level.into()],
                    ..options(&compiler)
                },
            );
            let target = Running::start(accepting().allow_set(NamedSet::Libc));
            let jumps = built.load(&target.source, "jumps");
            let by_switch = {
                let x: i64 = -((((1 + 1) * 3 - 7) ^ 0x55) as i64);
                ((x << 3) / 5) % 9
            };
            let by_goto = b"abcdefgh"
                .iter()
                .fold(1, |x, code| if code % 2 == 0 { x + 2 } else { x * 3 });
            for run in 1..3 {
                assert_eq!(
                    numbers(&jumps, b"abcdefgh"),
                    [by_switch.cast_unsigned(), by_goto, 110, run],
                    "{compiler} {level}"
                );
            }
        }
    }
}

#[test]
fn the_c_library_if_the_host_says_so() {
    let expected = "0:fig  |1:kiwi |2:pear |3:apple|4:banana|pear 9223372036854775807 1 +2.236 55.9017";
    for compiler in compilers() {
        let built = Built::new(
            &["libc.c"],
            COptions {
                link_args: vec!["-lm".into()],
                ..options(&compiler)
            },
        );
        let target = Running::start(accepting().allow_set(NamedSet::Libc));
        let words = built.load(&target.source, "words");
        let call = || words.call(b"Pear kiwi banana fig Apple").unwrap().wait().unwrap();
        assert_eq!(String::from_utf8(call()).unwrap(), expected, "{compiler}");
        assert_eq!(call(), expected.as_bytes());

        // Without the set, nothing of the process is there, and the refusal names the set.
        let target = Running::start(accepting());
        let (why, detail) = rejection(&built.load(&target.source, "words"), b"x");
        assert_eq!(why, Rejection::MissingImport);
        for said in ["`qsort`", "help: `allow_set(NamedSet::Libc)` has "] {
            assert!(detail.contains(said), "{detail}");
        }
    }
}

#[test]
fn ifuncs_in_cxx() {
    for compiler in compilers() {
        let built = Built::new(&["median.cpp", "locks.c"], options(&compiler));
        let target = Running::start(accepting());
        let median = built.load(&target.source, "median");
        assert_eq!(numbers(&median, b"9 1 5"), [5, 3], "{compiler}");
        // `payload_init` catches its own exception.
        match median.call(b"9 x 5") {
            Err(Error::PayloadInit { code: 2, .. }) => {}
            other => panic!("{compiler}: {other:?}"),
        }
    }
}

#[test]
fn what_was_compiled_with_hidden_visibility_is_loaded() {
    for compiler in compilers() {
        let built = Built::new(
            &["locks.c"],
            COptions {
                cflags: vec!["-fvisibility=hidden".into()],
                ..options(&compiler)
            },
        );
        let target = Running::start(accepting().allow_set(NamedSet::Libc));
        let locked = built.load(&target.source, "locked");
        assert_eq!(numbers(&locked, b"x"), [1, 0], "{compiler}");
    }
}

#[test]
fn locks_and_sleep_are_of_the_c_library() {
    let built = Built::new(&["locks.c"], COptions::default());
    let target = Running::start(accepting().allow_set(NamedSet::Libc));
    let locked = built.load(&target.source, "locked");
    for turn in 1..4_u64 {
        assert_eq!(numbers(&locked, b"x"), [turn, 0]);
    }
}

#[test]
fn what_the_host_allows_by_name_comes_before_the_set() {
    extern "C" fn strange_sort(base: *mut c_void, _: usize, _: usize, _: *const c_void) {
        // SAFETY: `asserts` sorts its payload, which is not empty.
        unsafe { base.cast::<u8>().write(99) };
    }
    let built = Built::new(&["asserts.c"], COptions::default());
    let target = Running::start(
        accepting()
            .allow_set(NamedSet::Libc)
            .allow("qsort", strange_sort as *const c_void),
    );
    let asserts = built.load(&target.source, "asserts");
    assert_eq!(asserts.call(&[3, 1, 2]).unwrap().wait().unwrap(), [99, 1, 2]);
}

#[test]
fn abort_and_assert_end_the_invocation_only() {
    let built = Built::new(&["asserts.c"], COptions::default());
    let target = Running::start(accepting().allow_set(NamedSet::Libc));
    let asserts = built.load(&target.source, "asserts");
    for _ in 0..2 {
        match asserts.call(&[1, 9, 2]).unwrap().wait() {
            Err(Error::Panic {
                message, file, line, ..
            }) => {
                assert!(
                    message.contains("nine is not sorted") && message.ends_with("failed in `check`"),
                    "{message}"
                );
                assert!(file.ends_with("asserts.c") && line == 14, "{file}:{line}");
            }
            other => panic!("{other:?}"),
        }
        match asserts.call(&[]).unwrap().wait() {
            Err(Error::Panic { message, .. }) => assert_eq!(message, "abort() was called"),
            other => panic!("{other:?}"),
        }
        assert_eq!(asserts.call(&[3, 1, 2]).unwrap().wait().unwrap(), [1, 2, 3]);
    }
}

#[test]
fn levels_run_where_the_cpu_has_them() {
    let mut ran = 0;
    for cpu in Cpu::LEVELS {
        let built = Built::new(
            &["orders.c"],
            COptions {
                cpu,
                cflags: vec!["-O3".into()],
                ..COptions::default()
            },
        );
        let image = Image::parse(&built.ifuncs[0].image).unwrap();
        assert_eq!(image.cpu_features(), cpu.features());
        let target = Running::start(accepting());
        let paper = built.load(&target.source, "paper");
        match paper.call(&[7; 20]).unwrap().wait() {
            Ok(_) => {
                ran += 1;
                assert_eq!(target.finish().counter, 7_u64.pow(20), "{cpu:?}");
            }
            Err(Error::Rejected {
                why: Rejection::CpuFeature,
                detail,
                ..
            }) => {
                let here = Cpu::LEVELS[ran - 1];
                for said in [
                    format!("built for {cpu}, this CPU is {here} (no "),
                    format!("help: `cargo ifunc build --cpu {here}`"),
                ] {
                    assert!(detail.contains(&said), "{detail}");
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(ran > 0, "every CPU has the first level");
}

const ZLIB: &str = "libz.so.1";

/// `squeeze` needs zlib on the target; on the source it is linked with it. The library of the running system will do:
/// its headers need not be there.
fn squeeze(needed: &[&str]) -> Built {
    Built::new(
        &["squeeze.c"],
        COptions {
            needed: needed.iter().map(|&soname| soname.into()).collect(),
            link_args: vec![format!("-l:{ZLIB}")],
            ..COptions::default()
        },
    )
}

/// CRC-32 as zlib and everybody has it, bit by bit.
fn crc32(bytes: &[u8]) -> u64 {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    });
    u64::from(!crc)
}

fn with_libraries(sonames: &[&str]) -> TargetBuilder {
    sonames.iter().fold(accepting(), |builder, soname| {
        // SAFETY: libraries of the system, or none.
        unsafe { builder.allow_library(*soname) }
    })
}

#[test]
fn a_library_that_an_ifunc_needs_and_the_host_allows() {
    let built = squeeze(&[ZLIB, ZLIB]);
    let image = Image::parse(&built.ifuncs[0].image).unwrap();
    assert_eq!(image.needed().collect::<Vec<_>>(), [ZLIB]);
    let target = Running::start(with_libraries(&[ZLIB]));
    let text: Vec<u8> = (0..60_000_u32).map(|i| (i / 100 % 251) as u8).collect();
    let answer = numbers(&built.load(&target.source, "squeeze"), &text);
    assert!(
        answer[0] < 6000,
        "what travelled was compressed: {} bytes",
        answer[0]
    );
    assert_eq!(answer[1..], [60_000, crc32(&text)]);
}

#[test]
fn a_library_whose_source_functions_lack_a_symbol_is_not_opened() {
    let built = Built::new(&["squeeze.c"], COptions::default());
    let target = Running::start(accepting());
    // SAFETY: built from the fixtures of these tests.
    match unsafe { target.source.load_path(built.path("squeeze")) } {
        Err(LibraryError::Open { why, .. }) => {
            assert!(
                why.starts_with("nothing defines `compress")
                    && why.contains("help: link the library that does"),
                "{why}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn libraries_that_are_not_allowed_or_not_there() {
    let built = squeeze(&[ZLIB]);
    let target = Running::start(accepting());
    let (why, detail) = rejection(&built.load(&target.source, "squeeze"), b"x");
    assert_eq!(why, Rejection::NeededLibrary);
    assert!(
        detail.contains("`libz.so.1` is not allowed; help: `Target::builder().allow_library(\"libz.so.1\")`"),
        "{detail}"
    );

    // Allowed, but of no use to an image that does not name it.
    let unnamed = squeeze(&[]);
    let target = Running::start(with_libraries(&[ZLIB]));
    let (why, detail) = rejection(&unnamed.load(&target.source, "squeeze"), b"x");
    assert_eq!(why, Rejection::MissingImport);
    assert!(
        detail.contains("`crc32`") && detail.contains("`uncompress`"),
        "{detail}"
    );

    let absent = "libifunc-is-not-there.so.7";
    let built = squeeze(&[ZLIB, absent, "libother.so"]);
    let target = Running::start(with_libraries(&[ZLIB, absent]));
    let (why, detail) = rejection(&built.load(&target.source, "squeeze"), b"x");
    assert_eq!(why, Rejection::NeededLibrary);
    for said in [
        "`libifunc-is-not-there.so.7` is allowed, but cannot be opened: ",
        "No such file",
        "`libother.so` is not allowed",
    ] {
        assert!(detail.contains(said), "{detail}");
    }
    assert!(!detail.contains(ZLIB), "{detail}");

    // Only an image that needs something is held up.
    let plain = Built::new(&["orders.c"], COptions::default());
    plain
        .load(&target.source, "slides")
        .call(&[5])
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(target.finish().counter, 5);

    // SAFETY: nothing is opened.
    let builder = unsafe { accepting().allow_library("/lib/libz.so.1") };
    let error = builder.listen("loopback:not-a-soname").unwrap_err().to_string();
    assert!(
        error.contains("`/lib/libz.so.1` is not a soname; help: "),
        "{error}"
    );
}

#[test]
fn a_library_gives_what_it_defines_itself() {
    let built = Built::new(
        &["beyond.c"],
        COptions {
            needed: vec![ZLIB.into()],
            ..COptions::default()
        },
    );
    let target = Running::start(with_libraries(&[ZLIB]));
    let (why, detail) = rejection(&built.load(&target.source, "beyond"), b"x");
    assert_eq!(why, Rejection::MissingImport);
    assert!(
        detail.starts_with("`getpid`;"),
        "zlib is linked with the C library, and gives nothing of it: {detail}"
    );
}

#[test]
fn an_image_that_imports_nothing_needs_nothing() {
    let built = Built::new(
        &["orders.c"],
        COptions {
            needed: vec![ZLIB.into()],
            ..COptions::default()
        },
    );
    for ifunc in &built.ifuncs {
        assert_eq!(Image::parse(&ifunc.image).unwrap().needed().len(), 0);
    }
    let target = Running::start(accepting());
    built
        .load(&target.source, "paper")
        .call(&[3])
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(target.finish().counter, 3);
}

#[test]
#[ignore = "nightly: compiles the runtime once more, linked statically"]
fn a_static_target_has_the_c_library_and_no_others() {
    let Some(address) = unique_shm("a static executable opens no library, and so no UCX") else {
        return;
    };
    let mut target = Process::start_target(
        std::process::Command::new(static_target())
            .env("IFUNC_ADDR", &address)
            .env("E2E_LIBC", "1")
            .env("E2E_LIBRARY", ZLIB),
        &address,
    );
    let source = connect(&address);
    let libc = Built::new(
        &["libc.c"],
        COptions {
            link_args: vec!["-lm".into()],
            ..COptions::default()
        },
    );
    let answer = libc.load(&source, "words").call(b"b a").unwrap().wait().unwrap();
    assert_eq!(answer, b"0:a    |1:b    |(none) 9223372036854775807 1 +1.414 2");
    target.wait_for("    an ifunc");

    let (why, detail) = rejection(&squeeze(&[ZLIB]).load(&source, "squeeze"), b"x");
    assert_eq!(why, Rejection::NeededLibrary);
    assert!(
        detail.contains("cannot be opened: this target is linked statically"),
        "{detail}"
    );
    assert!(target.lives());
}
