//! Calls as futures without a runtime: one thread runs a loop over `poll(2)` that receives and polls the woken
//! futures.
//!
//! ```text
//! IFUNC_ADDR=shm:counter IFUNC_LIB_DIR=target/ifunc/release cargo run -p ifunc-rt --example event_loop
//! ```
//!
//! for a target that serves a `u64` at that address, and a library `add.so` that `cargo ifunc build` made of this `add`.

use std::collections::VecDeque;
use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use ifunc_rt::{Driver, Handle, Source};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

mod ifuncs {
    use ifunc::prelude::*;

    /// Adds `delta` to the target's counter and answers the new value.
    #[ifunc]
    pub(crate) fn add(delta: u64, counter: &mut u64) -> u64 {
        *counter += delta;
        *counter
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::var("IFUNC_ADDR")?;
    let source = Source::connect(&address)?;
    let add = source.register::<ifuncs::add>()?;
    println!("the counter is {}", sum_of_a_hundred(&source, &add)?);
    Ok(())
}

/// Keeps a hundred calls outstanding; returns the highest answer.
pub(crate) fn sum_of_a_hundred(source: &Source, add: &Handle<ifuncs::add>) -> Result<u64, Box<dyn Error>> {
    let driver = source.driver()?;
    let calls = (0..100).map(|_| {
        let future = async { add.call_async(&1).await };
        Box::pin(future) as Pin<Box<dyn Future<Output = Result<u64, ifunc_rt::Error>>>>
    });
    let mut highest = 0;
    for answer in run(&driver, calls.collect())? {
        highest = highest.max(answer?);
    }
    Ok(highest)
}

/// Which futures can go on.
#[derive(Default)]
struct Ready(Mutex<VecDeque<usize>>);

/// Wakes one of them.
struct One {
    ready: Arc<Ready>,
    index: usize,
}

impl Wake for One {
    fn wake(self: Arc<Self>) {
        self.ready.0.lock().unwrap().push_back(self.index);
    }
}

/// Runs all futures to their ends, on this thread alone.
fn run<T>(driver: &Driver, futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> std::io::Result<Vec<T>> {
    let ready = Arc::new(Ready((0..futures.len()).collect::<VecDeque<_>>().into()));
    let wakers: Vec<Waker> = (0..futures.len())
        .map(|index| {
            let ready = Arc::clone(&ready);
            Arc::new(One { ready, index }).into()
        })
        .collect();
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    let mut results = Vec::new();
    while results.len() < futures.len() {
        let next = ready.0.lock().unwrap().pop_front();
        if let Some(index) = next {
            // Woken twice, or after its end.
            let Some(future) = &mut futures[index] else {
                continue;
            };
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&wakers[index])) {
                results.push(result);
                futures[index] = None;
            }
        } else if !driver.progress() && driver.arm() && ready.0.lock().unwrap().is_empty() {
            sleep(driver)?;
        }
    }
    Ok(results)
}

/// Until there is something to do.
fn sleep(driver: &Driver) -> std::io::Result<()> {
    let timeout = driver.deadline().map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    let mut fds = [PollFd::new(driver, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
