//! The credits of one direction of a link.
//!
//! Both sides count frames, and the memory of their bodies, from the beginning of the connection. The receiver publishes
//! what it released; the sender may have sent that much and one capacity more.

use super::RingSize;

/// Frames, and the memory of their bodies in a unit of the transport's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credits {
    pub(crate) frames: u64,
    pub(crate) data: u64,
}

impl Credits {
    /// Those of an unused ring, with `unit` bytes to a unit of data.
    pub(crate) fn of(size: RingSize, unit: usize) -> Self {
        Self {
            frames: size.slots.into(),
            data: (size.data as usize / unit) as u64,
        }
    }

    /// Whether they are enough for a frame whose body takes `data`.
    #[cfg(feature = "ucx")]
    #[inline(always)]
    pub(crate) fn covers(&self, data: u64) -> bool {
        self.frames > 0 && self.data >= data
    }

    #[inline(always)]
    fn add(&mut self, data: u64) {
        self.frames += 1;
        self.data += data;
    }
}

/// The sender's half of a direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow {
    capacity: Credits,
    sent: Credits,
    /// What `sent` may become.
    limit: Credits,
}

impl SendWindow {
    /// The window of a new connection.
    pub(crate) fn new(capacity: Credits) -> Self {
        Self {
            capacity,
            sent: Credits::default(),
            limit: capacity,
        }
    }

    #[inline(always)]
    pub(crate) fn capacity(&self) -> Credits {
        self.capacity
    }

    /// What was sent since the connection began.
    #[inline(always)]
    pub(crate) fn sent(&self) -> Credits {
        self.sent
    }

    /// Whether a frame may be sent whose body takes `data`.
    #[inline(always)]
    pub(crate) fn has_credit(&self, data: u64) -> bool {
        self.sent.frames < self.limit.frames && (data == 0 || self.sent.data + data <= self.limit.data)
    }

    /// What may be sent now.
    #[inline]
    pub(crate) fn left(&self) -> Credits {
        Credits {
            frames: self.limit.frames.saturating_sub(self.sent.frames),
            data: self.limit.data.saturating_sub(self.sent.data),
        }
    }

    /// Counts a sent frame whose body takes `data`. Returns its sequence number.
    #[cfg(any(test, feature = "ucx", feature = "tls"))]
    #[inline(always)]
    pub(crate) fn send(&mut self, data: u64) -> u32 {
        self.sent.add(data);
        self.sent.frames as u32
    }

    /// As [`send`](Self::send), of the frame with this number, counted from 0: the next one, of which the caller has the number.
    #[inline(always)]
    pub(crate) fn send_frame(&mut self, frame: u64, data: u64) -> u32 {
        debug_assert_eq!(frame, self.sent.frames);
        self.sent.frames = frame + 1;
        self.sent.data += data;
        self.sent.frames as u32
    }

    /// Whether the peer, as far as it has published, has not released this frame. It releases frames in order.
    pub(crate) fn is_unconsumed(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.released().frames as u32) as i32 > 0
    }

    /// Takes what the peer published in order.
    ///
    /// # Errors
    /// It is more than was sent, or less than the peer published before. Then the window stays closed.
    pub(crate) fn acknowledge(&mut self, released: Credits) -> Result<(), &'static str> {
        let known = self.released();
        let is_possible = |released, known, sent| (known..=sent).contains(&released);
        if !is_possible(released.frames, known.frames, self.sent.frames)
            || !is_possible(released.data, known.data, self.sent.data)
        {
            self.limit = Credits::default();
            return Err("credits for frames that were never sent");
        }
        self.limit = Credits {
            frames: released.frames + self.capacity.frames,
            data: released.data + self.capacity.data,
        };
        Ok(())
    }

    /// Takes the low halves of what the peer published. Messages may overtake each other: what is known already is ignored.
    ///
    /// # Errors
    /// It is more than was sent.
    #[cfg(any(test, feature = "ucx", feature = "tls"))]
    pub(crate) fn acknowledge_low(&mut self, frames: u32, data: u32) -> Result<(), &'static str> {
        let known = self.released();
        let newest = |known: u64, low: u32| match low.wrapping_sub(known as u32) as i32 {
            newer @ 1.. => known + newer as u64,
            _ => known,
        };
        self.acknowledge(Credits {
            frames: newest(known.frames, frames),
            data: newest(known.data, data),
        })
    }

    /// What the peer published.
    fn released(&self) -> Credits {
        Credits {
            frames: self.limit.frames.wrapping_sub(self.capacity.frames),
            data: self.limit.data.wrapping_sub(self.capacity.data),
        }
    }

    /// As if all of this had been sent and released.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, passed: Credits) {
        self.sent = passed;
        self.limit = Credits {
            frames: passed.frames + self.capacity.frames,
            data: passed.data + self.capacity.data,
        };
    }
}

