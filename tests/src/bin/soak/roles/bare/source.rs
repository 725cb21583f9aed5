//! Bare UCX that connects, sends and leaves, again and again.

use std::time::{Duration, Instant};

use ucx::Endpoint;

use super::super::random::Random;
use super::super::{Arguments, Result, TIMEOUT, say};
use super::worker::Worker;

/// Messages under way.
const AT_ONCE: usize = 32;
/// Connections that may be lost.
const MOST_LOST: usize = 8;

/// `worker`, the digits of the target's address; `messages`, `milliseconds`, `connection`, `seed`: as a `sender` has them.
pub(crate) fn run(args: &Arguments<'_>) -> Result {
    let (digits, _) = args.text("worker")?.as_bytes().as_chunks::<2>();
    let target = digits
        .iter()
        .map(|digits| Ok(u8::from_str_radix(std::str::from_utf8(digits)?, 16)?))
        .collect::<Result<Vec<u8>>>()?;
    let mut random = Random::new(args.number("seed")?);
    let messages: u64 = args.number("messages")?;
    let until = Instant::now() + Duration::from_millis(args.number("milliseconds")?);
    let connection: u64 = args.number("connection")?;
    let (mut sent, mut connections, mut lost) = (0, 0, 0);
    let mut said = Instant::now();
    while sent < messages && Instant::now() < until {
        let mut worker = Worker::new()?;
        let mut endpoint = Some(worker.connect(&target)?);
        connections += 1;
        let last = messages.min(sent.saturating_add(1 + random.below(2 * connection)));
        let visited = visit(&mut worker, &mut endpoint, || {
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
            // Among many peers that are killed UCX now and then takes one more for dead, and may crash when a worker ends whose endpoint
            // has something under way.
            lost += 1;
            if let Some(endpoint) = endpoint {
                worker.close(endpoint, true);
            }
            let _ = settle(&mut worker, 0);
            worker.0.abandon();
            if lost > MOST_LOST {
                return Err(why);
            }
        }
    }
    say(&format!("done messages={sent} connections={connections}"));
    Ok(())
}

/// Connects, sends messages of the lengths that `next` says, and leaves.
fn visit(
    worker: &mut Worker,
    endpoint: &mut Option<Endpoint>,
    mut next: impl FnMut() -> Option<usize>,
) -> Result {
    let Some(to) = endpoint else { return Ok(()) };
    // UCX 1.13 was seen to call a null pointer where several messages waited for the endpoint to be connected.
    worker.introduce(to)?;
    settle(worker, 0)?;
    while let Some(len) = next() {
        worker.send(to, len)?;
        settle(worker, AT_ONCE)?;
    }
    if let Some(endpoint) = endpoint.take() {
        worker.close(endpoint, false);
    }
    settle(worker, 0)
}

/// Works until no more than so many operations are under way.
fn settle(worker: &mut Worker, at_most: usize) -> Result {
    let deadline = Instant::now() + TIMEOUT;
    worker.progress();
    while worker.under_way() > at_most {
        if !worker.progress() {
            worker.sleep(5);
        }
        if Instant::now() > deadline {
            return Err("bare UCX is stuck".into());
        }
    }
    match worker.0.handler().failed.is_empty() {
        true => Ok(()),
        // Its target leaves no earlier than it.
        false => Err("bare UCX lost its connection".into()),
    }
}
