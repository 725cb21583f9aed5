//! Who spins, who sleeps, who follows and who is woken, checked by loom in every order that the memory model allows: a lost
//! wake-up would be a deadlock, which loom reports. The waiting is the real one ([`Shared::wait`]), the connection a model: a
//! queue, an announcement of sleep and a doorbell.
//!
//! `cargo xtask loom` runs it.

use std::collections::VecDeque;
use std::task::Wake;
use std::time::{Duration, Instant};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

use super::driven::{Config, Doorbell, Driven, Signals};
use super::queue::Ticket;
use super::state::{Shared, Want};

/// Calls under way, at most.
const CALLS: usize = 2;

/// What the target's thread shares with the source's.
struct Link {
    answers: Mutex<VecDeque<usize>>,
    asleep: AtomicBool,
    doorbell: Notify,
}

impl Link {
    fn answer(&self, call: usize) {
        self.answers.lock().unwrap().push_back(call);
        if self.asleep.swap(false, Ordering::AcqRel) {
            self.doorbell.notify();
        }
    }
}

/// Rings the doorbell from within the process.
struct Local(Arc<Link>);

impl Wake for Local {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.doorbell.notify();
    }
}

struct Connection {
    link: Arc<Link>,
    done: [bool; CALLS],
    waiters: [Ticket; CALLS],
    received: u64,
    signals: Signals,
}

impl Connection {
    fn complete(&mut self, call: usize) {
        self.done[call] = true;
        self.signals.completed(std::mem::take(&mut self.waiters[call]));
    }
}

impl Driven for Connection {
    fn signals(&mut self) -> &mut Signals {
        &mut self.signals
    }

    fn try_drain(&mut self) -> bool {
        let answers: Vec<_> = self.link.answers.lock().unwrap().drain(..).collect();
        for call in answers {
            self.received += 1;
            self.signals.received = self.received;
            self.complete(call);
        }
        true
    }

    fn watch(&mut self, token: u64, waiter: Ticket) {
        self.waiters[token as usize] = waiter;
    }

    fn has_credit(&mut self, _: usize) -> bool {
        true
    }

    fn batch_due(&self) -> Option<Instant> {
        None
    }

    fn send_due_batch(&mut self) -> bool {
        true
    }

    fn is_sending(&self) -> bool {
        false
    }

    fn arm(&mut self) {
        self.link.asleep.swap(true, Ordering::AcqRel);
    }

    fn disarm(&mut self) {
        self.link.asleep.swap(false, Ordering::AcqRel);
    }

    fn doorbell(&self) -> Option<Doorbell> {
        let waker = std::sync::Arc::new(Local(Arc::clone(&self.link))).into();
        let link = Arc::clone(&self.link);
        Some((waker, Box::new(move |_| link.doorbell.wait())))
    }

    fn is_connected(&self) -> bool {
        true
    }

    fn reconnect(_: &Shared<Self>, _: Instant, _: Instant) -> Result<bool, String> {
        Ok(true)
    }

    fn has_more(&self) -> bool {
        false
    }

    fn give_up(&mut self, _: &str) {}

    fn close(&mut self) {}
}

type Source = Shared<Connection>;

fn pair() -> (Arc<Link>, Arc<Source>) {
    let link = Arc::new(Link {
        answers: Mutex::new(VecDeque::new()),
        asleep: AtomicBool::new(false),
        doorbell: Notify::new(),
    });
    let connection = Connection {
        link: Arc::clone(&link),
        done: [false; CALLS],
        waiters: [0; CALLS],
        received: 0,
        signals: Signals::default(),
    };
    let config = Config {
        timeout: Duration::MAX,
        reconnect: Duration::ZERO,
        always: false,
        spin: Duration::ZERO,
        no_thread: None,
    };
    (link, Arc::new(Source::new(connection, config)))
}

/// Three threads and a lock that has a bias: with two preemptions half a minute, with three a quarter of an hour.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut explorer = loom::model::Builder::new();
    let bound = explorer.preemption_bound.map_or(2, |bound| bound.min(2));
    explorer.preemption_bound = Some(bound);
    explorer.check(model);
}

/// Waits for a call's answer.
fn call(source: &Source, call: usize) {
    let want = Want::Completion(call as u64);
    let done = source.wait::<_, ()>(Instant::now(), want, |connection| {
        connection.try_drain();
        Ok(connection.done[call].then_some(()))
    });
    done.unwrap();
}

#[test]
fn every_thread_is_woken_whichever_receives() {
    explore(|| {
        let (link, source) = pair();
        let target = thread::spawn(move || (0..CALLS).for_each(|call| link.answer(call)));
        let other = {
            let source = Arc::clone(&source);
            thread::spawn(move || call(&source, 1))
        };
        call(&source, 0);
        other.join().unwrap();
        target.join().unwrap();
    });
}

/// What the sleeper waits for comes from a thread that never waits: the peer does not ring for it.
#[test]
fn the_sleeper_is_woken_for_what_does_not_ring() {
    explore(|| {
        let (_link, source) = pair();
        let other = {
            let source = Arc::clone(&source);
            thread::spawn(move || source.lock().connection.complete(0))
        };
        call(&source, 0);
        other.join().unwrap();
    });
}

/// A thread sleeps on the doorbell for others too, and leaves without what it waited for.
#[test]
fn a_thread_that_gives_up_hands_over_the_lead() {
    explore(|| {
        let (link, source) = pair();
        let target = thread::spawn(move || (0..CALLS).for_each(|call| link.answer(call)));
        let other = {
            let source = Arc::clone(&source);
            thread::spawn(move || {
                let gave_up = source.wait::<(), _>(Instant::now(), Want::Completion(0), |connection| {
                    connection.try_drain();
                    if connection.done[0] { Err(()) } else { Ok(None) }
                });
                assert!(gave_up.is_err());
            })
        };
        call(&source, 1);
        other.join().unwrap();
        target.join().unwrap();
    });
}
