//! The largest that fits, the first that does not, and what hints say.

use super::*;

/// Memory for the largest answer is reserved, and the answer is small: it moves into the slot if that is aligned as it must be.
#[test]
fn a_short_body_of_a_large_reservation_moves_into_its_slot() {
    let size = RingSize {
        slots: 8,
        data: RingSize::MIN_DATA,
    };
    for (align, len, in_slot) in [
        (8, 0, true),
        (8, INLINE, true),
        (8, INLINE + 1, false),
        (16, INLINE, false),
    ] {
        let (_, mut producer, mut consumer) = rings(size);
        for round in 1..=2 {
            let body: Vec<u8> = (0..len as u8).collect();
            let room = producer.reserve(100, align).unwrap().unwrap();
            room[..len].copy_from_slice(&body);
            assert_eq!(producer.commit(Header::new(Kind::Exec, 7, 9), len), round);
            let bytes = if in_slot { 0 } else { u64::from(round) * 64 };
            assert_eq!(producer.window.sent().data, bytes, "{align} {len}");
            let frame = consumer.peek().unwrap().unwrap();
            let mut received = Vec::new();
            frame.body.append_to(&mut received);
            assert_eq!(received, body);
            consumer.release();
        }
    }
}

#[test]
fn a_body_is_no_longer_than_what_was_reserved() {
    let size = RingSize {
        slots: 8,
        data: RingSize::MIN_DATA,
    };
    for len in [5, INLINE, 1000] {
        let (_, mut producer, _consumer) = rings(size);
        let commit = std::panic::AssertUnwindSafe(|| {
            producer.reserve(len, 8).unwrap().unwrap();
            producer.commit(Header::new(Kind::Exec, 7, 9), len + 1)
        });
        std::panic::catch_unwind(commit).unwrap_err();
    }
}

/// A peer that states a longer body than fits, in its slot or in half of the data ring: nothing of it is read.
#[test]
fn a_body_is_no_longer_than_its_place() {
    let size = RingSize {
        slots: 8,
        data: RingSize::MIN_DATA,
    };
    let half = size.data / 2;
    for (flags, len, fits) in [
        (FrameFlags::INLINE, INLINE as u32, true),
        (FrameFlags::INLINE, INLINE as u32 + 1, false),
        (FrameFlags::INLINE, half, false),
        (FrameFlags::INLINE, u32::MAX, false),
        (FrameFlags::NONE, half, true),
        (FrameFlags::NONE, half + 1, false),
        (FrameFlags::NONE, u32::MAX, false),
    ] {
        let (memory, _producer, mut consumer) = rings(size);
        let header = Header {
            flags,
            ..Header::new(Kind::Exec, 7, 9)
        };
        memory.words[0].set(header.words());
        memory.commits[0].set(commit_word(1, len));
        for _ in 0..2 {
            match consumer.peek() {
                Ok(Some(frame)) => assert!(fits && frame.body.len() == len as usize),
                end => assert!(!fits && matches!(end, Err(LinkError::Malformed(_))), "{end:?}"),
            }
        }
    }
}

#[test]
fn a_producer_knows_what_was_released() {
    let size = RingSize {
        slots: 8,
        data: RingSize::MIN_DATA,
    };
    let (memory, mut producer, mut consumer) = rings(size);
    for _ in 0..2 {
        producer.reserve(1, 1).unwrap().unwrap();
        producer.commit(Header::new(Kind::Exec, 7, 9), 1);
    }
    consumer.peek().unwrap().unwrap();
    consumer.release();
    consumer.settle();
    assert_eq!([1, 2].map(|n| producer.is_unconsumed(n)), [false, true]);
    // What a peer publishes that cannot be tells nothing.
    memory.credits.set([3, 0]);
    assert_eq!([1, 2].map(|n| producer.is_unconsumed(n)), [true, true]);
}

/// How far a producer is ahead is read from one slot.
#[test]
fn a_consumer_sees_how_far_its_producer_is_ahead() {
    let (_, mut producer, mut consumer) = rings(RingSize {
        slots: 64,
        data: RingSize::MIN_DATA,
    });
    let mut send = |count: u32| {
        for _ in 0..count {
            producer.reserve(1, 1).unwrap().unwrap();
            producer.commit(Header::new(Kind::Exec, 7, 9), 1);
        }
    };
    send(3);
    for _ in 0..3 {
        consumer.peek().unwrap().unwrap();
        consumer.release();
    }
    assert_eq!([0, 3, 9].map(|frames| consumer.has_more_than(frames)), [false; 3]);
    send(2);
    assert_eq!(
        [0, 1, 2].map(|frames| consumer.has_more_than(frames)),
        [true, true, false]
    );
}

/// A consumer never stays so far behind that its producer has no credit left.
#[test]
fn the_distance_to_a_stream_leaves_the_producer_credit() {
    const DATA: u32 = 1 << 20;
    for (slots, len, expected) in [
        (4096, 1, 191),
        (1024, 1, 0),
        (4096, 1 << 10, 191),
        (4096, 2 << 10, 191),
        (4096, 4 << 10, 95),
        (4096, 128 << 10, 0),
    ] {
        let (_, mut producer, mut consumer) = rings(RingSize { slots, data: DATA });
        for _ in 0..3 {
            producer.reserve(len, 1).unwrap().unwrap();
            producer.commit(Header::new(Kind::Exec, 7, 9), len);
            consumer.peek().unwrap().unwrap();
            consumer.release();
        }
        assert_eq!(consumer.distance(), expected, "{slots} slots, {len} bytes");
    }
}

/// What saves time and decides nothing: the next frame by its header alone, whether there is one, and the distance of a stream.
#[test]
fn hints_tell_what_polls_find() {
    let (memory, mut producer, mut consumer) = rings(RingSize {
        slots: 256,
        data: RingSize::MIN_DATA,
    });
    assert_eq!(consumer.first_quantum(), 1);
    for len in [0, 7, INLINE] {
        assert!(consumer.is_empty() && consumer.is_idle());
        assert!(consumer.peek_plain(Kind::Exec).is_none());
        producer.reserve(len, 8).unwrap().unwrap();
        producer.commit(Header::new(Kind::Exec, 7, 9), len);
        assert!(!consumer.is_empty() && !consumer.is_idle());
        let (header, frame) = consumer.peek_plain(Kind::Exec).unwrap();
        assert_eq!((header.handle, header.token, frame.body.len()), (7, 9, len));
        let sequence = frame.sequence;
        assert_eq!(consumer.peek().unwrap().unwrap().sequence, sequence);
        assert!(consumer.peek_plain(Kind::Exec).is_none(), "it is held");
        consumer.release();
    }
    // A stream is followed at a distance until it ends.
    for _ in 0..100 {
        consumer.end_poll(true, false);
    }
    assert!(consumer.stream.waits());
    consumer.begin_poll();
    assert!(!consumer.stream.waits(), "nothing comes");
    for (announces, asleep) in [
        (Consumer::park as fn(&mut Consumer<View>), true),
        (Consumer::disarm, false),
        (|consumer| assert!(consumer.arm()), true),
        (Consumer::disarm, false),
    ] {
        announces(&mut consumer);
        assert_eq!(memory.asleep.get(), asleep);
    }
    producer.reserve(0, 1).unwrap().unwrap();
    producer.commit(Header::new(Kind::Exec, 7, 9), 0);
    assert!(!consumer.arm(), "a frame has arrived");
}
