//! The parts of a link, and what they do with the engine that they share.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::in_hand::{Pair, engine, insert, open};
use super::unauthenticated_put::put_header;
use super::*;
use crate::transport::ucx::link::{Handle, Outbox};
use crate::transport::ucx::packet::{BODY, Packet};
use crate::transport::ucx::put::layout::{Layout, SHORT};
use crate::transport::ucx::put::sleeping::Verdict;

by_each_mode! {
    a_frame_is_unconsumed_until_it_was_released,
    a_receiver_that_has_a_frame_is_not_empty_and_does_not_sleep,
    a_link_that_is_stuck_pauses,
    only_parked_connections_are_named_as_ready,
    a_link_whose_peer_leaves_is_noticed,
}

/// The handle of a connection that has no endpoint.
fn handle() -> Arc<Handle> {
    let engine = engine(Mode::Messages);
    let mut locked = engine.lock();
    let id = insert(&mut locked, open());
    let signs = Arc::clone(&locked.state.connections[&id].signs);
    drop(locked);
    Arc::new(Handle { engine, id, signs })
}

/// Where a packet's body is.
fn at(packet: &Packet) -> *const u8 {
    packet.body(1).as_ptr()
}

#[test]
fn a_sender_keeps_a_packet_and_copies_short_bodies_out_of_large_ones() {
    if !has_ucx() {
        return;
    }
    let handle = handle();
    let mut outbox = Outbox::new(&handle, Packet::LEAST, 4096);
    assert!(!outbox.fits(0) && outbox.reserve(0).is_none());
    let mut locked = handle.engine.lock();
    outbox.fill(&mut locked, 1000);
    assert!(outbox.fits(1024) && !outbox.fits(1025));
    let kept = at(outbox.reserve(1000).unwrap());
    outbox.fill(&mut locked, 10);
    assert_eq!(at(outbox.reserve(1000).unwrap()), kept);
    // A larger one is taken in its place, and the smaller one is free.
    outbox.fill(&mut locked, 2000);
    let free = locked.packet(1024);
    assert_eq!(at(&free), kept);
    locked.give(free);

    let (mut packet, reserved) = outbox.take(1000);
    assert_eq!((packet.capacity(), reserved), (2048, 1000));
    packet.body_mut(511).copy_from_slice(&content(3, 511));
    // A quarter of what it holds is not sparse.
    let packet = outbox.shrink(&mut locked, packet, 512, reserved);
    assert!(packet.capacity() == 2048 && !outbox.fits(0));
    let large = at(&packet);
    let short = outbox.shrink(&mut locked, packet, 511, 513);
    assert_eq!((short.capacity(), short.body(511)), (512, &content(3, 511)[..]));
    assert_eq!(at(outbox.reserve(2048).unwrap()), large, "it is kept");
    // Unless the next frame does not need it.
    let (packet, _) = outbox.take(511);
    locked.give(short);
    let short = outbox.shrink(&mut locked, packet, 511, 512);
    assert!(short.capacity() == 512 && !outbox.fits(0));
    let free = locked.packet(2048);
    assert_eq!(at(&free), large);
    outbox.give_back(&mut locked, free);
    // What comes back is kept where nothing is, and else free.
    let free = locked.worker.handler().pool.free();
    outbox.give_back(&mut locked, short);
    assert_eq!(locked.worker.handler().pool.free(), free + BODY + 512);
    let least = locked.packet(0);
    let least_at = at(&least);
    let least = outbox.shrink(&mut locked, least, 0, 0);
    assert_eq!(at(&least), least_at, "the least packet is never sparse");

    let mut empty = Outbox::new(&handle, Packet::LEAST, 4096);
    for (capacity, is_kept) in [(8192, false), (4096, true)] {
        let packet = locked.packet(capacity);
        let free = locked.worker.handler().pool.free();
        empty.give_back(&mut locked, packet);
        assert_eq!(empty.fits(0), is_kept);
        let is_free = locked.worker.handler().pool.free() > free;
        assert_eq!(is_free, !is_kept);
    }
    // What it keeps is free when it goes.
    let free = locked.worker.handler().pool.free();
    drop(locked);
    drop(empty);
    let mut locked = handle.engine.lock();
    assert_eq!(locked.worker.handler().pool.free(), free + BODY + 4096);
}