/// The receiver's half of a direction.
///
/// It publishes every quarter of the capacity: often enough that the sender never waits for it, as a body is at most half of
/// the data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    capacity: Credits,
    /// A quarter of it.
    quarter: Credits,
    released: Credits,
    published: Credits,
    /// The values of `released` from which on it is published.
    due: Credits,
}

impl ReceiveWindow {
    /// The window of a new connection.
    pub(crate) fn new(capacity: Credits) -> Self {
        let mut window = Self {
            capacity,
            quarter: Credits {
                frames: (capacity.frames / 4).max(1),
                data: (capacity.data / 4).max(1),
            },
            released: Credits::default(),
            published: Credits::default(),
            due: Credits::default(),
        };
        window.set_published();
        window
    }

    #[inline(always)]
    pub(crate) fn capacity(&self) -> Credits {
        self.capacity
    }

    /// What was released since the connection began.
    #[inline(always)]
    pub(crate) fn released(&self) -> Credits {
        self.released
    }

    /// Whether the peer had credits for all that it has sent since the connection began.
    #[cfg(any(test, feature = "ucx", feature = "tls"))]
    pub(crate) fn admits(&self, received: Credits) -> bool {
        received.frames - self.published.frames <= self.capacity.frames
            && received.data - self.published.data <= self.capacity.data
    }

    /// Counts a released frame whose body took `data`. Returns whether to publish now.
    #[inline(always)]
    pub(crate) fn release(&mut self, data: u64) -> bool {
        self.released.add(data);
        self.is_due(self.released, data)
    }

    /// The result of [`release`](Self::release) for a frame whose body takes `data`.
    #[cfg(any(test, feature = "ucx", feature = "tls"))]
    #[inline(always)]
    pub(crate) fn is_due_after(&self, data: u64) -> bool {
        let mut released = self.released;
        released.add(data);
        self.is_due(released, data)
    }

    /// Whether to publish when so much was released, the last of it frames whose bodies took `data` each.
    #[inline(always)]
    fn is_due(&self, released: Credits, data: u64) -> bool {
        released.frames >= self.due.frames || data > 0 && released.data >= self.due.data
    }

    /// How many more frames, whose bodies take `data` each, are released before it is time to publish: at least one.
    pub(crate) fn left(&self, data: u64) -> u64 {
        let frames = self.due.frames.saturating_sub(self.released.frames);
        let bodies = self.due.data.saturating_sub(self.released.data).checked_div(data);
        frames.min(bodies.unwrap_or(u64::MAX)).max(1)
    }

    /// As [`release`](Self::release), of `count` frames.
    pub(crate) fn release_all(&mut self, count: u64, data: u64) -> bool {
        self.released.frames += count;
        self.released.data += count * data;
        self.is_due(self.released, data)
    }

    /// Whether the peer does not know of data that was released.
    #[cfg(feature = "ucx")]
    pub(crate) fn owes_data(&self) -> bool {
        self.published.data != self.released.data
    }

    /// What to publish. `None`: the peer knows it.
    #[inline]
    pub(crate) fn publish(&mut self) -> Option<Credits> {
        (self.published.frames != self.released.frames).then(|| {
            self.set_published();
            self.released
        })
    }

