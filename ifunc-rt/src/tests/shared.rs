//! Targets that serve on several threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ifunc_abi::image::{EntryFlags, ImageParts};

use super::images;
use super::running::{accepting, between_processes, place, roomy, source, unique};
use crate::{ByName, Error, Handle, Rejection, ServeEnd, Serving, Source, TargetBuilder};

const THREADS: usize = 4;
const SOURCES: u64 = 8;

fn load(source: &Source, image: ImageParts) -> Handle<ByName> {
    source.load_bytes(&image.encode().unwrap()).unwrap()
}

fn number(answer: Vec<u8>) -> u64 {
    u64::from_le_bytes(answer.try_into().unwrap())
}

/// Sums of one source only grow, whichever threads made them.
fn order_holds(address: &str, builder: TargetBuilder, rounds: u64) {
    const AT_ONCE: u64 = 8;
    let value = Arc::new(AtomicU64::new(0));
    let serving = builder
        .listen(address)
        .unwrap()
        .spawn_shared(value.clone(), THREADS)
        .unwrap();
    let at = serving.address();
    thread::scope(|scope| {
        for _ in 0..SOURCES {
            scope.spawn(|| {
                let source = source(at);
                let add = load(&source, images::adds_shared());
                let mut last = 0;
                for _ in 0..rounds {
                    let calls: Vec<_> = (0..AT_ONCE)
                        .map(|_| add.call(&1u64.to_le_bytes()).unwrap())
                        .collect();
                    for call in calls {
                        let sum = number(call.wait().unwrap());
                        assert!(sum > last, "{sum} behind {last}");
                        last = sum;
                    }
                    add.send(&1u64.to_le_bytes()).unwrap();
                }
                source.flush().unwrap();
            });
        }
    });
    let value_again = serving.stop().unwrap();
    assert!(Arc::ptr_eq(&value, &value_again));
    assert_eq!(value.load(Ordering::SeqCst), SOURCES * rounds * (AT_ONCE + 1));
}

#[test]
fn every_connection_keeps_its_order() {
    order_holds(&unique("loopback"), roomy(), 50);
    order_holds(&unique("loopback"), roomy().shuffle(3), 50);
    order_holds(&unique("shm"), roomy(), 100);
    // Every answer waits for credit.
    order_holds(&unique("shm"), accepting().credits(8).ring(1 << 16), 50);
}

#[cfg(feature = "ucx")]
#[test]
fn every_connection_over_ucx_keeps_its_order() {
    if ::ucx::Library::load().is_ok() {
        order_holds("ucx://127.0.0.1:0", accepting(), 20);
    }
}

/// How many are inside of `meet`.
static INSIDE: Mutex<(usize, bool)> = Mutex::new((0, true));
static CHANGED: Condvar = Condvar::new();

/// Returns when as many are inside as there are threads, or after half a minute.
extern "C" fn meet() {
    let mut inside = INSIDE.lock().unwrap();
    inside.0 += 1;
    CHANGED.notify_all();
    while inside.0 < THREADS {
        let (again, waited) = CHANGED.wait_timeout(inside, Duration::from_secs(30)).unwrap();
        inside = again;
        if waited.timed_out() {
            inside.1 = false;
            return;
        }
    }
}

/// The threads sleep when the first call arrives; each further call finds one thread less. The thread that takes it
/// has just run calls of the same source, and leaves the watch to one that fell asleep meanwhile.
#[test]
fn as_many_invocations_run_at_once_as_there_are_threads() {
    for transport in ["loopback"].into_iter().chain(between_processes()) {
        *INSIDE.lock().unwrap() = (0, true);
        let builder = accepting().allow("meet", (meet as extern "C" fn()) as *const std::ffi::c_void);
        let serving = builder
            .listen(&place(transport))
            .unwrap()
            .spawn_shared(Arc::new(AtomicU64::new(0)), THREADS)
            .unwrap();
        let sources: Vec<_> = (0..THREADS).map(|_| source(serving.address())).collect();
        let handles: Vec<_> = sources
            .iter()
            .map(|source| (load(source, images::adds_shared()), load(source, images::meets())))
            .collect();
        let calls: Vec<_> = handles
            .iter()
            .map(|(adds, meets)| {
                thread::sleep(Duration::from_millis(5));
                for _ in 0..200 {
                    adds.call(&1u64.to_le_bytes()).unwrap().wait_timeout_or_fail();
                }
                meets.call(b"").unwrap()
            })
            .collect();
        for call in calls {
            call.wait_timeout_or_fail();
        }
        assert!(
            INSIDE.lock().unwrap().1,
            "they waited for one another in vain over {transport}"
        );
        serving.stop().unwrap();
    }
}

trait WaitLong {
    fn wait_timeout_or_fail(self);
}

