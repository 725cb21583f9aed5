//! Batches, handles and frames between nodes, at their bounds.

use std::convert::Infallible;
use std::sync::Arc;

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{FrameFlags, Header, InstallHead, Kind, Limits};
use ifunc_abi::machine::Machine;
use ifunc_abi::signature::Signature;
use ifunc_abi::status::{Rejection, Status};
use ifunc_abi::travel::TravelHead;
use zerocopy::IntoBytes as _;

use super::travel::Accepted;
use super::{Image, NotSent, Submission, SubmitError};
use crate::calls::Lost;
use crate::connection::{Config, Connection, Peer};
use crate::testing::{Code, Ends};

mod slices;

type Source = Connection<Code, u32, Infallible>;
type Submitted = Result<u64, NotSent<Code, ()>>;

const LIMITS: Limits = Limits {
    max_payload: 1000,
    max_image: 500,
    max_answer: 300,
};

/// Bytes of a batch.
const BATCH: usize = 256;

fn link_to(source: &mut Source, limits: Limits, max_body: usize) -> Ends {
    let mut link = Ends::new(max_body, usize::MAX);
    let peer = Peer {
        machine: Machine::default(),
        limits: Some(limits),
        invokes: false,
        max_answer: 300,
        node: None,
    };
    source.connect(&mut link, peer);
    link
}

fn source(limits: Limits, max_body: usize) -> (Source, Ends) {
    let mut source = Source::new(Config {
        batch_size: BATCH,
        max_answers: 10_000,
        server: None,
    });
    let link = link_to(&mut source, limits, max_body);
    (source, link)
}

/// A source whose peer has the image `a`, and its handle.
fn installed(code: Code) -> (Source, Ends, u32) {
    let (mut source, mut link) = source(LIMITS, 512);
    let handle = source.caller.bind(code);
    submit(&mut source, &mut link, send(handle, 0)).unwrap();
    link.tx.frames.clear();
    (source, link, handle)
}

fn call(handle: u32, bound: usize) -> Submission {
    Submission {
        handle,
        bound,
        align: 8,
        wants_completion: true,
        carries_code: false,
    }
}

fn send(handle: u32, bound: usize) -> Submission {
    Submission {
        wants_completion: false,
        ..call(handle, bound)
    }
}

/// Writes so many bytes.
fn filler(byte: u8, len: usize) -> impl FnMut(&mut [u8]) -> Result<usize, ()> {
    move |memory| {
        memory[..len].fill(byte);
        Ok(len)
    }
}

fn submit(source: &mut Source, link: &mut Ends, submission: Submission) -> Submitted {
    source.submit(link, submission, &mut filler(7, submission.bound))
}

fn append(source: &mut Source, link: &mut Ends, submission: Submission) -> Submitted {
    source.append(link, submission, false, &mut filler(7, submission.bound))
}

fn append_alike(source: &mut Source, submission: Submission) -> Option<Submitted> {
    let mut encode = filler(8, submission.bound);
    source.caller.append_alike(&submission, &mut encode)
}

fn sent(link: &mut Ends) -> Vec<(Kind, u32, usize)> {
    let frames = link.tx.take();
    let shown = |(header, body): (Header, Vec<u8>)| (header.kind, header.handle, body.len());
    frames.into_iter().map(shown).collect()
}

#[test]
fn an_entry_fits_a_batch_up_to_its_last_byte() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 10));
    // A head has 24 bytes.
    for (bound, fits) in [(0, true), (232, true), (233, false), (usize::MAX, false)] {
        assert_eq!(source.caller.fits_batch(&send(handle, bound)), fits);
        assert_eq!(source.caller.fits_open_batch(&send(handle, bound)), fits);
    }
    append(&mut source, &mut link, send(handle, 8)).unwrap();
    for (bound, fits) in [(200, true), (201, false)] {
        assert!(source.caller.fits_batch(&send(handle, bound)));
        assert_eq!(source.caller.fits_open_batch(&send(handle, bound)), fits);
    }
}

