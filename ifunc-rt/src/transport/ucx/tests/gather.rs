//! What one poll of a target sends to a peer goes in one message.

use std::sync::Arc;

use super::in_hand::{Pair, insert, open};
use super::*;
use crate::transport::ucx::credits::message_of;
use crate::transport::ucx::engine::Locked;
use crate::transport::ucx::events::Event;
use crate::transport::ucx::gather::Next;
use crate::transport::ucx::header::Name;
use crate::transport::ucx::packed;
use crate::transport::ucx::packet::Purpose;
use crate::transport::ucx::table::ConnectionId;
use crate::transport::window::Credits;
use crate::transport::{Key, PollScope as _};

/// A connection on which frames have arrived that no poll has taken.
fn with_unread(frames: u32) -> Pair {
    let mut pair = Pair::new(Mode::Messages, &ring(64, 1 << 20));
    for n in 0..frames {
        send(&mut pair.source, &content(n, 8)).unwrap().unwrap();
    }
    wait_for("the frames", || {
        pair.here.poll();
        pair.served.engine.poll();
        (pair.served.engine.lock().state.unread.get() == frames as usize).then_some(())
    });
    pair
}

/// Frames in the open message of a connection of the target's.
fn gathered(pair: &Pair, id: ConnectionId) -> usize {
    let locked = pair.served.engine.lock();
    let pack = locked.state.connections[&id].pack.as_ref();
    pack.map_or(0, |pack| pack.frames())
}

/// Takes the next frame of the target's, and sends an answer of `len` bytes.
fn answer(pair: &mut Pair, n: u32, len: usize) {
    let (sequence, body) = receive(&mut pair.target).unwrap().unwrap();
    assert_eq!((sequence, body), (n + 1, content(n, 8)));
    send(&mut pair.target, &content(n + 100, len)).unwrap().unwrap();
}

/// A poll that follows one which sent something looks for nothing, once; nor does one for which frames are left.
#[test]
fn polls_progress_where_something_may_have_come() {
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(2);
    let engine = Arc::clone(&pair.served.engine);
    let progresses = || {
        let before = engine.polls();
        engine.begin();
        engine.polls() - before
    };
    assert_eq!(progresses(), 0, "two are left");
    engine.end();
    assert_eq!(progresses(), 1, "they may wait for what comes");
    engine.end();
    assert_eq!(progresses(), 0);
    for n in 0..2 {
        answer(&mut pair, n, 8);
    }
    engine.end();
    assert_eq!(progresses(), 1, "the last one did not");
    send(&mut pair.target, b"x").unwrap().unwrap();
    engine.end();
    for expected in [0, 1, 1] {
        assert_eq!(progresses(), expected);
        engine.end();
    }
}

/// A poll is told whether there may be something for it: for the links, or for the listener.
#[test]
fn a_poll_is_told_whether_there_is_something_for_it() {
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(2);
    let engine = Arc::clone(&pair.served.engine);
    let begins = || {
        let has_some = engine.begin();
        engine.end();
        has_some
    };
    for _ in 0..2 {
        assert!(begins(), "frames are left");
    }
    for n in 0..2 {
        receive(&mut pair.target)
            .unwrap()
            .unwrap_or_else(|| panic!("frame {n}"));
    }
    // Until what UCX does by itself is done.
    wait_for("a poll in vain", || (!begins()).then_some(()));
    engine.lock().state.ready.push(Key::of(7));
    assert!(begins());
    engine.lock().state.ready.clear();
    assert!(!begins());
    let waiting = |id: Option<u64>| {
        let mut locked = engine.lock();
        let acceptor = locked.state.acceptor.as_mut().unwrap();
        acceptor.waiting = id.map(ConnectionId).into_iter().collect();
    };
    waiting(Some(7));
    assert!(begins());
    waiting(None);
    assert!(!begins());
    send(&mut pair.source, b"x").unwrap().unwrap();
    wait_for("a frame", || begins().then_some(()));
    assert!(begins(), "it was not taken");
}

/// After a poll that sent something and left nothing, another one would look for nothing. That is said once, and holds until a sleep.
#[test]
fn a_poll_that_would_look_for_nothing_is_known() {
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(2);
    let engine = Arc::clone(&pair.served.engine);
    assert!(!engine.passes(), "two are left");
    for (n, is_last) in [(0, false), (1, true)] {
        engine.begin();
        answer(&mut pair, n, 8);
        engine.end();
        assert_eq!(engine.passes(), is_last, "after answer {n}");
    }
    let progresses = || {
        let before = engine.polls();
        engine.begin();
        engine.end();
        engine.polls() - before
    };
    assert!(!engine.passes(), "it was said");
    assert_eq!(progresses(), 1);
    engine.begin();
    send(&mut pair.target, b"x").unwrap().unwrap();
    engine.end();
    engine.polling.before_sleep();
    assert!(!engine.passes());
    assert_eq!(progresses(), 1, "something may have come meanwhile");
}

