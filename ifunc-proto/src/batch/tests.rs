//! Runs of the open batch, and the parts of it that frames hold.

use super::*;

/// Adds an entry.
fn add(batch: &mut OpenBatch, handle: u32, token: u64, payload: &[u8], align: usize) -> bool {
    assert!(batch.reserve(RunHead::single_len(payload.len()).unwrap()));
    let mut encode = |memory: &mut [u8]| {
        memory[..payload.len()].copy_from_slice(payload);
        Ok::<_, ()>(payload.len())
    };
    let len = batch.encode(handle, payload.len(), align, &mut encode).unwrap();
    assert_eq!(batch.encoded(len), payload);
    batch.push(handle, token, len, align)
}

fn empty() -> OpenBatch {
    let mut batch = OpenBatch::default();
    batch.set_limit(1 << 16, 1 << 16);
    batch
}

type Entry = (u32, u64, Vec<u8>);

/// The entries of a part.
fn entries(batch: &OpenBatch, part: Part) -> Vec<Entry> {
    let mut all = Vec::new();
    for (head, bytes) in batch.heads(part) {
        let (len, stride) = (head.len.get() as usize, head.stride.get() as usize);
        for i in 0..head.count.get() {
            let token = head.token.get();
            let token = if token == 0 { 0 } else { token + u64::from(i) };
            let payload = &bytes[i as usize * stride..][..stride];
            assert!(payload[len..].iter().all(|&byte| byte == 0));
            all.push((head.code.get(), token, payload[..len].to_vec()));
        }
    }
    all
}

/// Sends the batch in frames of at most `max_body` bytes, and returns their entries.
fn drain(batch: &mut OpenBatch, max_body: usize) -> Vec<Vec<Entry>> {
    let mut frames = Vec::new();
    while !batch.is_empty() {
        let part = batch.first_part(max_body);
        assert!(
            part.len > 0 && part.len <= max_body && part.len.is_multiple_of(8),
            "{part:?}"
        );
        let mut body = vec![0xa5; part.len];
        batch.write(part, &mut body);
        let mut frame = empty();
        frame.bytes.resize(body.len());
        frame.bytes.as_mut_slice().copy_from_slice(&body);
        frame.len = body.len();
        frames.push(entries(&frame, frame.whole()));
        assert_eq!(frames.last().unwrap(), &entries(batch, part));
        batch.remove(part);
    }
    frames
}

/// Handles and counts of the runs.
fn runs(batch: &mut OpenBatch) -> Vec<(u32, u32)> {
    batch.seal();
    batch
        .runs()
        .map(|(_, head)| (head.code.get(), head.count.get()))
        .collect()
}

#[test]
fn entries_that_differ_in_their_handle_alone_share_no_head() {
    let mut batch = empty();
    for handle in [1, 2, 2, 1] {
        add(&mut batch, handle, 0, &[7; 8], 8);
    }
    assert_eq!(runs(&mut batch), [(1, 1), (2, 2), (1, 1)]);
    // There is no open run, and nothing is alike the run that is none.
    add(&mut batch, 0, 0, &[], 1);
    assert_eq!(runs(&mut batch), [(1, 1), (2, 2), (1, 1), (0, 1)]);
    assert_eq!(drain(&mut batch, 1 << 16).concat().len(), 5);
}

#[test]
fn a_run_has_at_most_as_many_entries_as_a_head_states() {
    let mut batch = empty();
    for _ in 0..=MAX_RUN {
        add(&mut batch, 3, 0, &[], 1);
    }
    assert_eq!(runs(&mut batch), [(3, MAX_RUN), (3, 1)]);
}

