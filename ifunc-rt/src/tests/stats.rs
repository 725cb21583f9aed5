//! A target's counters match what was sent.

use std::thread;
use std::time::{Duration, Instant};

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::image::{ImageParts, ImportFlags};

use super::hostile_frames::{Script, honest};
use super::images::{self, Add};
use super::running::{Running, accepting, everywhere, source, unique};
use crate::stats::{Stats, Timing};
use crate::target::bench::Bench;
use crate::transport::{LinkError, Outbound};
use crate::{Failure, Rejection, Source, StatsError};

const PATIENCE: Duration = Duration::from_secs(20);

/// Imports what no target provides.
fn lacking() -> ImageParts {
    let mut image = images::named("lacking", images::everything());
    image.imports[2].flags = ImportFlags::NONE;
    image
}

fn ask(source: &Source) -> Stats {
    source.target_stats(PATIENCE).unwrap()
}

#[test]
fn every_frame_is_counted_once() {
    everywhere(|address, builder| {
        let target = builder().time_invocations(Timing::All).listen(address).unwrap();
        let handle = target.stats_handle();
        let serving = target.spawn(0u64).unwrap();
        let source = source(address);
        let image = images::add().encode().unwrap();
        let add = source.register_bytes::<Add>(&image).unwrap();
        for _ in 0..100 {
            add.send(&1).unwrap();
        }
        assert_eq!(add.call(&1).unwrap().wait().unwrap(), 101);
        // The same image, with payloads that it does not take: the second travels in fragments.
        let raw = source.load_bytes(&image).unwrap();
        raw.call(b"123").unwrap().wait().unwrap_err();
        let large = vec![0; 100_000];
        raw.call(&large).unwrap().wait().unwrap_err();
        let panics = source.load_bytes(&images::panics().encode().unwrap()).unwrap();
        panics.call(b"").unwrap().wait().unwrap_err();
        let lacks = source.load_bytes(&lacking().encode().unwrap()).unwrap();
        for _ in 0..3 {
            lacks.call(b"four").unwrap().wait().unwrap_err();
        }
        source.flush().unwrap();

        let stats = ask(&source);
        let [about] = &stats.sources[..] else {
            panic!("{stats:#?}")
        };
        assert_eq!((about.connection, stats.asked_by, about.bound), (1, 1, 2));
        let counts = &about.counts;
        assert_eq!(counts, &stats.total);
        assert_eq!((counts.executed, counts.installs), (101, 2));
        assert_eq!(
            counts.failed.iter().collect::<Vec<_>>(),
            [(Failure::Payload, 2), (Failure::Panic, 1)]
        );
        assert_eq!(
            counts.rejected.iter().collect::<Vec<_>>(),
            [(Rejection::MissingImport, 3)]
        );
        assert_eq!(
            counts.refused.iter().collect::<Vec<_>>(),
            [(Rejection::MissingImport, 1)]
        );
        // Fragments and questions for further pages come on top.
        assert!(counts.frames >= 101 + 3 + 3 + 3 + 2, "{counts:?}");
        let images: usize = [images::add(), images::panics(), lacking()]
            .iter()
            .map(|image| 40 + image.encode().unwrap().len())
            .sum();
        assert_eq!(
            counts.bytes_in,
            (101 * 8 + 3 + large.len() + 3 * 4 + images) as u64
        );
        let of = |name| stats.ifuncs.iter().find(|ifunc| ifunc.name == name).unwrap();
        let add_stats = of("add");
        assert_eq!(
            stats.ifuncs[0].id, add_stats.id,
            "the one with the most hits is first"
        );
        assert_eq!(add_stats.id, *blake3::hash(&image).as_bytes());
        assert_eq!((add_stats.size, add_stats.installed), (image.len() as u64, true));
        let counted = &add_stats.counts;
        assert_eq!((counted.hits, counted.failed, counted.installs), (103, 2, 1));
        assert_eq!(counted.payload_bytes, (101 * 8 + 3 + large.len()) as u64);
        assert_eq!(counted.answer_bytes, 8, "a send has no answer");
        assert_eq!(counted.times.count(), 103);
        assert_eq!((of("panics").counts.hits, of("panics").counts.failed), (1, 1));
        let lacking_stats = of("lacking");
        assert_eq!(
            (
                lacking_stats.installed,
                lacking_stats.memory,
                lacking_stats.counts.hits
            ),
            (false, 0, 0)
        );
        assert_eq!(lacking_stats.counts.refused.get(Rejection::MissingImport), 1);
        assert_eq!((stats.code.images, stats.connected), (2, 1));
        assert!(stats.code.used >= add_stats.size && stats.code.used < stats.code.limit);

        // Carried by every message, an image is counted, and not installed again.
        let carrying = add.carrying_code();
        for _ in 0..20 {
            carrying.send(&0).unwrap();
            // Other handles are not affected.
            add.send(&0).unwrap();
        }
        carrying.message(&0).unwrap().call().unwrap().wait().unwrap();
        let carried = ask(&source);
        assert_eq!(carried.total.installs, counts.installs + 21);
        assert_eq!(
            carried.total.bytes_in,
            counts.bytes_in + 41 * 8 + 21 * (40 + image.len() as u64)
        );
        assert_eq!(carried.code.images, 2);
        drop(carrying);

        // What a handle had counted stays when it is given back, and what a connection had when it is over.
        drop((add, raw));
        source.flush().unwrap();
        let before = ask(&source);
        assert_eq!(before.sources[0].bound, 1);
        let unchanged = |stats: &Stats| {
            let total = &stats.total;
            assert_eq!(
                (total.executed, total.failed.total(), total.rejected.total()),
                (142, 3, 3)
            );
            let add = stats.ifuncs.iter().find(|ifunc| ifunc.name == "add").unwrap();
            assert_eq!((add.counts.hits, add.counts.installs, add.bound), (144, 22, 0));
        };
        unchanged(&before);
        drop((panics, lacks, source));
        let left = Instant::now();
        while !handle.read().sources.is_empty() {
            assert!(left.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        let after = handle.read();
        unchanged(&after);
        assert!(after.total.frames >= before.total.frames);
        serving.stop().unwrap();
        assert_eq!(handle.read().total, after.total, "read when the target is gone");
    });
}

/// The source learns of it by the report of the scope, and not by an answer.
#[test]
fn what_is_refused_in_a_scope_is_counted() {
    let address = unique("loopback");
    let target = Running::start(&address, accepting());
    let source = source(&address);
    let lacks = source.load_bytes(&lacking().encode().unwrap()).unwrap();
    let finished = source.finish(|scope| (0..3).try_for_each(|_| scope.send(&lacks, b"four")));
    let finished = finished.unwrap();
    assert_eq!((finished.executed, finished.failed), (0, 3));
    let total = ask(&source).total;
    assert_eq!((total.rejected.total(), total.failed.total()), (3, 0));
    drop((lacks, source));
    target.finish();
}

#[test]
fn evicted_images_and_many_refused_ones_are_remembered_up_to_a_limit() {
    let address = unique("loopback");
    let mut target = accepting().code_cache(64 << 10, 1).listen(&address).unwrap();
    let source = source(&address);
    let poll = |target: &mut crate::Target| while target.poll(&mut 0u64) > 0 {};
    const OTHERS: u64 = 1500;
    for number in 0..OTHERS {
        let image = images::named(&format!("add_{number}"), images::add());
        let add = source.register_bytes::<Add>(&image.encode().unwrap());
        // The name is not that of the type: by bytes alone.
        assert!(add.is_err());
        let add = source.load_bytes(&image.encode().unwrap()).unwrap();
        add.try_send(&1u64.to_le_bytes()).unwrap();
        poll(&mut target);
        drop(add);
        poll(&mut target);
    }
    let stats = target.stats();
    assert_eq!(
        (stats.code.images, stats.total.executed, stats.total.installs),
        (1, OTHERS, OTHERS)
    );
    assert_eq!(stats.ifuncs.len(), 1024);
    let remembered: u64 = stats.ifuncs.iter().map(|ifunc| ifunc.counts.hits).sum();
    assert_eq!(remembered + stats.forgotten.hits, OTHERS);
    assert_eq!(stats.forgotten.times.count(), stats.forgotten.hits);
    assert!(
        stats
            .ifuncs
            .iter()
            .any(|ifunc| ifunc.name == format!("add_{}", OTHERS - 1))
    );
    assert!(stats.ifuncs.iter().all(|ifunc| ifunc.name != "add_0"));
}

#[test]
fn a_target_that_does_not_share_its_metrics_reports_that() {
    let address = unique("loopback");
    let _target = Running::start(&address, accepting().share_stats(false));
    let source = source(&address);
    match source.target_stats(PATIENCE) {
        Err(StatsError::NotShared(why)) => assert!(why.contains("share_stats(true)"), "{why}"),
        other => panic!("{other:?}"),
    }
    let add = source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    assert_eq!(add.call(&5).unwrap().wait().unwrap(), 5);
}

/// A return path without credits.
struct Deaf;

impl Outbound for Deaf {
    fn max_body(&self) -> usize {
        1 << 16
    }

    fn reserve(&mut self, _: usize, _: usize) -> Result<Option<&mut [u8]>, LinkError> {
        Ok(None)
    }

    fn commit(&mut self, _: Header, _: usize) -> u32 {
        unreachable!("nothing was reserved")
    }
}

#[test]
fn a_source_that_takes_no_answers_is_counted_as_stalled() {
    let mut bench = Bench::new();
    let wants = |sequence, kind| honest(sequence, Header::new(kind, 0, 7), Vec::new());
    let frames = vec![
        honest(1, Header::new(Kind::Unbind, 0, 0), Vec::new()),
        wants(2, Kind::Sync),
        wants(3, Kind::Sync),
    ];
    bench.look(Deaf, Script::new(frames)).unwrap();
    let total = bench.stats().total;
    assert_eq!((total.frames, total.stalls), (1, 1));
}