/// The source receives these answers in their order.
fn expect(pair: &mut Pair, answers: &[(u32, usize)]) {
    for &(n, len) in answers {
        let frame = wait_for("an answer", || receive(&mut pair.source).unwrap());
        assert_eq!(frame, (n + 1, content(n + 100, len)));
    }
    assert!(receive(&mut pair.source).unwrap().is_none());
}

#[test]
fn answers_of_one_poll_are_one_message_and_the_last_does_not_wait() {
    const FRAMES: u32 = 20;
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(FRAMES);
    let engine = Arc::clone(&pair.served.engine);
    let before = engine.polls();
    engine.begin();
    for n in 0..FRAMES {
        assert_eq!(gathered(&pair, pair.of_target), n as usize);
        answer(&mut pair, n, n as usize);
    }
    // With the last one, all are sent; and of a poll's links none has made progress by itself.
    assert_eq!(gathered(&pair, pair.of_target), 0);
    assert!(receive(&mut pair.target).unwrap().is_none());
    assert_eq!(engine.polls(), before);
    assert!(engine.lock().state.gather.is_empty());
    engine.end();
    expect(&mut pair, &Vec::from_iter((0..FRAMES).map(|n| (n, n as usize))));
    // Without a poll, and in one for a single frame, each is sent at once.
    for in_poll in [false, true] {
        send(&mut pair.source, b"x").unwrap().unwrap();
        wait_for("a frame", || {
            pair.here.poll();
            engine.poll();
            pair.target.rx().peek().unwrap().map(drop)
        });
        if in_poll {
            engine.begin();
        }
        send(&mut pair.target, b"y").unwrap().unwrap();
        assert_eq!(gathered(&pair, pair.of_target), 0);
        engine.end();
        pair.target.rx().release();
        let frame = wait_for("an answer", || receive(&mut pair.source).unwrap());
        assert_eq!(frame.1, b"y");
    }
}

#[test]
fn a_poll_that_is_over_sends_what_it_gathered() {
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(3);
    pair.served.engine.begin();
    answer(&mut pair, 0, 8);
    answer(&mut pair, 1, 8);
    assert_eq!(gathered(&pair, pair.of_target), 2);
    pair.served.engine.end();
    assert_eq!(gathered(&pair, pair.of_target), 0);
    expect(&mut pair, &[(0, 8), (1, 8)]);
    // So does a progress in the middle of one.
    pair.served.engine.begin();
    assert!(pair.target.tx().reserve(8, 1).unwrap().is_some());
    send(&mut pair.target, &content(102, 8)).unwrap().unwrap();
    assert_eq!(gathered(&pair, pair.of_target), 1);
    pair.served.engine.poll();
    assert_eq!(gathered(&pair, pair.of_target), 0);
    pair.served.engine.end();
    expect(&mut pair, &[(2, 8)]);
}

#[test]
fn longer_frames_and_other_threads_keep_the_order() {
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(7);
    let engine = Arc::clone(&pair.served.engine);
    engine.begin();
    answer(&mut pair, 0, 8);
    answer(&mut pair, 1, 5000);
    assert_eq!(gathered(&pair, pair.of_target), 0);
    // In one piece, and too long to be gathered.
    answer(&mut pair, 2, 1025);
    assert_eq!(gathered(&pair, pair.of_target), 0);
    answer(&mut pair, 3, 1000);
    answer(&mut pair, 4, 1024);
    assert_eq!(gathered(&pair, pair.of_target), 2);
    // A message that is full makes room for the next.
    answer(&mut pair, 5, 0);
    for n in 106..109 {
        send(&mut pair.target, &content(n, 1024)).unwrap().unwrap();
    }
    assert_eq!(gathered(&pair, pair.of_target), 2);
    let target = &mut pair.target;
    let by_another = std::thread::scope(|scope| {
        scope
            .spawn(move || send(target, &content(109, 3)).unwrap())
            .join()
            .unwrap()
    });
    assert_eq!(by_another, Some(10));
    assert_eq!(gathered(&pair, pair.of_target), 0);
    engine.end();
    let lens = [8, 5000, 1025, 1000, 1024, 0, 1024, 1024, 1024, 3];
    expect(&mut pair, &Vec::from_iter((0..).zip(lens)));
}

