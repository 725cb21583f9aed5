//! Ifuncs run in the process of their test, through their images.

use std::backtrace::Backtrace;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use ifunc::Owned;
use ifunc_rt::{
    Failure, Level, LibraryError, Policy, Rejection, Source, SourceError, SourceOptions, Symbol, Target,
    TargetError,
};
use ifunc_test::{Error, Fixture, run};
use ifunc_tests_ifuncs::opaque::{t_cursor, t_scan, t_series};
use ifunc_tests_ifuncs::remote_exports::{t_price, t_reprice};
use ifunc_tests_ifuncs::{
    Greeting, State, t_add, t_greet, t_host_panics, t_index, t_lookup, t_remember, t_reverse, t_slow,
};

use crate::common;

/// What a backtrace in a function of the host looked like, when an image called it.
static SEEN: Mutex<String> = Mutex::new(String::new());

/// What these images import under this name: the length of a word, if it is a word.
#[ifunc::export]
pub(crate) fn lookup(word: &str) -> Option<u64> {
    if word == "backtrace" {
        *SEEN.lock().unwrap() = Backtrace::force_capture().to_string();
    }
    word.chars().all(char::is_alphabetic).then_some(word.len() as u64)
}

/// What ifuncs know as `series/1`.
#[derive(ifunc::Opaque, Default)]
#[opaque("series/1")]
struct Series(Vec<u64>);