    /// Whether so much was released since the last time that it is published with a message that goes to the peer anyway, and is longer for it: a
    /// quarter of what is due.
    #[cfg(feature = "ucx")]
    #[inline(always)]
    pub(crate) fn is_worth_publishing(&self) -> bool {
        let frames = self.released.frames - self.published.frames;
        let data = self.released.data - self.published.data;
        frames * 4 >= self.quarter.frames || data * 4 >= self.quarter.data
    }

    #[inline(always)]
    fn set_published(&mut self) {
        self.published = self.released;
        self.due = Credits {
            frames: self.released.frames + self.quarter.frames,
            data: self.released.data + self.quarter.data,
        };
    }

    /// As if all of this had been received, released and published.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, passed: Credits) {
        self.released = passed;
        self.set_published();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn capacity(frames: u64, data: u64) -> Credits {
        Credits { frames, data }
    }

    #[test]
    fn a_sender_within_its_credits_is_never_refused_and_never_stuck() {
        let capacity = capacity(8, 1 << 10);
        let (mut sender, mut receiver) = (SendWindow::new(capacity), ReceiveWindow::new(capacity));
        // The low halves of both counters wrap.
        let start = Credits {
            frames: u64::from(u32::MAX) - 500,
            data: u64::from(u32::MAX) - 100_000,
        };
        sender.skip_to(start);
        receiver.skip_to(start);
        let (mut held, mut received, mut data) = (VecDeque::new(), start, 1);
        for round in 0..5000 {
            // Up to half the data, in no period of a lap.
            data = data * 31 % (capacity.data / 2 + 1);
            while !sender.has_credit(data) {
                let Some(data) = held.pop_front() else {
                    panic!("stuck in round {round} with {data}");
                };
                if receiver.release(data) {
                    let Credits { frames, data } = receiver.publish().unwrap();
                    let older = sender.released();
                    sender.acknowledge_low(frames as u32, data as u32).unwrap();
                    assert_eq!(sender.released(), receiver.released());
                    sender
                        .acknowledge_low(older.frames as u32, older.data as u32)
                        .unwrap();
                    assert_eq!(sender.released(), receiver.released());
                }
            }
            let left = sender.left();
            assert!(left.frames > 0 && left.data >= data);
            let sequence = sender.send(data);
            assert!(sender.is_unconsumed(sequence));
            assert!(!sender.is_unconsumed(sequence.wrapping_sub(9)));
            received.add(data);
            assert!(receiver.admits(received));
            held.push_back(data);
        }
        assert_eq!(sender.sent(), received);
    }

    #[test]
    fn frames_without_credit_are_not_admitted() {
        let receiver = ReceiveWindow::new(capacity(2, 100));
        assert!(receiver.admits(capacity(2, 100)));
        assert!(!receiver.admits(capacity(3, 0)));
        assert!(!receiver.admits(capacity(1, 101)));
    }

    #[test]
    fn impossible_credits_close_the_window() {
        for (frames, data) in [(2, 1), (1, 3), (0, 2)] {
            let mut sender = SendWindow::new(capacity(8, 100));
            sender.send(2);
            assert!(sender.is_unconsumed(1));
            sender.acknowledge(capacity(1, 2)).unwrap();
            assert!(!sender.is_unconsumed(1));
            assert!(sender.acknowledge(capacity(frames, data)).is_err());
            assert!(!sender.has_credit(0) && sender.left() == Credits::default());
        }
    }

    #[test]
    fn nothing_is_published_twice() {
        let mut receiver = ReceiveWindow::new(capacity(8, 100));
        assert_eq!(receiver.publish(), None);
        assert!(!receiver.release(0));
        assert!(receiver.release(0), "a quarter of the frames");
        assert_eq!(receiver.publish(), Some(capacity(2, 0)));
        assert_eq!(receiver.publish(), None);
        assert!(receiver.release(25), "a quarter of the data");
        let mut receiver = ReceiveWindow::new(capacity(400, 100));
        assert_eq!(
            [24, 0, 1].map(|data| receiver.release(data)),
            [false, false, true]
        );
        assert!(!receiver.release(0), "a frame without data makes no data due");
    }
}
