//! Aggregated handles, and targets that run their batches.

use std::thread;
use std::time::{Duration, Instant};

use super::images::{self, Add};
use super::running::{Running, accepting, between_processes, everywhere, place, roomy, unique, with_quotas};
use crate::{Aggregation, Error, Handle, Source, SourceOptions};

fn never() -> Aggregation {
    Aggregation::default().delay(Duration::MAX)
}

fn source_with(address: &str, aggregation: Aggregation) -> Source {
    let options = SourceOptions::default()
        .timeout(Duration::from_secs(20))
        .aggregation(aggregation);
    Source::connect_with(address, options).unwrap()
}

fn add(source: &Source) -> Handle<Add> {
    source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap()
}

#[test]
fn each_has_its_own_end_in_the_order_of_the_program() {
    everywhere(|address, builder| {
        let target = Running::start(address, builder());
        // Small enough that it is full now and then.
        let source = source_with(address, Aggregation::default().bytes(256));
        let direct = add(&source);
        let fast = direct.aggregated();
        let panics = source.load_bytes(&images::panics().encode().unwrap()).unwrap();
        let panics = panics.aggregated();
        let bytes = source.load_bytes(&images::add().encode().unwrap()).unwrap();
        let bytes = bytes.aggregated();
        for _ in 0..500 {
            fast.send(&1).unwrap();
        }
        assert_eq!(direct.call(&0).unwrap().wait().unwrap(), 500);
        // Answers, panics and refusals among each other, and what travels alone among them.
        let mut sum = 500;
        let mut calls = Vec::new();
        for round in 0..40 {
            let handle = if round % 7 == 0 { &direct } else { &fast };
            calls.push((sum + 1, handle.call(&1).unwrap(), panics.call(b"").unwrap()));
            sum += 1;
            drop(fast.call(&1).unwrap());
            sum += 1;
        }
        for (expected, call, panic) in calls {
            assert!(matches!(panic.wait(), Err(Error::Panic { line: 7, .. })));
            assert_eq!(call.wait().unwrap(), expected);
        }
        for len in [0, 7, 9, 255, 256, 40_000] {
            match bytes.call(&vec![7; len]).unwrap().wait() {
                Err(Error::Failed { detail, .. }) => {
                    assert!(detail.starts_with(&format!("{len} bytes")), "{detail}");
                }
                other => panic!("{other:?}"),
            }
        }
        // Failures of aggregated sends are reported like those of any others.
        panics.send(b"").unwrap();
        fast.send(&1).unwrap();
        assert!(matches!(source.flush(), Err(Error::Panic { .. })));
        source.flush().unwrap();
        assert_eq!(source.remains()[0], 0);
        assert_eq!(target.finish(), sum + 1);
    });
}