#[test]
fn what_is_gathered_before_an_invocation_that_takes_long_is_sent_meanwhile() {
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(2);
    let engine = Arc::clone(&pair.served.engine);
    // The second time, the sweeper has begun.
    for _ in 0..2 {
        engine.begin();
        let (sequence, _) = receive(&mut pair.target).unwrap().unwrap();
        send(&mut pair.target, b"ready").unwrap().unwrap();
        // The next one runs, and this thread sends nothing.
        let frame = wait_for("the answer", || receive(&mut pair.source).unwrap());
        assert_eq!(frame, (sequence, b"ready".to_vec()));
        assert_eq!(gathered(&pair, pair.of_target), 0);
        engine.end();
        send(&mut pair.source, b"next").unwrap().unwrap();
        wait_for("the next frame", || {
            pair.here.poll();
            engine.poll();
            (engine.lock().state.unread.get() == 2).then_some(())
        });
    }
}

#[test]
fn what_is_gathered_goes_out_before_a_close_and_is_dropped_with_a_connection_that_is_forgotten() {
    if !has_ucx() {
        return;
    }
    for is_forgotten in [false, true] {
        let mut pair = with_unread(3);
        let engine = Arc::clone(&pair.served.engine);
        engine.begin();
        answer(&mut pair, 0, 8);
        answer(&mut pair, 1, 8);
        assert_eq!(gathered(&pair, pair.of_target), 2);
        if is_forgotten {
            let free = engine.lock().worker.handler().pool.free();
            engine.lock().forget(pair.of_target);
            engine.lock().send_gathered();
            assert!(engine.lock().worker.handler().pool.free() > free + 4096);
            engine.end();
            continue;
        }
        let Pair {
            mut source, target, ..
        } = pair;
        drop(target);
        engine.end();
        let mut answers = Vec::new();
        let gone = wait_for("the end", || {
            engine.poll();
            match receive(&mut source) {
                Ok(frame) => {
                    answers.extend(frame);
                    None
                }
                Err(gone) => Some(gone),
            }
        });
        assert_eq!(gone, LinkError::Closed);
        assert_eq!(answers, [(1, content(100, 8)), (2, content(101, 8))]);
    }
}

#[test]
fn frames_to_a_peer_that_takes_none_wait_together_for_the_end_of_an_earlier_message() {
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(0);
    let engine = Arc::clone(&pair.served.engine);
    // As if UCX had not sent it.
    let busy = |pair: &Pair, messages| {
        let mut locked = engine.lock();
        locked
            .state
            .connections
            .get_mut(&pair.of_target)
            .unwrap()
            .packed_under_way = messages;
    };
    busy(&pair, 2);
    for n in 0..3 {
        send(&mut pair.target, &content(n + 100, 8)).unwrap().unwrap();
        engine.poll();
        assert_eq!(gathered(&pair, pair.of_target), n as usize + 1);
    }
    assert!(receive(&mut pair.source).unwrap().is_none());
    for left in [1, 0] {
        let mut locked = engine.lock();
        let mut packet = locked.packet(0);
        packet.set_purpose(Purpose::Sending {
            connection: pair.of_target,
            sent: Credits::default(),
            is_packed: true,
        });
        locked.worker.handler().push(Event::Completed(packet, Ok(())));
        locked.dispatch();
        drop(locked);
        assert_eq!(gathered(&pair, pair.of_target), if left > 0 { 3 } else { 0 });
    }
    expect(&mut pair, &[(0, 8), (1, 8), (2, 8)]);
    // A longer frame does not wait, nor what comes before it.
    busy(&pair, 1);
    send(&mut pair.target, &content(103, 8)).unwrap().unwrap();
    send(&mut pair.target, &content(104, 5000)).unwrap().unwrap();
    assert_eq!(gathered(&pair, pair.of_target), 0);
    expect(&mut pair, &[(3, 8), (4, 5000)]);
    busy(&pair, 0);
}

/// Each takes a buffer of the receiver, which refuses a message with more.
#[test]
fn a_message_has_no_more_frames_than_its_receiver_takes() {
    if !has_ucx() {
        return;
    }
    let mut pair = Pair::new(Mode::Messages, &ring(1024, 1 << 20));
    let most = packed::MAX_ENTRIES;
    let lens = Vec::from_iter((0..).zip(vec![0; 2 * most + 5]));
    pair.target.tx().hold();
    for &(n, len) in &lens {
        send(&mut pair.target, &content(n + 100, len)).unwrap().unwrap();
        assert_eq!(gathered(&pair, pair.of_target), n as usize % most + 1);
    }
    {
        let locked = pair.served.engine.lock();
        let pack = locked.state.connections[&pair.of_target].pack.as_ref().unwrap();
        let one = message_of(0);
        let sent = Credits {
            frames: one.frames * 5,
            data: one.data * 5,
        };
        assert_eq!(pack.sent(), sent, "what is under way with it");
    }
    pair.target.tx().flush();
    expect(&mut pair, &lens);
}

