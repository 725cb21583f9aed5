//! Sources and targets of one process, over every transport.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ifunc_abi::image::{ARCH_AARCH64, ARCH_X86_64};

use super::images::{self, Add};
use super::machine::PANICS_BEFORE;
use super::running::{Running, accepting, between_processes, everywhere, place, source, unique, with_quotas};
use crate::{Error, Failure, Policy, Rejection, Source, SourceOptions, Target, TargetBuilder};

#[test]
fn calls_and_sends_in_order() {
    everywhere(|address, builder| {
        let target = Running::start(address, builder());
        let source = source(address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        assert_eq!(add.call(&5).unwrap().wait().unwrap(), 5);
        for _ in 0..500 {
            add.send(&1).unwrap();
        }
        assert_eq!(add.call(&0).unwrap().wait().unwrap(), 505);
        let mut calls: Vec<_> = (0..20).map(|_| add.call(&1).unwrap()).collect();
        let sums: Vec<u64> = calls.drain(..).map(|call| call.wait().unwrap()).collect();
        assert_eq!(sums, (506..526).collect::<Vec<_>>());
        let mut message = add.message(&10).unwrap();
        message.send().unwrap();
        message.payload_mut()[0] = 20;
        message.send().unwrap();
        message.set(&30).unwrap();
        assert_eq!(message.call().unwrap().wait().unwrap(), 585);
        source.flush().unwrap();
        drop(add.call(&15).unwrap());
        source.flush().unwrap();
        assert_eq!(target.finish(), 600);
    });
}

#[test]
fn several_images_and_statics() {
    everywhere(|address, builder| {
        let target = Running::start(address, builder());
        let source = source(address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let image = images::counts().encode().unwrap();
        let counts = source.load_bytes(&image).unwrap();
        let count = |of: &crate::Handle<crate::ByName>| {
            u64::from_le_bytes(of.call(b"").unwrap().wait().unwrap().try_into().unwrap())
        };
        assert_eq!((count(&counts), count(&counts)), (101, 102));
        add.send(&1).unwrap();
        // The same image under another handle, and on another connection, has the same statics.
        let other = super::running::source(address);
        assert_eq!(count(&other.load_bytes(&image).unwrap()), 103);
        drop(counts);
        assert_eq!(count(&source.load_bytes(&image).unwrap()), 104);
        source.flush().unwrap();
        assert_eq!(target.finish(), 1);
    });
}

#[test]
fn large_payloads_travel_in_fragments() {
    everywhere(|address, builder| {
        let _target = Running::start(
            address,
            with_quotas(builder(), |quotas| quotas.payload_bytes(5_000_000)),
        );
        let source = source(address);
        // A payload that is no u64: `add` reports that it does not decode, and that it has read all of it.
        let add = source.load_bytes(&images::add().encode().unwrap()).unwrap();
        for len in [
            0,
            7,
            39,
            40,
            41,
            4096,
            32 << 10,
            (32 << 10) + 1,
            1 << 20,
            3_000_001,
        ] {
            match add.call(&vec![7; len]).unwrap().wait() {
                Err(Error::Failed {
                    why: Failure::Payload,
                    detail,
                    ..
                }) => {
                    assert!(detail.starts_with(&format!("{len} bytes")), "{detail}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(
            add.call(&vec![7; 5_000_001]),
            Err(Error::PayloadTooLarge { limit: 5_000_000, .. })
        ));
        assert_eq!(
            add.call(&9u64.to_le_bytes()).unwrap().wait().unwrap(),
            9u64.to_le_bytes()
        );
    });
}

#[test]
fn a_panic_ends_the_invocation_only() {
    everywhere(|address, builder| {
        let _target = Running::start(address, builder());
        let source = source(address);
        let panics = source.load_bytes(&images::panics().encode().unwrap()).unwrap();
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        for _ in 0..3 {
            match panics.call(b"").unwrap().wait() {
                Err(Error::Panic {
                    ifunc,
                    message,
                    file,
                    line: 7,
                    column: 9,
                    place,
                }) => {
                    // The byte after its call; there is no library with symbols.
                    assert_eq!(place, format!("panics+[{PANICS_BEFORE:#x}]"));
                    assert_eq!((&*ifunc, &*message, &*file), ("panics", "ouch", "x.rs"));
                }
                other => panic!("{other:?}"),
            }
        }
        // Fire and forget: a later send or flush reports it, once. A call that is waited for receives the report.
        panics.send(b"").unwrap();
        assert!(matches!(source.flush(), Err(Error::Panic { .. })));
        source.flush().unwrap();
        panics.send(b"").unwrap();
        assert_eq!(add.call(&3).unwrap().wait().unwrap(), 3);
        assert!(matches!(add.send(&1), Err(Error::Earlier(_))));
        add.send(&1).unwrap();
        assert_eq!(add.call(&0).unwrap().wait().unwrap(), 4);
    });
}

#[test]
fn refusals_carry_their_reason() {
    let rejected = |builder: TargetBuilder, image: ifunc_abi::image::ImageParts| {
        let address = unique("shm");
        let target = Running::start(&address, builder);
        let source = source(&address);
        let loaded = source.load_bytes(&image.encode().unwrap()).unwrap();
        let result = loaded.call(&1u64.to_le_bytes()).unwrap().wait();
        assert_eq!(target.finish(), 0, "nothing was run");
        match result {
            Err(Error::Rejected { why, detail, .. }) => (why, detail),
            other => panic!("{other:?}"),
        }
    };
    let (why, detail) = rejected(Target::builder(), images::add());
    assert_eq!(why, Rejection::Policy);
    assert!(detail.contains("accept_code"), "{detail}");
    // SAFETY: nothing is accepted.
    let policy = unsafe { Policy::trust_same_user() };
    let judged = Target::builder().policy(policy.accept_if(|_, image| image.name != "add"));
    assert_eq!(rejected(judged, images::add()).0, Rejection::Policy);

    let mut image = images::add();
    image.entries[0].target = 1;
    let (why, detail) = rejected(accepting(), image);
    assert_eq!(why, Rejection::TargetType);
    assert!(detail.contains("u64"), "{detail}");

    let mut image = images::panics();
    image.imports[0].symbol = "no_such_function".into();
    let (why, detail) = rejected(accepting(), image);
    assert_eq!(why, Rejection::MissingImport);
    assert!(detail.contains("`no_such_function`"), "{detail}");

    let mut image = images::add();
    let (other, refused) = match image.arch {
        ARCH_AARCH64 => (ARCH_X86_64, "is for x86-64, this target is AArch64; help: "),
        _ => (ARCH_AARCH64, "is for AArch64, this target is x86-64; help: "),
    };
    image.arch = other;
    let (why, detail) = rejected(accepting(), image);
    assert_eq!(why, Rejection::Architecture);
    assert!(detail.contains(refused), "{detail}");
    let mut image = images::add();
    image.cpu_features = 1 << 40;
    assert_eq!(rejected(accepting(), image).0, Rejection::CpuFeature);
    let mut image = images::counts();
    image.rw_mem = 1 << 30;
    let (why, detail) = rejected(accepting(), image);
    assert_eq!(why, Rejection::TooLarge);
    assert!(
        detail.contains("help: `TargetBuilder::max_image_memory`"),
        "{detail}"
    );
    let mut image = images::add();
    image.needed.push("libz.so.1".into());
    let (why, detail) = rejected(accepting(), image);
    assert_eq!(why, Rejection::NeededLibrary);
    assert!(detail.contains("`libz.so.1` is not allowed; help: "), "{detail}");
    let (why, detail) = rejected(accepting().code_cache(4096, 0), images::add());
    assert_eq!(why, Rejection::CacheFull);
    assert!(detail.contains("`TargetBuilder::code_cache`"), "{detail}");
}

#[test]
fn types_are_compared_at_registration() {
    let address = unique("loopback");
    let _target = Running::start(&address, accepting());
    let source = source(&address);
    let mut image = images::add();
    image.entries[0].payload = 1;
    let error = source
        .register_bytes::<Add>(&image.encode().unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("another payload type") && error.contains("u64"),
        "{error}"
    );
    image = images::named("sub", image);
    assert!(source.register_bytes::<Add>(&image.encode().unwrap()).is_err());
}

#[test]
fn the_cache_evicts_what_nobody_has_bound() {
    let address = unique("loopback");
    let target = Running::start(&address, accepting().code_cache(1 << 20, 2));
    let source = source(&address);
    let variant = |n: u8| {
        let mut image = images::add();
        image.rx.push(n);
        image.encode().unwrap()
    };
    let one = source.load_bytes(&variant(1)).unwrap();
    let two = source.load_bytes(&variant(2)).unwrap();
    let run = |of: &crate::Handle<crate::ByName>| of.call(&1u64.to_le_bytes()).unwrap().wait();
    run(&one).unwrap();
    run(&two).unwrap();
    let three = source.load_bytes(&variant(3)).unwrap();
    assert!(matches!(
        run(&three),
        Err(Error::Rejected {
            why: Rejection::CacheFull,
            ..
        })
    ));
    drop((one, three));
    for n in 4..40 {
        run(&source.load_bytes(&variant(n)).unwrap()).unwrap();
    }
    run(&two).unwrap();
    assert_eq!(target.finish(), 39);
}

#[test]
fn many_sources_are_served() {
    let address = unique("shm");
    let target = Running::start(&address, accepting());
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let address = address.clone();
            thread::spawn(move || {
                let source = source(&address);
                let add = source
                    .register_bytes::<Add>(&images::add().encode().unwrap())
                    .unwrap();
                for _ in 0..1000 {
                    add.send(&1).unwrap();
                }
                source.flush().unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(target.finish(), 8000);
}

#[test]
fn never_is_a_deadline_too() {
    let address = unique("loopback");
    let target = Running::start(&address, accepting());
    let options = SourceOptions::default()
        .timeout(Duration::MAX)
        .connect_timeout(Duration::MAX)
        .reconnect(Duration::MAX);
    let source = Source::connect_with(&address, options).unwrap();
    let add = source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    assert_eq!(add.call(&1).unwrap().wait_timeout(Duration::MAX).unwrap(), 1);
    source.flush().unwrap();
    assert_eq!(target.finish(), 1);
}

#[test]
fn a_long_list_of_imports_is_refused_briefly() {
    let address = unique("shm");
    let target = Running::start(&address, Target::builder());
    let source = source(&address);
    let mut image = images::add();
    image.imports = (0..500)
        .map(|n| ifunc_abi::image::ImportPart {
            symbol: format!("{n}_{}", "x".repeat(1000)),
            flags: ifunc_abi::image::ImportFlags::NONE,
            fingerprint: 0,
        })
        .collect();
    let refuse = |source: &Source, image: &ifunc_abi::image::ImageParts| match source
        .load_bytes(&image.encode().unwrap())
        .unwrap()
        .call(b"")
        .unwrap()
        .wait()
    {
        Err(Error::Rejected { why, detail, .. }) => (why, detail),
        other => panic!("{other:?}"),
    };
    // A target that accepts nothing does not search for the symbols.
    assert_eq!(refuse(&source, &image).0, Rejection::Policy);
    target.finish();
    let address = unique("shm");
    let _target = Running::start(&address, accepting());
    let (why, detail) = refuse(&super::running::source(&address), &image);
    assert_eq!(why, Rejection::MissingImport);
    assert!(
        detail.len() < 8192 && detail.contains("more"),
        "{} bytes",
        detail.len()
    );
}

/// Waits for the descriptor of a target that is armed; whether it becomes readable.
fn is_woken(target: &Target) -> bool {
    let limit = rustix::event::Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    let mut fds = [rustix::event::PollFd::new(target, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&limit)).unwrap() == 1
}

#[test]
fn an_event_loop_is_woken() {
    use std::os::fd::AsFd;
    let address = unique("shm");
    let mut target = accepting().listen(&address).unwrap();
    let sender = thread::spawn({
        let address = address.clone();
        move || {
            let source = source(&address);
            let add = source
                .register_bytes::<Add>(&images::add().encode().unwrap())
                .unwrap();
            for sum in 1..=5 {
                assert_eq!(add.call(&1).unwrap().wait().unwrap(), sum);
            }
        }
    });
    let mut counter = 0u64;
    while counter < 5 {
        if target.poll(&mut counter) > 0 {
            continue;
        }
        if target.arm() {
            assert!(is_woken(&target), "woken, not timed out");
            let _ = target.as_fd();
        }
        target.disarm();
    }
    while target.connections() > 0 {
        target.poll(&mut counter);
    }
    sender.join().unwrap();
}

/// Between a poll that ran something and a sleep no other poll is needed, and the poll after the sleep runs what ended it.
#[test]
fn the_poll_after_a_sleep_finds_what_ended_it() {
    const CALLS: u64 = 20;
    for transport in between_processes() {
        let mut target = accepting().listen(&place(transport)).unwrap();
        let address = target.address();
        let (go, next) = mpsc::channel();
        let sender = thread::spawn(move || {
            let source = source(&address);
            let add = source
                .register_bytes::<Add>(&images::add().encode().unwrap())
                .unwrap();
            for sum in 1..=CALLS {
                next.recv().unwrap();
                assert_eq!(add.call(&1).unwrap().wait().unwrap(), sum);
            }
        });
        let mut counter = 0u64;
        go.send(()).unwrap();
        while counter < 1 {
            target.poll(&mut counter);
        }
        let mut vain = 0;
        for sum in 2..=CALLS {
            let mut is_asked = false;
            while counter < sum {
                let is_armed = target.arm();
                if is_armed {
                    if !std::mem::replace(&mut is_asked, true) {
                        go.send(()).unwrap();
                    }
                    assert!(is_woken(&target), "{transport}");
                }
                target.disarm();
                vain += usize::from(target.poll(&mut counter) == 0 && is_armed);
            }
        }
        // A transport may wake it for its own sake, now and then; with two credits, once for each answer: its credit is due at once.
        let has_two_credits = std::env::var("IFUNC_CREDITS").is_ok_and(|credits| credits == "2");
        let most = match has_two_credits {
            true => CALLS as usize,
            false => CALLS as usize / 2 - 1,
        };
        assert!(vain <= most, "{transport}: {vain} polls in vain");
        sender.join().unwrap();
    }
}

#[test]
fn an_exported_name_is_not_replaced() {
    // `add_one` is exported by these tests; see below.
    let builder = accepting().allow("add_one", std::ptr::null());
    match builder.listen(&unique("loopback")) {
        Err(error) => assert!(error.to_string().contains("`add_one`"), "{error}"),
        Ok(_) => panic!("its signature would not be compared any more"),
    }
}

/// An export of this test binary.
#[ifunc::export]
fn add_one(value: u64) -> u64 {
    value + 1
}
