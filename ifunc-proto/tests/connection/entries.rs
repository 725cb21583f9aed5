//! Images with several entries: one installation, a handle for each entry.

use ifunc_abi::frame::Kind;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::{Rejection, Status};

use crate::node::{Letter, Node, settle};
use crate::pair;
use crate::pipe::Pipe;

/// An entry of the image with three.
fn three(entry: u8) -> Letter {
    Letter::new(b'A', 100).entry(entry, 3)
}

fn one(letter: u8) -> Letter {
    Letter::new(letter, 10)
}

/// Kinds and handles of the frames that the source sent.
fn sent(pipe: &mut Pipe) -> Vec<(Kind, u32)> {
    let headers = &pipe.queue(0).headers;
    headers
        .iter()
        .map(|header| (header.kind, header.handle))
        .collect()
}

fn call(pipe: &mut Pipe, source: &mut Node, target: &mut Node, handle: u32) -> Status {
    let token = source.submit(pipe, handle, b"?", true).unwrap().expect("credit");
    settle(pipe, source, target);
    source.take(token).unwrap().unwrap().status
}

#[test]
fn entries_share_one_installation() {
    let mut pipe = Pipe::new(20, 256);
    let (mut source, mut target) = pair(&mut pipe);
    let handles = [2, 0, 2].map(|entry| source.connection.caller.bind(three(entry)));
    assert_eq!(handles, [2, 0, 2]);
    for handle in handles {
        assert_eq!(
            call(&mut pipe, &mut source, &mut target, handle),
            Status::Executed
        );
    }
    source.connection.caller.unbind(0);
    source.connection.caller.unbind(2);
    // The third one is not bound, but its image is installed.
    assert_eq!(source.connection.caller.bind(three(1)), 1);
    assert_eq!(call(&mut pipe, &mut source, &mut target, 1), Status::Executed);
    source.connection.caller.unbind(1);
    settle(&mut pipe, &mut source, &mut target);
    source.connection.caller.unbind(2);
    settle(&mut pipe, &mut source, &mut target);
    let runs: Vec<u8> = target.host.runs.iter().map(|(entry, _)| *entry).collect();
    assert_eq!(runs, b"CACB");
    use Kind::{Exec, Install, Unbind};
    let frames = [
        (Install, 0),
        (Exec, 2),
        (Exec, 0),
        (Exec, 2),
        (Exec, 1),
        (Unbind, 0),
    ];
    assert_eq!(sent(&mut pipe), frames);
    assert_eq!(target.host.installs, 1);
}

#[test]
fn an_image_that_is_sent_to_its_own_handles_again_is_not_installed_again() {
    let mut pipe = Pipe::new(20, 256);
    let (mut source, mut target) = pair(&mut pipe);
    let handles = [one(b'a'), three(0)].map(|image| source.connection.caller.bind(image));
    assert_eq!(handles, [0, 1]);
    for _ in 0..2 {
        for handle in handles {
            source.submit_with_code(&mut pipe, handle, b"?").unwrap();
            settle(&mut pipe, &mut source, &mut target);
        }
    }
    use Kind::{Exec, Install};
    let (first, second) = ([(Install, 0), (Exec, 0)], [(Install, 1), (Exec, 1)]);
    assert_eq!(sent(&mut pipe), [first, second, first, second].concat());
    assert_eq!((target.host.installs, target.host.runs.len()), (2, 4));
}

#[test]
fn an_entry_that_a_review_drops_runs_no_more() {
    let mut pipe = Pipe::new(20, 256);
    let (mut source, mut target) = pair(&mut pipe);
    let handles = [0, 1].map(|entry| source.connection.caller.bind(three(entry)));
    let why = Refusal::new(Rejection::Revoked, "for the test");
    for (drops, expected) in [
        (false, Status::Executed),
        (true, Status::Rejected(Rejection::Revoked)),
    ] {
        let mut seen = 0;
        target.connection.review_images(|_| {
            seen += 1;
            // The first entry goes, the second one stays.
            if drops && seen == 1 {
                Err(why.clone())
            } else {
                Ok(())
            }
        });
        assert_eq!(call(&mut pipe, &mut source, &mut target, handles[0]), expected);
        assert_eq!(
            call(&mut pipe, &mut source, &mut target, handles[1]),
            Status::Executed
        );
    }
    // Bound again, it is asked again.
    handles
        .into_iter()
        .for_each(|handle| source.connection.caller.unbind(handle));
    settle(&mut pipe, &mut source, &mut target);
    let again = source.connection.caller.bind(three(0));
    assert_eq!(call(&mut pipe, &mut source, &mut target, again), Status::Executed);
}

