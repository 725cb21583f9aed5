//! Calls that are dropped at any moment: each token is free again after its answer has arrived, the credits are
//! returned, and all other calls get their own answers.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::images::{self, Add};
use super::running::{accepting, between_processes, place, source};
use super::threads::until;
use crate::{Call, Error, Handle, Source, Target};

const CREDITS: u32 = 8;

/// Pseudo-random numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

enum Under<'a> {
    Call(u64, Call<u64>),
    /// A future, and the payload that it answers, if it answers one.
    Future(
        Option<u64>,
        Pin<Box<dyn Future<Output = Result<Option<u64>, Error>> + 'a>>,
    ),
}

fn look(under: &mut Under<'_>) -> Option<(Option<u64>, Option<u64>)> {
    let mut context = Context::from_waker(Waker::noop());
    match under {
        Under::Call(payload, call) => {
            let answer = call.try_wait()?.unwrap();
            Some((Some(*payload), Some(answer)))
        }
        Under::Future(payload, future) => match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => Some((*payload, answer.unwrap())),
            Poll::Pending => None,
        },
    }
}

/// Number of frames that the credits admit with none in flight.
fn room(source: &Source, tells: &Handle<Add>, target: &mut Target, idle: u64) -> usize {
    settle(source, target);
    let mut sent = 0;
    loop {
        match tells.try_send(&idle) {
            Ok(()) => sent += 1,
            Err(Error::WouldBlock { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 100);
    }
    settle(source, target);
    sent
}

/// Everything that was sent is done.
fn settle(source: &Source, target: &mut Target) {
    let mut flush = Box::pin(source.flush_async());
    let deadline = Instant::now() + Duration::from_secs(20);
    while flush
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
    {
        target.poll(&mut 0u64);
        assert!(Instant::now() < deadline, "the flush is not done");
    }
    // The target returns credits after the last poll that ran something.
    while target.poll(&mut 0u64) > 0 {}
}

#[test]
fn what_is_dropped_at_any_moment_leaves_nothing_behind() {
    for transport in ["loopback"].into_iter().chain(between_processes()) {
        let mut target = accepting().credits(CREDITS).listen(&place(transport)).unwrap();
        let address = target.address();
        let connecting = thread::spawn(move || source(&address));
        while !connecting.is_finished() {
            target.poll(&mut 0u64);
        }
        let source = connecting.join().unwrap();
        let tells = source
            .register_bytes::<Add>(&images::tells().encode().unwrap())
            .unwrap();
        let idle = images::when_told(|_| {});
        // Credits may still be in flight; over sockets a single credit is not sent alone.
        let all = CREDITS as usize - usize::from(["ucx", "tls"].contains(&transport));
        until(|| room(&source, &tells, &mut target, idle) >= all);
        let mut chance = Chance(8);
        let mut under: Vec<Under<'_>> = Vec::new();
        let (mut answered, mut dropped) = (0, 0);
        for payload in (idle..).take(1500) {
            let tells = &tells;
            match chance.below(5) {
                0 => match tells.try_call(&payload) {
                    Ok(call) => under.push(Under::Call(payload, call)),
                    Err(Error::WouldBlock { .. }) => {}
                    Err(error) => panic!("{error}"),
                },
                1 => {
                    let call = async move { tells.call_async(&payload).await.map(Some) };
                    under.push(Under::Future(Some(payload), Box::pin(call)));
                }
                2 => {
                    let send = async move { tells.send_async(&payload).await.map(|()| None) };
                    under.push(Under::Future(None, Box::pin(send)));
                }
                3 if chance.below(8) == 0 => {
                    let flush = async { source.flush_async().await.map(|()| None) };
                    under.push(Under::Future(None, Box::pin(flush)));
                }
                _ => {}
            }
            if chance.below(3) == 0 {
                target.poll(&mut 0u64);
            }
            for _ in 0..3 {
                if under.is_empty() {
                    break;
                }
                let one = chance.below(under.len());
                if chance.below(4) == 0 {
                    drop(under.swap_remove(one));
                    dropped += 1;
                } else if let Some((payload, answer)) = look(&mut under[one]) {
                    assert_eq!(payload, answer, "its own answer");
                    answered += 1;
                    drop(under.swap_remove(one));
                }
            }
        }
        // Every remaining call is answered.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !under.is_empty() {
            target.poll(&mut 0u64);
            under.retain_mut(|one| match look(one) {
                Some((payload, answer)) => {
                    assert_eq!(payload, answer, "its own answer");
                    false
                }
                None => true,
            });
            assert!(Instant::now() < deadline, "{} are not answered", under.len());
        }
        assert!(answered > 100 && dropped > 100, "{answered} {dropped}");
        until(|| room(&source, &tells, &mut target, idle) >= all);
        // Calls, futures, credit waiters, waiting threads: one thread receives for the futures, and sleeps after the
        // last.
        until(|| source.remains() == [0; 4]);
    }
}