fn a_frame_is_unconsumed_until_it_was_released(mode: Mode) {
    let Pair {
        mut source,
        mut target,
        here: _here,
        served: _served,
        ..
    } = Pair::new(mode, &small());
    let sequence = send(&mut source, b"frame").unwrap().unwrap();
    assert!(source.tx().is_unconsumed(sequence));
    wait_for("the frame", || {
        assert!(receive(&mut source).unwrap().is_none());
        target.rx().peek().unwrap().map(drop)
    });
    assert!(source.tx().is_unconsumed(sequence));
    target.rx().release();
    target.rx().settle();
    wait_for("its release", || {
        assert!(receive(&mut source).unwrap().is_none() && receive(&mut target).unwrap().is_none());
        (!source.tx().is_unconsumed(sequence)).then_some(())
    });
    // What was not sent was not consumed.
    assert!(source.tx().is_unconsumed(sequence + 1));
}

fn a_receiver_that_has_a_frame_is_not_empty_and_does_not_sleep(mode: Mode) {
    let Pair {
        mut source,
        mut target,
        here: _here,
        served,
        ..
    } = Pair::new(mode, &small());
    // A peer that puts frames may write them at any time.
    assert_eq!(target.shares_bodies, mode == Mode::Puts);
    // Nothing on either side: after a while it is announced, and each may sleep.
    for link in [&mut source, &mut target] {
        wait_for("sleep", || {
            let mut locked = served.engine.lock();
            locked.progress();
            // As a target's listener does it for all of its connections.
            locked.announce_all();
            drop(locked);
            let may_sleep = link.rx().arm();
            link.rx().disarm();
            may_sleep.then_some(())
        });
        assert!(link.rx().is_idle());
    }
    send(&mut target, b"frame").unwrap().unwrap();
    wait_for("the frame", || {
        served.engine.poll();
        source.rx().peek().unwrap().map(drop)
    });
    assert!(!source.rx().is_empty() && !source.rx().is_idle() && !source.rx().arm());
    source.rx().disarm();
    source.rx().release();
    assert!(receive(&mut source).unwrap().is_none());
    let interval = source.waiter.poll_interval().unwrap();
    assert!(!interval.is_zero() && source.waiter.serves_any_thread());
    let carried_by = source.waiter.carried_by();
    let chooses = std::env::var_os("UCX_TLS").is_none();
    // A sender that is killed may stop the queue in UCX's shared memory for all others.
    let may_be_memory = mode == Mode::Puts || !chooses;
    assert!(
        may_be_memory && carried_by.contains("/memory") || carried_by.contains("/lo"),
        "{carried_by}"
    );
    assert!(may_be_memory || !carried_by.contains("/memory"), "{carried_by}");
}

fn only_parked_connections_are_named_as_ready(mode: Mode) {
    let mut pair = Pair::new(mode, &small());
    let key = pair.target.key.unwrap();
    for is_parked in [false, true] {
        pair.target.rx().park();
        if !is_parked {
            pair.target.rx().disarm();
        }
        send(&mut pair.source, b"x").unwrap().unwrap();
        wait_for("the frame", || {
            pair.here.poll();
            pair.served.engine.poll();
            (!pair.target.rx().is_idle()).then_some(())
        });
        // Where frames are put, the doorbell tells.
        let named = |pair: &Pair| std::mem::take(&mut pair.served.engine.lock().state.ready).contains(&key);
        if is_parked {
            wait_for("the name", || {
                pair.here.poll();
                pair.served.engine.poll();
                named(&pair).then_some(())
            });
        } else {
            assert!(!named(&pair));
        }
        let (_, body) = wait_for("the frame", || receive(&mut pair.target).unwrap());
        assert_eq!(body, b"x");
    }
}

fn a_link_that_is_stuck_pauses(mode: Mode) {
    let Pair {
        mut source,
        target: _target,
        here,
        served,
        ..
    } = Pair::new(mode, &small());
    wait_for("sleep", || {
        served.engine.poll();
        let may_sleep = source.rx().arm();
        source.rx().disarm();
        may_sleep.then_some(())
    });
    here.lock().state.stuck = 1000;
    let pause = here.lock().backoff();
    here.lock().wake();
    let began = Instant::now();
    source.waiter.sleep(soon(), None);
    assert!(began.elapsed() >= pause, "it is readable, and pauses");
    let began = Instant::now();
    source.waiter.sleep(began, None);
    source.waiter.sleep(soon(), Some(here.bell()));
    here.lock().state.stuck = 0;
    // Not stuck, it sleeps for as long as there is nothing.
    here.lock().arm();
    let began = Instant::now();
    source.waiter.sleep(began + Duration::from_millis(1), None);
    assert!(began.elapsed() >= Duration::from_millis(1));
}

