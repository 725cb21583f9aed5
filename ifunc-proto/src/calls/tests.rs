//! The table of calls: tokens, what is counted, and each way to end.

use super::*;

/// The answer of one call.
fn take_one<A>(calls: &mut Calls<u32>, token: u64, decode: impl Fn(&[u8]) -> Option<A>) -> Option<A> {
    let (mut tokens, mut answers) = (token..token + 1, Vec::with_capacity(1));
    calls.take_answers(&mut tokens, decode, &mut answers);
    assert_eq!(tokens.is_empty(), !answers.is_empty());
    answers.pop()
}

#[test]
fn a_token_finds_its_own_call_and_only_once() {
    let mut calls = Calls::<()>::new(usize::MAX);
    let first = calls.begin(Request::Flush, None);
    calls.sent(first, 7);
    assert!(calls.take(first).is_none());
    calls.set_user(first, Some(()));
    calls.last_send = LastSend::new(6, 0);
    assert!(calls.end_small(first, Status::Executed, &[][..]));
    assert_eq!(calls.last_send.get(), None, "frame 6 was consumed before frame 7");
    calls.ended.clear();
    assert!(!calls.end_small(first, Status::Executed, &[][..]));
    assert!(calls.take(first).is_some());
    assert!(calls.take(first).is_none());
    let again = FIRST_SLOTS as u64 + first;
    let others: Vec<u64> = (first + 1..again)
        .map(|_| calls.begin(Request::Flush, None))
        .collect();
    assert_eq!(
        others,
        (first + 1..again).collect::<Vec<_>>(),
        "tokens are consecutive"
    );
    for &token in &others {
        assert!(!calls.abandon(token, false));
    }
    let second = calls.begin(Request::Flush, None);
    assert_eq!(second, again, "it has the same slot");
    calls.set_user(second, Some(()));
    let late = calls.end_small(first, Status::Executed, &[][..]);
    assert!(!late, "the old token is not the new one");
    assert!(calls.pending(second).is_some());
    assert!(calls.take(0).is_none(), "no call has token 0");
}

#[test]
fn calls_that_last_keep_their_slots_while_others_come_and_go() {
    let mut calls = Calls::<()>::new(usize::MAX);
    let lasting: Vec<u64> = (0..3).map(|_| calls.begin(Request::Flush, None)).collect();
    for round in 0..100 {
        let tokens: Vec<u64> = (0..round).map(|_| calls.begin(Request::Flush, None)).collect();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(calls.in_use(), 3 + round);
        for token in tokens {
            calls.end_small(token, Status::Executed, &[][..]);
            assert!(calls.take(token).is_some());
        }
    }
    assert!(calls.slots.len() <= 256, "the table holds twice what was in use");
    assert!(lasting.iter().all(|&token| calls.pending(token).is_some()));
    assert_eq!((calls.in_use(), calls.in_flight()), (3, 3));
}

#[test]
fn an_abandoned_token_stays_in_use_until_no_completion_can_arrive() {
    let mut calls = Calls::<()>::new(usize::MAX);
    let abandoned = calls.begin(Request::Flush, None);
    calls.abandon(abandoned, true);
    let other = calls.begin(Request::Flush, None);
    assert_eq!(calls.in_use(), 2);
    calls.end_small(abandoned, Status::Executed, &[][..]);
    assert_eq!(calls.in_use(), 1);
    calls.sent(other, 1);
    let unsent = calls.begin(Request::Flush, None);
    let retry = calls.begin(Request::Invocation(0), Some(Retry::new(0, &[1])));
    assert!(calls.has_retry_of(0));
    assert_eq!(calls.lose("it died"), [retry]);
    assert!(matches!(calls.take(other), Some(Err(lost)) if *lost == Lost::Indeterminate));
    assert!(matches!(calls.take(unsent), Some(Err(lost)) if matches!(*lost, Lost::NotSent { .. })));
    assert!(calls.take_retry(retry).is_some());
    assert!(calls.take_retry(retry).is_none());
}

