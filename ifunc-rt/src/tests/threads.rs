//! Several threads on one source.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::images::{self, Add};
use super::running::{Running, accepting, between_processes, everywhere, place, roomy, source, unique};
use crate::{Error, Source, SourceOptions};

const THREADS: u64 = 4;
const CALLS: u64 = 200;

#[test]
fn every_thread_gets_its_own_answers() {
    everywhere(|address, builder| {
        let target = Running::start(address, builder());
        let source = source(address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let sums: Vec<u64> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|n| {
                    let add = add.clone();
                    scope.spawn(move || {
                        let mut sums = Vec::new();
                        for i in 0..CALLS {
                            // Some wait for the answer, some for credit, some for the target to have consumed
                            // everything.
                            match (n + i) % 3 {
                                0 => add.send(&1).unwrap(),
                                _ => sums.push(add.call(&1).unwrap().wait().unwrap()),
                            }
                        }
                        assert!(sums.is_sorted(), "a connection's order is its frames'");
                        sums
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        source.flush().unwrap();
        let mut unique = sums.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), sums.len(), "no answer went to two");
        assert_eq!(target.finish(), THREADS * CALLS);
    });
}

/// Eight threads at once, over what processes are connected by: the target sees what each sent in the order in which it was
/// sent, and each is answered what it asked.
#[test]
fn the_order_of_each_thread_is_kept() {
    const THREADS: usize = 8;
    const MESSAGES: u32 = 500;
    for transport in between_processes() {
        // Little credit, so that they wait for it as well.
        let target = Running::start(&place(transport), accepting().credits(32));
        let source = source(target.address());
        let seen: Arc<Mutex<[u32; THREADS]>> = Arc::default();
        thread::scope(|scope| {
            for n in 0..THREADS {
                let tells = source
                    .clone()
                    .register_bytes::<Add>(&images::tells().encode().unwrap())
                    .unwrap();
                let seen = Arc::clone(&seen);
                let message = images::when_told(move |message| {
                    let last = &mut seen.lock().unwrap()[n];
                    assert_eq!(*last, message, "thread {n}");
                    *last += 1;
                });
                scope.spawn(move || {
                    let mut calls = Vec::new();
                    for payload in (message..).take(MESSAGES as usize) {
                        match payload % 5 {
                            0 | 1 => tells.send(&payload).unwrap(),
                            2 => assert_eq!(tells.call(&payload).unwrap().wait().unwrap(), payload),
                            _ => calls.push((payload, tells.call(&payload).unwrap())),
                        }
                        if calls.len() > 10 {
                            let (payload, call) = calls.swap_remove(0);
                            assert_eq!(call.wait().unwrap(), payload);
                        }
                    }
                    for (payload, call) in calls {
                        assert_eq!(call.wait().unwrap(), payload);
                    }
                });
            }
        });
        source.flush().unwrap();
        assert_eq!(*seen.lock().unwrap(), [MESSAGES; THREADS]);
        drop(target);
    }
}

/// One call takes long: a leader that has its own answer leaves, and another thread must take over.
#[test]
fn the_place_is_handed_on() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let mut target = roomy().listen(&address).unwrap();
        let source = source(&address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let waiting = AtomicU64::new(0);
        let done = AtomicU64::new(0);
        let mut counter = 0u64;
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let call = add.call(&1).unwrap();
                    waiting.fetch_add(1, Ordering::SeqCst);
                    call.wait().unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            until(|| waiting.load(Ordering::SeqCst) == THREADS);
            while done.load(Ordering::SeqCst) < THREADS {
                // The receiver sleeps once per answer: every single answer wakes it.
                target.poll(&mut counter);
            }
        });
        assert_eq!(counter, THREADS);
    }
}