#[test]
fn alike_entries_share_a_head() {
    let mut batch = empty();
    assert!(add(&mut batch, 1, 0, &[1; 8], 8));
    for i in 2..=10 {
        assert!(!add(&mut batch, 1, 0, &[i; 8], 8));
    }
    assert_eq!(batch.len(), 24 + 80);
    // Another length, then consecutive tokens, then a token that is not the next one, then another handle.
    add(&mut batch, 1, 0, &[1; 3], 1);
    add(&mut batch, 1, 5, &[2; 3], 1);
    add(&mut batch, 1, 6, &[3; 3], 1);
    add(&mut batch, 1, 8, &[4; 3], 1);
    add(&mut batch, 2, 9, &[5; 3], 4);
    add(&mut batch, 2, 10, &[6; 3], 4);
    add(&mut batch, 2, 0, &[], 1);
    batch.seal();
    let counts: Vec<u32> = batch.runs().map(|(_, head)| head.count.get()).collect();
    assert_eq!(counts, [10, 1, 2, 1, 2, 1]);
    assert_eq!(batch.last_send, None, "the connection sets it");
    let all = drain(&mut batch, 1 << 16).concat();
    assert_eq!(all.len(), 17);
    assert_eq!(all[12], (1, 6, vec![3; 3]));
    assert_eq!(all[15], (2, 10, vec![6; 3]));
}

#[test]
fn payloads_like_those_of_the_open_run_are_encoded_in_a_row() {
    let mut batch = empty();
    assert!(batch.joining(1).is_none());
    add(&mut batch, 1, 5, &[1; 5], 8);
    assert!(batch.joining(2).is_none());
    let joining = batch.joining(1).unwrap();
    assert_eq!((joining.len, joining.stride, joining.first_token), (5, 8, 6));
    for (index, entry) in joining.memory.chunks_exact_mut(8).take(3).enumerate() {
        entry.copy_from_slice(&[2 + index as u8, 2, 2, 2, 2, 0, 0, 0]);
    }
    batch.join(3);
    add(&mut batch, 1, 9, &[9; 5], 8);
    add(&mut batch, 1, 0, &[], 1);
    assert!(batch.joining(1).is_none(), "payloads without bytes");
    add(&mut batch, 2, 0, &[7], 1);
    // As many as leave memory for one with a head of its own.
    let fits = batch.joining(2).unwrap().memory.len();
    batch.join(fits);
    assert!(batch.has_capacity(RunHead::single_len(1).unwrap()));
    assert!(batch.joining(2).unwrap().memory.len() < ALIGN);
    let all = entries(&batch, batch.first_entry());
    assert_eq!(all, [(1, 5, vec![1; 5])]);
    let part = batch.first_part(1 << 16);
    let tokens: Vec<u64> = entries(&batch, part)
        .iter()
        .map(|entry| entry.1)
        .take(6)
        .collect();
    assert_eq!(tokens, [5, 6, 7, 8, 9, 0]);
}

#[test]
fn parts_are_as_long_as_fits_into_a_frame_and_keep_the_order() {
    let payloads: Vec<(u32, u64, usize, usize)> = (0..40)
        .map(|i| match i {
            0..10 => (1, 0, 8, 8),
            10..20 => (1, 100 + i, 3, 1),
            20..25 => (2, 0, 0, 1),
            25..30 => (3, 200 + i, 5, 8),
            _ => (4, 0, i as usize, 1),
        })
        .collect();
    for max_body in 64..1200 {
        let mut batch = empty();
        let mut expected = Vec::new();
        for (i, &(handle, token, len, align)) in payloads.iter().enumerate() {
            let payload = vec![i as u8; len];
            add(&mut batch, handle, token, &payload, align);
            expected.push((handle, token, payload));
        }
        let frames = drain(&mut batch, max_body);
        assert_eq!(frames.concat(), expected, "{max_body}");
        assert!(batch.is_empty());
    }
}

#[test]
fn an_entry_that_fits_into_no_frame_is_taken_out_alone() {
    let mut batch = empty();
    add(&mut batch, 1, 7, &[1; 40], 8);
    add(&mut batch, 1, 8, &[2; 40], 8);
    assert_eq!(batch.first_part(56).len, 0);
    let first = batch.first_entry();
    assert_eq!(entries(&batch, first), [(1, 7, vec![1; 40])]);
    batch.remove(first);
    assert_eq!(entries(&batch, batch.whole()), [(1, 8, vec![2; 40])]);
    batch.remove(batch.first_entry());
    assert!(batch.is_empty());
}

#[test]
fn runs_are_removed_and_keep_their_order() {
    let mut batch = empty();
    add(&mut batch, 0, 0, b"a", 1);
    add(&mut batch, 1, 0, b"bc", 1);
    add(&mut batch, 1, 0, b"de", 1);
    add(&mut batch, 2, 0, b"fgh", 1);
    batch.retain(|head| head.code != 1);
    let left = entries(&batch, batch.whole());
    assert_eq!(left, [(0, 0, b"a".to_vec()), (2, 0, b"fgh".to_vec())]);
    assert_eq!(batch.last_send, Some(2));
}

