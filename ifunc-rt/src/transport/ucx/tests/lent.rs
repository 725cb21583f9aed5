//! Workers of an application's: how a thread sleeps on one, and how it is left.

use std::sync::atomic::{AtomicBool, Ordering};

use ::ucx::{Features, Multi, Single};
use ifunc_abi::frame::BODY_ALIGN;

use super::attached::{Application, Lent, meet};
use super::in_hand::{insert, open};
use super::*;
use crate::transport::ucx::engine::Engine;
use crate::transport::ucx::table::ConnectionId;
use crate::transport::ucx::{WorkerError, WorkerOptions};

/// How long a thread sleeps on an engine for which nothing happens; no longer than this.
fn sleeps(engine: &Engine, most: Duration) -> Duration {
    let began = Instant::now();
    engine.lock().arm();
    wait_readable(engine.bell(), began + most);
    began.elapsed()
}

#[test]
fn a_worker_that_wakes_nobody_is_polled_every_millisecond() {
    if !has_ucx() {
        return;
    }
    let application = Application::<Single>::new(Features::AM);
    // Not where the application makes progress itself, whose calls wake the thread, and not once it was left.
    let short = Duration::from_millis(20);
    let lent = application.lend(false).unwrap();
    assert!(sleeps(&lent, short) >= short);
    assert!(lent.detach().is_ok());
    let lent = application.lend(true).unwrap();
    assert!(lent.detach().is_ok());
    assert!(sleeps(&lent, short) >= short);

    let lent = application.lend(true).unwrap();
    // What has happened meanwhile ends a sleep at once.
    lent.poll();
    let long = Duration::from_secs(30);
    let slept = (0..20).map(|_| sleeps(&lent, long)).max().unwrap();
    assert!(slept >= Duration::from_micros(900) && slept < long, "{slept:?}");
    assert!(lent.detach().is_ok());
    drop(application);
}

#[test]
fn a_worker_that_wakes_is_polled_twenty_times_a_second() {
    if !has_ucx() {
        return;
    }
    let application = Application::<Single>::new(Features::AM | Features::WAKEUP);
    let lent = application.lend_with(WorkerOptions::new(9).wakeup(true)).unwrap();
    lent.poll();
    let long = Duration::from_secs(30);
    let slept = (0..3).map(|_| sleeps(&lent, long)).max().unwrap();
    assert!(slept >= Duration::from_millis(45) && slept < long, "{slept:?}");
    assert!(lent.detach().is_ok());
    drop(application);
}

/// A thread that waits for what comes over a connection of a worker that also listens does not sleep until its slice ends, and takes back
/// nothing that wakes a target which sleeps on that worker.
#[test]
fn a_thread_that_waits_on_a_worker_that_listens_is_woken() {
    if !has_ucx() {
        return;
    }
    let Lent {
        here,
        there,
        ep,
        lent_here,
        lent_there,
        over_there,
        mut listener,
    } = Lent::<Single>::new();
    let (source, mut target) = meet(&mut *listener, over_there.call().unwrap());
    let limit = Duration::from_secs(20);
    for _ in 0..20 {
        let began = Instant::now();
        if target.rx().arm() {
            wait_readable(lent_there.bell(), began + limit);
        }
        target.rx().disarm();
        assert!(began.elapsed() < limit);
    }
    let is_ringing = || wait_readable(lent_there.bell(), Instant::now());
    let mut locked = lent_there.lock();
    let acceptor = locked.state.acceptor.as_mut().unwrap();
    acceptor.asleep = true;
    locked.state.ready.push(ConnectionId(7).key());
    locked.dispatch();
    drop(locked);
    assert!(is_ringing());
    for _ in 0..3 {
        target.rx().arm();
        assert!(is_ringing());
    }
    target.rx().disarm();
    lent_there.lock().state.acceptor.as_mut().unwrap().asleep = false;
    drop((source, target));
    assert!(lent_here.detach().is_ok() && lent_there.detach().is_ok());
    drop((listener, over_there, ep));
    drop((here, there));
}

