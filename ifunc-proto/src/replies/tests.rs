//! Replies over a window that opens and closes, one frame at a time.

use super::*;
use crate::testing::Wire;

const FRAME: usize = 512;
const FAILED: Status = Status::Failed(ifunc_abi::status::Failure::Payload);

/// Replies of one connection, and a link whose window is closed.
fn replies(is_private: bool, is_duplex: bool) -> (Replies, Wire) {
    let replies = Replies::new(FRAME, 2000, is_private, is_duplex);
    (replies, Wire::new(FRAME, 0))
}

fn executed(token: u64) -> Header {
    Header::new(Kind::Completion, EXECUTED, token)
}

fn headers(tx: &mut Wire) -> Vec<Header> {
    tx.take().into_iter().map(|(header, _)| header).collect()
}

#[test]
fn an_answer_is_lent_a_frame_and_a_detail_as_much_as_one_has() {
    for (max_body, longest, expected) in [
        (512, 300, (300, 512)),
        (4096, 300, (300, 1024)),
        (4096, 2000, (2000, 2000)),
        (1 << 20, 1 << 20, (ANSWER_ROOM, ANSWER_ROOM)),
        (1 << 20, 0, (0, 1024)),
    ] {
        let replies = Replies::new(max_body, longest, false, false);
        assert_eq!((replies.max_answer, replies.max_reply()), expected);
    }
}

#[test]
fn what_may_be_answered_waits_for_the_window_unless_the_peer_answers_too() {
    for (is_duplex, token, credits, admitted) in [
        (false, 5, 0, false),
        (false, 5, 1, true),
        (false, 0, 0, true),
        (true, 5, 0, true),
    ] {
        let (mut replies, mut tx) = replies(false, is_duplex);
        tx.credits = credits;
        assert_eq!(replies.admits(&mut tx, token), Ok(admitted));
    }
    // What waits is sent before.
    for is_duplex in [false, true] {
        let (mut replies, mut tx) = replies(false, is_duplex);
        replies.complete(&mut tx, 5, Status::Executed, b"").unwrap();
        assert!(replies.owes() && replies.is_blocked(&mut tx));
        assert_eq!(replies.admits(&mut tx, 0), Ok(is_duplex));
        tx.credits = 2;
        assert!(!replies.is_blocked(&mut tx));
        assert_eq!(replies.admits(&mut tx, 6), Ok(true));
        assert_eq!((headers(&mut tx), replies.owes()), (vec![executed(5)], false));
    }
}

#[test]
fn a_peer_that_answers_too_has_no_more_calls_under_way_than_are_kept() {
    let (mut replies, mut tx) = replies(false, true);
    for token in 1..=128 {
        replies.complete(&mut tx, token, Status::Executed, b"").unwrap();
    }
    assert_eq!((replies.kept(), replies.late()), (128, 0));
    assert_eq!(replies.admits(&mut tx, 1), Ok(true));
    replies.complete(&mut tx, 129, Status::Executed, b"").unwrap();
    let why = Closed::broke("more calls under way than the connection allows");
    assert_eq!(replies.admits(&mut tx, 1), Err(why));
}

#[test]
fn entries_of_batches_wait_for_full_frames_and_reports_alone() {
    for is_duplex in [false, true] {
        let (mut gathering, mut tx) = replies(false, is_duplex);
        let mut token = 0;
        while !gathering.gathered.is_full() {
            assert_eq!(gathering.admits_entry(&mut tx), Ok(true));
            token += 1;
            gathering.entry_answer(token).unwrap()[..100].fill(7);
            gathering.gather_answer(&mut tx, token, 100).unwrap();
            if gathering.kept() > 0 {
                break;
            }
        }
        assert!(token > 2);
        assert_eq!(gathering.admits_entry(&mut tx), Ok(is_duplex));
        tx.credits = 9;
        assert_eq!(gathering.admits_entry(&mut tx), Ok(true));

        let (mut reporting, mut tx) = replies(false, is_duplex);
        reporting.conclude(&mut tx, 3, (2, 0), FAILED, b"why").unwrap();
        assert_eq!(reporting.admits_entry(&mut tx), Ok(is_duplex));
        tx.credits = 1;
        assert_eq!(reporting.admits_entry(&mut tx), Ok(true));
        let report = Header::new(Kind::Report, FAILED.code(), 3);
        reporting.flush(&mut tx).unwrap();
        assert_eq!(tx.take(), [(report, b"\x02\0\0\0why".to_vec())]);
    }
}

