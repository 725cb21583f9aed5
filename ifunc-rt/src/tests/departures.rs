//! Targets and sources that close, come back, or do not answer.

use std::thread;
use std::time::{Duration, Instant};

use super::images::{self, Add};
use super::running::{Running, accepting, roomy, source, unique};
use crate::transport;
use crate::{ConnectError, Error, Source, SourceOptions};

#[test]
fn a_target_that_comes_back_is_used_again() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let first = Running::start(&address, accepting());
        let source = source(&address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        assert_eq!(add.call(&1).unwrap().wait().unwrap(), 1);
        assert_eq!(first.finish(), 1);
        let second = Running::start(&address, accepting());
        // Another target, without the code: it is sent again, unasked.
        assert_eq!(add.call(&2).unwrap().wait().unwrap(), 2);
        add.send(&3).unwrap();
        source.flush().unwrap();
        assert_eq!(second.finish(), 5);
        let impatient = SourceOptions::default().reconnect(Duration::from_millis(50));
        let third = Running::start(&address, accepting());
        let other = Source::connect_with(&address, impatient).unwrap();
        let other_add = other
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        assert_eq!(third.finish(), 0);
        let began = Instant::now();
        assert!(matches!(other_add.call(&1), Err(Error::PeerGone { .. })));
        assert!(matches!(other_add.call(&1), Err(Error::PeerGone { .. })));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_target_that_does_not_serve_runs_into_the_deadline() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let mut target = accepting().credits(2).listen(&address).unwrap();
        let options = SourceOptions::default().timeout(Duration::from_millis(100));
        let source = Source::connect_with(&address, options).unwrap();
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let mut call = add.call(&1).unwrap();
        assert!(matches!(
            call.wait_timeout(Duration::from_millis(20)),
            Err(Error::Timeout { .. })
        ));
        assert!(call.try_wait().is_none());
        let error = add.try_send(&1).unwrap_err();
        assert!(matches!(error, Error::WouldBlock { .. }), "{error}");
        assert!(
            error.to_string().contains("(there is no credit); help: "),
            "{error}"
        );
        assert!(matches!(add.send(&1), Err(Error::Timeout { .. })));
        // It goes on, and so does the connection.
        let mut counter = 0u64;
        while target.poll(&mut counter) > 0 || counter == 0 {}
        assert_eq!(call.wait_timeout(Duration::from_secs(10)).unwrap(), 1);
        add.send(&1).unwrap();
        while target.poll(&mut counter) > 0 || counter < 2 {}
        drop(source);
    }
}