#[test]
fn many_at_once_run_in_order_and_answer_in_order() {
    const COUNT: u64 = 1500;
    everywhere(|address, builder| {
        let target = Running::start(
            address,
            with_quotas(builder(), |quotas| quotas.payload_bytes(4096)),
        );
        let source = source_with(address, Aggregation::default());
        let direct = add(&source);
        // Every handle can do it; an aggregated one is fast.
        for handle in [&direct, &direct.aggregated()] {
            let before = direct.call(&0).unwrap().wait().unwrap();
            handle.send_many((0..COUNT).map(|_| 1)).unwrap();
            let answers = handle.call_many(&[2; COUNT as usize]);
            assert_eq!(answers.len(), COUNT as usize);
            for (index, now) in answers.enumerate() {
                assert_eq!(now.unwrap(), before + COUNT + 2 * (index as u64 + 1));
            }
            // The iterator may use the source. Answers that are not taken are dropped.
            let again = || (0..10).map(|_| direct.call(&0).unwrap().wait().map_or(0, |_| 1));
            drop(handle.call_many(again()));
            let mut some = handle.call_many(again());
            assert_eq!(some.next().unwrap().unwrap(), before + 3 * COUNT + 11);
        }
        source.flush().unwrap();
        assert_eq!(source.remains()[0], 0);
        // Payloads of several lengths, and failures, each at its place.
        let bytes = source.load_bytes(&images::add().encode().unwrap()).unwrap();
        let bytes = bytes.aggregated();
        let payloads: Vec<Vec<u8>> = (0..COUNT)
            .map(|i| {
                if i % 10 == 3 {
                    vec![0; i as usize % 7]
                } else {
                    vec![0; 8]
                }
            })
            .collect();
        for (index, answer) in bytes.call_many(payloads.iter().map(Vec::as_slice)).enumerate() {
            match answer {
                Ok(bytes) => assert!(index % 10 != 3 && bytes.len() == 8),
                Err(Error::Failed { .. }) => assert_eq!(index % 10, 3),
                Err(other) => panic!("{other:?}"),
            }
        }
        let mut too_large = vec![vec![0; 8]; 5];
        too_large.push(vec![0; 4097]);
        too_large.push(vec![0; 8]);
        let mut answers = bytes.call_many(too_large.iter().map(Vec::as_slice));
        assert_eq!(answers.len(), 6, "none after the one that was not sent");
        assert!(answers.by_ref().take(5).all(|answer| answer.is_ok()));
        assert!(matches!(answers.next(), Some(Err(Error::PayloadTooLarge { .. }))));
        assert!(answers.next().is_none());
        let error = bytes.send_many(too_large.iter().map(Vec::as_slice)).unwrap_err();
        assert_eq!(error.sent, 5);
        assert!(matches!(error.error, Error::PayloadTooLarge { .. }));
        source.flush().unwrap();
        drop(source);
        target.finish();
    });
}

#[test]
fn threads_fill_one_batch() {
    const THREADS: u64 = 4;
    for transport in ["loopback", "shm"] {
        let target = Running::start(&unique(transport), accepting());
        let source = source_with(target.address(), Aggregation::default());
        let fast = add(&source).aggregated();
        thread::scope(|scope| {
            for n in 0..THREADS {
                let fast = fast.clone();
                scope.spawn(move || {
                    let mut last = 0;
                    for i in 0..500 {
                        if (i + n) % 50 == 0 {
                            let sum = fast.call(&1).unwrap().wait().unwrap();
                            assert!(sum > last, "behind what this thread sent before");
                            last = sum;
                        } else {
                            fast.send(&1).unwrap();
                            last += 1;
                        }
                    }
                });
            }
        });
        source.flush().unwrap();
        assert_eq!(target.finish(), THREADS * 500);
    }
}

#[test]
fn what_was_not_sent_is_not_lost_with_the_link() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        // All of it is open at once, whatever rings the environment asks for.
        let first = roomy().ring(2 << 20).listen(&address).unwrap();
        let source = source_with(&address, never().bytes(256 << 10));
        let fast = add(&source).aggregated();
        let again = source
            .register_bytes::<Add>(&images::add_again().encode().unwrap())
            .unwrap()
            .aggregated();
        let counts = source.load_bytes(&images::counts().encode().unwrap()).unwrap();
        let counts = counts.aggregated();
        // One was sent, one is open.
        let lost = fast.call(&1).unwrap();
        let kept = again.call(&2).unwrap();
        fast.send(&4).unwrap();
        source.push().unwrap();
        let open = fast.call(&8).unwrap();
        drop(fast.call(&16).unwrap());
        counts.send(&[7; 33_000]).unwrap();
        let too_large = counts.call(&[7; 40_000]).unwrap();
        fast.send(&32).unwrap();
        drop(counts);
        drop(first);
        // What is open does not fit into one frame there, one of it into none, and one is not taken.
        let second = Running::start(
            &address,
            with_quotas(accepting().ring(1 << 16), |quotas| quotas.payload_bytes(33_500)),
        );
        assert!(matches!(lost.wait(), Err(Error::Indeterminate { .. })));
        assert_eq!(kept.wait().unwrap(), 2, "{transport}");
        assert_eq!(open.wait().unwrap(), 10);
        assert!(matches!(
            too_large.wait(),
            Err(Error::PayloadTooLarge { limit: 33_500, .. })
        ));
        let mut reported = Vec::new();
        while let Err(error) = source.flush() {
            reported.push(error);
        }
        assert!(
            matches!(reported[..], [Error::Indeterminate { .. }]),
            "{reported:?}"
        );
        assert_eq!(source.remains()[0], 0);
        assert_eq!(second.finish(), 58);
    }
}

