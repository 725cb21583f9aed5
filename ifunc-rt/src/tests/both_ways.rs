//! A process that is source and target at once: its target's ifuncs send to another target, which sends back.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::images::{self, Add};
use super::running::{Running, accepting, between_processes, place, source};
use super::threads::until;
use crate::{Error, Handle};

/// Messages in flight at once, in each direction.
const BALLS: u32 = 4;
/// How often each is sent on.
const HOPS: u32 = 200;

/// One side: what its target's invocations send with, and which payloads the other one understands.
#[derive(Default)]
struct Side {
    to_the_other: OnceLock<(Handle<Add>, u64)>,
    caught: AtomicU32,
    landed: AtomicU32,
}

impl Side {
    /// In an invocation: sends on, and does not wait for what needs this target to go on.
    fn catch(&self, hops_left: u32) {
        self.caught.fetch_add(1, Ordering::Relaxed);
        if hops_left == 0 {
            self.landed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (tells, message) = self.to_the_other.get().unwrap();
        tells.send(&(message + u64::from(hops_left - 1))).unwrap();
    }
}

#[test]
fn two_that_send_to_each_other_out_of_their_invocations() {
    for transport in between_processes() {
        let sides = [(); 2].map(|()| Arc::new(Side::default()));
        let targets = [(); 2].map(|()| Running::start(&place(transport), accepting().credits(64)));
        let messages = [0, 1].map(|n| {
            let side: Arc<Side> = Arc::clone(&sides[n]);
            images::when_told(move |hops| side.catch(hops))
        });
        for n in 0..2 {
            let source = source(targets[1 - n].address());
            let tells = source
                .register_bytes::<Add>(&images::tells().encode().unwrap())
                .unwrap();
            let _ = sides[n].to_the_other.set((tells, messages[1 - n]));
        }
        // From both ends at once, while the same connections are used from outside of invocations, too.
        for side in &sides {
            let (tells, message) = side.to_the_other.get().unwrap();
            for _ in 0..BALLS {
                tells.send(&(message + u64::from(HOPS))).unwrap();
            }
            assert_eq!(tells.call(message).unwrap().wait().unwrap(), *message);
        }
        let landed = || sides.iter().map(|side| side.landed.load(Ordering::Relaxed)).sum();
        until(|| {
            let landed: u32 = landed();
            landed == 2 * BALLS + 2
        });
        let caught: u32 = sides.iter().map(|side| side.caught.load(Ordering::Relaxed)).sum();
        assert_eq!(caught, 2 * (BALLS * (HOPS + 1) + 1));
        drop(targets);
    }
}

/// What needs the invoking target itself to go on is waited for until the deadline, and not for ever.
#[test]
fn who_waits_in_an_invocation_for_its_own_target_is_told_so() {
    for transport in between_processes() {
        let target = Running::start(&place(transport), accepting().credits(64));
        let source = source(target.address());
        let tells = source
            .register_bytes::<Add>(&images::tells().encode().unwrap())
            .unwrap();
        let itself = tells.with_timeout(std::time::Duration::from_millis(50));
        let idle = images::when_told(|_| {});
        let timed_out = Arc::new(AtomicU32::new(0));
        let times = Arc::clone(&timed_out);
        let waits = images::when_told(move |_| {
            let waited = itself.call(&idle).and_then(crate::Call::wait);
            if matches!(waited, Err(Error::Timeout { .. })) {
                times.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(tells.call(&waits).unwrap().wait().unwrap(), waits);
        assert_eq!(timed_out.load(Ordering::Relaxed), 1);
        assert_eq!(tells.call(&idle).unwrap().wait().unwrap(), idle);
    }
}
