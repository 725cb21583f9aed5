//! Calls by active messages of UCX: a question is one, and its answer another, sent from the callback that brought the question.

use std::ops::Range;

use anyhow::{Result, bail, ensure};
use ifunc_bench_ifuncs::answer;
use ucx::{Callback, Features};

use super::{Caller, Calls, call};
use crate::program::Starter;
use crate::roles::exchange::Timeout;
use crate::roles::ucx::outbox::Outbox;
use crate::roles::ucx::{Handler, Receiver, Worker};

const QUESTION: u16 = 0;
const ANSWER: u16 = 1;

fn number(payload: &[u8]) -> u64 {
    // Another length is no answer to anything.
    payload.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

/// The target's.
struct Asked {
    outbox: Option<Outbox>,
    answered: u64,
}

impl Handler for Asked {
    #[inline]
    fn message(&mut self, worker: &mut Callback<'_, Receiver<Self>>, _: u16, payload: &[u8]) {
        let Some(outbox) = &mut self.outbox else { return };
        match outbox.send(worker, ANSWER, &answer(number(payload)).to_le_bytes()) {
            Ok(()) => self.answered += 1,
            // The answer is missing: the run fails.
            Err(error) => eprintln!("UCX does not send an answer: {error:#}"),
        }
    }
}

/// The source's. Answers come in the order of the questions: each endpoint keeps that of what is small.
#[derive(Default)]
struct Answered {
    next: u64,
    wrong: bool,
}

impl Handler for Answered {
    #[inline]
    fn message(&mut self, _: &mut Callback<'_, Receiver<Self>>, _: u16, payload: &[u8]) {
        let question = self.next;
        self.next += 1;
        if number(payload) != answer(question) {
            self.wrong = true;
        }
    }
}

/// Says its own address, and connects to the one that it is told.
fn meet<H: Handler>(starter: &mut Starter, worker: &mut Worker<H>) -> Result<Outbox> {
    starter.reply(&worker.address()?)?;
    let address: Option<String> = starter.next()?;
    Ok(Outbox::new(worker.connect(&address.unwrap_or_default())?))
}

/// Answers as many questions as the starter says, and again.
pub(in crate::roles) fn target(mut starter: Starter) -> Result<()> {
    let asked = Asked {
        outbox: None,
        answered: 0,
    };
    let mut worker = Worker::new(Features::AM, asked)?;
    worker.0.receive(QUESTION)?;
    let outbox = meet(&mut starter, &mut worker)?;
    worker.with(|asked| asked.outbox = Some(outbox));
    let mut all = 0;
    while let Some(slot) = starter.next::<Calls>()? {
        all += slot.all();
        let mut timeout = Timeout::new();
        let mut answered = worker.with(|asked| asked.answered);
        while answered < all {
            worker.progress();
            let now = worker.with(|asked| asked.answered);
            if answered == now {
                timeout.check()?;
            } else {
                (answered, timeout) = (now, Timeout::new());
            }
        }
        // What could not be sent at once goes out.
        let Some(outbox) = worker.with(|asked| asked.outbox.take()) else {
            bail!("the way back is gone");
        };
        while outbox.is_busy(&worker.0) {
            worker.progress();
            timeout.check()?;
        }
        worker.with(|asked| asked.outbox = Some(outbox));
        starter.reply(&())?;
    }
    Ok(())
}

struct Messages {
    outbox: Outbox,
    /// The last to go: requests give their memory back to it.
    worker: Worker<Answered>,
}

impl Caller for Messages {
    fn calls(&mut self, numbers: Range<u64>, in_flight: usize) -> Result<()> {
        let Self { worker, outbox } = self;
        let until = |worker: &mut Worker<Answered>, number: u64| -> Result<()> {
            let mut timeout = Timeout::new();
            while worker.with(|answered| answered.next) < number {
                worker.progress();
                timeout.check()?;
            }
            Ok(())
        };
        worker.with(|answered| answered.next = numbers.start);
        let end = numbers.end;
        for number in numbers {
            until(worker, (number + 1).saturating_sub(in_flight as u64))?;
            outbox.send(&mut worker.0, QUESTION, &number.to_le_bytes())?;
        }
        until(worker, end)?;
        ensure!(!worker.with(|answered| answered.wrong), "a wrong answer");
        Ok(())
    }
}

/// Asks as the starter says.
pub(in crate::roles) fn source(mut starter: Starter) -> Result<()> {
    let mut worker = Worker::new(Features::AM, Answered::default())?;
    worker.0.receive(ANSWER)?;
    let outbox = meet(&mut starter, &mut worker)?;
    starter.reply(&worker.carried_by(outbox.endpoint()))?;
    call(starter, Messages { worker, outbox })
}