#[test]
fn what_finds_no_target_in_time_was_never_sent() {
    let address = unique("shm");
    let target = Running::start(&address, accepting());
    let options = SourceOptions::default()
        .reconnect(Duration::from_secs(1))
        .aggregation(never());
    let source = Source::connect_with(&address, options).unwrap();
    let fast = add(&source).aggregated();
    fast.send(&1).unwrap();
    source.flush().unwrap();
    let (call, dropped) = (fast.call(&2).unwrap(), fast.call(&4).unwrap());
    drop(dropped);
    fast.send(&8).unwrap();
    assert_eq!(target.finish(), 1);
    match call.wait() {
        Err(Error::PeerGone { what, .. }) => assert_eq!(what, "add"),
        other => panic!("{other:?}"),
    }
    match source.flush() {
        Err(Error::PeerGone { what, .. }) => assert_eq!(what, "add"),
        other => panic!("{other:?}"),
    }
    assert_eq!(source.remains()[0], 0);
    // The next target is used as if nothing had been.
    let target = Running::start(&address, accepting());
    let sum = fast.call(&16).unwrap().wait().unwrap();
    assert_eq!((sum, target.finish()), (16, 16));
}

#[test]
fn an_image_that_the_next_target_does_not_take_is_told_of_each_of_its_invocations() {
    let address = unique("shm");
    let mut first = roomy().listen(&address).unwrap();
    let source = source_with(&address, never());
    let fast = add(&source).aggregated();
    let large = source
        .load_bytes(&images::everything().encode().unwrap())
        .unwrap();
    let large = large.aggregated();
    let refused = [large.call(&[1; 8]).unwrap(), large.call(&[1; 8]).unwrap()];
    fast.send(&1).unwrap();
    // It accepts the connection and runs nothing: the drop of a target closes the links that it accepted before it returns.
    while first.connections() == 0 {
        let _ = first.arm();
    }
    drop((first, large));
    let limit = images::everything().encode().unwrap().len() - 1;
    let second = Running::start(
        &address,
        with_quotas(accepting(), |quotas| quotas.image_bytes(limit)),
    );
    for call in refused {
        assert!(matches!(call.wait(), Err(Error::ImageTooLarge { .. })));
    }
    source.flush().unwrap();
    assert_eq!(second.finish(), 1);
}

/// `UCX_TLS=tcp cargo test -p ifunc-rt --release --lib -- --ignored --nocapture measured_increments`
#[test]
#[ignore = "nightly: a measurement"]
fn measured_increments_alone_and_together() {
    for transport in ["loopback"].into_iter().chain(between_processes()) {
        let target = Running::start(&place(transport), accepting());
        for (bytes, micros) in [
            (1, 50),
            (2, 100),
            (4, 100),
            (8, 100),
            (16, 100),
            (32, 100),
            (8, 1000),
        ] {
            let aggregation = Aggregation::default()
                .bytes(bytes << 10)
                .delay(Duration::from_micros(micros));
            let source = source_with(target.address(), aggregation);
            let alone = add(&source);
            let together = alone.aggregated();
            let rate = |add: &Handle<Add>, count: u32| {
                add.send(&1).unwrap();
                source.flush().unwrap();
                let began = Instant::now();
                (0..count).for_each(|_| add.send(&1).unwrap());
                let sent = began.elapsed() / count;
                source.flush().unwrap();
                (sent, began.elapsed() / count)
            };
            let count = if transport == "ucx" { 50_000 } else { 1_000_000 };
            let (alone, together) = (rate(&alone, count), rate(&together, 2_000_000));
            let ratio = alone.1.as_secs_f64() / together.1.as_secs_f64();
            println!(
                "{transport}, {bytes} KiB, {micros} µs: alone {alone:?}, together {together:?}, {ratio:.1} times"
            );
        }
    }
}

