//! Targets that use a source up, or keep it from its deadlines.

use std::time::{Duration, Instant};

use ifunc_abi::frame::{Header, Kind, Limits};
use ifunc_abi::status::Status;

use super::images::{self, Add};
use super::running::{Running, accepting, source, unique};
use crate::source::connection::Connection;
use crate::target::bench::Bench;
use crate::transport::{Body, ConnectError, Frame, Inbound, LinkError, Outbound, Park};
use crate::{Error, Source, SourceError, SourceOptions};

/// Has sent a completion of a call that was never made, however many of them were read.
#[derive(Default)]
struct Flood {
    released: u32,
}

impl Inbound for Flood {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        Ok(Some(Frame {
            sequence: self.released.wrapping_add(1),
            words: Header::new(Kind::Completion, Status::Executed.code(), u64::MAX).words(),
            body: Body::from(&[][..]),
        }))
    }

    fn release(&mut self) {
        self.released = self.released.wrapping_add(1);
    }

    fn settle(&mut self) {}
}

impl Park for Flood {
    fn arm(&mut self) -> bool {
        false
    }

    fn disarm(&mut self) {}

    fn park(&mut self) {}

    fn is_idle(&mut self) -> bool {
        false
    }
}

/// Takes everything, and has credit for it.
#[derive(Default)]
struct Sink {
    memory: Vec<u8>,
    sent: u32,
}

impl Outbound for Sink {
    fn max_body(&self) -> usize {
        1 << 16
    }

    fn reserve(&mut self, len: usize, _: usize) -> Result<Option<&mut [u8]>, LinkError> {
        self.memory.resize(len, 0);
        Ok(Some(&mut self.memory))
    }

    fn commit(&mut self, _: Header, _: usize) -> u32 {
        self.sent += 1;
        self.sent
    }
}

/// Before, the first of these calls never returned.
#[test]
fn deadlines_hold_whatever_arrives() {
    let mut link = Bench::link(Sink::default(), Flood::default(), 0);
    link.hello = crate::hello::serving(Limits {
        max_payload: 1 << 10,
        max_image: 1 << 10,
        max_answer: 1 << 10,
    });
    let options = SourceOptions::default().timeout(Duration::from_millis(200));
    let connection = Connection::of_link(None, link, options, None).unwrap();
    let source = Source::of(connection).unwrap();
    let add = source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    let in_time = |error: Result<(), Error>, begin: Instant| {
        assert!(matches!(error, Err(Error::Timeout { .. })), "{error:?}");
        assert!(begin.elapsed() < Duration::from_secs(20));
    };
    let begin = Instant::now();
    in_time(add.call(&5).unwrap().wait().map(drop), begin);
    let begin = Instant::now();
    in_time(source.flush(), begin);
    let mut call = add.call(&5).unwrap();
    assert!(call.try_wait().is_none(), "a call that never waits returns, too");
    // A future's deadline is seen to by the thread that polls for it.
    let begin = Instant::now();
    in_time(super::futures::block_on(add.call_async(&5)).map(drop), begin);
}

#[test]
fn a_ring_that_is_too_large_is_not_mapped() {
    let address = unique("shm");
    let target = Running::start(&address, accepting().ring(1 << 27));
    match Source::connect(&address) {
        Err(SourceError::Connect(error @ ConnectError::Ring { .. })) => {
            assert!(error.to_string().contains("SourceOptions::max_ring"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    let options = SourceOptions::default().max_ring(1 << 28);
    Source::connect_with(&address, options).unwrap();
    target.finish();
}

#[test]
fn answers_that_no_caller_takes_are_bounded() {
    const LEN: u64 = 50_000;
    let address = unique("shm");
    // The ifunc answers in what it is lent.
    let target = Running::start(&address, accepting().ring(1 << 20));
    let options = SourceOptions::default().max_answers(5 * LEN as usize);
    let bounded = Source::connect_with(&address, options).unwrap();
    let fills = bounded.load_bytes(&images::fills().encode().unwrap()).unwrap();
    let calls: Vec<_> = (0..8).map(|_| fills.call(&LEN.to_le_bytes()).unwrap()).collect();
    bounded.flush().unwrap();
    let mut dropped = 0;
    for call in calls {
        match call.wait() {
            Ok(answer) => assert_eq!(answer.len() as u64, LEN),
            Err(error @ Error::AnswersTooLarge { len: LEN, .. }) => {
                assert!(
                    error.to_string().contains("SourceOptions::max_answers"),
                    "{error}"
                );
                dropped += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(dropped, 4);
    // The memory of those that were taken is free again.
    assert!(fills.call(&LEN.to_le_bytes()).unwrap().wait().is_ok());
    drop(source(&address));
    target.finish();
}