#[test]
fn handles_of_released_entries_are_bound_to_others() {
    let mut pipe = Pipe::new(20, 256);
    let (mut source, mut target) = pair(&mut pipe);
    let mut bind = |source: &mut Node, image: Letter| {
        let handle = source.connection.caller.bind(image);
        assert_eq!(call(&mut pipe, source, &mut target, handle), Status::Executed);
        handle
    };
    assert_eq!(bind(&mut source, three(1)), 1);
    source.connection.caller.unbind(1);
    // Two of the three handles, and one more image over what is left and what is new.
    assert_eq!(bind(&mut source, one(b'p')), 0);
    assert_eq!(bind(&mut source, one(b'q')), 1);
    assert_eq!(bind(&mut source, three(0)), 2);
    assert_eq!(bind(&mut source, three(2)), 4);
    source.connection.caller.unbind(1);
    assert_eq!(bind(&mut source, one(b'r')), 1);
    // Three in a row are free at the end alone.
    source.connection.caller.unbind(0);
    let other = |entry| Letter::new(b'S', 100).entry(entry, 3);
    assert_eq!(bind(&mut source, other(1)), 6);
    for handle in [1, 2, 4, 6] {
        source.connection.caller.unbind(handle);
    }
    // Bytes are not sent again for an image that the target still has.
    assert_eq!(bind(&mut source, other(2)), 7);
    settle(&mut pipe, &mut source, &mut target);
    let runs: Vec<u8> = target.host.runs.iter().map(|(entry, _)| *entry).collect();
    assert_eq!(runs, b"BpqACrTU");
    assert_eq!(target.host.installs, 6);
}

#[test]
fn a_report_names_the_entry_that_its_handle_was_bound_to_then() {
    let mut pipe = Pipe::new(20, 256);
    let (mut source, mut target) = pair(&mut pipe);
    let first = source.connection.caller.bind(three(1));
    source.submit(&mut pipe, first, b"fail", false).unwrap();
    source.connection.caller.unbind(first);
    let other = Letter::new(b'S', 100).entry(0, 3);
    let second = source.connection.caller.bind(other.clone());
    assert_eq!((first, second), (1, 0));
    source.submit(&mut pipe, second, b"fail", false).unwrap();
    settle(&mut pipe, &mut source, &mut target);
    let reports = source.connection.caller.take_reports();
    let images: Vec<&Letter> = reports.iter().map(|report| &report.image).collect();
    assert_eq!(images, [&three(1), &other]);
}

#[test]
fn all_entries_of_a_refused_image_are_rejected() {
    let mut pipe = Pipe::new(20, 256);
    let (mut source, mut target) = pair(&mut pipe);
    // Its frame states another number of entries than the image has.
    let false_number = |entry| Letter::new(b'A', 100).entry(entry, 2);
    let refused = |entry| Letter::new(b'x', 100).entry(entry, 4);
    for (image, why) in [
        (false_number(0), Rejection::BadImage),
        (false_number(1), Rejection::BadImage),
        (refused(3), Rejection::Policy),
        (refused(0), Rejection::Policy),
        // The target binds ten handles.
        (Letter::new(b'l', 10).entry(0, 5), Rejection::TooLarge),
        (Letter::new(b'l', 10).entry(4, 5), Rejection::TooLarge),
    ] {
        let handle = source.connection.caller.bind(image);
        let status = call(&mut pipe, &mut source, &mut target, handle);
        assert_eq!(status, Status::Rejected(why));
    }
    let last = source.connection.caller.bind(one(b'm'));
    assert_eq!(last, 11, "no handle is free");
    assert_eq!(
        call(&mut pipe, &mut source, &mut target, last),
        Status::Rejected(Rejection::TooLarge)
    );
}