#[test]
fn a_batch_is_sent_with_the_entry_after_which_no_other_one_fits() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 10));
    let other = source.caller.bind(Code::new(b'b', 10));
    // Entries of 32 bytes each: no two in a row are alike.
    for number in 0..8 {
        assert!(!sent(&mut link).iter().any(|&(kind, ..)| kind == Kind::Batch));
        let handle = if number % 2 == 0 { handle } else { other };
        append(&mut source, &mut link, send(handle, 8)).unwrap();
    }
    assert_eq!(sent(&mut link), [(Kind::Batch, 0, BATCH)]);
    assert_eq!(source.caller.open_batch(), None);
}

#[test]
fn an_entry_that_does_not_fit_any_more_begins_the_next_batch() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 10));
    append(&mut source, &mut link, send(handle, 8)).unwrap();
    append(&mut source, &mut link, send(handle, 217)).unwrap();
    assert_eq!(sent(&mut link), [(Kind::Batch, 0, 32), (Kind::Batch, 0, 248)]);
    append(&mut source, &mut link, send(handle, 8)).unwrap();
    link.tx.credits = 0;
    let blocked = append(&mut source, &mut link, send(handle, 217));
    assert!(matches!(blocked, Err(NotSent::Blocked)));
    assert!(source.caller.is_batch_closing());
}

#[test]
fn a_report_refuses_one_entry_without_a_completion_and_no_call() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 10));
    let code = Status::Rejected(Rejection::Policy).code();
    link.arrive(Header::new(Kind::Report, code, 1), &handle.to_le_bytes());
    source.receive(&mut link, 0);
    assert_eq!(append(&mut source, &mut link, call(handle, 8)).unwrap(), 1);
    let Err(NotSent::Failed(error)) = append(&mut source, &mut link, send(handle, 8)) else {
        panic!("the report is returned");
    };
    assert!(matches!(*error, SubmitError::Earlier(_)));
    append(&mut source, &mut link, send(handle, 8)).unwrap();
}

#[test]
fn an_entry_like_the_last_one_joins_it_while_another_one_fits_after_it() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 10));
    assert!(
        append_alike(&mut source, send(handle, 8)).is_none(),
        "no batch is open"
    );
    append(&mut source, &mut link, send(handle, 8)).unwrap();
    assert!(append_alike(&mut source, send(handle + 1, 8)).is_none());
    let joined = std::iter::from_fn(|| append_alike(&mut source, send(handle, 8)));
    assert_eq!(joined.map(Result::unwrap).collect::<Vec<_>>(), [0; 21]);
    assert_eq!((sent(&mut link), source.caller.batch.len()), (vec![], 200));
    source.close_batch(&mut link);
    let [(_, body)] = &link.tx.take()[..] else {
        panic!("one batch");
    };
    let head = RunHead::new(handle, 0, 8, 8, 22);
    assert_eq!(*body, [head.as_bytes(), &[7; 8], &[8; 168]].concat());
}

#[test]
fn a_call_that_may_be_sent_again_joins_no_run_at_once() {
    for (code, joins_call) in [(Code::new(b'a', 10), true), (Code::idempotent(b'a', 10), false)] {
        let (mut source, mut link, handle) = installed(code);
        let token = append(&mut source, &mut link, call(handle, 8)).unwrap();
        let next = append_alike(&mut source, call(handle, 8)).map(Result::unwrap);
        assert_eq!(next, joins_call.then_some(token + 1));
        let run = append_run(&mut source, (handle, true), &[(8, 8, 8)]);
        assert_eq!(run, if joins_call { vec![token + 2] } else { vec![] });
        append(&mut source, &mut link, send(handle, 8)).unwrap();
        assert_eq!(
            append_alike(&mut source, send(handle, 8)).map(Result::unwrap),
            Some(0)
        );
        assert_eq!(append_run(&mut source, (handle, false), &[(8, 8, 8)]), [0]);
    }
}

/// Adds payloads with these bounds, alignments and lengths. Returns the tokens of those that joined.
fn append_run(source: &mut Source, to: (u32, bool), payloads: &[(usize, usize, usize)]) -> Vec<u64> {
    let mut tokens = Vec::new();
    let joined = source.caller.append_run(
        to,
        payloads,
        |&(bound, align, _)| (bound, align),
        |&(_, _, len), memory| match memory.get_mut(..len) {
            Some(memory) => {
                memory.fill(9);
                Ok(len)
            }
            None => Err(()),
        },
        |first, count| tokens.extend((0..count as u64).map(|index| first + index * u64::from(to.1))),
    );
    assert_eq!(joined, tokens.len());
    tokens
}

