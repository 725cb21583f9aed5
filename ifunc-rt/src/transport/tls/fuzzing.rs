//! What the fuzz targets reach of this transport: what a peer with a valid key sends inside of the records.

use std::collections::VecDeque;

use ifunc_abi::frame::BODY_ALIGN;

use super::flow::Flow;
use super::greeting::{Incoming, parse};
use super::wire::{HEAD, Head, units};
use crate::transport::{MAX_RING, RingSize};

/// Takes the bytes for the first message of the stream, in pieces of the length that the first byte states.
pub fn greeting(bytes: &[u8]) {
    let Some((&piece, stream)) = bytes.split_first() else {
        return;
    };
    let mut incoming = Incoming::default();
    let taken = stream
        .chunks(usize::from(piece).max(1))
        .try_for_each(|piece| incoming.take(piece));
    if let (Ok(()), Some(message)) = (taken, incoming.message()) {
        assert_eq!(message.len() + 2, stream.len(), "nothing follows it");
        if let Ok((_, rings)) = parse(message, MAX_RING) {
            assert!(
                rings
                    .iter()
                    .all(|ring| ring.is_valid() && ring.bytes() <= MAX_RING)
            );
        }
    }
}

const RING: RingSize = RingSize {
    slots: 4,
    data: RingSize::MIN_DATA,
};

/// Takes the bytes for steps of a connection: what the peer sends next, heads of frames by their fields, bodies, and what this side
/// does. What has arrived and is not released never exceeds the window, and neither does what is sent.
pub fn stream(mut bytes: &[u8]) {
    let mut flow = Flow::new(RING, RING);
    let mut held = VecDeque::new();
    let (mut sent, mut last) = (0_u32, Head::credits(super::wire::Released { frames: 0, data: 0 }));
    while let Some((&step, rest)) = bytes.split_first() {
        bytes = rest;
        let taken = match step % 8 {
            // Raw bytes, of which a length says how many.
            0 | 1 => {
                let len = usize::from(step >> 3).min(bytes.len());
                let (piece, rest) = bytes.split_at(len);
                bytes = rest;
                flow.take(piece)
            }
            // The head of a frame that follows the last one, changed in one byte.
            2 | 3 => {
                sent = sent.wrapping_add(1);
                last.sequence = sent;
                last.words[0] = 1;
                last.len = u32::from(step >> 3);
                let mut head = last.encode();
                if step % 8 == 3
                    && let [at, value, rest @ ..] = bytes
                {
                    head[usize::from(*at) % HEAD] ^= value;
                    bytes = rest;
                }
                let body = vec![step; usize::from(step >> 3)];
                flow.take(&[&head[..], &body].concat())
            }
            4 => {
                held.extend(flow.next());
                Ok(())
            }
            5 => {
                if let Some(arrived) = held.pop_front() {
                    flow.release(&arrived.body);
                }
                Ok(())
            }
            6 => {
                flow.settle();
                if let Some(head) = flow.due() {
                    assert_eq!(Head::decode(&head.encode()), head);
                    assert_eq!(head.is_frame(), Some(false));
                }
                Ok(())
            }
            _ => {
                let len = usize::from(step >> 3) << 10;
                if flow.has_credit(len) {
                    let before = flow.progress().1;
                    let head = flow.send([1, 2], len);
                    let after = flow.progress().1;
                    assert_eq!(
                        (before.frames - after.frames, before.data - after.data),
                        (1, units(len))
                    );
                    assert!(flow.is_unconsumed(head.sequence));
                }
                Ok(())
            }
        };
        let (arrived, left) = flow.progress();
        let slots = RING.slots as usize;
        assert!(
            arrived + held.len() <= slots,
            "more frames than there are credits for"
        );
        assert!(left.frames <= u64::from(RING.slots));
        assert!(left.data <= u64::from(RING.data) / BODY_ALIGN as u64);
        let bytes: usize = held
            .iter()
            .map(|arrived: &super::flow::Arrived| arrived.body.capacity())
            .sum();
        assert!(bytes <= RING.data as usize + slots * BODY_ALIGN);
        if taken.is_err() {
            // The connection ends. What it holds is dropped.
            flow.discard();
            return;
        }
    }
}