/// Invocations in frames of their own, of one call of the application's.
#[test]
#[cfg(feature = "ucx")]
fn frames_of_one_call_share_messages_over_ucx() {
    use crate::transport::ucx::GATHERED;

    if !between_processes().contains(&"ucx") {
        return;
    }
    let target = Running::start(&place("ucx"), roomy());
    let source = source_with(target.address(), never());
    let direct = add(&source);
    // From here on, UCX is connected.
    assert_eq!(direct.call(&1).unwrap().wait().unwrap(), 1);
    let before = GATHERED.get();
    let gathered = || GATHERED.get() - before;
    direct.send_many([1]).unwrap();
    assert_eq!(direct.call_many([1]).last().unwrap().unwrap(), 3);
    assert_eq!(gathered(), 0, "each was alone");
    direct.send_many([1; 10]).unwrap();
    assert_eq!(gathered(), 10);
    let answers = direct.call_many([1; 20]).map(Result::unwrap);
    assert!(answers.eq(14..34));
    assert_eq!(gathered(), 30);
}

/// Calls that a source makes while it takes the answers of earlier ones.
#[test]
#[cfg(feature = "ucx")]
fn calls_between_answers_share_messages_over_ucx() {
    use std::collections::VecDeque;

    use crate::Call;
    use crate::transport::ucx::GATHERED;

    if !between_processes().contains(&"ucx") {
        return;
    }
    let target = Running::start(&place("ucx"), roomy());
    let source = source_with(target.address(), never());
    let direct = add(&source);
    let mut counter = 0;
    let mut wait = |call: Call<u64>| {
        counter += 1;
        assert_eq!(call.wait().unwrap(), counter);
    };
    // How many calls share messages, of 19 that are made between answers, and of one that is not.
    let mut round = || {
        let calls = || direct.call(&1).unwrap();
        let mut first: VecDeque<_> = (0..20).map(|_| calls()).collect();
        let before = GATHERED.get();
        // Answers come in the order of the calls. How many of them come together, the network decides.
        let mut second = Vec::new();
        wait(first.pop_front().unwrap());
        for call in first {
            second.push(calls());
            wait(call);
        }
        let between = GATHERED.get() - before;
        second.push(calls());
        second.into_iter().for_each(&mut wait);
        (between, GATHERED.get() - before)
    };
    let found = (0..1000).any(|_| match round() {
        // All answers were there when the first was taken.
        (0, 20) => true,
        (between, all) => {
            // The first calls share messages, too, where answers come before all of them are made.
            assert!(between <= all && all <= 40, "{between} {all}");
            false
        }
    });
    assert!(found, "no calls shared a message");
}

/// Their answers share messages, then: one poll gathers what it sends.
#[test]
#[cfg(feature = "ucx")]
fn what_came_in_one_message_runs_in_one_poll_over_ucx() {
    if !between_processes().contains(&"ucx") {
        return;
    }
    let mut target = roomy().listen(&place("ucx")).unwrap();
    let address = target.address();
    let connecting = thread::spawn(move || source_with(&address, never()));
    let mut counter = 0u64;
    while !connecting.is_finished() {
        target.poll(&mut counter);
    }
    let source = connecting.join().unwrap();
    let direct = add(&source);
    let mut first = direct.call(&1).unwrap();
    while first.try_wait().is_none() {
        target.poll(&mut counter);
    }
    for _ in 0..3 {
        // The first poll after idle ones, too.
        for _ in 0..100 {
            target.poll(&mut counter);
        }
        let answers = direct.call_many([1; 20]);
        let processed = std::iter::repeat_with(|| target.poll(&mut counter)).find(|&n| n > 0);
        assert_eq!(processed, Some(20));
        assert_eq!(answers.map(Result::unwrap).count(), 20);
    }
}