#[test]
fn tokens_that_are_begun_together_are_consecutive_and_stop_at_a_slot_in_use() {
    let mut calls = Calls::<u32>::new(usize::MAX);
    let lasting = calls.begin(Request::Flush, None);
    assert_eq!(
        calls.begin_together(Request::Invocation(7), 1, 3),
        0,
        "1 is issued"
    );
    assert_eq!(
        calls.begin_together(Request::Invocation(7), 3, 3),
        0,
        "2 comes first"
    );
    assert_eq!(calls.begin_together(Request::Invocation(7), 2, 0), 0);
    assert_eq!((calls.in_use(), calls.in_flight()), (1, 1));
    assert_eq!(calls.begin_together(Request::Invocation(7), 2, 3), 3);
    assert_eq!((calls.in_use(), calls.in_flight()), (4, 4));
    for token in 2..5 {
        assert_eq!(calls.pending(token), Some(Request::Invocation(7)));
        assert!(calls.is_in_batch(token) && !calls.was_sent(token));
        assert!(calls.take_retry(token).is_none());
    }
    assert!(!calls.is_in_batch(lasting));
    // The 16 places: that of the first call is in use.
    assert_eq!(calls.begin_together(Request::Invocation(8), 5, 100), 12);
    assert_eq!((calls.in_use(), calls.in_flight(), calls.issued), (16, 16, 16));
    assert_eq!(calls.begin_together(Request::Invocation(8), 17, 100), 0);
    calls.sent_in_batch(2, 3, 9);
    for token in 2..=5 {
        assert_eq!(calls.was_sent(token), token < 5);
        assert_eq!(calls.is_in_batch(token), token == 5);
    }
    calls.set_in_batch(5, false);
    assert!(!calls.is_in_batch(5));
    calls.set_in_batch(5, true);
    assert!(calls.is_in_batch(5) && !calls.is_in_batch(99));
}

#[test]
fn a_table_grows_when_half_of_it_is_in_use() {
    for (lasting, expected, places) in [(7, 24, 16), (8, 17, 32), (1, 18, 16)] {
        let mut calls = Calls::<u32>::new(usize::MAX);
        let tokens: Vec<u64> = (0..16).map(|_| calls.begin(Request::Flush, None)).collect();
        assert_eq!(tokens, (1..=16).collect::<Vec<_>>());
        for &token in &tokens[lasting..] {
            calls.end_small(token, Status::Executed, &[][..]);
            assert!(calls.take(token).is_some());
        }
        assert_eq!(calls.begin(Request::Stats, None), expected, "{lasting}");
        assert_eq!((calls.places(), calls.in_use()), (places, lasting + 1));
        assert!(
            tokens[..lasting]
                .iter()
                .all(|&token| calls.pending(token) == Some(Request::Flush))
        );
    }
}

#[test]
fn a_completion_tells_of_what_was_sent_before_it_and_not_of_what_was_sent_with_it() {
    for (sequence, last, is_consumed) in [
        (7, 6, true),
        (7, 7, false),
        (7, 8, false),
        (1, u32::MAX, true),
        (u32::MAX, 1, false),
    ] {
        let mut calls = Calls::<u32>::new(usize::MAX);
        let token = calls.begin(Request::Flush, None);
        calls.sent(token, sequence);
        calls.last_send = LastSend::new(last, 5);
        calls.end_small(token, Status::Executed, &[][..]);
        assert_eq!(
            calls.last_send.get().is_none(),
            is_consumed,
            "{sequence} after {last}"
        );
        let failed = calls.begin(Request::Flush, None);
        calls.sent(failed, sequence);
        calls.last_send = LastSend::new(last, 5);
        calls.end_lost(failed, Box::new(Lost::Indeterminate));
        assert_eq!(calls.last_send.get(), Some((last, 5)), "it tells of nothing");
    }
    assert_eq!([0, 1, 2, u32::MAX].map(recorded), [1, 1, 2, u32::MAX]);
}

