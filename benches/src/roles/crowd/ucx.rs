//! UCX active messages. The target does as ours does: it lets UCX work without a pause while there is something, and sleeps on
//! UCX's descriptor when there was nothing for a while, because there may be more programs than cores.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ifunc_bench_ifuncs::{Fresh, words};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ucx::{Callback, Endpoint, Features};

use super::{Received, Sender, now};
use crate::pair::Count;
use crate::program::Starter;
use crate::roles::exchange::Timeout;
use crate::roles::ucx::am::Window;
use crate::roles::ucx::{Handler, Nothing, Receiver, Worker};
use crate::slots::Payload;

const MESSAGE: u16 = 0;
/// As ours: how long a target looks for something before it sleeps, and how many looks are between two at the clock.
const SPIN: Duration = Duration::from_micros(100);
const LOOKS: u32 = 64;
/// The longest sleep.
const SLICE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

#[derive(Default)]
struct Seen {
    messages: u64,
    sum: u64,
}

impl Handler for Seen {
    #[inline]
    fn message(&mut self, _: &mut Callback<'_, Receiver<Self>>, _: u16, payload: &[u8]) {
        self.messages += 1;
        self.sum = self.sum.wrapping_add(words(payload));
    }
}

/// Is told how many messages there are in all, and answers when it has them.
pub(in crate::roles) fn target(mut starter: Starter) -> Result<()> {
    let mut worker = Worker::new(Features::AM | Features::WAKEUP, Seen::default())?;
    worker.0.receive(MESSAGE)?;
    starter.reply(&worker.address()?)?;
    let mut finished = now();
    let (mut looks, mut idle, mut before) = (0, None::<Instant>, 0);
    loop {
        worker.progress();
        let messages = worker.with(|seen| seen.messages);
        if messages != before {
            (looks, idle, before) = (0, None, messages);
            continue;
        }
        looks += 1;
        if looks < LOOKS {
            continue;
        }
        looks = 0;
        let since = *idle.get_or_insert_with(|| {
            finished = now();
            Instant::now()
        });
        if since.elapsed() < SPIN {
            continue;
        }
        if starter.has_request()? {
            let Some(expected) = starter.next::<u64>()? else {
                return Ok(());
            };
            let mut timeout = Timeout::new();
            while worker.with(|seen| seen.messages) < expected {
                worker.progress();
                timeout.check()?;
                finished = now();
            }
            starter.reply(&Received {
                count: worker.with(|seen| Count {
                    messages: seen.messages,
                    sum: seen.sum,
                }),
                finished,
            })?;
            continue;
        }
        if worker.0.arm()? {
            let input = std::io::stdin();
            let mut both = [
                PollFd::from_borrowed_fd(worker.0.event_fd()?, PollFlags::IN),
                PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
            ];
            poll(&mut both, Some(&SLICE))?;
        }
    }
}

struct Messages {
    all: Vec<(Endpoint, Window)>,
    size: usize,
    /// The last to go: requests give their memory back to it.
    worker: Worker<Nothing>,
}

impl Messages {
    fn wait(&mut self) -> Result<()> {
        for (_, window) in &mut self.all {
            let mut timeout = Timeout::new();
            while !window.is_idle(&mut self.worker)? {
                self.worker.progress();
                timeout.check()?;
            }
        }
        Ok(())
    }
}

impl Sender for Messages {
    #[inline]
    fn send(&mut self, target: usize, fresh: &Fresh) -> Result<()> {
        if self.size != fresh.len {
            self.wait()?;
            self.size = fresh.len;
            for (_, window) in &mut self.all {
                *window = Window::of(fresh.len, Payload::Fresh);
            }
        }
        let Some((endpoint, window)) = self.all.get_mut(target) else {
            bail!("there are not so many targets")
        };
        let at = window.place(&mut self.worker)?;
        fresh.write(window.buffer(at));
        window.send(&mut self.worker, endpoint, MESSAGE, at, fresh.len)
    }

    fn finish(&mut self) -> Result<()> {
        self.wait()
    }

    fn received(&mut self) -> Result<Vec<Count>> {
        bail!("UCX's targets say it themselves")
    }
}

pub(in crate::roles) fn source(mut starter: Starter) -> Result<()> {
    let addresses = super::targets(&mut starter)?;
    let mut worker = Worker::new(Features::AM, Nothing)?;
    let all: Vec<_> = addresses
        .iter()
        .map(|address| Ok((worker.connect(address)?, Window::default())))
        .collect::<Result<_>>()?;
    let (endpoint, _) = all.first().context("there are no targets")?;
    ensure!(addresses.len() == all.len(), "an endpoint for each");
    starter.reply(&worker.carried_by(endpoint))?;
    let targets = all.len();
    let size = usize::MAX;
    super::send(starter, targets, Messages { worker, all, size })
}
