//! Which threads of a pool are awake, checked by loom in every order that the memory model allows: if work came and no thread
//! saw it, that would be a deadlock, which loom reports. The pool is the real one, its work a model: a queue, an announcement
//! of sleep and a doorbell.
//!
//! `cargo xtask loom` runs it.

use std::collections::VecDeque;
use std::task::{Wake, Waker};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Condvar, Mutex, Notify};
use loom::thread;

use super::pool::{Pool, Ran, Taken, Work};
use crate::driver::backoff::Backoff;

/// What sources share with the pool.
struct Link {
    arrived: Mutex<VecDeque<u32>>,
    asleep: AtomicBool,
    doorbell: Notify,
}

impl Link {
    fn send(&self, item: u32) {
        self.arrived.lock().unwrap().push_back(item);
        if self.asleep.load(Ordering::SeqCst) {
            self.doorbell.notify();
        }
    }
}

struct Local(Arc<Link>);

impl Wake for Local {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.doorbell.notify();
    }
}

struct Queue(Arc<Link>);

impl Work for Queue {
    type Item = u32;
    type End = ();

    fn take(&mut self) -> Taken<u32> {
        let first = self.0.arrived.lock().unwrap().pop_front();
        first.map_or(Taken::None, Taken::Item)
    }

    fn put_back(&mut self, _: u32) {}

    fn arm(&mut self, _: bool) -> bool {
        self.0.asleep.store(true, Ordering::SeqCst);
        self.0.arrived.lock().unwrap().is_empty()
    }

    fn disarm(&mut self) {
        self.0.asleep.store(false, Ordering::SeqCst);
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(1, super::SPIN)
    }

    fn doorbell(&self) -> Waker {
        std::sync::Arc::new(Local(Arc::clone(&self.0))).into()
    }
}

/// Two items come, one after the other, and neither ends before both run: each needs a thread.
#[test]
fn every_item_finds_a_thread() {
    let mut explorer = loom::model::Builder::new();
    let bound = explorer.preemption_bound.map_or(2, |bound| bound.min(2));
    explorer.preemption_bound = Some(bound);
    explorer.check(|| {
        let link = Arc::new(Link {
            arrived: Mutex::new(VecDeque::new()),
            asleep: AtomicBool::new(false),
            doorbell: Notify::new(),
        });
        let pool = Arc::new(Pool::new(Queue(Arc::clone(&link))));
        let inside = Arc::new((Mutex::new(0), Condvar::new()));
        let work = {
            let (link, pool, inside) = (Arc::clone(&link), Arc::clone(&pool), Arc::clone(&inside));
            move || {
                let meet = |_| {
                    let (count, changed) = &*inside;
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    changed.notify_all();
                    while *count < 2 {
                        count = changed.wait(count).unwrap();
                    }
                    drop(count);
                    pool.end(());
                    Ran::Over
                };
                let sleep = || {
                    link.doorbell.wait();
                    Ok(())
                };
                pool.work(meet, sleep);
            }
        };
        let other = thread::spawn(work.clone());
        let source = thread::spawn(move || {
            link.send(1);
            link.send(2);
        });
        work();
        other.join().unwrap();
        source.join().unwrap();
        assert_eq!(*inside.0.lock().unwrap(), 2);
    });
}