#[test]
fn each_way_to_end_a_call_frees_what_it_counted() {
    let mut calls = Calls::<u32>::new(usize::MAX);
    let counts = |calls: &Calls<u32>| (calls.in_use(), calls.in_flight());
    let invocation = Request::Traveling(3);
    let [ended, taken, dropped, unsent, traveling] = [(); 5].map(|()| {
        let token = calls.begin(invocation, None);
        calls.sent(token, 1);
        token
    });
    assert_eq!(counts(&calls), (5, 5));
    // Ended, and then dropped.
    assert!(!calls.end_small(ended, Status::Executed, &[][..]));
    assert_eq!(counts(&calls), (5, 4));
    assert!(!calls.abandon(ended, true) && !calls.is_abandoned(ended));
    assert_eq!(counts(&calls), (4, 4));
    // Taken by its answer, if it is one.
    calls.end_small(taken, Status::Executed, &b"yes"[..]);
    assert_eq!(take_one(&mut calls, taken, |_| None::<()>), None);
    assert_eq!(
        take_one(&mut calls, taken, |bytes| Some(bytes.to_vec())),
        Some(b"yes".to_vec())
    );
    assert_eq!(take_one(&mut calls, taken, |bytes| Some(bytes.to_vec())), None);
    assert_eq!(counts(&calls), (3, 3));
    // Dropped while its completion may come, which it does.
    assert!(calls.abandon(dropped, true), "another node may have it");
    assert!(calls.is_abandoned(dropped) && !calls.is_abandoned(unsent));
    assert_eq!(counts(&calls), (3, 3));
    assert!(!calls.end_small(dropped, Status::Executed, &[][..]));
    assert_eq!(counts(&calls), (2, 2));
    assert!(!calls.abandon(dropped, true));
    // Dropped when none can come.
    assert!(!calls.abandon(unsent, false));
    assert_eq!(counts(&calls), (1, 1));
    // The link dies: with one that was dropped, one that waits, and one that is sent again.
    assert!(calls.abandon(traveling, true));
    let pending = calls.begin(Request::Flush, None);
    calls.set_user(pending, Some(8));
    let again = calls.begin(Request::Invocation(1), Some(Retry::new(1, b"again")));
    let batched = calls.begin_in_batch(Request::Invocation(2), None);
    assert_eq!(counts(&calls), (4, 4));
    assert_eq!(calls.lose("it was cut"), [again]);
    assert_eq!(counts(&calls), (3, 2));
    assert_eq!(calls.ended, [8]);
    let why = "it was cut".into();
    assert_eq!(*calls.take(pending).unwrap().unwrap_err(), Lost::NotSent { why });
    assert_eq!(counts(&calls), (2, 2));
    assert!(calls.pending(batched).is_some());
    // A failure is no answer, and stays for those who ask how the call ended.
    let failed = calls.begin(Request::Flush, None);
    calls.end_small(
        failed,
        Status::Failed(ifunc_abi::status::Failure::Payload),
        &b"no"[..],
    );
    assert_eq!(take_one(&mut calls, failed, |bytes| Some(bytes.to_vec())), None);
    assert_eq!(calls.take(failed).unwrap().unwrap().bytes(), b"no");
    // What is kept to be sent again goes with the call.
    assert!(calls.has_retry_of(1) && !calls.has_retry_of(2));
    calls.end_small(again, Status::Executed, &[][..]);
    assert!(!calls.has_retry_of(1));
    let long = vec![5; INLINE + 1];
    let token = calls.begin(Request::Flush, None);
    calls.end_long(token, Status::Executed, &long[..]);
    assert_eq!(
        take_one(&mut calls, token, |bytes| Some(bytes.to_vec())),
        Some(long)
    );
    assert_eq!(counts(&calls), (2, 1));
}

#[test]
fn answers_of_a_run_are_taken_in_order_up_to_one_that_is_missing() {
    let mut calls = Calls::<u32>::new(usize::MAX);
    let invocation = Request::Invocation(1);
    let first = calls.begin(invocation, None);
    for token in first + 1..first + 10 {
        assert_eq!(calls.begin(invocation, None), token);
    }
    // The third is dropped, the fifth has a driver, the eighth does not end.
    calls.abandon(first + 2, true);
    calls.set_user(first + 4, Some(9));
    let bytes: Vec<u8> = (0..7).flat_map(|n| [n, n + 10, n + 20, 0]).collect();
    let run = Run {
        bytes: &bytes,
        len: 3,
        stride: 4,
    };
    assert!(calls.end_run(first, Status::Executed, &run, 7));
    assert_eq!(
        (calls.ended.as_slice(), calls.in_flight(), calls.in_use()),
        (&[9][..], 3, 9)
    );
    let take = |calls: &mut Calls<u32>, tokens: &mut Range<u64>, room| {
        let mut answers = Vec::with_capacity(room);
        calls.take_answers(
            tokens,
            |bytes| Some(<[u8; 3]>::try_from(bytes).unwrap()),
            &mut answers,
        );
        answers
    };
    let mut tokens = first..first + 10;
    assert_eq!(
        take(&mut calls, &mut tokens, 1),
        [[0, 10, 20]],
        "no more than there is room for"
    );
    assert_eq!(take(&mut calls, &mut tokens, 8), [[1, 11, 21]]);
    assert_eq!(tokens.start, first + 2);
    tokens.start += 1;
    let rest = take(&mut calls, &mut tokens, 8);
    assert_eq!(rest, [3, 4, 5, 6].map(|n| [n, n + 10, n + 20]));
    assert_eq!((tokens, calls.in_use()), (first + 7..first + 10, 3));
    // Answers without bytes lie at one place.
    let empty = Run {
        bytes: &[],
        len: 0,
        stride: 0,
    };
    assert!(
        calls.end_run(first + 7, Status::Executed, &empty, 3),
        "the driver has not taken the call that ended"
    );
    assert_eq!(calls.in_flight(), 0);
}

