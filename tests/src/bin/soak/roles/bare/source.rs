//! Bare UCX that connects, sends and leaves, again and again.

use std::time::{Duration, Instant};

use ucx_sys::{SockAddr, ucp_ep_h};

use super::super::random::Random;
use super::super::{Arguments, PATIENCE, Result, say};
use super::worker::Worker;

/// Messages under way.
const AT_ONCE: usize = 32;
/// Connections that may be lost.
const MOST_LOST: usize = 8;

/// `port`, `messages`, `milliseconds`, `connection`, `seed`: as a `sender` has them.
pub(crate) fn run(args: &Arguments<'_>) -> Result {
    let port: u16 = args.number("port")?;
    let to = SockAddr::new(([127, 0, 0, 1], port).into());
    let mut random = Random::new(args.number("seed")?);
    let messages: u64 = args.number("messages")?;
    let until = Instant::now() + Duration::from_millis(args.number("milliseconds")?);
    let connection: u64 = args.number("connection")?;
    let (mut sent, mut connections, mut lost) = (0, 0, 0);
    let mut said = Instant::now();
    while sent < messages && Instant::now() < until {
        let mut worker = Worker::new()?;
        let ep = worker.connect(&to)?;
        connections += 1;
        let last = messages.min(sent.saturating_add(1 + random.below(2 * connection)));
        let visited = visit(&mut worker, ep, || {
            if sent == last || Instant::now() >= until {
                return None;
            }
            sent += 1;
            if said.elapsed() > Duration::from_millis(500) {
                said = Instant::now();
                say(&format!("at {sent}"));
            }
            Some(random.message())
        });
        if let Err(why) = visited {
            // Among many that are killed UCX now and then takes one more for dead, and does not bear that a worker ends whose
            // endpoint has something under way.
            lost += 1;
            worker.close(ep, true);
            let _ = settle(&mut worker, 0);
            std::mem::forget(worker);
            if lost > MOST_LOST {
                return Err(why);
            }
        }
    }
    say(&format!("done messages={sent} connections={connections}"));
    Ok(())
}

/// Connects, sends messages of the lengths that `next` says, and leaves.
fn visit(worker: &mut Worker, ep: ucp_ep_h, mut next: impl FnMut() -> Option<usize>) -> Result {
    // UCX 1.13 was seen to call a null pointer where several messages waited for the endpoint to be connected.
    worker.send(ep, vec![7; 8])?;
    settle(worker, 0)?;
    while let Some(len) = next() {
        worker.send(ep, vec![7; len])?;
        settle(worker, AT_ONCE)?;
    }
    worker.close(ep, false);
    settle(worker, 0)
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