#[test]
fn payloads_join_a_run_as_far_as_they_are_like_it() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 10));
    let other = source.caller.bind(Code::new(b'b', 10));
    let five = (5, 8, 5);
    assert_eq!(
        append_run(&mut source, (handle, false), &[five]),
        [],
        "no batch is open"
    );
    for wants_completion in [false, true] {
        // Bytes of an earlier batch lie where this one does.
        append(&mut source, &mut link, send(handle, 232)).unwrap();
        source.close_batch(&mut link);
        link.tx.frames.clear();
        let first = Submission {
            wants_completion,
            ..send(handle, 5)
        };
        let token = append(&mut source, &mut link, first).unwrap();
        assert_eq!(wants_completion, token != 0);
        // Another alignment, bound or length, or none; of another handle, or with a completion where the run has none.
        for unlike in [(5, 1, 5), (4, 8, 4), (6, 8, 6), (5, 8, 4), (5, 8, 9), (5, 16, 5)] {
            assert_eq!(
                append_run(&mut source, (handle, wants_completion), &[unlike, five]),
                []
            );
        }
        assert_eq!(append_run(&mut source, (other, wants_completion), &[five]), []);
        assert_eq!(append_run(&mut source, (handle, !wants_completion), &[five]), []);
        let joined = append_run(
            &mut source,
            (handle, wants_completion),
            &[five, five, (5, 1, 5), five],
        );
        let joined_alone = append_run(&mut source, (handle, wants_completion), &[five]);
        let step = u64::from(wants_completion);
        assert_eq!(joined, [token + step, token + 2 * step]);
        assert_eq!(joined_alone, [token + 3 * step]);
        // A batch that is to be sent takes no more.
        source.caller.close_batch_soon();
        assert_eq!(append_run(&mut source, (handle, wants_completion), &[five]), []);
        source.close_batch(&mut link);
        let [(_, body)] = &link.tx.take()[..] else {
            panic!("one batch");
        };
        let head = RunHead::new(handle, token, 5, 8, 4);
        let entries = [[7; 5], [9; 5], [9; 5], [9; 5]].map(|entry| [&entry[..], &[0; 3]].concat());
        assert_eq!(*body, [head.as_bytes(), &entries.concat()].concat());
    }
    // An entry has the alignment of a run, and no more.
    append(&mut source, &mut link, send(handle, 16)).unwrap();
    assert_eq!(append_run(&mut source, (handle, false), &[(16, 16, 16)]), []);
    assert_eq!(append_run(&mut source, (handle, false), &[(16, 8, 16)]), [0]);
}

/// While some of the answers that arrived last were not taken, the application is about to take them.
#[test]
fn a_call_may_wait_while_answers_are_taken() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 8));
    let say = |source: &mut Source, link: &mut Ends, submission, expected: usize| {
        let token = submit(source, link, submission).unwrap();
        assert_eq!(std::mem::take(&mut link.tx.may_wait), expected);
        token
    };
    let answer = |source: &mut Source, link: &mut Ends, tokens: &[u64]| {
        for &token in tokens {
            link.arrive(
                Header::new(Kind::Completion, Status::Executed.code(), token),
                b"x",
            );
        }
        let left = source.caller.calls.untaken();
        source.receive(link, 0);
        source.caller.calls.note_received(left);
    };
    let tokens = [(); 3].map(|()| say(&mut source, &mut link, call(handle, 8), 0));
    answer(&mut source, &mut link, &tokens);
    say(&mut source, &mut link, send(handle, 8), 0);
    for token in tokens {
        let other = say(&mut source, &mut link, call(handle, 8), 1);
        // No one wants its answer.
        source.caller.calls.abandon(other, true);
        assert!(source.caller.calls.take(token).is_some());
    }
    // One is left lying. When later ones have been taken, nothing may wait for it.
    let left = say(&mut source, &mut link, call(handle, 8), 0);
    answer(&mut source, &mut link, &[left]);
    let next = [(); 2].map(|()| say(&mut source, &mut link, call(handle, 8), 1));
    answer(&mut source, &mut link, &next);
    for token in next {
        say(&mut source, &mut link, call(handle, 8), 1);
        assert!(source.caller.calls.take(token).is_some());
    }
    say(&mut source, &mut link, call(handle, 8), 0);
    assert!(source.caller.calls.take(left).is_some());
}

