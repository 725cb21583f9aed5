//! Frames of `libucp_ifunc`, in buffers to which every process may write.

use ucp_ifunc::fuzzing::{encode, poll};

/// An even first byte: what follows lies in the buffer, which is no longer than it, so that a read beyond its end is found. An odd one: a
/// frame with parts that follow is made, and changed in one byte.
pub fn run(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    if first % 2 == 0 {
        // Any alignment: programs poll what they like.
        let shift = usize::from(first >> 1) % 8;
        let mut memory = vec![0; shift + rest.len()];
        memory[shift..].copy_from_slice(rest);
        while let Some((payload, image, _)) = poll(&mut memory[shift..]) {
            assert!(payload.len() + image.len() <= rest.len());
        }
        return;
    }
    let Some(([at, change, split], body)) = rest.split_first_chunk::<3>() else {
        return;
    };
    let (payload, image) = body.split_at(usize::from(*split).min(body.len()));
    let Some(frame) = encode(payload, image, u16::from(first)) else {
        return;
    };
    let whole = poll(&mut frame.clone());
    assert_eq!(whole, Some((payload.to_vec(), image.to_vec(), u16::from(first))));
    let mut changed = frame.clone();
    let place = usize::from(*at) * frame.len() / 256;
    changed[place] ^= change;
    // What lies between the parts may hold anything. A part that was changed is not delivered.
    if let Some((was, code, entry)) = poll(&mut changed) {
        assert_eq!((&was[..], &code[..], entry), (payload, image, u16::from(first)));
    }
}
