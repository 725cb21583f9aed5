//! Answers that are larger than a frame, from Rust and C, over every transport.

use crate::common::{Process, TIMEOUT, connect, library, unique};
use ifunc_rt::{Error, Failure, Source, SourceOptions};
use ifunc_tests_ifuncs::answers::{t_above, t_between, t_fill, t_system, t_words, t_write};

const MIB: usize = 1 << 20;

/// What the ifuncs answer.
fn expected(len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 1024);
    (0..len.div_ceil(1024) as u64).for_each(|number| bytes.extend(number.to_le_bytes().repeat(128)));
    bytes.truncate(len);
    bytes
}

#[test]
fn answers_of_any_size() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect(&address);
    let write = source.register_path::<t_write>(library("t_write")).unwrap();
    let fill = source.register_path::<t_fill>(library("t_fill")).unwrap();
    let words = source.register_path::<t_words>(library("t_words")).unwrap();
    // SAFETY: built from this checkout.
    let c_fill = unsafe { source.load_path(library("t_c_fill")).unwrap() };

    let all = expected(64 * MIB);
    // What fits into the frame, what needs memory of its own, several frames, and 64 MiB.
    for len in [
        0,
        1000,
        (64 << 10) - 1,
        64 << 10,
        (64 << 10) + 1,
        3 * MIB + 5,
        64 * MIB,
    ] {
        let args = (len as u64).to_le_bytes();
        let written = write.call(&(len as u64)).unwrap().wait_bytes().unwrap();
        assert!(written == all[..len], "{len} bytes, written");
        let filled = fill.call(&args).unwrap().wait().unwrap();
        assert!(filled == all[..len], "{len} bytes, returned");
        let by_c = c_fill.call(&args).unwrap().wait().unwrap();
        assert!(by_c == all[..len], "{len} bytes, from C");
    }
    let answer = words.call(&100_000).unwrap().wait().unwrap();
    assert_eq!((answer.len(), &*answer[99_999]), (100_000, "word 99999"));

    // Calls under way at the same time, long and short, some of them dropped.
    let calls: Vec<_> = (0..20)
        .map(|n| write.call(&(if n % 3 == 0 { MIB as u64 } else { n })).unwrap())
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        if n % 4 == 3 {
            drop(call);
            continue;
        }
        let len = if n % 3 == 0 { MIB } else { n };
        assert!(call.wait_bytes().unwrap() == all[..len], "call {n}");
    }
    assert!(target.lives());
}

#[test]
fn what_is_too_long_says_which_setting_allows_more() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect(&address);
    let args = |len: usize| (len as u64).to_le_bytes();
    let fill = source.register_path::<t_fill>(library("t_fill")).unwrap();
    let words = source.register_path::<t_words>(library("t_words")).unwrap();
    let detail = |outcome: Result<Vec<u8>, Error>| match outcome {
        Err(Error::Failed {
            why: Failure::Answer,
            detail,
            ..
        }) => detail,
        other => panic!("{:?}", other.map(|bytes| bytes.len())),
    };
    let too_long = 64 * MIB + 1;
    let why = detail(fill.call(&args(too_long)).unwrap().wait());
    assert!(
        why.contains("67108865 bytes") && why.contains("67108864") && why.contains("`answer_bytes`"),
        "{why}"
    );
    drop(source);

    let options = SourceOptions::default().timeout(TIMEOUT).max_answer(100_000);
    let source = Source::connect_with(&address, options).unwrap();
    let (fill, words) = (fill.name().to_owned(), words.name().to_owned());
    let fill = source.register_path::<t_fill>(library(&fill)).unwrap();
    let words = source.register_path::<t_words>(library(&words)).unwrap();
    let write = source.register_path::<t_write>(library("t_write")).unwrap();
    // SAFETY: built from this checkout.
    let c_fill = unsafe { source.load_path(library("t_c_fill")).unwrap() };
    assert_eq!(fill.call(&args(100_000)).unwrap().wait().unwrap().len(), 100_000);
    let why = detail(fill.call(&args(100_001)).unwrap().wait());
    assert!(why.contains("SourceOptions::max_answer"), "{why}");
    let why = detail(words.call(&100_000).unwrap().wait_bytes());
    assert!(why.contains("SourceOptions::max_answer"), "{why}");
    // An ifunc that asks is told.
    let written = write.call(&200_000).unwrap().wait_bytes().unwrap();
    assert!(written == expected(100_000));
    assert_eq!(c_fill.call(&args(200_000)).unwrap().wait().unwrap(), b"too long");
    assert!(target.lives());
}

#[test]
fn parts_tuples_and_lists_travel_without_a_serialiser() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect(&address);
    let above = source.register_path::<t_above>(library("t_above")).unwrap();
    let values: Vec<f64> = (0..100_000).map(f64::from).collect();
    for name in ["", "seven b", "values"] {
        let answer = above
            .call(&(99_990.0, name, &values, None))
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(answer, Some((name.to_owned(), 9)));
    }
    let fewer = above
        .call(&(0.0, "x", &values, Some(99_995.0)))
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(fewer, Some(("x".to_owned(), 4)));
    assert_eq!(above.call(&(0.0, "x", &[], None)).unwrap().wait().unwrap(), None);
    let between = source.register_path::<t_between>(library("t_between")).unwrap();
    let few = between.call(&(0.5, 3.5, None)).unwrap().wait().unwrap();
    assert_eq!(few, [0.5, 1.5, 2.5]);
    let many = between.call(&(0.0, 200_000.0, Some(2))).unwrap().wait().unwrap();
    assert_eq!((many.len(), many[99_999]), (100_000, 199_998.0));
    let system = source.register_path::<t_system>(library("t_system")).unwrap();
    let (one, other, seconds) = system.call(&()).unwrap().wait().unwrap();
    assert_ne!(one, other);
    let here = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(here.abs_diff(seconds) < 24 * 3600, "{seconds}, here {here}");
    assert!(target.lives());
}