#[test]
fn a_batch_goes_over_the_next_link_without_what_its_peer_does_not_accept() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 100));
    let other = source.caller.bind(Code::new(b'b', 90));
    let tokens = [(handle, 8), (other, 8), (handle, 9)]
        .map(|(handle, bound)| append(&mut source, &mut link, call(handle, bound)).unwrap());
    source.lose(&mut link, "it was cut");
    let limits = Limits {
        max_payload: 8,
        ..LIMITS
    };
    let mut link = link_to(&mut source, limits, 64);
    source.close_batch(&mut link);
    assert!(source.drive(&mut link));
    // Both images in fragments, one after the other, and then the entries.
    let frames = sent(&mut link);
    let image = |handle, len: usize| {
        let len = InstallHead::SIZE + len;
        let mut parts = vec![(Kind::Fragment, 64); len / 64];
        parts.push((Kind::Install, len % 64));
        (handle, parts)
    };
    let mut expected = Vec::new();
    for (handle, parts) in [image(handle, 100), image(other, 90)] {
        expected.extend(parts.into_iter().map(|(kind, len)| (kind, handle, len)));
    }
    expected.push((Kind::Batch, 0, 64));
    let kinds = |frames: &[(Kind, u32, usize)]| -> Vec<(Kind, usize)> {
        frames.iter().map(|&(kind, _, len)| (kind, len)).collect()
    };
    assert_eq!(kinds(&frames), kinds(&expected));
    let lost = source.caller.calls.take(tokens[2]).unwrap().unwrap_err();
    assert_eq!(*lost, Lost::PayloadTooLarge { len: 9, limit: 8 });
    assert!(
        tokens[..2]
            .iter()
            .all(|&token| source.caller.calls.was_sent(token))
    );
}

#[test]
fn what_is_at_hand_is_noted_for_each_of_64_handles() {
    let (mut source, mut link) = source(LIMITS, 512);
    let codes = (0..64).map(|letter| Code::new(letter, 10));
    let handles: Vec<u32> = codes.map(|code| source.caller.bind(code)).collect();
    assert_eq!(handles, (0..64).collect::<Vec<u32>>());
    for handle in [3, 63] {
        submit(&mut source, &mut link, send(handle, 8)).unwrap();
        submit(&mut source, &mut link, send(handle, 8)).unwrap();
    }
    let at_hand = |source: &Source| -> Vec<u32> {
        let is_at_hand = |&handle: &u32| source.caller.is_at_hand(handle, false);
        (0..64).filter(is_at_hand).collect()
    };
    assert_eq!(at_hand(&source), [3, 63]);
    source.caller.resend_image(3);
    assert_eq!(at_hand(&source), []);
    // Of more handles nothing is noted.
    assert_eq!(source.caller.bind(Code::new(64, 10)), 64);
    submit(&mut source, &mut link, send(63, 8)).unwrap();
    assert_eq!(at_hand(&source), []);
}

#[test]
fn an_image_as_long_as_a_frame_or_a_limit_is_sent_whole() {
    for (len, accepted) in [(500, true), (501, false)] {
        let (mut source, mut link) = source(LIMITS, 1000);
        let handle = source.caller.bind(Code::new(b'a', len));
        let result = submit(&mut source, &mut link, send(handle, 8));
        if accepted {
            assert_eq!(result.unwrap(), 0);
        } else {
            let Err(NotSent::Failed(error)) = result else {
                panic!("{result:?}");
            };
            assert!(matches!(
                *error,
                SubmitError::Lost(Lost::ImageTooLarge { len: 501, limit: 500 })
            ));
        }
    }
    let whole = InstallHead::SIZE + 100;
    for (max_body, kind) in [(whole, Kind::Install), (whole - 1, Kind::Fragment)] {
        let (mut source, mut link) = source(LIMITS, max_body);
        let handle = source.caller.bind(Code::new(b'a', 100));
        submit(&mut source, &mut link, send(handle, 8)).unwrap();
        assert_eq!(
            sent(&mut link)[0],
            (kind, u32::from(kind != Kind::Install), max_body)
        );
    }
}