#[test]
fn an_answer_is_written_to_its_frame_unless_the_peer_could_see_it_half_written() {
    for (is_private, is_duplex, credits, expected) in [
        (false, false, 1, "frame"),
        (true, false, 1, "private"),
        (false, false, 0, "blocked"),
        (true, false, 0, "blocked"),
        (false, true, 1, "frame"),
        (false, true, 0, "private"),
    ] {
        let (mut replies, mut tx) = replies(is_private, is_duplex);
        tx.credits = credits;
        let found = match replies.begin_answer(&mut tx, 5).unwrap() {
            Some((Destination::Frame, Some(memory))) => ("frame", memory.len()),
            Some((Destination::Private, Some(memory))) => ("private", memory.len()),
            None => ("blocked", FRAME),
            Some((Destination::Nowhere, None)) => ("nowhere", FRAME),
            other => panic!("{other:?}"),
        };
        assert_eq!(found, (expected, FRAME));
        assert!(matches!(
            replies.begin_answer(&mut tx, 0),
            Ok(Some((Destination::Nowhere, None)))
        ));
    }
    let (mut replies, mut tx) = replies(false, false);
    tx.error = Some(LinkError::Closed);
    for _ in 0..2 {
        assert!(matches!(
            replies.begin_answer(&mut tx, 5),
            Ok(Some((Destination::Nowhere, None)))
        ));
    }
}

#[test]
fn late_replies_wait_their_turn_and_long_ones_are_cut() {
    let (mut replies, mut tx) = replies(false, false);
    replies.send_late(&mut tx, executed(1), vec![1; FRAME]).unwrap();
    assert_eq!((replies.late(), replies.kept(), replies.unsent()), (1, 0, None));
    replies
        .send_late(&mut tx, executed(2), vec![2; FRAME + 1])
        .unwrap();
    assert_eq!((replies.late(), replies.unsent()), (2, Some(0)));
    // A detail is as long as a frame has, and no longer.
    let failed = Header::new(Kind::Completion, FAILED.code(), 3);
    replies.send_late(&mut tx, failed, vec![3; FRAME + 1]).unwrap();
    assert_eq!(replies.late(), 3);
    tx.credits = 9;
    assert_eq!(replies.flush(&mut tx), Ok(true));
    let sent: Vec<(Kind, u64, usize)> = tx
        .take()
        .iter()
        .map(|(header, body)| (header.kind, header.token, body.len()))
        .collect();
    let expected = [
        (Kind::Completion, 1, FRAME),
        (Kind::AnswerFragment, 2, FRAME),
        (Kind::Completion, 2, 1),
        (Kind::Completion, 3, FRAME),
    ];
    assert_eq!(sent, expected);
    assert_eq!(
        (replies.late(), replies.owes(), replies.unsent()),
        (0, false, None)
    );
}

#[test]
fn a_long_answer_makes_progress_with_each_credit() {
    let (mut replies, mut tx) = replies(false, false);
    replies
        .complete_long(&mut tx, 0, Box::new(vec![7; 1500]))
        .unwrap();
    assert!(!replies.owes(), "nothing awaits it");
    replies
        .complete_long(&mut tx, 4, Box::new(vec![7; 2001]))
        .unwrap();
    assert_eq!((replies.kept(), replies.unsent()), (1, None), "a failure");
    replies
        .complete_long(&mut tx, 5, Box::new(vec![7; 2000]))
        .unwrap();
    let mut progress = Vec::new();
    for _ in 0..6 {
        progress.push(replies.unsent());
        assert!(replies.is_blocked(&mut tx));
        tx.credits = 1;
        replies.flush(&mut tx).unwrap();
    }
    // The failure is sent first, and then four frames.
    assert_eq!(progress, [Some(0), Some(0), Some(1), Some(2), Some(3), None]);
}
