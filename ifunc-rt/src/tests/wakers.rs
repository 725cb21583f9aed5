//! Wakers run foreign code: they panic, use the source, and wait. And a woken future need not be polled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::images::{self, Add};
use super::running::{Running, accepting, roomy, source, unique};
use crate::{Call, Driver, Error, Handle, Source, SourceOptions};

fn adds(source: &Source) -> Handle<Add> {
    source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap()
}

fn is_pending<T>(future: std::pin::Pin<&mut impl Future<Output = T>>, waker: &Waker) -> bool {
    future.poll(&mut Context::from_waker(waker)).is_pending()
}

/// Counts wake-ups.
#[derive(Default)]
struct Counts(AtomicU32);

impl Counts {
    fn until(&self, count: u32) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.0.load(Ordering::SeqCst) < count {
            assert!(Instant::now() < deadline, "it was not woken");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The first credit waiter was woken and is not polled: the next one has its turn.
#[test]
fn a_future_that_is_not_polled_delays_no_other() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let mut target = accepting().credits(2).listen(&address).unwrap();
        let source = source(&address);
        let add = adds(&source);
        // It and the image take the two credits.
        add.send(&1).unwrap();
        let counts = [(); 2].map(|()| Arc::new(Counts::default()));
        let wakers = [0, 1].map(|n| Waker::from(Arc::clone(&counts[n])));
        let mut first = Box::pin(add.send_async(&10));
        let mut second = Box::pin(add.send_async(&100));
        assert!(is_pending(first.as_mut(), &wakers[0]));
        assert!(is_pending(second.as_mut(), &wakers[1]));
        let mut counter = 0u64;
        while counter < 1 {
            target.poll(&mut counter);
        }
        counts[0].until(1);
        counts[1].until(1);
        assert!(!is_pending(second.as_mut(), &wakers[1]));
        // A thread after it in the queue, too.
        thread::scope(|scope| {
            let third = scope.spawn(|| add.call(&1000).unwrap().wait().unwrap());
            while !third.is_finished() {
                target.poll(&mut counter);
            }
            assert_eq!(third.join().unwrap(), 1101);
        });
        assert!(!is_pending(first.as_mut(), &wakers[0]));
    }
}

/// No thread waits, and the event loop does not turn: the thread that sends is the only one that receives.
#[test]
fn a_send_wakes_the_future_whose_answer_it_receives() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let mut target = roomy().listen(&address).unwrap();
        let source = source(&address);
        let _driver = source.driver().unwrap();
        let add = adds(&source);
        let counts = Arc::new(Counts::default());
        let waker = Waker::from(Arc::clone(&counts));
        let mut counter = 0u64;
        for round in 1..=3 {
            let mut call = add.call(&1).unwrap();
            assert!(is_pending(std::pin::Pin::new(&mut call), &waker));
            while counter < round {
                target.poll(&mut counter);
            }
            assert_eq!(u64::from(counts.0.load(Ordering::SeqCst)), round - 1);
            add.try_send(&0).unwrap();
            assert_eq!(u64::from(counts.0.load(Ordering::SeqCst)), round);
            assert!(!is_pending(std::pin::Pin::new(&mut call), &waker));
        }
    }
}

#[test]
fn a_waker_that_panics_harms_nobody() {
    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("this is a part of the test");
        }
    }

    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let mut target = roomy().listen(&address).unwrap();
        let source = source(&address);
        let add = adds(&source);
        let counts = Arc::new(Counts::default());
        let mut counter = 0u64;
        for round in 1..=2 {
            let mut panics = add.call(&1).unwrap();
            let mut counted = add.call(&1).unwrap();
            assert!(is_pending(
                std::pin::Pin::new(&mut panics),
                &Waker::from(Arc::new(Panics))
            ));
            let waker = Waker::from(Arc::clone(&counts));
            assert!(is_pending(std::pin::Pin::new(&mut counted), &waker));
            while counter < 2 * u64::from(round) {
                target.poll(&mut counter);
            }
            // By the thread that receives, which lives.
            counts.until(round);
            assert_eq!(counted.try_wait().unwrap().unwrap(), 2 * u64::from(round));
        }
    }
}

