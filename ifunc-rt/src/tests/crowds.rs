//! Many sources of one target: each has its turn, idle ones cost nothing, and their number is limited.

use std::thread;
use std::time::{Duration, Instant};

use ifunc_abi::image::ImageParts;

use super::images::{self, Add};
use super::running::{accepting, between_processes, source, unique};
use crate::{ConnectError, Source, SourceError, SourceOptions};

/// Counted in frames: for any load of one source, the next polls answer the others' calls.
#[test]
fn a_flooding_source_delays_no_other() {
    const SLOW: usize = 20;
    for transport in ["shm", "loopback"] {
        let mut target = accepting().credits(1024).listen(&unique(transport)).unwrap();
        let add = |source: &Source| {
            source
                .register_bytes::<Add>(&images::add().encode().unwrap())
                .unwrap()
        };
        let flooder = source(&target.address());
        let flood = add(&flooder);
        let slow: Vec<_> = (0..SLOW).map(|_| source(&target.address())).collect();
        let slow: Vec<_> = slow.iter().map(|source| (source, add(source))).collect();
        let mut counter = 0u64;
        // A source may know that it is connected before its target has it.
        let deadline = Instant::now() + Duration::from_secs(60);
        while target.connections() <= SLOW {
            target.poll(&mut counter);
            assert!(Instant::now() < deadline, "{target:?}");
        }
        for round in 0..50 {
            while flood.try_send(&1_000_000).is_ok() {}
            let mut calls: Vec<_> = slow.iter().map(|(_, add)| add.try_call(&1).unwrap()).collect();
            let before = counter / 1_000_000;
            // The first poll may bring their code.
            for _ in 0..2 {
                target.poll(&mut counter);
            }
            for call in &mut calls {
                let answered = call.try_wait();
                assert!(matches!(answered, Some(Ok(_))), "round {round}: {answered:?}");
            }
            assert!(counter / 1_000_000 - before <= 128, "round {round}");
        }
        assert!(counter / 1_000_000 > 1000, "it flooded");
    }
}

/// However full the polls are: a link is accepted within as many frames as one full poll has, and a few small ones.
#[test]
fn a_flooding_source_does_not_keep_others_from_being_accepted() {
    let mut target = accepting().credits(1024).listen(&unique("loopback")).unwrap();
    let flooder = source(&target.address());
    let flood = flooder
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    let mut counter = 0u64;
    for round in 2..10 {
        while flood.try_send(&1).is_ok() {}
        // Full polls, and a different number of them in each round.
        for _ in 0..round {
            target.poll(&mut counter);
        }
        while flood.try_send(&1).is_ok() {}
        // The two ends of this link are in one process: it is there when `connect` returns.
        let other = source(&target.address());
        let before = counter;
        while target.connections() < 2 {
            assert_ne!(target.poll(&mut counter), 0, "round {round}");
        }
        assert!(counter - before <= 128, "round {round}: {}", counter - before);
        drop(other);
        while target.connections() == 2 || target.poll(&mut counter) > 0 {
            target.poll(&mut counter);
        }
    }
}

/// While one source sends an image of megabytes, the next polls answer another's calls.
#[test]
fn a_large_image_delays_no_other() {
    let mut target = accepting().listen(&unique("shm")).unwrap();
    let address = target.address();
    let large = ImageParts {
        rx: {
            let mut rx = images::add().rx;
            rx.resize(6 << 20, 0xcc);
            rx
        },
        ..images::add()
    };
    let bytes = large.encode().unwrap();
    let quick = source(&address);
    let add = quick
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    let mut counter = 0u64;
    let mut call = add.call(&1).unwrap();
    while call.try_wait().is_none() {
        target.poll(&mut counter);
    }
    thread::scope(|scope| {
        let sends = scope.spawn(|| {
            let source = source(&address);
            let large = source.register_bytes::<Add>(&bytes).unwrap();
            large.call(&1000).unwrap().wait().unwrap()
        });
        let mut rounds = 0;
        while !sends.is_finished() {
            let mut call = add.try_call(&1).unwrap();
            for looks in 0.. {
                if call.try_wait().is_some() {
                    break;
                }
                assert!(looks < 2, "it waited for the image");
                target.poll(&mut counter);
            }
            rounds += 1;
        }
        assert!(sends.join().unwrap() >= 1000);
        assert!(rounds > 3, "{rounds}");
    });
}