#[test]
fn deadlines_hold_for_those_who_follow() {
    let address = unique("shm");
    let mut target = roomy().listen(&address).unwrap();
    let source = source(&address);
    let add = source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    let done = AtomicBool::new(false);
    let mut first = add.call(&1).unwrap();
    let mut second = add.call(&1).unwrap();
    thread::scope(|scope| {
        let longer = scope.spawn(|| first.wait_timeout(Duration::from_secs(60)));
        let shorter = scope.spawn(|| {
            let began = Instant::now();
            let result = second.wait_timeout(Duration::from_millis(100));
            assert!(began.elapsed() >= Duration::from_millis(100));
            done.store(true, Ordering::SeqCst);
            result
        });
        until(|| done.load(Ordering::SeqCst));
        assert!(matches!(shorter.join().unwrap(), Err(Error::Timeout { .. })));
        assert!(!longer.is_finished());
        // A poll may process only one of them.
        let mut counter = 0u64;
        until(|| {
            target.poll(&mut counter);
            longer.is_finished() && counter == 2
        });
        assert_eq!(longer.join().unwrap().unwrap(), 1);
    });
    assert_eq!(second.wait_timeout(Duration::from_secs(20)).unwrap(), 2);
}

/// All wait for scarce credit, and one of them needs much of it.
#[test]
fn every_waiter_gets_credit() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let target = Running::start(&address, accepting().credits(4).ring(1 << 16));
        let source = source(&address);
        // Payloads that are no u64 are refused one by one, and reported.
        let add = source.load_bytes(&images::add().encode().unwrap()).unwrap();
        let went = AtomicU64::new(0);
        thread::scope(|scope| {
            for n in 0..THREADS {
                let (add, went) = (&add, &went);
                scope.spawn(move || {
                    let payload = vec![7; if n == 0 { 32 << 10 } else { 1000 }];
                    for _ in 0..100 {
                        match add.call(&payload).and_then(crate::Call::wait) {
                            Err(Error::Failed { .. }) => went.fetch_add(1, Ordering::SeqCst),
                            other => panic!("{other:?}"),
                        };
                    }
                });
            }
        });
        assert_eq!(went.load(Ordering::SeqCst), 100 * THREADS);
        assert_eq!(target.finish(), 0);
    }
}

/// An application that waits for nothing and only tries again: what it tries brings it credit, and makes room for answers.
#[test]
fn who_only_tries_again_gets_credit() {
    for transport in between_processes() {
        let target = Running::start(&place(transport), accepting().credits(2).ring(1 << 16));
        let source = source(target.address());
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let mut calls = Vec::new();
        for _ in 0..100 {
            until(|| match add.try_call(&1) {
                Ok(call) => {
                    calls.push(call);
                    true
                }
                Err(Error::WouldBlock { .. }) => false,
                Err(error) => panic!("{transport}: {error}"),
            });
        }
        for call in calls {
            call.wait().unwrap();
        }
        assert_eq!(target.finish(), 100, "{transport}");
    }
}

/// The target dies while some threads poll, some sleep and some follow: all of them learn it, even if no thread
/// reconnects.
#[test]
fn all_who_wait_learn_that_the_target_left() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let target = accepting().credits(8).listen(&address).unwrap();
        let options = SourceOptions::default().reconnect(Duration::from_millis(50));
        let source = Source::connect_with(&address, options).unwrap();
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let waiting = AtomicU64::new(0);
        // While there is credit.
        let calls: Vec<_> = (0..THREADS)
            .map(|n| (n % 2 == 0).then(|| add.call(&1).unwrap()))
            .collect();
        thread::scope(|scope| {
            for call in calls {
                let (add, waiting) = (&add, &waiting);
                scope.spawn(move || {
                    if let Some(call) = call {
                        waiting.fetch_add(1, Ordering::SeqCst);
                        assert!(matches!(call.wait(), Err(Error::Indeterminate { .. })));
                        return;
                    }
                    waiting.fetch_add(1, Ordering::SeqCst);
                    // Until the credits are used up, and then some.
                    let failed = (0..20).find_map(|_| add.send(&1).err());
                    assert!(matches!(
                        failed,
                        Some(Error::PeerGone { .. } | Error::Earlier(_) | Error::Indeterminate { .. })
                    ));
                });
            }
            until(|| waiting.load(Ordering::SeqCst) == THREADS);
            drop(target);
        });
    }
}

pub(super) fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}