#[test]
fn each_entry_whose_code_is_asked_for_sends_the_image_again() {
    let (mut source, mut link) = source(LIMITS, 512);
    let entry = |entry| Code {
        entries: 2,
        entry,
        ..Code::new(b'a', 10)
    };
    let handles = [0, 1].map(|index| source.caller.bind(entry(index)));
    let carries = |handle| Submission {
        carries_code: true,
        ..send(handle, 8)
    };
    let mut kinds = |submission| {
        submit(&mut source, &mut link, submission).unwrap();
        let kinds: Vec<Kind> = sent(&mut link).into_iter().map(|(kind, ..)| kind).collect();
        kinds
    };
    use Kind::{Exec, Install};
    assert_eq!(kinds(carries(handles[0])), [Install, Exec]);
    assert_eq!(kinds(carries(handles[1])), [Exec], "it was just sent, for both");
    // Each one carried it: the next of each sends it again.
    assert_eq!(kinds(carries(handles[0])), [Install, Exec]);
    assert_eq!(kinds(carries(handles[1])), [Install, Exec]);
    assert_eq!(kinds(send(handles[0], 8)), [Exec]);
}

#[test]
fn a_report_is_about_the_image_that_the_handle_was_bound_to_when_the_frame_was_sent() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 10));
    source.caller.unbind(handle);
    assert_eq!(source.caller.bind(Code::new(b'b', 10)), handle);
    submit(&mut source, &mut link, send(handle, 8)).unwrap();
    let frames = sent(&mut link);
    let installed_at = 1 + frames
        .iter()
        .position(|&(kind, ..)| kind == Kind::Install)
        .unwrap() as u64;
    // The frames were taken: numbers begin anew.
    let code = Status::Rejected(Rejection::Policy).code();
    for (sequence, letter) in [
        (installed_at - 1, b'a'),
        (installed_at, b'b'),
        (installed_at + 1, b'b'),
    ] {
        link.arrive(
            Header::new(Kind::Report, code, sequence),
            handle.to_le_bytes().as_slice(),
        );
        source.receive(&mut link, 0);
        let report = source.caller.take_report().unwrap();
        assert_eq!(report.image.bytes[0], letter, "{sequence}");
    }
}

#[test]
fn invocations_that_travel_are_sent_whole_or_in_fragments() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 10));
    let head = TravelHead::of_source(5);
    let most = 512 - TravelHead::SIZE;
    let mut travel = |submission: Submission, len| {
        let mut encode = filler(7, len);
        let accepted = source.submit_travel(&mut link, submission, &head, &mut encode);
        (accepted, link.tx.take(), source.caller.last_fragmented())
    };
    let body = |len| [head.as_bytes(), &vec![7; len]].concat();
    let header = |token| Header::new(Kind::Travel, handle, token);
    for (submission, token) in [(send(handle, most), 0), (call(handle, most), 1)] {
        let (accepted, frames, _) = travel(submission, most);
        let sequence = Some(1);
        assert_eq!(accepted.unwrap(), Accepted { token, sequence });
        assert_eq!(frames, [(header(token), body(most))]);
    }
    for (submission, token, fragment) in [(send(handle, most + 1), 0, 1), (call(handle, most + 1), 2, 2)] {
        let (accepted, frames, last) = travel(submission, most + 1);
        let sequence = None;
        assert_eq!(accepted.unwrap(), Accepted { token, sequence });
        let whole = body(most + 1);
        let last_header = Header {
            flags: FrameFlags::ASSEMBLED,
            ..header(token)
        };
        let expected = [
            (Header::new(Kind::Fragment, fragment, 513), whole[..512].to_vec()),
            (last_header, whole[512..].to_vec()),
        ];
        assert_eq!((frames, last), (expected.to_vec(), 2));
    }
    for (len, is_accepted) in [(1000, true), (1001, false)] {
        let (accepted, ..) = travel(send(handle, 1001), len);
        assert_eq!(accepted.is_ok(), is_accepted);
    }
    // What must be sent ahead of it is, even if it wants nothing back.
    let carries = Submission {
        carries_code: true,
        ..send(handle, 8)
    };
    let kinds = |frames: Vec<(Header, Vec<u8>)>| -> Vec<Kind> {
        frames.iter().map(|(header, _)| header.kind).collect()
    };
    assert_eq!(kinds(travel(carries, 8).1), [Kind::Travel]);
    assert_eq!(kinds(travel(carries, 8).1), [Kind::Install, Kind::Travel]);
    assert_eq!(kinds(travel(send(handle, 8), 8).1), [Kind::Travel]);

    // What arrived is received before one without a completion.
    link.arrive(Header::new(Kind::Completion, Status::Executed.code(), 1), b"");
    for (submission, received) in [(call(handle, 8), 0), (send(handle, 8), 1)] {
        source
            .submit_travel(&mut link, submission, &head, &mut filler(7, 8))
            .unwrap();
        assert_eq!(source.received(), received);
    }
    source.lose(&mut link, "it was cut");
    let again = source.submit_travel(&mut link, call(handle, 8), &head, &mut filler(7, 8));
    assert!(matches!(again, Err(NotSent::Blocked)));
}