#[test]
fn a_full_target_says_so_and_takes_who_comes_when_another_leaves() {
    let mut addresses = vec![unique("loopback"), unique("shm")];
    if between_processes().contains(&"ucx") {
        addresses.extend(["ucx", "ucx-put"].map(|scheme| format!("{scheme}://127.0.0.1:0")));
    }
    for address in addresses {
        let serving = accepting()
            .max_connections(3)
            .listen(&address)
            .unwrap()
            .spawn(0u64)
            .unwrap();
        let address = serving.address();
        let mut sources: Vec<_> = (0..3).map(|_| source(address)).collect();
        // On a busy machine the last attempt of a source may end before it is answered.
        let refusal = (0..6).find_map(|more| {
            let patience = Duration::from_millis(300 << more);
            let impatient = SourceOptions::default().connect_timeout(patience);
            match Source::connect_with(address, impatient) {
                Err(SourceError::Connect(ConnectError::Busy { reason, .. })) => Some(reason),
                Err(SourceError::Connect(ConnectError::Timeout { .. })) => None,
                other => panic!("{other:?}"),
            }
        });
        assert!(
            refusal.is_some_and(|reason| reason.contains("max_connections")),
            "{address}"
        );
        // A source that keeps trying connects as soon as another has left.
        thread::scope(|scope| {
            let patient = scope.spawn(|| source(address));
            sources.pop();
            sources.push(patient.join().unwrap());
        });
        let add = sources[2]
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        assert_eq!(add.call(&7).unwrap().wait().unwrap(), 7);
        drop((add, sources));
        serving.stop().unwrap();
    }
}

/// Descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Mappings of this process.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

#[test]
fn hundreds_of_sources_come_speak_rest_and_leave() {
    const SOURCES: usize = 500;
    let mut target = accepting()
        .credits(16)
        .ring(1 << 16)
        .listen(&unique("shm"))
        .unwrap();
    let address = target.address();
    let mut counter = 0u64;
    let before = (descriptors(), mappings());
    let image = images::add().encode().unwrap();
    let sources: Vec<_> = (0..SOURCES).map(|_| source(&address)).collect();
    let adds: Vec<_> = sources
        .iter()
        .map(|source| source.register_bytes::<Add>(&image).unwrap())
        .collect();
    let say = |target: &mut crate::Target, counter: &mut u64, every: usize| {
        let mut calls: Vec<_> = adds
            .iter()
            .step_by(every)
            .map(|add| add.call(&1).unwrap())
            .collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        for call in &mut calls {
            while call.try_wait().is_none() {
                target.poll(counter);
                assert!(Instant::now() < deadline, "{target:?}");
            }
        }
    };
    say(&mut target, &mut counter, 1);
    // All are parked, then every seventh is woken.
    let deadline = Instant::now() + Duration::from_secs(60);
    while target.active_connections() > 8 {
        target.poll(&mut counter);
        assert!(Instant::now() < deadline, "{}", target.active_connections());
    }
    say(&mut target, &mut counter, 7);
    assert_eq!(counter, (SOURCES + SOURCES.div_ceil(7)) as u64);
    assert_eq!(target.connections(), SOURCES);
    drop((adds, sources));
    let deadline = Instant::now() + Duration::from_secs(60);
    while target.connections() > 0 {
        target.poll(&mut counter);
        assert!(Instant::now() < deadline, "{target:?}");
    }
    // Other tests of this process have some meanwhile, and threads that end.
    loop {
        let after = (descriptors(), mappings());
        if after.0 <= before.0 + 4 && after.1 <= before.1 + 40 {
            break;
        }
        assert!(Instant::now() < deadline, "{before:?} {after:?}");
        thread::yield_now();
    }
}

/// `cargo test -p ifunc-rt --release --lib -- --ignored --nocapture measured_polls`
#[test]
#[ignore = "nightly: a measurement"]
fn measured_polls_with_idle_connections() {
    const LOOKS: u32 = 200_000;
    for idle in [0, 64, 500] {
        let mut target = accepting()
            .credits(16)
            .ring(1 << 16)
            .listen(&unique("shm"))
            .unwrap();
        let mut counter = 0u64;
        let add = |source: &Source| {
            source
                .register_bytes::<Add>(&images::add().encode().unwrap())
                .unwrap()
        };
        let sources: Vec<_> = (0..=idle).map(|_| source(&target.address())).collect();
        let hot = add(&sources[0]);
        for _ in 0..20_000 {
            target.poll(&mut counter);
        }
        let began = Instant::now();
        for _ in 0..LOOKS {
            target.poll(&mut counter);
        }
        let vain = began.elapsed() / LOOKS;
        let began = Instant::now();
        for _ in 0..LOOKS {
            while hot.try_send(&1).is_err() {}
            target.poll(&mut counter);
        }
        let sent = began.elapsed() / LOOKS;
        println!("{idle} idle: {vain:?} a look in vain, {sent:?} a frame sent and run");
    }
}
