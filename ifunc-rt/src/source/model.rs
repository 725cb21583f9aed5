//! Who looks, who sleeps, who follows and who is woken, checked by loom in every order that the memory model allows: a
//! wake-up that is lost would be a deadlock, which loom reports. The waiting is the real one ([`wait`]), the connection a
//! model: a queue, an announcement of sleep and a bell.
//!
//! `cargo xtask loom` runs it.

use std::collections::VecDeque;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

use super::helm::{Helm, Ticket};
use super::owned::Owned;
use super::waiting::{Bell, Shared, Waited, Want, wait};

/// Calls under way, at most.
const CALLS: usize = 2;

/// What the target's thread shares with the source's.
struct Link {
    answers: Mutex<VecDeque<usize>>,
    asleep: AtomicBool,
    bell: Notify,
}

impl Link {
    fn answer(&self, call: usize) {
        self.answers.lock().unwrap().push_back(call);
        if self.asleep.swap(false, Ordering::AcqRel) {
            self.bell.notify();
        }
    }
}

/// Rings it from within the process.
struct Handbell(Arc<Link>);

impl Wake for Handbell {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.bell.notify();
    }
}

struct Sleeper(Arc<Link>);

impl Bell for Sleeper {
    fn sleep(&self, _: Instant) {
        self.0.bell.wait();
    }

    fn waker(&self) -> Waker {
        std::sync::Arc::new(Handbell(Arc::clone(&self.0))).into()
    }
}

struct Connection {
    helm: Helm,
    link: Arc<Link>,
    done: [bool; CALLS],
    wakers: [Option<Waker>; CALLS],
    woken: Vec<Waker>,
    received: u64,
}

impl Connection {
    fn receive(&mut self) {
        while let Some(call) = self.link.answers.lock().unwrap().pop_front() {
            self.received += 1;
            self.done[call] = true;
            self.woken.extend(self.wakers[call].take());
        }
    }
}

impl Waited for Connection {
    type Bell = Sleeper;

    fn helm(&mut self) -> &mut Helm {
        &mut self.helm
    }

    fn set_turn(&mut self, _: Ticket) {}

    fn watch(&mut self, _: Ticket, want: Want, waker: Option<&Waker>) {
        if let Want::Completion(call) = want {
            self.wakers[call as usize] = waker.cloned();
        }
    }

    fn unwatch(&mut self, _: Ticket, want: Want) {
        if let Want::Completion(call) = want {
            self.wakers[call as usize] = None;
        }
    }

    fn tend(&mut self) -> Option<Instant> {
        None
    }

    fn others_wait(&self) -> bool {
        false
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn arm(&mut self) {
        self.link.asleep.swap(true, Ordering::AcqRel);
    }

    fn disarm(&mut self) {
        self.link.asleep.swap(false, Ordering::AcqRel);
    }

    fn bell(&self) -> Option<Sleeper> {
        Some(Sleeper(Arc::clone(&self.link)))
    }

    fn is_connected(&self) -> bool {
        true
    }

    fn given_up(&self) -> u64 {
        0
    }

    fn gone_since(&self, _: u64) -> Option<String> {
        None
    }

    fn window(&self) -> Duration {
        Duration::ZERO
    }

    fn give_up(&mut self, _: String) {}

    fn woken(&mut self) -> &mut Vec<Waker> {
        &mut self.woken
    }
}

struct Source(Owned<Connection>);

impl Shared for Source {
    type State = Connection;

    fn state(&self) -> &Owned<Connection> {
        &self.0
    }

    fn reconnect(&self, _: Instant, _: Instant) -> Result<(), String> {
        Ok(())
    }
}

fn pair() -> (Arc<Link>, Arc<Source>) {
    let link = Arc::new(Link {
        answers: Mutex::new(VecDeque::new()),
        asleep: AtomicBool::new(false),
        bell: Notify::new(),
    });
    let connection = Connection {
        helm: Helm::default(),
        link: Arc::clone(&link),
        done: [false; CALLS],
        wakers: [const { None }; CALLS],
        woken: Vec::new(),
        received: 0,
    };
    (link, Arc::new(Source(Owned::new(connection))))
}

/// Three threads and a lock that itself has an owner: with two preemptions half a minute, with three a quarter of an hour.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut explorer = loom::model::Builder::new();
    let bound = explorer.preemption_bound.map_or(2, |bound| bound.min(2));
    explorer.preemption_bound = Some(bound);
    explorer.check(model);
}

/// Waits for a call's answer.
fn call(source: &Source, call: usize) {
    let done = wait::<_, _, ()>(
        source,
        Instant::now(),
        Want::Completion(call as u64),
        |connection| {
            connection.receive();
            Ok(connection.done[call].then_some(()))
        },
    );
    done.unwrap();
}

#[test]
fn everybody_is_woken_whoever_receives() {
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

/// What one waits for, asleep on the bell, comes from a thread that never waits: the bell's own link says nothing of it.
#[test]
fn who_sleeps_on_the_bell_is_woken_for_what_does_not_ring_it() {
    explore(|| {
        let (_link, source) = pair();
        let other = {
            let source = Arc::clone(&source);
            thread::spawn(move || {
                let mut connection = source.lock();
                connection.done[0] = true;
                let waker = connection.wakers[0].take();
                connection.woken.extend(waker);
            })
        };
        call(&source, 0);
        other.join().unwrap();
    });
}

/// It sleeps on the bell for others too, and leaves without what it waited for.
#[test]
fn who_gives_up_leaves_the_place_to_another() {
    explore(|| {
        let (link, source) = pair();
        let target = thread::spawn(move || (0..CALLS).for_each(|call| link.answer(call)));
        let other = {
            let source = Arc::clone(&source);
            thread::spawn(move || {
                let gave_up = wait::<_, (), _>(&*source, Instant::now(), Want::Completion(0), |connection| {
                    connection.receive();
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