fn a_link_whose_peer_leaves_is_noticed(mode: Mode) {
    let Pair {
        source,
        mut target,
        here,
        served,
        ..
    } = Pair::new(mode, &small());
    let leaving = std::thread::spawn(move || {
        drop(source);
        drop(here);
    });
    wait_for("its end", || {
        let is_gone = target.waiter.check_peer_closed();
        // Frames that are put are polled for.
        receive(&mut target).ok();
        is_gone.then_some(())
    });
    wait_for("the source to leave", || {
        served.engine.poll();
        leaving.is_finished().then_some(())
    });
    leaving.join().unwrap();
}

/// A sender polls in passing, for what cannot be there yet: that does not progress UCX, for so many times in succession.
#[test]
fn polls_right_after_a_frame_was_sent_do_not_progress_ucx() {
    const PASSED: usize = 64;
    if !has_ucx() {
        return;
    }
    let Pair {
        mut source,
        target: _target,
        here,
        served: _served,
        ..
    } = Pair::new(Mode::Messages, &ring(128, RingSize::MIN_DATA));
    // This poll has seen all that was progressed so far.
    wait_for("rest", || {
        let before = here.polls();
        assert!(receive(&mut source).unwrap().is_none());
        (here.polls() > before).then_some(())
    });
    let mut progressed = Vec::new();
    for n in 0..=PASSED {
        send(&mut source, b"small").unwrap().unwrap();
        let before = here.polls();
        assert!(source.rx().peek().unwrap().is_none());
        progressed.extend((here.polls() > before).then_some(n));
    }
    assert_eq!(progressed, [PASSED]);
    // A poll that would find nothing is not made.
    send(&mut source, b"small").unwrap().unwrap();
    assert!(source.rx().is_empty());
    // Where nothing was sent, each poll does.
    let before = here.polls();
    assert!(source.rx().peek().unwrap().is_none() && source.rx().peek().unwrap().is_none());
    assert_eq!(here.polls(), before + 2);
}

/// What a receiver has when it goes is free again.
#[test]
fn frames_that_a_receiver_leaves_are_given_back() {
    if !has_ucx() {
        return;
    }
    for is_released in [false, true] {
        let Pair {
            mut source,
            mut target,
            here: _here,
            served,
            ..
        } = Pair::new(Mode::Messages, &small());
        // So short that it is copied, and longer than any notice.
        send(&mut source, &content(1, 1000)).unwrap().unwrap();
        wait_for("the frame", || target.rx().peek().unwrap().map(drop));
        if is_released {
            target.rx().release();
        }
        let free = served.engine.lock().worker.handler().pool.free();
        drop(target);
        assert!(served.engine.lock().worker.handler().pool.free() >= free + BODY + 1024);
    }
}

/// Both ends of a connection whose frames are put, whose source has announced its sleep.
fn asleep() -> Pair {
    let mut pair = Pair::new(Mode::Puts, &ring(64, RingSize::MIN_DATA));
    wait_for("sleep", || {
        pair.served.engine.poll();
        let may_sleep = pair.source.rx().arm();
        pair.source.rx().disarm();
        may_sleep.then_some(())
    });
    assert!(pair.source.rx().is_idle());
    let locked = pair.here.lock();
    assert!(locked.state.expecting.is_empty() && locked.state.awake.is_empty());
    drop(locked);
    pair
}

/// Puts a frame without a body, of this number, where the first frame of the target belongs. It rings no doorbell.
fn put_empty(pair: &Pair, sequence: u32) {
    let layout = Layout::new(ring(64, RingSize::MIN_DATA).to_source);
    put_header(
        &mut pair.served.engine.lock(),
        pair.of_target,
        layout,
        sequence,
        0,
    );
}