/// A worker that is left waits until its peers have what was sent, and not for those that have gone.
#[test]
fn a_worker_is_left_when_its_peers_have_everything() {
    if !has_ucx() {
        return;
    }
    let Lent {
        here,
        there,
        ep,
        lent_here,
        lent_there,
        over_there,
        mut listener,
    } = Lent::<Multi>::new();
    let (mut source, mut target) = meet(&mut *listener, over_there.call().unwrap());
    let (_gone, gone_there) = meet(&mut *listener, over_there.call().unwrap());
    drop(gone_there);
    send(&mut source, b"last").unwrap().unwrap();
    let has_polled = AtomicBool::new(false);
    let mut body = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            has_polled.store(true, Ordering::Relaxed);
            wait_for("the end", || match receive(&mut target) {
                Ok(frame) => {
                    body = frame.or(body.take());
                    None
                }
                Err(end) => {
                    assert!(matches!(end, LinkError::Closed), "{end}");
                    Some(())
                }
            });
        });
        assert!(lent_here.detach().is_ok());
        assert!(has_polled.load(Ordering::Relaxed), "it did not wait");
        assert!(lent_here.lock().state.connections.is_empty());
    });
    assert_eq!(body, Some((1, b"last".to_vec())));
    // Who is left already is not left again.
    assert!(lent_here.detach().is_ok() && lent_there.detach().is_ok());
    drop((source, target, _gone, listener, over_there, ep));
    drop((here, there));
}

#[test]
fn only_connections_over_the_endpoint_that_is_gone_are_over() {
    if !has_ucx() {
        return;
    }
    let [mut here, there] = [(); 2].map(|()| Application::<Single>::new(Features::AM));
    let eps = [here.endpoint(&there), here.endpoint(&there)];
    let lent = here.lend(true).unwrap();
    let ids = {
        let mut locked = lent.lock();
        let mut ids = Vec::new();
        for ep in &eps {
            let id = insert(&mut locked, open());
            // SAFETY: the endpoint lives longer than the engine is used.
            let endpoint = unsafe { locked.worker.borrow_endpoint(ep.id()) };
            locked.state.connections.get_mut(&id).unwrap().endpoint = Some(endpoint);
            ids.push(id);
        }
        ids
    };
    lent.peer_gone(eps[0].as_raw());
    let is_gone = |n: usize| lent.lock().state.connections[&ids[n]].gone.is_some();
    assert!(is_gone(0) && !is_gone(1));
    lent.lock().forget_all();
    assert!(lent.detach().is_ok());
    drop(eps);
    drop((here, there));
}

/// Without an `am_alignment`, UCX may deliver a body at any address. The runtime copies one that is not aligned to 64 bytes.
#[test]
fn bodies_are_aligned_also_where_ucx_does_not_align() {
    if !has_ucx() {
        return;
    }
    let Lent {
        here,
        there,
        ep,
        lent_here,
        lent_there,
        over_there,
        mut listener,
    } = Lent::<Single>::new();
    let (mut source, target) = meet(&mut *listener, over_there.call().unwrap());
    // So long that they would be kept, so short that they are not fetched.
    for len in [4097, 5000] {
        send(&mut source, &content(1, len)).unwrap().unwrap();
    }
    wait_for("the frames", || {
        lent_here.poll();
        lent_there.poll();
        let mut locked = lent_there.lock();
        let id = locked.state.connections.ids()[0];
        let mut handler = locked.worker.handler();
        let arrived = handler.receive_queues.get_mut(id)?.arrived();
        (arrived.len() == 2).then(|| {
            for frame in arrived.iter() {
                assert!(
                    frame.body().addr().is_multiple_of(BODY_ALIGN),
                    "kept: {}",
                    frame.is_kept()
                );
            }
        })
    });
    drop((source, target));
    assert!(lent_here.detach().is_ok() && lent_there.detach().is_ok());
    drop((listener, over_there, ep));
    drop((here, there));
}

#[test]
fn a_target_hears_that_a_source_has_given_up() {
    if !has_ucx() {
        return;
    }
    let Lent {
        here,
        there,
        ep,
        lent_here,
        lent_there,
        over_there,
        mut listener,
    } = Lent::<Single>::new();
    // Its hello is on the way.
    drop(over_there.call().unwrap());
    let mut target = wait_for("the target", || {
        lent_here.poll();
        listener.accept()
    });
    wait_for("the end", || {
        lent_here.poll();
        listener.accept();
        receive(&mut target).is_err().then_some(())
    });
    drop(target);
    assert!(lent_here.detach().is_ok() && lent_there.detach().is_ok());
    drop((listener, over_there, ep));
    drop((here, there));
}