#[test]
fn a_batch_grows_by_doubling_to_its_limit_and_no_further() {
    let mut batch = OpenBatch::default();
    batch.set_limit(100, 1 << 16);
    assert_eq!(batch.limit(), 96);
    assert!(batch.reserve(96));
    assert!(!batch.reserve(104));
    let mut batch = OpenBatch::default();
    batch.set_limit(20_000, 1 << 16);
    for (size, has) in [
        (1, 4096),
        (4096, 4096),
        (4097, 8192),
        (17_000, 17_000),
        (17_001, 20_000),
    ] {
        assert!(batch.reserve(size));
        assert_eq!(batch.bytes.len(), has);
    }
    assert!(!batch.reserve(20_001));
}

#[test]
fn a_payload_is_encoded_where_it_is_aligned() {
    for align in [1, 2, 4, 8, 16, 32, 64] {
        let mut batch = empty();
        add(&mut batch, 1, 0, b"odd", 1);
        assert!(batch.reserve(RunHead::single_len(40).unwrap()));
        let mut at = 0;
        let mut encode = |memory: &mut [u8]| {
            at = memory.as_ptr().addr();
            memory.fill(align as u8);
            Ok::<_, ()>(memory.len())
        };
        let len = batch.encode(2, 40, align, &mut encode).unwrap();
        assert!(at.is_multiple_of(align), "{align}");
        let in_batch = batch.bytes.as_slice().as_ptr_range();
        assert_eq!(
            (in_batch.start.addr()..in_batch.end.addr()).contains(&at),
            align <= ALIGN
        );
        batch.push(2, 0, len, align);
        batch.seal();
        assert_eq!(entries(&batch, batch.whole())[1], (2, 0, vec![align as u8; 40]));
    }
}

#[test]
fn a_run_is_joined_up_to_the_last_byte_and_the_last_entry() {
    let mut batch = empty();
    batch.set_limit(256, 1 << 16);
    add(&mut batch, 1, 0, &[7; 8], 8);
    // Behind them fits one with a head of its own.
    assert_eq!(batch.joining(1).unwrap().memory.len(), 256 - 32 - 32);
    batch.join(3);
    assert_eq!((batch.len(), batch.run.count), (56, 4));
    assert_eq!(batch.joining(1).unwrap().memory.len(), 256 - 56 - 32);
    batch.run.count = MAX_RUN - 2;
    assert_eq!(batch.joining(1).unwrap().memory.len(), 16);
}

#[test]
fn zeros_follow_each_payload_whatever_lay_there() {
    let mut batch = empty();
    assert!(batch.reserve(1000));
    batch.bytes.as_mut_slice().fill(0xa5);
    for byte in 1..4 {
        add(&mut batch, 1, 0, &[byte; 5], 8);
    }
    batch.seal();
    let expected = [1, 2, 3].map(|byte| (1, 0, vec![byte; 5]));
    assert_eq!(entries(&batch, batch.whole()), expected);
}

#[test]
fn the_last_send_is_that_of_the_part_that_was_sent_or_is_left() {
    let mut batch = empty();
    add(&mut batch, 1, 0, &[1; 8], 8);
    add(&mut batch, 2, 5, &[2; 8], 8);
    add(&mut batch, 3, 0, &[3; 8], 8);
    batch.last_send = Some(3);
    // The third run lies after the first two.
    let part = batch.first_part(64);
    assert_eq!(batch.heads(part).count(), 2);
    assert_eq!(batch.last_send_of(part), Some(1));
    let whole = batch.first_part(96);
    assert_eq!((whole, batch.last_send_of(whole)), (batch.whole(), Some(3)));
    batch.last_send = Some(9);
    batch.remove(part);
    assert_eq!(batch.last_send, Some(3));
    let mut batch = empty();
    add(&mut batch, 1, 0, &[1; 8], 8);
    add(&mut batch, 2, 5, &[2; 8], 8);
    batch.last_send = Some(1);
    let part = batch.first_part(32);
    batch.remove(part);
    assert_eq!(batch.last_send, None, "a call alone is left");
}