#[test]
fn a_frame_that_lands_without_a_doorbell_is_seen_before_the_sleep() {
    if !has_ucx() {
        return;
    }
    let mut pair = asleep();
    put_empty(&pair, 1);
    wait_for("the frame", || {
        pair.served.engine.poll();
        let verdict = pair.here.lock().may_sleep(pair.id);
        assert_eq!(verdict, Verdict::MaySleep, "nobody was told");
        (!pair.source.rx().is_idle()).then_some(())
    });
    assert!(!pair.source.rx().arm());
    // Nor does a receiver sleep that holds a frame.
    assert!(pair.source.rx().peek().unwrap().is_some());
    assert!(!pair.source.rx().is_idle() && !pair.source.rx().arm());
}

#[test]
fn a_slot_of_another_number_is_no_frame() {
    if !has_ucx() {
        return;
    }
    let mut pair = asleep();
    let mut put = |sequence| {
        put_empty(&pair, sequence);
        for _ in 0..100 {
            pair.served.engine.poll();
            pair.here.poll();
        }
        pair.source.rx().peek().unwrap().map(|frame| frame.sequence)
    };
    for sequence in [0, 2, 3, u32::MAX] {
        assert_eq!(put(sequence), None, "{sequence}");
    }
    assert_eq!(put(1), Some(1));
}

#[test]
fn a_connection_that_is_over_is_not_slept_on_and_not_lingered_for() {
    if !has_ucx() {
        return;
    }
    let mut pair = asleep();
    pair.here.lock().end(pair.id, LinkError::Closed);
    assert_eq!(pair.here.lock().may_sleep(pair.id), Verdict::Unannounced);
    assert!(!pair.source.rx().is_idle() && !pair.source.rx().arm());
    drop(pair.source);
    assert!(pair.here.lock().state.connections.is_empty());
}

#[test]
fn what_is_posted_is_polled_for_until_it_has_landed() {
    if !has_ucx() {
        return;
    }
    let mut pair = asleep();
    let mut locked = pair.here.lock();
    assert_eq!(locked.pause(), None);
    // Everything has landed: it is not expected any more, and a target that had parked it is told.
    locked.state.connections[&pair.id]
        .signs
        .parked
        .store(true, Ordering::Relaxed);
    locked.state.expecting.insert(pair.id);
    assert_eq!(locked.pause(), Some(Duration::ZERO));
    locked.state.expecting_since = Instant::now().checked_sub(Duration::from_secs(1));
    assert_eq!(locked.pause(), Some(Duration::from_millis(2)));
    locked.dispatch();
    assert!(locked.state.expecting.is_empty() && !locked.state.connections[&pair.id].signs.take_parked());
    locked.dispatch();
    assert_eq!(locked.state.expecting_since, None);
    // The peer has closed, and a frame has not landed.
    locked.state.connections.get_mut(&pair.id).unwrap().fin = Some(1);
    assert_eq!(locked.may_sleep(pair.id), Verdict::Expecting);
    locked.state.expecting.insert(pair.id);
    locked.dispatch();
    assert!(locked.state.expecting.contains(&pair.id));
    drop(locked);
    put_empty(&pair, 1);
    wait_for("the last frame", || {
        pair.served.engine.poll();
        let mut locked = pair.here.lock();
        locked.progress();
        locked.state.connections[&pair.id].gone.is_some().then_some(())
    });
    assert!(pair.source.rx().peek().unwrap().is_some(), "it is delivered");
}

#[test]
fn sleeps_of_all_that_are_awake_are_announced() {
    if !has_ucx() {
        return;
    }
    let pair = Pair::new(Mode::Puts, &small());
    let mut locked = pair.served.engine.lock();
    assert!(locked.state.awake.contains(&pair.of_target));
    locked.announce_all();
    assert!(locked.state.awake.is_empty());
}

/// Credits for the lines of a body that was put are given when the poll is over; those for slots when a quarter of the slots was released since credits
/// were given last, or when the receiver closes.
#[test]
fn credits_for_lines_are_given_when_a_poll_is_over() {
    if !has_ucx() {
        return;
    }
    const SLOTS: u32 = 64;
    let mut pair = Pair::new(Mode::Puts, &ring(SLOTS, RingSize::MIN_DATA));
    let long = [7; 100];
    for (body, is_due) in [(&long[..], true), (b"x", false)] {
        let sequence = send(&mut pair.source, body).unwrap().unwrap();
        wait_for("the frame", || pair.target.rx().peek().unwrap().map(drop));
        pair.target.rx().release();
        assert!(
            is_unconsumed_for_a_while(&mut pair, sequence),
            "before the poll is over"
        );
        pair.target.rx().settle();
        assert_eq!(
            is_unconsumed_for_a_while(&mut pair, sequence),
            !is_due,
            "{}",
            body.len()
        );
    }
}

