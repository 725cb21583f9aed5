//! The behaviour of both programs of a [`Pair`](crate::pair::Pair), for any transport; [`Node`] abstracts it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::pair::{Connected, Count, Done, Hello, Pattern, Request};
use crate::program::Starter;
use crate::slots::{Payload, Sample, Slot, seed};
use crate::ticks::Ticks;

/// Timeout of a message.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Polls between two clock readings.
const POLLS_PER_CLOCK_READ: u32 = 1 << 16;

/// One of two programs that exchange messages.
pub(super) trait Node {
    /// The address of this program.
    fn address(&self) -> Result<String>;

    /// Connects to the other program, which connects to this one at the same time.
    fn connect(&mut self, address: &str) -> Result<()>;

    /// The transport to the other program.
    fn carried_by(&self) -> String;

    /// Resets the receive counters, and prepares payloads of this size.
    fn begin(&mut self, size: usize, payload: Payload) -> Result<()>;

    /// Sends a message. `seed` determines its bytes if they are written anew. The other program may receive
    /// earlier messages meanwhile.
    fn send(&mut self, seed: u64) -> Result<()>;

    /// The sum of a sent payload with this seed.
    fn sum(&self, seed: u64) -> u64;

    /// Processes received messages.
    fn poll(&mut self) -> Result<()>;

    /// The messages received since [`begin`](Self::begin).
    fn received(&mut self) -> Count;

    /// Waits until the other program, which [polls](Self::poll), has received all messages.
    fn flush(&mut self) -> Result<()>;
}

/// Runs one of the two programs until the input is closed.
pub(super) fn run(mut starter: Starter, mut node: impl Node) -> Result<()> {
    starter.reply(&Hello {
        address: node.address()?,
    })?;
    while let Some(request) = starter.next::<Request>()? {
        match request {
            Request::Connect { address } => {
                node.connect(&address)?;
                starter.reply(&Connected {
                    carried_by: node.carried_by(),
                })?;
                // The other program may need this one to poll in order to connect.
                let mut timeout = Timeout::new();
                while !starter.has_request()? {
                    node.poll()?;
                    timeout.check()?;
                    std::thread::yield_now();
                }
                ensure!(
                    matches!(starter.next()?, Some(Request::Stop)),
                    "expected the request to stop"
                );
            }
            Request::Begin {
                pattern,
                leads: true,
                slot,
            } => {
                let done = lead(&mut node, pattern, slot)?;
                starter.reply(&done)?;
            }
            Request::Begin {
                pattern,
                leads: false,
                slot,
            } => {
                let sent = follow(&mut node, pattern, slot)?;
                let mut timeout = Timeout::new();
                while !starter.has_request()? {
                    node.poll()?;
                    timeout.check()?;
                }
                ensure!(
                    matches!(starter.next()?, Some(Request::Stop)),
                    "expected the request to stop"
                );
                starter.reply(&Done {
                    sample: None,
                    sent,
                    received: node.received(),
                })?;
            }
            Request::Stop => bail!("request to stop without a slot"),
        }
    }
    Ok(())
}

fn lead(node: &mut impl Node, pattern: Pattern, slot: Slot) -> Result<Done> {
    node.begin(slot.size, slot.payload)?;
    // Waits for the other program.
    node.flush()?;
    let mut sent = Sent::default();
    let mut ticks = slot.timed.then(|| Ticks::with_capacity(slot.operations));
    let started = Instant::now();
    match pattern {
        Pattern::PingPong => {
            for n in 0..slot.operations {
                if let Some(ticks) = &mut ticks {
                    ticks.tick();
                }
                sent.send(node)?;
                wait_for(node, n + 1)?;
            }
        }
        Pattern::Stream => {
            for _ in 0..slot.operations {
                if let Some(ticks) = &mut ticks {
                    ticks.tick();
                }
                sent.send(node)?;
            }
            node.flush()?;
        }
    }
    let took = started.elapsed();
    let directions = if pattern == Pattern::PingPong { 2.0 } else { 1.0 };
    Ok(Done {
        sample: Some(Sample {
            ns: took.as_nanos() as f64 / slot.operations as f64 / directions,
            percentiles: ticks
                .and_then(|ticks| ticks.percentiles(took))
                .map(|all| all.map(|ns| ns / directions)),
        }),
        sent: sent.0,
        received: node.received(),
    })
}

fn follow(node: &mut impl Node, pattern: Pattern, slot: Slot) -> Result<Count> {
    node.begin(slot.size, slot.payload)?;
    let mut sent = Sent::default();
    match pattern {
        Pattern::PingPong => {
            for n in 0..slot.operations {
                wait_for(node, n + 1)?;
                sent.send(node)?;
            }
        }
        Pattern::Stream => wait_for(node, slot.operations)?,
    }
    Ok(sent.0)
}

/// What was sent.
#[derive(Default)]
struct Sent(Count);

impl Sent {
    #[inline]
    fn send(&mut self, node: &mut impl Node) -> Result<()> {
        let seed = seed(self.0.messages);
        node.send(seed)?;
        self.0.messages += 1;
        self.0.sum = self.0.sum.wrapping_add(node.sum(seed));
        Ok(())
    }
}

#[inline]
fn wait_for(node: &mut impl Node, messages: u64) -> Result<()> {
    let mut timeout = Timeout::new();
    while node.received().messages < messages {
        node.poll()?;
        timeout.check()?;
    }
    Ok(())
}

/// A timeout for a polling loop.
pub(super) struct Timeout {
    polls: u32,
    until: Option<Instant>,
}

impl Timeout {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            polls: 0,
            until: None,
        }
    }

    /// # Errors
    /// The wait exceeds the timeout.
    #[inline]
    pub(super) fn check(&mut self) -> Result<()> {
        self.polls += 1;
        if self.polls < POLLS_PER_CLOCK_READ {
            return Ok(());
        }
        self.read_clock()
    }

    #[cold]
    fn read_clock(&mut self) -> Result<()> {
        self.polls = 0;
        let now = Instant::now();
        if now > *self.until.get_or_insert(now + TIMEOUT) {
            bail!("no message for {} s", TIMEOUT.as_secs());
        }
        Ok(())
    }
}
