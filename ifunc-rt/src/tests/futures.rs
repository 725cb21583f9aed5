//! Calls, sends and flushes as futures, with and without an executor.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::images::{self, Add};
use super::running::{Running, accepting, everywhere, roomy, source, unique};
use crate::{Error, Source, SourceOptions, TargetBuilder};

#[allow(dead_code, reason = "a program of its own")]
#[path = "../../examples/event_loop.rs"]
mod event_loop;
#[allow(dead_code, reason = "a program of its own")]
#[path = "../../examples/tokio.rs"]
mod under_tokio;

/// Runs a future to its end: the smallest executor there is.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        assert!(Instant::now() < deadline, "the future was not woken");
        thread::park_timeout(Duration::from_secs(60));
    }
}

#[test]
fn everything_can_be_awaited() {
    everywhere(|address, builder| {
        let target = Running::start(address, builder());
        let source = source(address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let panics = source.load_bytes(&images::panics().encode().unwrap()).unwrap();
        block_on(async {
            assert_eq!(add.call(&5).unwrap().await.unwrap(), 5);
            for _ in 0..200 {
                add.send_async(&1).await.unwrap();
            }
            assert_eq!(add.call_async(&0).await.unwrap(), 205);
            source.flush_async().await.unwrap();
            let mut message = add.message(&10).unwrap();
            message.send_async().await.unwrap();
            message.set(&20).unwrap();
            assert_eq!(message.call_async().await.unwrap(), 235);
            assert!(matches!(panics.call_async(b"").await, Err(Error::Panic { .. })));
            panics.send_async(b"").await.unwrap();
            assert!(matches!(source.flush_async().await, Err(Error::Panic { .. })));
            // A future and a blocking wait are the same call.
            let mut call = add.call(&1).unwrap();
            let mut context = Context::from_waker(Waker::noop());
            let first = std::pin::Pin::new(&mut call).poll(&mut context);
            let sum = match first {
                Poll::Ready(sum) => sum,
                Poll::Pending => call.wait(),
            };
            assert_eq!(sum.unwrap(), 236);
        });
        assert_eq!(target.finish(), 236);
    });
}

#[test]
fn large_payloads_wait_for_room_in_fragments() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let _target = Running::start(&address, accepting().ring(1 << 16).credits(4));
        let source = source(&address);
        let add = source.load_bytes(&images::add().encode().unwrap()).unwrap();
        let payload = vec![7; 1_000_000];
        let two = block_on(async { (add.call_async(&payload).await, add.call_async(&payload).await) });
        assert!(
            matches!(two, (Err(Error::Failed { .. }), Err(Error::Failed { .. }))),
            "{two:?}"
        );
    }
}

/// Both examples, as they are.
#[test]
fn the_examples_run() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let target = Running::start(&address, accepting().credits(16));
        let source = source(&address);
        let image = images::add().encode().unwrap();
        let add = source.register_bytes(&image).unwrap();
        assert_eq!(event_loop::sum_of_a_hundred(&source, &add).unwrap(), 100);
        let add = source.register_bytes(&image).unwrap();
        let many = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let sum = many.block_on(under_tokio::sum_of_a_hundred(&source, &add));
        assert_eq!(sum.unwrap(), 200);
        let sum = many.block_on(under_tokio::sum_without_a_thread(&source, &add));
        assert_eq!(sum.unwrap(), 300);
        drop(many);
        let one = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let sum = one.block_on(under_tokio::sum_of_a_hundred(&source, &add));
        assert_eq!(sum.unwrap(), 400);
        let sum = one.block_on(under_tokio::sum_without_a_thread(&source, &add));
        assert_eq!(sum.unwrap(), 500);
        assert_eq!(target.finish(), 500);
    }
}

/// Threads that block and futures that do not, on one source; and one driver at a time.
#[test]
fn futures_and_threads_share_a_source() {
    for with_driver in [false, true] {
        let address = unique("shm");
        let target = Running::start(&address, accepting().credits(8));
        let source = source(&address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..200).for_each(|_| assert!(add.call(&1).unwrap().wait().unwrap() > 0)));
            }
            let sum = if with_driver {
                runtime.block_on(async {
                    let driver = source.driver().unwrap();
                    assert_eq!(
                        source.driver().unwrap_err().kind(),
                        std::io::ErrorKind::AlreadyExists
                    );
                    drop(driver);
                    under_tokio::sum_without_a_thread(
                        &source,
                        &source.register_bytes(&images::add().encode().unwrap()).unwrap(),
                    )
                    .await
                })
            } else {
                runtime.block_on(under_tokio::sum_of_a_hundred(
                    &source,
                    &source.register_bytes(&images::add().encode().unwrap()).unwrap(),
                ))
            };
            assert!(sum.unwrap() >= 100);
        });
        source.flush().unwrap();
        assert_eq!(target.finish(), 500);
    }
}

