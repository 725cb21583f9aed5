//! Rust and C ifuncs, typed and by name, on one connection to a target in another process.

mod common;

use common::{Process, connect, library, unique};
use ifunc_rt::{Error, Failure};
use ifunc_tests_ifuncs::{
    Greeting, t_add, t_divide, t_greet, t_host_panics, t_index, t_lookup, t_remember, t_reverse,
};

#[test]
fn rust_and_c_typed_and_by_name() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect(&address);

    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    // SAFETY: built from this checkout.
    let (c_add, c_scale, add_by_name) = unsafe {
        (
            source.load_path(library("t_c_add")).unwrap(),
            source.load_path(library("t_c_scale")).unwrap(),
            source.load_path(library("t_add")).unwrap(),
        )
    };
    assert_eq!(add.call(&5).unwrap().wait().unwrap(), 5);
    c_add.call(&2u64.to_le_bytes()).unwrap().wait().unwrap();
    c_add.send(&3u64.to_le_bytes()).unwrap();
    // By name, `payload_init` of the Rust ifunc runs in this process, and the answer comes as bytes.
    assert_eq!(
        add_by_name.call(&1u64.to_le_bytes()).unwrap().wait().unwrap(),
        11u64.to_le_bytes()
    );
    c_scale.call(&[0]).unwrap().wait().unwrap();
    c_scale.call(&[1]).unwrap().wait().unwrap();
    assert_eq!(add.call(&0).unwrap().wait().unwrap(), 484);
    target.wait_for("scaled: 2");
    target.wait_for("counter: 484");
    // What `payload_init` refuses is never sent.
    assert!(matches!(
        c_add.call(b"three"),
        Err(Error::PayloadInit { code: -1, .. })
    ));
    assert!(matches!(
        add_by_name.call(b"three"),
        Err(Error::PayloadInit { .. })
    ));

    let mut message = c_add.message(&1u64.to_le_bytes()).unwrap();
    message.send().unwrap();
    message.payload_mut()[0] = 15;
    message.send().unwrap();
    source.flush().unwrap();
    assert_eq!(add.call(&0).unwrap().wait().unwrap(), 500);
}

#[test]
fn every_kind_of_payload_and_answer() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect(&address);

    let greet = source.register_path::<t_greet>(library("t_greet")).unwrap();
    let greeting = Greeting {
        name: "Ada",
        times: 2,
    };
    assert_eq!(
        greet.call(&greeting).unwrap().wait().unwrap(),
        "hello Ada, hello Ada, 0 it is"
    );

    let lookup = source.register_path::<t_lookup>(library("t_lookup")).unwrap();
    assert_eq!(lookup.call("word").unwrap().wait().unwrap(), 4);
    assert_eq!(lookup.call("no word").unwrap().wait().unwrap(), u64::MAX);

    let divide = source.register_path::<t_divide>(library("t_divide")).unwrap();
    assert_eq!(
        divide.call(&[u128::MAX, 1 << 70]).unwrap().wait().unwrap(),
        u128::MAX >> 70
    );

    let reverse = source.register_path::<t_reverse>(library("t_reverse")).unwrap();
    for len in [0usize, 1, 40, 41, 4096, 100_000] {
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
        assert_eq!(reverse.call(&bytes).unwrap().wait_bytes().unwrap(), reversed);
    }
    let remember = source.register_path::<t_remember>(library("t_remember")).unwrap();
    assert_eq!(remember.call(&1).unwrap().wait().unwrap(), 7);
    assert_eq!(remember.call(&2).unwrap().wait().unwrap(), 1);
    // Statics live as long as the image is installed, once per target, for all of its connections.
    let other = connect(&address);
    let other = other.register_path::<t_remember>(library("t_remember")).unwrap();
    assert_eq!(other.call(&3).unwrap().wait().unwrap(), 2);
    assert!(target.lives());
}

#[test]
fn panics_are_contained_and_located() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect(&address);
    let index = source.register_path::<t_index>(library("t_index")).unwrap();
    let host_panics = source
        .register_path::<t_host_panics>(library("t_host_panics"))
        .unwrap();
    for round in 0..3 {
        assert_eq!(index.call(&1).unwrap().wait().unwrap(), 0, "round {round}");
        match index.call(&5).unwrap().wait() {
            Err(Error::Panic {
                ifunc,
                message,
                file,
                line,
                ..
            }) => {
                assert_eq!(ifunc, "t_index");
                assert_eq!(message, "index out of bounds: the len is 2 but the index is 5");
                assert!(file.ends_with("lib.rs") && line > 0, "{file}:{line}");
            }
            other => panic!("{other:?}"),
        }
        match host_panics.call("not today").unwrap().wait() {
            Err(Error::Failed {
                why: Failure::HostPanic,
                detail,
                ..
            }) => assert_eq!(detail, "not today"),
            other => panic!("{other:?}"),
        }
    }
    assert!(target.lives());
}

#[test]
fn nothing_is_writable_and_executable_and_a_target_that_idles_sleeps() {
    let Some(address) = unique() else { return };
    let target = Process::target(&address);
    let source = connect(&address);
    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    let remember = source.register_path::<t_remember>(library("t_remember")).unwrap();
    add.call(&1).unwrap().wait().unwrap();
    remember.call(&1).unwrap().wait().unwrap();
    let maps = target.maps();
    assert!(
        maps.iter()
            .any(|mapping| mapping.name.starts_with("/memfd:ifunc-code") && mapping.access == "r-xp")
    );
    let bad: Vec<_> = maps
        .iter()
        .filter(|mapping| mapping.is_writable_and_executable())
        .collect();
    assert!(bad.is_empty(), "{bad:?}");

    // Two seconds of idling in which the target uses less than a twentieth of a core. What is measured is its own
    // processor time, so a busy machine does not matter.
    let before = target.ticks();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let used = target.ticks() - before;
    assert!(
        used <= 10,
        "{used} ticks of processor time while there was nothing to do"
    );
    assert_eq!(add.call(&1).unwrap().wait().unwrap(), 2);
}