#[test]
fn a_target_that_is_busy_at_this_moment_is_waited_for() {
    let address = unique("shm");
    let mut target = accepting().credits(2).ring(1 << 16).listen(&address).unwrap();
    let to = address.parse().unwrap();
    // They wait to be taken, until there are too many of them.
    let mut waiting = 0;
    loop {
        match transport::connect(&to, Instant::now() + Duration::from_secs(20)) {
            Ok(link) => drop(link),
            Err(ConnectError::Busy { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        waiting += 1;
        assert!(waiting < 5000);
    }
    let options = SourceOptions::default().connect_timeout(Duration::from_millis(20));
    match Source::connect_with(&address, options) {
        Err(_) => {}
        Ok(_) => panic!("it was busy"),
    }
    let options = SourceOptions::default().connect_timeout(Duration::from_secs(20));
    thread::scope(|scope| {
        let connects = scope.spawn(|| Source::connect_with(&address, options).map(drop));
        thread::sleep(Duration::from_millis(20));
        while !connects.is_finished() {
            target.poll(&mut 0u64);
        }
        connects.join().unwrap().unwrap();
    });
}

#[test]
fn calls_in_flight_are_indeterminate_or_run_again() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let first = roomy().listen(&address).unwrap();
        let source = source(&address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let again = source
            .register_bytes::<Add>(&images::add_again().encode().unwrap())
            .unwrap();
        let lost = add.call(&1).unwrap();
        let kept = again.call(&2).unwrap();
        add.send(&4).unwrap();
        drop(first);
        let second = Running::start(&address, accepting());
        let lost = lost.wait().unwrap_err().to_string();
        assert!(lost.contains("help: declare the ifunc `idempotent`"), "{lost}");
        assert_eq!(kept.wait().unwrap(), 2);
        assert!(matches!(source.flush(), Err(Error::Indeterminate { .. })));
        source.flush().unwrap();
        assert_eq!(second.finish(), 2);
    }
}

#[test]
fn what_was_sent_is_run_also_when_its_source_has_left() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let mut target = roomy().listen(&address).unwrap();
        let source = source(&address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let panics = source.load_bytes(&images::panics().encode().unwrap()).unwrap();
        // An answer and a report that the source never reads, before the rest.
        drop(add.call(&1).unwrap());
        panics.send(b"").unwrap();
        for _ in 0..10 {
            add.send(&1).unwrap();
        }
        drop((add, panics, source));
        let mut counter = 0u64;
        let deadline = Instant::now() + Duration::from_secs(20);
        while target.poll(&mut counter) > 0 || counter < 11 || target.connections() > 0 {
            assert!(Instant::now() < deadline, "{counter} of 11, {target:?}");
        }
    }
}

#[test]
fn a_thread_that_waits_leaves_the_source_to_the_others() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let address = unique("shm");
    let mut target = accepting().credits(4096).listen(&address).unwrap();
    let source = source(&address);
    let add = source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    let done = AtomicBool::new(false);
    let mut counter = 0u64;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let sum = add.call(&1).unwrap().wait();
            done.store(true, Ordering::SeqCst);
            sum
        });
        // Nothing polls the target, so the other thread waits all this time.
        let mut sent = 0;
        while sent < 1000 {
            add.try_send(&1).unwrap();
            sent += 1;
        }
        assert!(!done.load(Ordering::SeqCst));
        while counter < 1001 {
            target.poll(&mut counter);
        }
        while !waiting.is_finished() {
            target.poll(&mut counter);
        }
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn what_is_sent_again_is_sent_in_order_and_once() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let first = Running::start(&address, accepting());
        let source = source(&address);
        let set = source.load_bytes(&images::set().encode().unwrap()).unwrap();
        let call = |value: u64| set.call(&value.to_le_bytes()).unwrap();
        // Done in this order, they leave their places in the table in the other.
        let (a, b) = (call(10), call(11));
        a.wait().unwrap();
        b.wait().unwrap();
        first.finish();
        // Reconnects; this target polls nothing.
        let deaf = roomy().listen(&address).unwrap();
        let (one, two) = (call(1), call(2));
        drop(deaf);
        let third = Running::start(&address, accepting());
        one.wait().unwrap();
        two.wait().unwrap();
        assert_eq!(
            third.finish(),
            2,
            "{transport}: the last one sent is the last one run"
        );

        // Lost a second time, it is not sent a third time.
        let deaf = roomy().listen(&address).unwrap();
        let lost = call(3);
        drop(deaf);
        let mut deaf = roomy().listen(&address).unwrap();
        let (mut lost, mut counter) = (lost, 0u64);
        while deaf.connections() == 0 {
            assert!(lost.try_wait().is_none());
            // Accepts the connection and runs nothing of it: the second poll is the first to ask the policy.
            let _ = deaf.arm();
        }
        drop(deaf);
        let fourth = Running::start(&address, accepting());
        let error = lost.wait().unwrap_err();
        assert!(matches!(&error, Error::Indeterminate { what, idempotent: Some(true) } if what == "set"));
        let text = error.to_string();
        assert!(
            text.contains("never a third time") && !text.contains("declare"),
            "{text}"
        );
        call(4).wait().unwrap();
        counter += fourth.finish();
        assert_eq!(counter, 4);
    }
}

#[test]
fn what_is_lost_while_it_is_sent_again_may_have_run() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let deaf = roomy().ring(64 << 10).listen(&address).unwrap();
        let source = source(&address);
        let set = source.load_bytes(&images::set().encode().unwrap()).unwrap();
        // A fragment and the remaining ones, for which there is credit.
        let mut lost = set.call(&[0; 48 << 10]).unwrap();
        drop(deaf);
        // The image, the fragment, and no credit for the remaining ones.
        let mut deaf = accepting().ring(64 << 10).credits(2).listen(&address).unwrap();
        while deaf.connections() == 0 {
            assert!(lost.try_wait().is_none());
            let _ = deaf.arm();
        }
        for _ in 0..3 {
            assert!(lost.try_wait().is_none());
        }
        drop(deaf);
        let _third = Running::start(&address, accepting());
        let lost = lost.wait();
        assert!(matches!(lost, Err(Error::Indeterminate { .. })), "{lost:?}");
    }
}
