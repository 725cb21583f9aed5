//! What a target in another process says it has counted is what was sent to it.

use std::time::{Duration, Instant};

use crate::common::{Process, TIMEOUT, connect, library, unique};
use ifunc_rt::stats::{IfuncStats, Stats};
use ifunc_rt::{Failure, Rejection, Source};
use ifunc_tests_ifuncs::{t_add, t_host_panics, t_index};

/// Bytes of an `Install` frame before the image.
const INSTALL_HEAD: u64 = 40;

fn ask(source: &Source) -> Stats {
    source.target_stats(TIMEOUT).unwrap()
}

#[test]
fn every_message_is_counted_once_and_as_what_became_of_it() {
    let Some(address) = unique() else { return };
    let target = Process::roomy_target(&address);
    let source = connect(&address);

    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    for _ in 0..500 {
        add.send(&1).unwrap();
    }
    assert_eq!(add.call(&1).unwrap().wait().unwrap(), 501);
    // SAFETY: built from this checkout.
    let c_add = unsafe { source.load_path(library("t_c_add")).unwrap() };
    for _ in 0..200 {
        c_add.send(&2u64.to_le_bytes()).unwrap();
    }
    c_add.call(&2u64.to_le_bytes()).unwrap().wait().unwrap();
    // By its bytes alone nothing looks at its payload before it is sent.
    let raw = source
        .load_bytes(&std::fs::read(library("t_add")).unwrap())
        .unwrap();
    for _ in 0..2 {
        raw.call(b"123").unwrap().wait().unwrap_err();
    }
    let index = source.register_path::<t_index>(library("t_index")).unwrap();
    for at in [0, 1, 2, 3, 4] {
        assert_eq!(index.call(&at).unwrap().wait().is_ok(), at < 2);
    }
    let host_panics = source
        .register_path::<t_host_panics>(library("t_host_panics"))
        .unwrap();
    host_panics.call("not today").unwrap().wait().unwrap_err();
    // It works on what this target does not have.
    let follow = source
        .load_bytes(&std::fs::read(library("t_follow")).unwrap())
        .unwrap();
    for _ in 0..4 {
        follow.call(b"twelve bytes").unwrap().wait().unwrap_err();
    }
    let other = connect(&address);
    let other_add = other.register_path::<t_add>(library("t_add")).unwrap();
    for _ in 0..30 {
        other_add.send(&1).unwrap();
    }
    other.flush().unwrap();

    let stats = ask(&source);
    assert_eq!((stats.pid, stats.connected), (target.pid(), 2));
    assert_eq!((&*stats.address, stats.asked_by), (&*address, 1));
    let [ours, others] = &stats.sources[..] else {
        panic!("{stats:#?}")
    };
    assert_eq!(
        (ours.pid, others.pid),
        match address.starts_with("shm:") {
            true => (ours.pid, i32::try_from(std::process::id()).ok()),
            false => (None, None),
        }
    );
    let ifunc = |stats: &Stats, name: &str| -> IfuncStats {
        let mut named = stats.ifuncs.iter().filter(|ifunc| ifunc.name == name);
        let ifunc = named.next().unwrap_or_else(|| panic!("no `{name}`")).clone();
        assert!(named.next().is_none(), "two of `{name}`");
        ifunc
    };
    let sent = |name: &str| INSTALL_HEAD + ifunc(&stats, name).size;

    let counts = &ours.counts;
    assert_eq!(
        (counts.executed, counts.installs, ours.bound),
        (501 + 201 + 2, 4, 4)
    );
    assert_eq!(
        counts.failed.iter().collect::<Vec<_>>(),
        [
            (Failure::Payload, 2),
            (Failure::Panic, 3),
            (Failure::HostPanic, 1)
        ]
    );
    assert_eq!(
        counts.rejected.iter().collect::<Vec<_>>(),
        [(Rejection::TargetType, 4)]
    );
    assert_eq!(
        counts.refused.iter().collect::<Vec<_>>(),
        [(Rejection::TargetType, 1)]
    );
    let payloads = 8 * (501 + 201 + 5) + 2 * 3 + 9 + 4 * 12;
    let images = ["t_add", "t_c_add", "t_index", "t_host_panics", "t_follow"].map(sent);
    assert_eq!(counts.bytes_in, payloads + images.iter().sum::<u64>());
    let counts = &others.counts;
    assert_eq!(
        (counts.executed, counts.failed.total(), counts.rejected.total()),
        (30, 0, 0)
    );
    assert_eq!(counts.bytes_in, 30 * 8 + sent("t_add"));

    let rows: Vec<_> = ["t_add", "t_c_add", "t_index", "t_host_panics", "t_follow"]
        .map(|name| {
            let IfuncStats {
                installed,
                bound,
                counts,
                ..
            } = ifunc(&stats, name);
            let (hits, failed) = (counts.hits, counts.failed);
            (
                name,
                installed,
                bound,
                hits,
                failed,
                counts.payload_bytes,
                counts.answer_bytes,
                counts.refused.total(),
            )
        })
        .into();
    assert_eq!(
        rows,
        [
            ("t_add", true, 2, 533, 2, 8 * 531 + 6, 8, 0),
            ("t_c_add", true, 1, 201, 0, 8 * 201, 0, 0),
            ("t_index", true, 1, 5, 3, 40, 16, 0),
            ("t_host_panics", true, 1, 1, 1, 9, 0, 0),
            ("t_follow", false, 0, 0, 0, 0, 0, 1),
        ]
    );
    assert_eq!(stats.code.images, 4);

    // What a source did that is gone stays counted; asked by one that came behind it.
    drop((add, raw, c_add, index, host_panics, follow, source));
    let began = Instant::now();
    let after = loop {
        let after = ask(&other);
        if after.sources.len() == 1 {
            break after;
        }
        assert!(began.elapsed() < TIMEOUT, "{after:#?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!((after.connected, after.asked_by), (2, 2));
    let (total, before) = (&after.total, &stats.total);
    assert_eq!(total.executed, 501 + 201 + 2 + 30);
    assert_eq!(
        (&total.failed, &total.rejected),
        (&before.failed, &before.rejected)
    );
    assert_eq!(
        (total.bytes_in, total.installs, &total.refused),
        (before.bytes_in, 5, &before.refused)
    );
    for (name, bound) in [("t_add", 1), ("t_c_add", 0), ("t_index", 0)] {
        let (after, before) = (ifunc(&after, name), ifunc(&stats, name));
        assert_eq!((after.bound, &after.counts), (bound, &before.counts), "{name}");
    }
}
