//! Bare UCX that connects, sends and leaves, again and again.

use std::time::{Duration, Instant};

use ucx_sys::SockAddr;

use super::super::random::Random;
use super::super::{Arguments, PATIENCE, Result, say};
use super::worker::Worker;

/// Messages under way.
const AT_ONCE: usize = 32;

/// `port`, `messages`, `milliseconds`, `connection`, `seed`: as a `sender` has them.
pub(crate) fn run(args: &Arguments<'_>) -> Result {
    let port: u16 = args.number("port")?;
    let to = SockAddr::new(([127, 0, 0, 1], port).into());
    let mut random = Random::new(args.number("seed")?);
    let messages: u64 = args.number("messages")?;
    let until = Instant::now() + Duration::from_millis(args.number("milliseconds")?);
    let connection: u64 = args.number("connection")?;
    let (mut sent, mut connections) = (0, 0);
    let mut said = Instant::now();
    while sent < messages && Instant::now() < until {
        let mut worker = Worker::new()?;
        let ep = worker.connect(&to)?;
        connections += 1;
        // UCX 1.13 was seen to call a null pointer where several messages waited for the endpoint to be connected.
        worker.send(ep, vec![7; 8])?;
        settle(&mut worker, 0)?;
        let last = messages.min(sent.saturating_add(1 + random.below(2 * connection)));
        while sent < last && Instant::now() < until {
            worker.send(ep, vec![7; random.message()])?;
            sent += 1;
            settle(&mut worker, AT_ONCE)?;
            if said.elapsed() > Duration::from_millis(500) {
                said = Instant::now();
                say(&format!("at {sent}"));
            }
        }
        worker.close(ep, false);
        settle(&mut worker, 0)?;
    }
    say(&format!("done messages={sent} connections={connections}"));
    Ok(())
}

/// Works until no more than so many operations are under way.
fn settle(worker: &mut Worker, at_most: usize) -> Result {
    let deadline = Instant::now() + PATIENCE;
    worker.progress()?;
    while worker.under_way() > at_most {
        if !worker.progress()? {
            worker.sleep(5);
        }
        if Instant::now() > deadline {
            return Err("bare UCX is stuck".into());
        }
    }
    match worker.happened().failed.borrow().is_empty() {
        true => Ok(()),
        // Its target leaves no earlier than it.
        false => Err("bare UCX lost its connection".into()),
    }
}