#[test]
fn credits_for_slots_are_given_when_they_are_due() {
    if !has_ucx() {
        return;
    }
    const SLOTS: u32 = 64;
    let mut pair = Pair::new(Mode::Puts, &ring(SLOTS, RingSize::MIN_DATA));
    let mut last = 0;
    for _ in 0..SLOTS / 4 {
        assert!(last == 0 || pair.source.tx().is_unconsumed(last));
        last = send(&mut pair.source, b"x").unwrap().unwrap();
        consume(&mut pair.target);
    }
    wait_for("credits", || {
        pair.served.engine.poll();
        pair.here.poll();
        (!pair.source.tx().is_unconsumed(last)).then_some(())
    });
}

/// A `FIN` of puts says nothing of credits.
#[test]
fn credits_are_given_when_a_receiver_closes() {
    if !has_ucx() {
        return;
    }
    let Pair {
        here,
        mut source,
        mut target,
        served,
        ..
    } = Pair::new(Mode::Puts, &ring(64, RingSize::MIN_DATA));
    let sequence = send(&mut source, b"x").unwrap().unwrap();
    consume(&mut target);
    assert!(source.tx().is_unconsumed(sequence));
    let closing = std::thread::spawn(move || drop(target));
    wait_for("credits", || {
        served.engine.poll();
        here.poll();
        (!source.tx().is_unconsumed(sequence)).then_some(())
    });
    wait_for("the close", || {
        here.poll();
        closing.is_finished().then_some(())
    });
    closing.join().unwrap();
}

/// Receives and releases a frame, in a poll that is then over.
fn consume(link: &mut Link) {
    wait_for("the frame", || link.rx().peek().unwrap().map(drop));
    link.rx().release();
    link.rx().settle();
}

/// What lies behind a short body in its slot is the peer's to read.
#[test]
fn nothing_of_an_earlier_body_is_put_behind_a_short_one() {
    if !has_ucx() {
        return;
    }
    let mut pair = Pair::new(Mode::Puts, &ring(64, RingSize::MIN_DATA));
    let [longest, one_line] = [SHORT, 32];
    for (len, room) in [
        (longest, longest),
        (33, longest),
        (longest, longest),
        (1, one_line),
    ] {
        send(&mut pair.source, &vec![0xff; len]).unwrap().unwrap();
        wait_for("the frame", || {
            let frame = pair.target.rx().peek().unwrap()?;
            let behind = (len..room).map(|at| {
                // SAFETY: of the slot that the body lies in.
                unsafe { frame.body.as_ptr().add(at).read_volatile() }
            });
            assert!(behind.into_iter().all(|byte| byte == 0), "behind {len} bytes");
            Some(())
        });
        consume(&mut pair.target);
    }
}

/// A sender over puts looks into its ring, and progresses UCX only now and then.
#[test]
fn a_ring_without_a_frame_is_empty_for_so_many_looks() {
    const PASSED: usize = 16;
    if !has_ucx() {
        return;
    }
    let mut pair = Pair::new(Mode::Puts, &ring(64, RingSize::MIN_DATA));
    for _ in 0..2 {
        let looks = (0..=PASSED).map(|_| pair.source.rx().is_empty());
        let found: Vec<_> = looks.collect();
        assert_eq!(found.iter().position(|&is_empty| !is_empty), Some(PASSED));
    }
    send(&mut pair.target, b"x").unwrap().unwrap();
    wait_for("the frame", || {
        pair.served.engine.poll();
        pair.here.poll();
        let is_empty = [(); 2].map(|()| pair.source.rx().is_empty());
        (is_empty == [false; 2]).then_some(())
    });
    assert!(receive(&mut pair.source).unwrap().is_some());
    assert!(pair.source.rx().is_empty());
}

/// Whether, for 20 ms, the source does not know that its frame was consumed.
fn is_unconsumed_for_a_while(pair: &mut Pair, sequence: u32) -> bool {
    let until = Instant::now() + Duration::from_millis(20);
    while Instant::now() < until {
        pair.served.engine.poll();
        pair.here.poll();
        if !pair.source.tx().is_unconsumed(sequence) {
            return false;
        }
    }
    true
}
