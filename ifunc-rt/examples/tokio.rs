//! Calls under tokio, many at a time.
//!
//! ```text
//! IFUNC_ADDR=shm:counter IFUNC_LIB_DIR=target/ifunc/release cargo run -p ifunc-rt --example tokio
//! ```
//!
//! for a target that serves a `u64` at that address, and a library `add.so` that `cargo ifunc build` made of this
//! `add`. The example shows both ways to receive for futures: a thread of the source's, which is the default, and a
//! task, which needs no thread.

use std::error::Error;
use std::time::Duration;

use ifunc_rt::{Driver, Handle, Source};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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
    let by_thread = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(sum_of_a_hundred(&source, &add))?;
    println!("a thread received: {by_thread}");
    let by_task = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(sum_without_a_thread(&source, &add))?;
    println!("a task received: {by_task}");
    Ok(())
}

/// Keeps a hundred calls outstanding; returns the counter when all of them have ended.
pub(crate) async fn sum_of_a_hundred(
    source: &Source,
    add: &Handle<ifuncs::add>,
) -> Result<u64, Box<dyn Error>> {
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let add = add.clone();
            tokio::spawn(async move { add.call_async(&1).await })
        })
        .collect();
    for call in calls {
        call.await??;
    }
    // A deadline of one's own: what is dropped waits no more.
    tokio::time::timeout(Duration::from_secs(30), source.flush_async()).await??;
    Ok(add.call_async(&0).await?)
}

/// The same, with the receiving in a task of this runtime.
pub(crate) async fn sum_without_a_thread(
    source: &Source,
    add: &Handle<ifuncs::add>,
) -> Result<u64, Box<dyn Error>> {
    let receiver = tokio::spawn(receive(source.driver()?));
    let sum = sum_of_a_hundred(source, add).await;
    receiver.abort();
    sum
}

async fn receive(driver: Driver) -> std::io::Result<()> {
    // SAFETY: a driver's descriptor is one and the same, open as long as the driver.
    let driver = unsafe { AsyncFd::register_with_interest(driver, Interest::READABLE)? };
    loop {
        driver.get_ref().progress();
        if !driver.get_ref().arm() {
            // Those whose it is run first.
            tokio::task::yield_now().await;
            continue;
        }
        match driver.get_ref().deadline() {
            None => driver.readable().await?.clear_ready(),
            Some(until) => {
                if let Ok(ready) = tokio::time::timeout_at(until.into(), driver.readable()).await {
                    ready?.clear_ready();
                }
            }
        }
    }
}