#[test]
fn frames_to_nodes_are_sent_whole_or_in_fragments_and_after_what_waits() {
    let (mut source, mut link, handle) = installed(Code::new(b'a', 10));
    let header = Header::new(Kind::Reply, 1, 2);
    let accepted = |sequence| Some(Accepted { token: 0, sequence });
    assert_eq!(
        source.submit_to_node(&mut link, header, b"head", &[7; 508]),
        accepted(Some(1))
    );
    assert_eq!(link.tx.take(), [(header, [&b"head"[..], &[7; 508]].concat())]);
    assert_eq!(
        source.submit_to_node(&mut link, header, b"head", &[7; 509]),
        accepted(None)
    );
    assert_eq!(sent(&mut link), [(Kind::Fragment, 1, 512), (Kind::Reply, 1, 1)]);
    assert_eq!(source.caller.last_fragmented(), 2);

    append(&mut source, &mut link, send(handle, 8)).unwrap();
    source.caller.close_batch_soon();
    link.tx.credits = 1;
    assert_eq!(source.submit_to_node(&mut link, header, b"head", b"rest"), None);
    assert_eq!(sent(&mut link), [(Kind::Batch, 0, 32)]);
    assert_eq!(source.caller.lacking(), 8);
    source.lose(&mut link, "it was cut");
    link.tx.credits = 9;
    assert_eq!(source.submit_to_node(&mut link, header, b"head", b"rest"), None);
    assert_eq!(sent(&mut link), []);
}

/// An image that is signed.
struct Signed(Signature);

impl Image for Signed {
    fn id(&self) -> &ifunc_abi::ImageId {
        &[9; 32]
    }

    fn bytes(&self) -> &[u8] {
        b"image"
    }

    fn signature(&self) -> Option<&Signature> {
        Some(&self.0)
    }

    fn entries(&self) -> u8 {
        7
    }

    fn entry(&self) -> u8 {
        5
    }

    fn is_idempotent(&self) -> bool {
        self.0.as_bytes()[0] == 1
    }
}

#[test]
fn a_shared_image_is_what_it_shares() {
    for first in [0, 1] {
        let mut bytes = [4; size_of::<Signature>()];
        bytes[0] = first;
        let signature = zerocopy::transmute!(bytes);
        let image = Arc::new(Signed(signature));
        assert_eq!(
            (Image::id(&image), Image::bytes(&image)),
            (&[9; 32], &b"image"[..])
        );
        assert_eq!((Image::entries(&image), Image::entry(&image)), (7, 5));
        assert_eq!(
            Image::signature(&image).map(|signature| signature.as_bytes()),
            Some(&bytes[..])
        );
        assert_eq!(Image::is_idempotent(&image), first == 1);
    }
}
