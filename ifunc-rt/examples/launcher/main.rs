//! Every process is target and source at once: started by a launcher, they find each other through a directory and
//! call each other, all to all. No MPI library is linked.
//!
//! ```text
//! cargo build -p ifunc-rt --example launcher
//! cargo ifunc build -p example-01-hello-ifuncs
//! export IFUNC_RENDEZVOUS=$HOME/meeting IFUNC_LIB_DIR=target/ifunc/release
//! mkdir -p $IFUNC_RENDEZVOUS
//! mpirun -n 4 target/debug/examples/launcher
//! ```
//!
//! `IFUNC_TRANSPORT` selects the transport: `ucx` by default, `shm` where all processes run on one host, `ucx-worker`
//! without listeners. With `ucx`, a process listens at `IFUNC_HOST`, the address by which the others reach its host;
//! the default is 127.0.0.1. The image comes from `add.so`, which `cargo ifunc build` made of the first example's
//! `add`. `job.sbatch`, beside this file, starts the same under Slurm.

use std::error::Error;
use std::thread;
use std::time::Duration;

use ifunc_rt::rendezvous::{Launched, Rendezvous};
use ifunc_rt::{Policy, Source, SourceOptions, Target};

mod ifuncs {
    use ifunc::prelude::*;

    /// Adds `delta` to the target's counter and answers the new value.
    #[ifunc]
    pub(crate) fn add(delta: u64, counter: &mut u64) -> u64 {
        *counter += delta;
        *counter
    }
}

/// Number of calls from each process to each process, itself included.
const CALLS: u64 = 1000;
/// Number of outstanding calls.
const AT_A_TIME: usize = 16;
/// How long any of them may wait: for processes that are started late, too.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let me = Launched::from_env()?;
    let meeting = Rendezvous::from_env(&me.job)?;
    // SAFETY: code that arrives has the authority of this process, which holds nothing but a counter. Over `ucx` every
    // process that reaches the address can send code: this is for the network of a cluster's partition.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(&place(&me, &meeting)?)?;
    let published = meeting.publish(me.rank, &target.address())?;

    // What all processes together add to this one's counter: each of them its rank + 1.
    let size = u64::from(me.size);
    let all = CALLS * size * (size + 1) / 2;
    let mut counter = 0u64;
    thread::scope(|scope| {
        let calls = scope.spawn(|| call_everybody(&me, &meeting));
        target.serve_until(&mut counter, |counter| *counter >= all)?;
        calls.join().map_err(|_| "the calling thread panicked")?
    })?;
    // All processes have connected to this target, or its counter would not be complete.
    drop(published);
    if counter != all {
        return Err(format!("rank {}: the counter is {counter} and must be {all}", me.rank).into());
    }
    println!(
        "rank {} of {size}: {} calls answered, counter {counter} as it must be, over {}",
        me.rank,
        CALLS * size,
        target.address()
    );
    Ok(())
}

/// Where this process listens.
fn place(me: &Launched, meeting: &Rendezvous) -> Result<String, Box<dyn Error + Send + Sync>> {
    if let Some(listed) = meeting.listed(me.rank) {
        return Ok(listed);
    }
    let transport = std::env::var("IFUNC_TRANSPORT").unwrap_or_else(|_| "ucx".into());
    let host = std::env::var("IFUNC_HOST").unwrap_or_else(|_| "127.0.0.1".into());
    match &*transport {
        "shm" => Ok(format!("shm:launcher-{}-{}", std::process::id(), me.rank)),
        "ucx" | "ucx-put" => Ok(format!("{transport}://{host}:0")),
        "ucx-worker" => Ok("ucx-worker:".into()),
        other => Err(format!("IFUNC_TRANSPORT={other}: shm, ucx, ucx-put or ucx-worker").into()),
    }
}

/// Calls every process of the job, beginning with the next one.
fn call_everybody(me: &Launched, meeting: &Rendezvous) -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = SourceOptions::default()
        .timeout(PATIENCE)
        .connect_timeout(PATIENCE);
    for step in 0..me.size {
        let rank = (me.rank + 1 + step) % me.size;
        let source = Source::connect_with(&meeting.find(rank, PATIENCE)?, options.clone())?;
        let add = source.register::<ifuncs::add>()?;
        let delta = u64::from(me.rank) + 1;
        let mut last = 0;
        let mut under_way = std::collections::VecDeque::new();
        for call in 0..CALLS + AT_A_TIME as u64 {
            if call < CALLS {
                under_way.push_back(add.call(&delta)?);
            }
            if under_way.len() >= AT_A_TIME || call >= CALLS {
                let Some(call) = under_way.pop_front() else { break };
                let now: u64 = call.wait()?;
                // In order, and each of them once: it has grown by ours at least.
                if now < last + delta {
                    return Err(format!("rank {rank} answered {now} after {last}").into());
                }
                last = now;
            }
        }
    }
    Ok(())
}