#[test]
fn partial_answers_wait_for_their_call_alone() {
    let mut calls = Calls::<u32>::new(300);
    let [token, other] = [(); 2].map(|()| calls.begin(Request::Flush, None));
    calls.set_user(token, Some(4));
    assert!(!calls.partial(other, 0, &b"other"[..]), "nothing is kept with it");
    assert!(calls.partial(token, 0, &b"first"[..]));
    assert!(calls.partial(token, 1, &b"next"[..]), "the first was not taken");
    calls.ended.clear();
    assert!(!calls.partial(99, 0, &b"none"[..]));
    assert_eq!(calls.take_partial(token), Some(b"first".to_vec()));
    calls.drop_partials(token);
    assert_eq!(calls.take_partial(token), None);
    assert_eq!(calls.take_partial(other), Some(b"other".to_vec()));
    // One that has no memory ends the call.
    calls.set_user(token, Some(4));
    assert!(calls.partial(token, 2, &[1; 237][..]));
    let lost = Lost::AnswersTooLarge { len: 237, limit: 300 };
    assert_eq!(*calls.take(token).unwrap().unwrap_err(), lost);
    // After its end, there are none.
    calls.ended.clear();
    calls.end_small(other, Status::Executed, &[][..]);
    assert!(!calls.partial(other, 1, &b"late"[..]));
    assert_eq!(calls.take_partial(other), None);
    // A call that is dropped drops them.
    let dropped = calls.begin(Request::Flush, None);
    calls.partial(dropped, 0, &b"part"[..]);
    calls.abandon(dropped, true);
    assert_eq!(calls.take_partial(dropped), None);
}

#[test]
fn answers_without_memory_are_reported_and_not_kept() {
    let mut calls = Calls::<u32>::new(200);
    let long = Status::Executed;
    let fits = calls.begin(Request::Flush, None);
    calls.set_user(fits, Some(1));
    assert!(calls.end_long(fits, long, &[1; 136][..]));
    let second = calls.begin(Request::Flush, None);
    assert!(calls.end_long(second, long, &[1; 41][..]));
    let lost = Lost::AnswersTooLarge { len: 41, limit: 200 };
    assert_eq!(*calls.take(second).unwrap().unwrap_err(), lost);
    // Of a report the detail is dropped, unless it is small.
    assert_eq!(calls.report(long, &[1; INLINE][..]).bytes(), [1; INLINE]);
    assert_eq!(calls.report(long, &[1; INLINE + 1][..]).bytes(), b"");
    assert_eq!(calls.take(fits).unwrap().unwrap().bytes(), [1; 136]);
    assert_eq!(calls.report(long, &[1; INLINE + 1][..]).bytes(), [1; INLINE + 1]);
    // In parts.
    for (len, is_kept) in [(136, true), (137, false)] {
        let token = calls.begin(Request::Flush, None);
        calls.answer_fragment(token, len, &[2; 50][..]).unwrap();
        assert_eq!(calls.assembled(), 50);
        calls.answer_fragment(token, len, &vec![2; len - 51][..]).unwrap();
        assert_eq!(calls.assembled(), len - 1);
        calls.end_assembled(token, long, &[2][..]).unwrap();
        let outcome = calls.take(token).unwrap();
        match outcome {
            Ok(completion) => assert!(is_kept && completion.bytes() == [2; 136]),
            Err(lost) => {
                let expected = Lost::AnswersTooLarge { len: 137, limit: 200 };
                assert!(!is_kept && *lost == expected, "{lost:?}");
            }
        }
        assert_eq!(calls.assembled(), 0);
    }
    // A part of another answer replaces what arrived, and a whole completion does.
    let [first, second] = [(); 2].map(|()| calls.begin(Request::Flush, None));
    calls.answer_fragment(first, 100, &[3; 30][..]).unwrap();
    calls.answer_fragment(second, 100, &[4; 20][..]).unwrap();
    assert_eq!(calls.assembled(), 20);
    assert!(calls.end_assembled(first, long, &[3; 70][..]).is_err());
    assert_eq!(calls.assembled(), 20);
    calls.end_long(second, long, &[5; 41][..]);
    assert_eq!(calls.assembled(), 0);
    // One that nothing awaits is not kept.
    calls.answer_fragment(99, 100, &[3; 30][..]).unwrap();
    assert_eq!(calls.assembled(), 0);
    calls.answer_fragment(first, 100, &[3; 30][..]).unwrap();
    calls.abandon(second, true);
    assert_eq!(calls.assembled(), 30);
    calls.abandon(first, true);
    assert_eq!(calls.assembled(), 0);
}