/// A thread that drops a waker while it holds the connection's lock would deadlock.
#[test]
fn wakers_may_use_the_source_when_they_are_dropped() {
    struct Sends(Handle<Add>);

    impl Wake for Sends {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Sends {
        fn drop(&mut self) {
            self.0.send(&1).unwrap();
        }
    }

    let address = unique("shm");
    let target = Running::start(&address, roomy());
    let source = source(&address);
    let add = adds(&source);
    let waker = || Waker::from(Arc::new(Sends(add.clone())));
    for _ in 0..50 {
        let mut call = add.call(&1).unwrap();
        // Displaced by another; woken; and dropped with its future.
        for _ in 0..2 {
            if !is_pending(std::pin::Pin::new(&mut call), &waker()) {
                break;
            }
        }
    }
    source.flush().unwrap();
    drop(add);
    assert!(target.finish() >= 100);
}

/// A waker that waits itself, called by a thread in the middle of a wait of its own.
#[test]
fn wakers_may_wait() {
    struct Waits(Handle<Add>, Counts);

    impl Wake for Waits {
        fn wake(self: Arc<Self>) {
            assert!(self.0.call(&10).unwrap().wait().unwrap() > 10);
            self.1.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    for with_driver in [true, false] {
        let address = unique("shm");
        let mut target = roomy().listen(&address).unwrap();
        let options = SourceOptions::default().timeout(Duration::from_secs(20));
        let source = Source::connect_with(&address, options).unwrap();
        let add = adds(&source);
        // The driver makes no progress here: the thread that waits below receives for the future.
        let _driver = with_driver.then(|| source.driver().unwrap());
        let waits = Arc::new(Waits(add.clone(), Counts::default()));
        let mut future = add.call(&1).unwrap();
        assert!(is_pending(
            std::pin::Pin::new(&mut future),
            &Waker::from(Arc::clone(&waits))
        ));
        let tells = source
            .register_bytes::<Add>(&images::tells().encode().unwrap())
            .unwrap();
        // The future's answer comes while the threads go on waiting for theirs.
        let slow = images::when_told(|_| thread::sleep(Duration::from_millis(30)));
        let calls = [(); 2].map(|()| tells.call(&slow).unwrap());
        let mut counter = 0u64;
        let deadline = Instant::now() + Duration::from_secs(15);
        thread::scope(|scope| {
            let waiting = calls.map(|call| scope.spawn(|| call.wait().unwrap()));
            thread::sleep(Duration::from_millis(if with_driver { 20 } else { 0 }));
            while waits.1.0.load(Ordering::SeqCst) == 0
                || waiting.iter().any(|waiting| !waiting.is_finished())
            {
                target.poll(&mut counter);
                assert!(Instant::now() < deadline, "a waker waits in vain");
            }
        });
        assert_eq!(counter, 11);
    }
}

/// When the source gives up reconnecting, all waiters learn it, and the source does not keep trying for futures that
/// are not polled.
#[test]
fn a_future_that_is_not_polled_is_not_reconnected_for() {
    let address = unique("shm");
    let target = accepting().credits(2).listen(&address).unwrap();
    let options = SourceOptions::default()
        .timeout(Duration::from_secs(60))
        .reconnect(Duration::from_millis(30));
    let source = Source::connect_with(&address, options).unwrap();
    let add = adds(&source);
    add.send(&1).unwrap();
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(Arc::clone(&counts));
    let mut sending = Box::pin(add.send_async(&1));
    assert!(is_pending(sending.as_mut(), &waker));
    drop(target);
    counts.until(1);
    let mut next = accepting().listen(&address).unwrap();
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        assert_eq!(next.poll(&mut 0u64), 0);
        assert_eq!(next.connections(), 0, "no call asked for a link");
    }
    let ended = sending.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(
        ended,
        Poll::Ready(Err(Error::PeerGone { .. } | Error::Earlier(_)))
    ));
}

/// A future that waits for a link wakes the event loop that waits for events.
#[test]
fn a_driver_is_rung_where_there_is_no_link() {
    fn rings(driver: &Driver) -> bool {
        let limit = Timespec {
            tv_sec: 5,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(driver, PollFlags::IN)], Some(&limit)).unwrap() == 1
    }

    let address = unique("shm");
    let target = accepting().listen(&address).unwrap();
    let options = SourceOptions::default().reconnect(Duration::from_secs(1));
    let source = Source::connect_with(&address, options).unwrap();
    let add = adds(&source);
    let driver = source.driver().unwrap();
    drop(target);
    let waker = Waker::noop();
    let mut lost = Box::pin(add.call_async(&1));
    while is_pending(lost.as_mut(), waker) {
        driver.progress();
    }
    // Nothing waits, there is no link, and the doorbell is clear.
    driver.progress();
    assert!(driver.arm());
    let mut target = accepting().listen(&address).unwrap();
    let mut next = Box::pin(add.call_async(&1));
    assert!(is_pending(next.as_mut(), waker));
    assert!(rings(&driver));
    let mut counter = 0u64;
    while is_pending(next.as_mut(), waker) {
        driver.progress();
        target.poll(&mut counter);
    }
    assert_eq!(counter, 1);
}