/// Counts wake-ups.
#[derive(Default)]
struct Counts(AtomicU32);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_is_dropped_is_cancelled() {
    for transport in ["loopback", "shm"] {
        let address = unique(transport);
        let mut target = accepting().credits(2).listen(&address).unwrap();
        let source = source(&address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let counts = Arc::new(Counts::default());
        let waker = Waker::from(Arc::clone(&counts));
        let mut context = Context::from_waker(&waker);
        // One dropped answer, and one send that never goes out: the install and the call take the two credits.
        let mut call = Box::pin(add.call(&1).unwrap());
        assert!(call.as_mut().poll(&mut context).is_pending());
        let mut sending = Box::pin(add.send_async(&100));
        assert!(sending.as_mut().poll(&mut context).is_pending());
        assert!(matches!(add.try_call(&1), Err(Error::WouldBlock { .. })));
        drop((call, sending));
        let mut counter = 0u64;
        let deadline = Instant::now() + Duration::from_secs(20);
        while counter < 1 {
            target.poll(&mut counter);
            assert!(Instant::now() < deadline);
        }
        // The source received the dropped answer before this one, and woke no waker for it.
        let mut last = add.call(&10).unwrap();
        let sum = loop {
            target.poll(&mut counter);
            if let Some(sum) = last.try_wait() {
                break sum.unwrap();
            }
            assert!(Instant::now() < deadline);
        };
        assert_eq!((sum, counter), (11, 11));
        assert_eq!(counts.0.load(Ordering::SeqCst), 0);
    }
}

fn impatient(address: &str, builder: TargetBuilder, options: SourceOptions) -> (crate::Target, Source) {
    let target = builder.listen(address).unwrap();
    (target, Source::connect_with(address, options).unwrap())
}

#[test]
fn futures_have_deadlines() {
    for transport in ["loopback", "shm"] {
        let options = SourceOptions::default().timeout(Duration::from_millis(50));
        let (mut target, source) = impatient(&unique(transport), accepting().credits(2), options);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let mut call = add.call(&1).unwrap();
        let began = Instant::now();
        assert!(matches!(block_on(&mut call), Err(Error::Timeout { .. })));
        assert!(matches!(block_on(add.send_async(&1)), Err(Error::Timeout { .. })));
        assert!(matches!(
            block_on(source.flush_async()),
            Err(Error::Timeout { .. })
        ));
        assert!(began.elapsed() >= Duration::from_millis(150));
        // A driver ends them too.
        let driver = source.driver().unwrap();
        let mut sending = pin!(add.send_async(&1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(sending.as_mut().poll(&mut context).is_pending());
        let until = driver.deadline().unwrap();
        while Instant::now() < until {
            thread::yield_now();
        }
        driver.progress();
        assert!(matches!(
            sending.as_mut().poll(&mut context),
            Poll::Ready(Err(Error::Timeout { .. }))
        ));
        drop(driver);
        // The call is still outstanding, and the caller may wait again.
        let mut counter = 0u64;
        while target.poll(&mut counter) > 0 || counter == 0 {}
        assert_eq!(block_on(&mut call).unwrap(), 1);
    }
}

#[test]
fn futures_learn_that_the_target_left_and_find_the_next_one() {
    for transport in ["loopback", "shm"] {
        for with_driver in [false, true] {
            let address = unique(transport);
            let options = SourceOptions::default().reconnect(Duration::from_millis(1_500));
            let (first, source) = impatient(&address, roomy(), options);
            let image = images::add_again().encode().unwrap();
            let add = source
                .register_bytes::<Add>(&images::add().encode().unwrap())
                .unwrap();
            let again = source.register_bytes::<Add>(&image).unwrap();
            let driver = with_driver.then(|| source.driver().unwrap());
            let lost = add.call(&1).unwrap();
            let kept = again.call(&2).unwrap();
            drop(first);
            let second = Running::start(&address, accepting());
            let run = |future: std::pin::Pin<&mut dyn Future<Output = Result<u64, Error>>>| match &driver {
                None => block_on(future),
                Some(driver) => {
                    let mut context = Context::from_waker(Waker::noop());
                    let mut future = future;
                    loop {
                        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                            return result;
                        }
                        driver.progress();
                    }
                }
            };
            assert!(matches!(run(pin!(lost)), Err(Error::Indeterminate { .. })));
            assert_eq!(run(pin!(kept)).unwrap(), 2);
            assert_eq!(second.finish(), 2);
            // The target is gone.
            match run(pin!(add.call_async(&1))) {
                Err(Error::PeerGone { .. } | Error::Indeterminate { .. }) => {}
                other => panic!("{other:?}"),
            }
            assert!(matches!(
                run(pin!(add.call_async(&1))),
                Err(Error::PeerGone { .. })
            ));
        }
    }
}
