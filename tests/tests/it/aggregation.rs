//! Invocations that travel together, to targets in processes of their own.

use std::time::Duration;

use crate::common::{Process, TIMEOUT, library, unique};
use ifunc_rt::{Aggregation, Call, Error, Source, SourceOptions};
use ifunc_tests_ifuncs::{Greeting, t_add, t_greet, t_index};

/// A connection whose batches are sent when they are full, and when it is asked for.
fn connect_patiently(address: &str, reconnect: Duration) -> Source {
    let options = SourceOptions::default()
        .timeout(TIMEOUT)
        .reconnect(reconnect)
        .aggregation(Aggregation::default().delay(Duration::MAX));
    Source::connect_with(address, options).unwrap()
}

/// One crossing of the call gate for many entries: each has its own answer or failure all the same.
#[test]
fn runs_of_rust_and_c_with_panics_among_them() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect_patiently(&address, TIMEOUT);
    let add = source
        .register_path::<t_add>(library("t_add"))
        .unwrap()
        .aggregated();
    let index = source
        .register_path::<t_index>(library("t_index"))
        .unwrap()
        .aggregated();
    // SAFETY: built from this checkout.
    let c_add = unsafe { source.load_path(library("t_c_add")).unwrap() }.aggregated();
    for handle in [add.name(), c_add.name()] {
        let image = if handle == "t_add" {
            add.image()
        } else {
            c_add.image()
        };
        let image = ifunc_abi::image::Image::parse(image).unwrap();
        assert!(image.entries().all(|entry| entry.batch.is_some()), "{handle}");
    }
    // More than are timed one by one at first.
    add.send_many([1; 1000]).unwrap();
    let one = 1u64.to_le_bytes();
    c_add.send_many([&one[..]; 1000]).unwrap();
    for (sum, now) in (2001..).zip(add.call_many([1; 1000])) {
        assert_eq!(now.unwrap(), sum);
    }
    let answers: Vec<_> = c_add.call_many([&one[..]; 200]).map(Result::unwrap).collect();
    assert_eq!(answers.len(), 200);
    assert_eq!(add.call(&0).unwrap().wait().unwrap(), 3200);
    // Warm, so that the next ones are in runs.
    assert!(index.call_many([0; 100]).all(|answer| answer.is_ok()));
    for (at, answer) in index
        .call_many((0..300).map(|at| if at % 50 == 7 { 5 } else { 1 }))
        .enumerate()
    {
        match answer {
            Err(Error::Panic { message, .. }) => {
                assert!(
                    at % 50 == 7 && message.contains("the index is 5"),
                    "{at}: {message}"
                );
            }
            other => assert!(at % 50 != 7 && other.is_ok(), "{at}: {other:?}"),
        }
    }
    target.kill();
}

#[test]
fn rust_and_c_with_answers_and_panics_in_one_batch() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect_patiently(&address, TIMEOUT);
    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    let (direct, add) = (add.clone(), add.aggregated());
    let index = source.register_path::<t_index>(library("t_index")).unwrap();
    let greet = source.register_path::<t_greet>(library("t_greet")).unwrap();
    let (index, greet) = (index.aggregated(), greet.aggregated());
    // SAFETY: built from this checkout.
    let c_add = unsafe { source.load_path(library("t_c_add")).unwrap() }.aggregated();
    let greeting = Greeting {
        name: "Ada",
        times: 30,
    };
    type Calls = (u64, Call<u64>, Call<u64>, Call<String>);
    let mut calls: Vec<Calls> = Vec::new();
    for round in 1..=100 {
        for _ in 0..7 {
            add.send(&1).unwrap();
        }
        c_add.send(&2u64.to_le_bytes()).unwrap();
        drop(c_add.call(&0u64.to_le_bytes()).unwrap());
        calls.push((
            round * 10,
            add.call(&1).unwrap(),
            index.call(&5).unwrap(),
            greet.call(&greeting).unwrap(),
        ));
    }
    for (sum, added, panicked, greeted) in calls {
        let text = greeted.wait().unwrap();
        assert!(text.starts_with("hello Ada, hello Ada, "), "{text}");
        assert!(text.ends_with(&format!(", {sum} it is")), "{text}");
        assert_eq!(added.wait().unwrap(), sum);
        match panicked.wait() {
            Err(Error::Panic { message, .. }) => assert!(message.contains("the index is 5"), "{message}"),
            other => panic!("{other:?}"),
        }
    }
    // The order is the program's, among those and what travels alone.
    add.send(&5).unwrap();
    assert_eq!(direct.call(&1).unwrap().wait().unwrap(), 1006);
    index.send(&7).unwrap();
    add.send(&4).unwrap();
    assert!(matches!(source.flush(), Err(Error::Panic { .. })));
    target.wait_for("counter: 1010");
    // They did travel together, and are counted one by one.
    let stats = source.target_stats(TIMEOUT).unwrap();
    let all = &stats.total;
    assert_eq!((all.executed, all.failed.total()), (1103, 101));
    assert!(all.frames < 50, "{}", all.frames);
}

#[test]
fn a_batch_that_was_not_sent_survives_its_target() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect_patiently(&address, TIMEOUT);
    let add = source
        .register_path::<t_add>(library("t_add"))
        .unwrap()
        .aggregated();
    add.send(&1).unwrap();
    source.flush().unwrap();
    let open = add.call(&2).unwrap();
    for _ in 0..100 {
        add.send(&3).unwrap();
    }
    target.kill();
    let mut target = Process::target(&address);
    assert_eq!(open.wait().unwrap(), 2);
    source.flush().unwrap();
    target.wait_for("counter: 302");
    // The last who leaves sends what is open.
    add.send(&8).unwrap();
    drop((add, source));
    target.wait_for("counter: 310");

    let source = connect_patiently(&address, Duration::from_millis(100));
    let add = source
        .register_path::<t_add>(library("t_add"))
        .unwrap()
        .aggregated();
    let open = add.call(&1).unwrap();
    add.send(&1).unwrap();
    target.kill();
    // A source asks whether its target lives once per tick of the coarse clock: this one has not asked since the kill.
    std::thread::sleep(Duration::from_millis(50));
    let ended = open.wait();
    assert!(matches!(ended, Err(Error::PeerGone { .. })), "{ended:?}");
    let flushed = source.flush();
    assert!(matches!(flushed, Err(Error::PeerGone { .. })), "{flushed:?}");
}