/// One that has little time does not take the others' from them.
#[test]
fn a_short_deadline_ends_nobody_else_s_reconnect() {
    let address = unique("shm");
    let first = accepting().listen(&address).unwrap();
    let options = SourceOptions::default().reconnect(Duration::from_secs(60));
    let source = Source::connect_with(&address, options).unwrap();
    let add = adds(&source);
    drop(first);
    while !matches!(add.try_call(&1), Err(Error::WouldBlock { .. })) {}
    thread::scope(|scope| {
        let hurried = scope.spawn(|| {
            let hurried = add.with_timeout(Duration::from_millis(200));
            hurried.call(&1).and_then(Call::wait)
        });
        // Behind the first, which tries to make the link again.
        thread::sleep(Duration::from_millis(50));
        let patient = scope.spawn(|| add.call(&2).and_then(Call::wait));
        let hurried = hurried.join().unwrap();
        assert!(matches!(hurried, Err(Error::Timeout { .. })), "{hurried:?}");
        let target = Running::start(&address, accepting());
        assert_eq!(patient.join().unwrap().unwrap(), 2);
        assert_eq!(target.finish(), 2);
    });
}

#[test]
fn every_wait_may_have_a_deadline_of_its_own() {
    let address = unique("shm");
    let mut target = roomy().listen(&address).unwrap();
    let source = source(&address);
    let add = adds(&source).with_timeout(Duration::from_millis(20));
    let timed_out = |result: Result<u64, Error>| matches!(result, Err(Error::Timeout { .. }));
    assert!(timed_out(add.call(&1).unwrap().wait()));
    assert!(timed_out(add.message(&1).unwrap().call().unwrap().wait()));
    assert!(timed_out(super::futures::block_on(add.call_async(&1))));
    let call = add.call(&1).unwrap();
    assert!(matches!(
        call.with_timeout(Duration::from_millis(30)).wait(),
        Err(Error::Timeout { waited, .. }) if waited >= Duration::from_millis(29)
    ));
    assert!(matches!(
        source.flush_timeout(Duration::from_millis(20)),
        Err(Error::Timeout { .. })
    ));
    let patient = add.call(&1).unwrap().with_timeout(Duration::from_secs(20));
    let mut counter = 0u64;
    while target.poll(&mut counter) > 0 || counter < 5 {}
    assert_eq!(patient.wait().unwrap(), 5);
}