#[test]
fn the_peer_of_a_worker_that_is_taken_back_learns_it() {
    if !has_ucx() {
        return;
    }
    let mut lent = Lent::<Single>::new();
    let (mut source, _target) = meet(&mut *lent.listener, lent.over_there.call().unwrap());
    assert!(lent.lent_there.detach().is_ok());
    wait_for("the end", || {
        lent.lent_here.poll();
        receive(&mut source).is_err().then_some(())
    });
    assert!(lent.lent_here.detach().is_ok());
}

/// Peeks this frame.
fn peek(sender: &Engine, target: &mut Link, (sequence, body): (u32, &[u8])) {
    wait_for("a frame", || {
        sender.poll();
        let frame = target.rx().peek().unwrap()?;
        let mut copied = vec![0; frame.body.len()];
        frame.body.copy_to(&mut copied);
        assert!(frame.sequence == sequence && copied == body);
        Some(())
    });
}

/// A body stays in UCX's buffer while a poll reads it, and the worker is not left meanwhile. Between two polls nothing is read.
#[test]
fn a_worker_is_not_left_while_a_poll_reads_from_its_buffers() {
    if !has_ucx() {
        return;
    }
    let Lent {
        here,
        there,
        ep,
        lent_here,
        lent_there,
        over_there,
        mut listener,
    } = Lent::<Single>::of(true);
    let (mut source, mut target) = meet(&mut *listener, over_there.call().unwrap());
    let being_read = || lent_there.lock().state.being_read;
    let body = content(1, 8000);
    let peek = |target: &mut Link, sequence| peek(&lent_here, target, (sequence, &body));
    for _ in 0..3 {
        send(&mut source, &body).unwrap().unwrap();
    }
    // The first one is peeked in one poll and released in the next.
    for ends in [false, true] {
        peek(&mut target, 1);
        assert_eq!(being_read(), 1, "it was copied");
        let error = lent_there.detach().unwrap_err();
        assert!(matches!(error, WorkerError::InUse), "{error:?}");
        assert!(
            error.to_string().contains("when the poll has returned"),
            "{error}"
        );
        if ends {
            target.rx().release();
            assert_eq!(being_read(), 0);
        }
        target.rx().end_poll(ends, !ends);
        assert_eq!(being_read(), 0);
    }
    assert!(target.rx().has_arrived().unwrap());
    assert_eq!(being_read(), 0);
    // The second one's connection ends while it is read.
    peek(&mut target, 2);
    let id = lent_there.lock().state.connections.ids()[0];
    lent_there.lock().forget(id);
    assert!(lent_there.detach().is_err());
    target.rx().end_poll(false, true);
    assert_eq!(being_read(), 0);
    // The third one was never peeked.
    lent_there.detach().unwrap();
    wait_for("its end", || target.rx().has_arrived().err());
    assert!(target.rx().peek().is_err());
    target.rx().end_poll(false, true);
    drop((source, target));
    lent_here.detach().unwrap();
    drop((listener, over_there, ep));
    drop((here, there));
}

/// A worker that several threads may use is left when the poll of another thread has ended.
#[test]
fn a_worker_is_left_when_another_threads_poll_has_ended() {
    if !has_ucx() {
        return;
    }
    let mut lent = Lent::<Multi>::of(true);
    let (mut source, mut target) = meet(&mut *lent.listener, lent.over_there.call().unwrap());
    let body = content(1, 8000);
    send(&mut source, &body).unwrap().unwrap();
    peek(&lent.lent_here, &mut target, (1, &body));
    assert_eq!(lent.lent_there.lock().state.being_read, 1, "it was copied");
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| lent.lent_there.detach());
        // Nothing tells that it waits.
        std::thread::sleep(Duration::from_millis(50));
        assert!(!leaving.is_finished());
        target.rx().release();
        target.rx().end_poll(true, true);
        assert!(leaving.join().unwrap().is_ok());
    });
    drop((source, target));
    assert!(lent.lent_here.detach().is_ok());
}