/// Without an endpoint nothing can be sent, and without a name the peer knows no packed message.
#[test]
fn nothing_is_gathered_for_a_peer_that_is_not_known() {
    if !has_ucx() {
        return;
    }
    let pair = with_unread(0);
    let mut locked = pair.served.engine.lock();
    let gathers = |locked: &mut Locked<'_>, id| {
        let head = super::peer::frame(1, 8);
        locked.gathers(id, &head, &[0; 8], true, Next::Unknown)
    };
    assert!(gathers(&mut locked, pair.of_target));
    let mut named = open();
    named.peer = Name(7);
    let unreached = insert(&mut locked, named);
    assert!(!gathers(&mut locked, unreached));
    locked.forget(unreached);
    locked.state.connections.get_mut(&pair.of_target).unwrap().peer = Name::NONE;
    assert!(!gathers(&mut locked, pair.of_target));
}

/// A frame that may wait is sent with the next one that may not, by the next poll, and before a sleep.
#[test]
fn frames_that_may_wait_share_messages() {
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(0);
    let waiting = |pair: &mut Pair, n: u32| {
        pair.target.tx().may_wait();
        send(&mut pair.target, &content(n + 100, 8)).unwrap().unwrap();
        gathered(pair, pair.of_target)
    };
    assert_eq!([0, 1, 2].map(|n| waiting(&mut pair, n)), [1, 2, 3]);
    send(&mut pair.target, &content(103, 8)).unwrap().unwrap();
    assert_eq!(gathered(&pair, pair.of_target), 0);
    expect(&mut pair, &[(0, 8), (1, 8), (2, 8), (3, 8)]);
    // A poll passes once, because the test has made progress since the last one, and then does not.
    assert_eq!(waiting(&mut pair, 4), 1);
    for _ in 0..2 {
        assert!(receive(&mut pair.target).unwrap().is_none());
    }
    assert_eq!(gathered(&pair, pair.of_target), 0);
    expect(&mut pair, &[(4, 8)]);
    // A thread that goes to sleep sends what waits, and while it sleeps nothing does, also after progress of other threads.
    assert_eq!(waiting(&mut pair, 5), 1);
    pair.target.rx().arm();
    assert_eq!(gathered(&pair, pair.of_target), 0);
    assert_eq!(waiting(&mut pair, 6), 0);
    pair.served.engine.lock().progress();
    assert_eq!(waiting(&mut pair, 7), 0);
    pair.target.rx().disarm();
    assert_eq!(waiting(&mut pair, 8), 1);
    // What waits for nothing else goes after it.
    pair.target.tx().hold();
    pair.target.tx().may_wait();
    send(&mut pair.target, &content(109, 8)).unwrap().unwrap();
    send(&mut pair.target, &content(110, 8)).unwrap().unwrap();
    assert_eq!(gathered(&pair, pair.of_target), 3);
    pair.target.tx().flush();
    expect(&mut pair, &[(5, 8), (6, 8), (7, 8), (8, 8), (9, 8), (10, 8)]);
}

#[test]
fn frames_that_follow_each_other_at_once_share_messages() {
    if !has_ucx() {
        return;
    }
    let mut pair = with_unread(0);
    pair.target.tx().hold();
    for n in 0..3 {
        send(&mut pair.target, &content(n + 100, 8)).unwrap().unwrap();
        assert_eq!(gathered(&pair, pair.of_target), n as usize + 1);
    }
    pair.target.tx().flush();
    assert_eq!(gathered(&pair, pair.of_target), 0);
    expect(&mut pair, &[(0, 8), (1, 8), (2, 8)]);
    // A thread that waits before it has sent all of them has sent the others.
    pair.target.tx().hold();
    send(&mut pair.target, &content(103, 8)).unwrap().unwrap();
    wait_for("progress", || {
        assert!(receive(&mut pair.target).unwrap().is_none());
        (gathered(&pair, pair.of_target) == 0).then_some(())
    });
    pair.target.tx().flush();
    send(&mut pair.target, &content(104, 8)).unwrap().unwrap();
    assert_eq!(gathered(&pair, pair.of_target), 0);
    expect(&mut pair, &[(3, 8), (4, 8)]);
}