/// Another type by that name. No export takes it.
#[derive(ifunc::Opaque, Debug)]
#[opaque("series/1")]
struct Other(#[allow(dead_code, reason = "the export would take it for the address of numbers")] [usize; 3]);

#[ifunc::export]
fn series_push(series: &mut Series, number: u64) -> u64 {
    series.0.push(number);
    series.0.len() as u64
}

/// What ifuncs know as `numbers/1`.
#[derive(ifunc::Opaque)]
#[opaque("numbers/1")]
struct Numbers(Vec<u64>);

#[ifunc::export]
fn numbers_column(numbers: &Numbers) -> &[u64] {
    &numbers.0
}

#[ifunc::export]
fn numbers_part(numbers: &Numbers, from: u64, to: u64) -> Result<&[u64], i32> {
    numbers.0.get(from as usize..to as usize).ok_or(7)
}

#[ifunc::export]
fn numbers_name(numbers: &Numbers) -> Option<&str> {
    (!numbers.0.is_empty()).then_some("numbers")
}

/// Cursors that live.
static CURSORS: AtomicUsize = AtomicUsize::new(0);

/// What ifuncs know as `cursor/1`.
#[derive(ifunc::Opaque)]
#[opaque("cursor/1")]
struct Cursor(std::vec::IntoIter<u64>);

impl Cursor {
    fn over(numbers: &[u64]) -> Owned<Self> {
        CURSORS.fetch_add(1, Ordering::SeqCst);
        let numbers: Vec<u64> = numbers.into();
        Owned::new(Self(numbers.into_iter()))
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        CURSORS.fetch_sub(1, Ordering::SeqCst);
    }
}

#[ifunc::export]
fn cursor_open(numbers: &Numbers, from: u64) -> Result<Owned<Cursor>, i32> {
    let rest = usize::try_from(from).ok().and_then(|from| numbers.0.get(from..));
    rest.map(Cursor::over).ok_or(1)
}

#[ifunc::export]
fn cursor_next(cursor: &mut Cursor) -> Option<u64> {
    cursor.0.next()
}

#[ifunc::export]
fn cursor_close(cursor: Owned<Cursor>) -> u64 {
    cursor.0.len() as u64
}

#[ifunc::export]
fn cursor_empty(try_number: u64) -> Option<Owned<Cursor>> {
    try_number.is_multiple_of(2).then(|| Cursor::over(&[]))
}

/// A scan runs over the host's own memory.
#[test]
fn a_host_function_lends_what_the_host_owns() {
    common::libraries();
    let mut numbers = Numbers((0..100_000).collect());
    let (sum, at, name) = run::<t_scan>((), &mut numbers).unwrap();
    let all = |count: u64| count * (count - 1) / 2;
    assert_eq!((sum, name), (all(100_000) + all(50_000), 7));
    assert_eq!(at as usize, numbers.0.as_ptr().addr(), "nothing was copied");
}

/// However the invocation ends, the host's objects that it held are dropped.
#[test]
fn an_ifunc_holds_and_drops_objects_of_the_host() {
    common::libraries();
    let mut numbers = Numbers(vec![1, 2, 3, 4]);
    let mut fixture = Fixture::new().unwrap();
    for round in 0..3 {
        let mut ends = |end: u64| {
            let sum = fixture.run::<t_cursor>(end, &mut numbers);
            assert_eq!(
                CURSORS.load(Ordering::SeqCst),
                0,
                "round {round}, end {end}: {sum:?}"
            );
            sum
        };
        assert_eq!(ends(0).unwrap(), 1 + 2 + 2 + 3 + 4);
        assert_eq!(ends(1).unwrap(), 1 + 2 + 100 * 2 + 10_000 * 3);
        let panicked = ends(2).unwrap_err().to_string();
        assert!(panicked.contains("it holds two cursors"), "{panicked}");
        assert_eq!(ends(3).unwrap(), 1 + 2 + 5);
    }
    faults_drop_held_objects();
}

/// As above, where faults and endless loops end their invocation.
fn faults_drop_held_objects() {
    let address = format!("loopback:holds-{}", std::process::id());
    // SAFETY: only this test knows the address.
    let policy = unsafe { Policy::trust_every_peer() }
        .level(Level::Contained)
        .max_run_time(Duration::from_millis(200));
    let builder = Target::builder().policy(policy);
    let numbers = Numbers(vec![1, 2, 3, 4]);
    let serving = builder.listen(&address).unwrap().spawn(numbers).unwrap();
    let source = Source::connect(&address).unwrap();
    let cursor = source.register::<t_cursor>().unwrap();
    for round in 0..3 {
        for end in [4, 5] {
            match cursor.call(&end).unwrap().wait() {
                // A busy machine can stop the thread of the target for longer than an invocation may run.
                Err(ifunc_rt::Error::Failed { why, .. }) => {
                    assert!(
                        why == Failure::Deadline || (end == 4 && why == Failure::Fault),
                        "{end}: {why:?}"
                    );
                }
                other => panic!("{end}: {other:?}"),
            }
            assert_eq!(CURSORS.load(Ordering::SeqCst), 0, "round {round}, end {end}");
        }
    }
    drop(source);
    assert_eq!(serving.stop().unwrap().0.len(), 4);
}

fn state() -> State {
    State {
        counter: 37,
        changes: 0,
    }
}

#[test]
fn payloads_come_by_value_and_by_reference() {
    common::libraries();
    let mut state = state();
    assert_eq!(run::<t_add>(5, &mut state).unwrap(), 42);
    assert_eq!(run::<t_add>(&5, &mut state).unwrap(), 47);
    assert_eq!((state.counter, state.changes), (47, 2));
    assert_eq!(run::<t_lookup>("word", &mut state).unwrap(), 4);
    let name = String::from("Ada");
    let greeting = Greeting {
        name: &name,
        times: 1,
    };
    assert_eq!(
        run::<t_greet>(&greeting, &mut state).unwrap(),
        "hello Ada, 47 it is"
    );
    assert_eq!(
        run::<t_greet>(greeting, &mut state).unwrap(),
        "hello Ada, 47 it is"
    );
}

#[test]
fn a_fixture_keeps_what_it_installed() {
    common::libraries();
    let mut fixture = Fixture::new().unwrap();
    let mut state = state();
    assert_eq!(fixture.run::<t_remember>(1, &mut state).unwrap(), 7);
    assert_eq!(fixture.run::<t_remember>(2, &mut state).unwrap(), 1);
    assert_eq!(fixture.images(), 1);
    // Another target has statics of its own.
    assert_eq!(run::<t_remember>(3, &mut state).unwrap(), 7);
    // Larger than what the connection takes at once: the target makes room meanwhile.
    let long = "a".repeat(5 << 20);
    assert_eq!(fixture.run::<t_lookup>(&*long, &mut state).unwrap(), 5 << 20);
    assert_eq!(
        fixture.run_bytes::<t_reverse>(&b"abc"[..], &mut state).unwrap(),
        b"cba"
    );
    for _ in 0..3 {
        match fixture.run::<t_index>(5, &mut state) {
            Err(Error::Call(ifunc_rt::Error::Panic { message, place, .. })) => {
                assert!(message.starts_with("index out of bounds"), "{message}");
                assert!(place.starts_with("t_index_main+"), "{place}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fixture.run::<t_index>(0, &mut state).unwrap(), 37);
}

#[test]
fn c_by_name() {
    common::libraries();
    let mut fixture = Fixture::new().unwrap();
    let mut state = state();
    for expected in [42, 47] {
        // SAFETY: built from this checkout, for this type.
        let answer = unsafe { fixture.run_by_name("t_c_add", &5u64.to_le_bytes(), &mut state) };
        assert_eq!(answer.unwrap(), b"");
        assert_eq!(state.counter, expected);
    }
    assert_eq!(fixture.images(), 1);
    // SAFETY: as above.
    let refused = unsafe { fixture.run_by_name("t_c_add", b"five", &mut state) };
    assert!(matches!(
        refused,
        Err(Error::Call(ifunc_rt::Error::PayloadInit { .. }))
    ));
}

#[test]
fn what_is_lacking_is_said() {
    common::libraries();
    let mut state = state();
    let mut fixture = Fixture::new().unwrap();
    // SAFETY: there is nothing of this name.
    let missing = unsafe { fixture.run_by_name("t_nowhere", b"", &mut state) };
    let said = missing.unwrap_err().to_string();
    assert!(said.contains("no library `t_nowhere.so`"), "{said}");
    assert!(
        said.contains("help: `cargo ifunc test -p ifunc-tests` builds the images"),
        "{said}"
    );
    // What it imports, this process does not export, until it is allowed.
    let said = fixture.run::<t_slow>(0, &mut state).unwrap_err().to_string();
    assert!(said.contains("take_a_while"), "{said}");
    extern "C" fn at_once(_: u64) {}
    let allowed =
        |builder: ifunc_rt::TargetBuilder| builder.allow("take_a_while", at_once as *const std::ffi::c_void);
    // SAFETY: of the type that the ifunc declares; it calls nothing back.
    let mut fixture = unsafe { Fixture::with(allowed) }.unwrap();
    assert_eq!(fixture.run::<t_slow>(1_000_000, &mut state).unwrap(), 37);
    let said = run::<t_host_panics>("why", &mut state).unwrap_err().to_string();
    assert!(said.contains("host_panics"), "{said}");
}

#[test]
fn a_backtrace_of_the_host_ends_at_the_image() {
    common::libraries();
    assert_eq!(run::<t_lookup>("backtrace", &mut state()).unwrap(), 9);
    let seen = SEEN.lock().unwrap();
    assert!(seen.contains("through_gate"), "{seen}");
    // Behind the image there is nothing that an unwinder could find without tables.
    assert!(!seen.contains("ifunc_exec_enter"), "{seen}");
    assert!(!seen.contains("a_backtrace_of_the_host"), "{seen}");
}

#[test]
fn an_opaque_name_stands_for_one_type() {
    common::libraries();
    let mut series = Series::default();
    let mut fixture = Fixture::new().unwrap();
    assert_eq!(fixture.run::<t_series>(3, &mut series).unwrap(), 3);
    assert_eq!(series.0, [0, 1, 2]);

    // The image that is installed, and a new one.
    let mut other = Other([8; 3]);
    for fixture in [&mut fixture, &mut Fixture::new().unwrap()] {
        match fixture.run::<t_series>(3, &mut other) {
            Err(Error::Call(error @ ifunc_rt::Error::Rejected { why, .. })) => {
                assert_eq!(why, Rejection::TargetType);
                names_both(&error.to_string());
            }
            refused => panic!("{refused:?}"),
        }
    }
    assert_eq!(fixture.run::<t_series>(1, &mut series).unwrap(), 4);

    let target = |name: &str| {
        // SAFETY: nothing connects.
        let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
        builder.listen(&format!("loopback:two-types-{name}")).unwrap()
    };
    let refused = |served: Result<(), TargetError>| match served {
        Err(error @ TargetError::Names(_)) => names_both(&error.to_string()),
        other => panic!("{other:?}"),
    };
    refused(target("serve").serve(&mut other));
    refused(target("shared").serve_shared(&other, 1));
    refused(target("spawn").spawn(other).map(drop));
}

#[track_caller]
fn names_both(error: &str) {
    for part in [
        "the opaque name `series/1` stands for two types",
        "`it::fixture::Series`: the export `series_push`",
        "`it::fixture::Other`: the target arguments",
        "help: ",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

/// What one word costs, until an image replaces it.
#[ifunc::export]
pub(crate) fn t_tariff(words: u32) -> u32 {
    2 * words
}

#[test]
fn an_image_replaces_an_export_of_a_target_that_allows_it() {
    common::libraries();
    // The fixture's target does not.
    match run::<t_reprice>(true, &mut state()) {
        Err(Error::Call(ifunc_rt::Error::Rejected { detail, .. })) => {
            assert!(detail.contains("`__ifunc_replace_export`"), "{detail}");
            assert!(
                detail.contains("`Target::builder().allow_remote_exports(true)`"),
                "{detail}"
            );
        }
        other => panic!("{other:?}"),
    }
    // SAFETY: the ifuncs of this test.
    let builder = Target::builder()
        .policy(unsafe { Policy::trust_every_peer() })
        .allow_remote_exports(true);
    let target = builder.listen(&common::unique_within()).unwrap();
    let address = target.address();
    let exports = target.exports();
    let serving = target.spawn(state()).unwrap();
    let source = Source::connect(&address).unwrap();
    let price = source
        .register_path::<t_price>(common::library("t_price"))
        .unwrap();
    let reprice = source
        .register_path::<t_reprice>(common::library("t_reprice"))
        .unwrap();
    assert_eq!(price.call(&3).unwrap().wait().unwrap(), 6);
    assert_eq!(reprice.call(&false).unwrap().wait().unwrap(), 1);
    assert_eq!(price.call(&3).unwrap().wait().unwrap(), 6);
    assert_eq!(reprice.call(&true).unwrap().wait().unwrap(), 0);
    // Its source has left, and its image is still there.
    drop(reprice);
    source.flush().unwrap();
    assert_eq!(price.call(&3).unwrap().wait().unwrap(), 103);
    assert_eq!(price.call(&4).unwrap().wait().unwrap(), 107);
    exports.replace(Symbol::exported("t_tariff").unwrap()).unwrap();
    assert_eq!(price.call(&3).unwrap().wait().unwrap(), 6);
    assert_eq!(exports.waiting(), 0);
    drop(price);
    serving.stop().unwrap();
}

/// No package of the workspace builds it.
mod unbuilt {
    #[ifunc::ifunc]
    pub(crate) fn t_never_built(number: u64, counter: &mut u64) -> u64 {
        *counter += number;
        *counter
    }
}

#[track_caller]
fn says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn what_a_test_lacks_is_an_error() {
    let error = run::<unbuilt::t_never_built>(1, &mut 0).unwrap_err();
    assert!(matches!(error, Error::NoImage { .. }), "{error:?}");
    says(
        &error,
        &[
            "no library `t_never_built.so`",
            "help: `cargo ifunc test -p ifunc-tests` builds the images",
        ],
    );
    let mut fixture = Fixture::new().unwrap();
    // SAFETY: nothing is loaded.
    let error = unsafe { fixture.run_by_name("no name", &[], &mut 0u64) }.unwrap_err();
    assert!(
        matches!(error, Error::Library(LibraryError::Name(_))),
        "{error:?}"
    );
    says(&error, &["`no name` is not the name of an ifunc"]);
    // SAFETY: nothing is loaded, and nothing imported.
    let error = unsafe { Fixture::with(|builder| builder.credits(3)) }
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(error, Error::Target(TargetError::Listen(_))),
        "{error:?}"
    );
    says(&error, &["a ring of 3 slots"]);
    let options = SourceOptions::default().connect_timeout(Duration::from_millis(1));
    let address = common::unique_within();
    let error = Error::from(Source::connect_with(&address, options).unwrap_err());
    assert!(
        matches!(error, Error::Source(SourceError::Connect(_))),
        "{error:?}"
    );
    says(
        &error,
        &["no target listens at", &address, "help: start the target first"],
    );
}

#[test]
fn a_fixture_runs_no_code_of_another_source() {
    common::libraries();
    let mut fixture = Fixture::new().unwrap();
    let other = Source::connect(&fixture.address()).unwrap();
    let add = other.register_path::<t_add>(common::library("t_add")).unwrap();
    let mut call = add.try_call(&5).unwrap();
    let mut state = state();
    // The fixture polls its target while it waits for a call of its own.
    let error = loop {
        fixture.run::<t_lookup>("word", &mut state).unwrap();
        if let Some(ended) = call.try_wait() {
            break ended.unwrap_err();
        }
    };
    match error {
        ifunc_rt::Error::Rejected { why, .. } => assert_eq!(why, Rejection::Policy),
        other => panic!("{other:?}"),
    }
    assert_eq!((state.counter, fixture.images()), (37, 1));
}

/// `ifunc-test` has no test program of its own.
#[allow(
    dead_code,
    reason = "the function that the crate calls reads variables of the process"
)]
#[path = "../../../ifunc-test/src/age.rs"]
mod age;

#[test]
fn the_newest_source_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("deep")).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    for (file, seconds) in [("a.rs", 3), ("deep/b.c", 5), ("notes.txt", 9)] {
        let file = fs::File::create(folder.join(file)).unwrap();
        file.set_modified(long_ago + Duration::from_secs(seconds))
            .unwrap();
    }
    let found = age::newest(&[folder.join("not there"), folder.into()]);
    assert_eq!(
        found,
        Some((long_ago + Duration::from_secs(5), folder.join("deep/b.c")))
    );
}