impl WaitLong for crate::Call<Vec<u8>> {
    fn wait_timeout_or_fail(mut self) {
        self.wait_timeout(Duration::from_secs(60)).unwrap();
    }
}

#[test]
fn what_takes_the_data_for_itself_is_refused() {
    let mut target = accepting().listen(&unique("shm")).unwrap();
    let address = target.address();
    let alone = images::with_entry(images::add(), |entry| entry.target = 0);
    let source = source(&address);
    let add = load(&source, alone);
    let call = add.call(&1u64.to_le_bytes()).unwrap();
    let mut value = AtomicU64::new(0);
    while value.load(Ordering::Relaxed) == 0 {
        target.poll(&mut value);
    }
    assert_eq!(number(call.wait().unwrap()), 1);
    // What was bound while one thread served does not run on several.
    let value = Arc::new(value);
    let serving = target.spawn_shared(value.clone(), 2).unwrap();
    let other = super::running::source(&address);
    for add in [
        add,
        load(
            &other,
            images::with_entry(images::add(), |entry| entry.target = 0),
        ),
    ] {
        match add.call(&1u64.to_le_bytes()).unwrap().wait() {
            Err(Error::Rejected {
                why: Rejection::NotShareable,
                detail,
                ..
            }) => assert!(detail.contains("take `&T`"), "{detail}"),
            other => panic!("{other:?}"),
        }
    }
    let shared = load(&other, images::adds_shared());
    assert_eq!(
        number(shared.call(&1u64.to_le_bytes()).unwrap().wait().unwrap()),
        2
    );
    // A panic ends an invocation, on whichever thread it is.
    let panics = load(
        &other,
        images::with_entry(images::panics(), |entry| entry.flags = EntryFlags::SHARED),
    );
    for _ in 0..10 {
        assert!(matches!(
            panics.call(b"").unwrap().wait(),
            Err(Error::Panic { .. })
        ));
    }
    assert_eq!(
        number(shared.call(&1u64.to_le_bytes()).unwrap().wait().unwrap()),
        3
    );
    serving.stop().unwrap();
}

#[test]
fn a_panic_of_the_host_ends_all_threads() {
    let (sent, builder) = super::running::panicking();
    let serving = builder
        .listen(&unique("shm"))
        .unwrap()
        .spawn_shared(Arc::new(AtomicU64::new(0)), THREADS)
        .unwrap();
    let source = source(serving.address());
    let add = load(&source, images::adds_shared());
    let call = add.call(&1u64.to_le_bytes()).unwrap();
    sent.wait();
    assert!(matches!(call.wait(), Err(Error::Indeterminate { .. })));
    let error = serving.stop().unwrap_err();
    assert!(matches!(error.why, ServeEnd::Panicked(_)), "{error}");
}

/// The target that `stops` would stop.
static HELD: Mutex<Option<Serving<Arc<AtomicU64>>>> = Mutex::new(None);
/// Number of invocations inside `stops`, and the results that it got.
static STOPPING: Mutex<(usize, Vec<String>)> = Mutex::new((0, Vec::new()));

/// Tries to stop the target when there are as many inside as there are threads.
extern "C" fn stops() {
    let deadline = Instant::now() + Duration::from_secs(30);
    STOPPING.lock().unwrap().0 += 1;
    while STOPPING.lock().unwrap().0 < THREADS && Instant::now() < deadline {
        thread::yield_now();
    }
    let mut held = HELD.lock().unwrap();
    let serving = held.as_mut().unwrap();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        serving.stop_timeout(Duration::from_secs(1)).is_some()
    }));
    let said = match ended {
        Ok(ended) => format!("no panic, {ended}"),
        Err(panic) => (*panic.downcast_ref::<&str>().unwrap()).to_owned(),
    };
    STOPPING.lock().unwrap().1.push(said);
}

#[test]
fn an_invocation_that_stops_its_own_target_is_told_so_on_every_thread() {
    let builder = accepting().allow("meet", (stops as extern "C" fn()) as *const std::ffi::c_void);
    let serving = builder
        .listen(&unique("shm"))
        .unwrap()
        .spawn_shared(Arc::new(AtomicU64::new(0)), THREADS)
        .unwrap();
    let address = serving.address().to_owned();
    *HELD.lock().unwrap() = Some(serving);
    let sources: Vec<_> = (0..THREADS).map(|_| source(&address)).collect();
    let handles: Vec<_> = sources
        .iter()
        .map(|source| load(source, images::meets()))
        .collect();
    let calls: Vec<_> = handles.iter().map(|meets| meets.call(b"").unwrap()).collect();
    for call in calls {
        call.wait_timeout_or_fail();
    }
    let said = STOPPING.lock().unwrap().1.clone();
    assert_eq!(said, ["an invocation waits for its own end"; THREADS]);
    // It serves on, and is stopped from here.
    let serving = HELD.lock().unwrap().take().unwrap();
    serving.stop().unwrap();
}
