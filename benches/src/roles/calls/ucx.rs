//! Calls by active messages of UCX: a question is one, and its answer another, sent from the callback that brought the question.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use anyhow::{Result, ensure};
use ifunc_bench_ifuncs::answer;
use ucx_sys::UCP_FEATURE_AM;

use super::{Caller, Calls, call};
use crate::program::Starter;
use crate::roles::exchange::Timeout;
use crate::roles::ucx::{Endpoint, Handler, Request, Worker};

const QUESTION: u16 = 0;
const ANSWER: u16 = 1;

/// What is sent, until UCX is done with it: nearly always at once.
struct Outbox {
    endpoint: Endpoint,
    under_way: RefCell<VecDeque<(Request, Box<[u8; 8]>)>>,
    /// Of the last one.
    spare: Cell<Option<Box<[u8; 8]>>>,
}

impl Outbox {
    #[inline]
    fn send(&self, id: u16, number: u64) -> Result<()> {
        let mut under_way = self.under_way.borrow_mut();
        while let Some((first, _)) = under_way.front()
            && first.is_done()?
        {
            under_way.pop_front();
        }
        let mut payload = self.spare.take().unwrap_or_default();
        *payload = number.to_le_bytes();
        // SAFETY: what the box holds stays where it is until the request is done.
        match unsafe { self.endpoint.send(id, &*payload)? } {
            Some(request) => under_way.push_back((request, payload)),
            None => self.spare.set(Some(payload)),
        }
        Ok(())
    }
}

fn number(payload: &[u8]) -> u64 {
    // Another length is no answer to anything.
    payload.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

/// The target's.
struct Asked {
    outbox: RefCell<Option<Outbox>>,
    answered: Cell<u64>,
}

impl Handler for Asked {
    #[inline]
    fn message(&self, payload: &[u8]) {
        let sent = match &*self.outbox.borrow() {
            Some(outbox) => outbox.send(ANSWER, answer(number(payload))),
            None => return,
        };
        match sent {
            Ok(()) => self.answered.set(self.answered.get() + 1),
            // The answer is missing: the run fails.
            Err(error) => eprintln!("UCX does not send an answer: {error:#}"),
        }
    }
}

/// The source's. Answers come in the order of the questions: each endpoint keeps that of what is small.
#[derive(Default)]
struct Answered {
    next: Cell<u64>,
    wrong: Cell<bool>,
}

impl Handler for Answered {
    #[inline]
    fn message(&self, payload: &[u8]) {
        let question = self.next.get();
        self.next.set(question + 1);
        if number(payload) != answer(question) {
            self.wrong.set(true);
        }
    }
}

/// Says its own address, and connects to the one that it is told.
fn meet(starter: &mut Starter, worker: &Rc<Worker>) -> Result<Outbox> {
    starter.reply(&worker.address()?)?;
    let address: Option<String> = starter.next()?;
    let endpoint = worker.connect(&address.unwrap_or_default())?;
    Ok(Outbox {
        endpoint,
        under_way: RefCell::default(),
        spare: Cell::default(),
    })
}

/// Answers as many questions as the starter says, and again.
pub(in crate::roles) fn target(mut starter: Starter) -> Result<()> {
    let worker = Worker::new(UCP_FEATURE_AM)?;
    let asked = Rc::new(Asked {
        outbox: RefCell::default(),
        answered: Cell::new(0),
    });
    worker.receive(QUESTION, Rc::clone(&asked))?;
    let outbox = meet(&mut starter, &worker)?;
    asked.outbox.replace(Some(outbox));
    let mut all = 0;
    while let Some(slot) = starter.next::<Calls>()? {
        all += slot.all();
        let mut timeout = Timeout::new();
        let mut answered = asked.answered.get();
        while answered < all {
            worker.progress();
            if answered == asked.answered.get() {
                timeout.check()?;
            } else {
                (answered, timeout) = (asked.answered.get(), Timeout::new());
            }
        }
        // What could not be sent at once goes out.
        while asked.outbox.borrow().as_ref().is_some_and(Outbox::is_busy) {
            worker.progress();
            timeout.check()?;
        }
        starter.reply(&())?;
    }
    Ok(())
}

impl Outbox {
    fn is_busy(&self) -> bool {
        let under_way = self.under_way.borrow();
        under_way
            .iter()
            .any(|(request, _)| !request.is_done().unwrap_or(true))
    }
}

struct Messages {
    worker: Rc<Worker>,
    outbox: Outbox,
    answered: Rc<Answered>,
}

impl Caller for Messages {
    fn calls(&mut self, numbers: Range<u64>, in_flight: usize) -> Result<()> {
        let Self {
            worker,
            outbox,
            answered,
        } = self;
        let until = |number: u64| -> Result<()> {
            let mut timeout = Timeout::new();
            while answered.next.get() < number {
                worker.progress();
                timeout.check()?;
            }
            Ok(())
        };
        answered.next.set(numbers.start);
        let end = numbers.end;
        for number in numbers {
            until((number + 1).saturating_sub(in_flight as u64))?;
            outbox.send(QUESTION, number)?;
        }
        until(end)?;
        ensure!(!answered.wrong.get(), "a wrong answer");
        Ok(())
    }
}

/// Asks as the starter says.
pub(in crate::roles) fn source(mut starter: Starter) -> Result<()> {
    let worker = Worker::new(UCP_FEATURE_AM)?;
    let answered = Rc::new(Answered::default());
    worker.receive(ANSWER, Rc::clone(&answered))?;
    let outbox = meet(&mut starter, &worker)?;
    starter.reply(&outbox.endpoint.carried_by())?;
    call(
        starter,
        Messages {
            worker,
            outbox,
            answered,
        },
    )
}
