//! Sources that use a target up: raw links beside an honest source.

use std::time::{Duration, Instant};

use ifunc_abi::frame::{FrameFlags, Header, InstallHead, Kind};
use ifunc_abi::image::{ImageFlags, ImageParts};
use ifunc_abi::status::{Failure, Rejection, Status};
use ifunc_proto::link::Body as _;
use zerocopy::IntoBytes;

use super::images::{self, Add};
use super::machine::SMALL_CACHE;
use super::running::{accepting, with_quotas};
use crate::transport::{Link, connect};
use crate::{ByName, Error, Handle, Source, TargetBuilder};

/// A source that sends frames by hand. Its handle 0 is bound to an ifunc that takes eight bytes.
pub(super) struct Raw(Link);

impl Raw {
    pub(super) fn connect(address: &str) -> Self {
        let until = Instant::now() + Duration::from_secs(10);
        let mut raw = Self(connect(&address.parse().unwrap(), until).unwrap());
        let image = images::add().encode().unwrap();
        let head = InstallHead::unsigned(*blake3::hash(&image).as_bytes(), 1);
        raw.send(
            Header::new(Kind::Install, 0, 0),
            &[head.as_bytes(), &image].concat(),
        );
        raw
    }

    /// Sends a frame when there is credit.
    pub(super) fn send(&mut self, header: Header, body: &[u8]) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(memory) = self.0.tx().reserve(body.len(), 64).unwrap() {
                memory[..body.len()].copy_from_slice(body);
                self.0.tx().commit(header, body.len());
                return;
            }
            assert!(Instant::now() < until, "the target takes no frame");
            std::thread::yield_now();
        }
    }

    /// Sends `parts` fragments of a body, each of `part` bytes.
    fn fragments(&mut self, total: usize, parts: usize, part: usize) {
        for _ in 0..parts {
            self.send(Header::new(Kind::Fragment, 1, total as u64), &vec![7; part]);
        }
    }

    /// Sends the last fragment of a payload, and returns how the call ended.
    fn finish(&mut self, part: usize) -> (Status, String) {
        let header = Header {
            flags: FrameFlags::ASSEMBLED,
            ..Header::new(Kind::Exec, 0, 9)
        };
        self.send(header, &vec![7; part]);
        self.completion()
    }

    /// The next completion.
    pub(super) fn completion(&mut self) -> (Status, String) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(frame) = self.0.rx().peek().unwrap() {
                let header = Header::parse(frame.words).unwrap();
                let mut body = Vec::new();
                frame.body.append_to(&mut body);
                self.0.rx().release();
                let status = Status::from_code(header.handle).unwrap();
                return (status, String::from_utf8_lossy(&body).into_owned());
            }
            assert!(Instant::now() < until, "the target does not answer");
            std::thread::yield_now();
        }
    }
}

/// Two images per connection.
fn few_images(builder: TargetBuilder) -> TargetBuilder {
    with_quotas(builder, |quotas| quotas.code_bytes(1 << 20).images(2))
}

const MIB: usize = 1 << 20;

/// Takes fragments of half a MiB, as many as a test sends.
fn fragments() -> TargetBuilder {
    accepting().ring(1 << 20).credits(128)
}

#[test]
fn unfinished_bodies_of_all_sources_share_one_budget() {
    let builder = fragments().unfinished_bodies(6 * MIB, Duration::from_secs(3600));
    let target = builder.listen("loopback:unfinished-budget").unwrap();
    let serving = target.spawn(0u64).unwrap();
    let mut hostile: Vec<Raw> = (0..8).map(|_| Raw::connect(serving.address())).collect();
    for raw in &mut hostile {
        raw.fragments(32 * MIB, 4, MIB / 2);
    }
    let refused = hostile.iter_mut().filter_map(|raw| {
        // What is received of a body that was not kept still has to be as long as it stated.
        raw.fragments(32 * MIB, 59, MIB / 2);
        let (status, why) = raw.finish(MIB / 2);
        (status == Status::Rejected(Rejection::Quota)).then_some(why)
    });
    let refused: Vec<String> = refused.collect();
    assert_eq!(refused.len(), 8, "none of them fits: {refused:?}");
    assert!(refused[0].contains("unfinished_bodies"), "{}", refused[0]);
    // All of it was given back, and the connections go on.
    for raw in &mut hostile {
        raw.fragments(5 * MIB, 9, MIB / 2);
        let (status, why) = raw.finish(MIB / 2);
        assert_eq!(status, Status::Failed(Failure::Payload), "{why}");
    }
    serving.stop().unwrap();
}

#[test]
fn a_body_that_is_never_completed_is_dropped_in_time() {
    let builder = fragments().unfinished_bodies(4 * MIB, Duration::from_millis(200));
    let target = builder.listen("loopback:unfinished-age").unwrap();
    let address = target.address();
    let serving = target.spawn(0u64).unwrap();
    let mut slow = Raw::connect(&address);
    slow.fragments(4 * MIB, 7, MIB / 2);
    // The target sleeps, and drops the body all the same.
    std::thread::sleep(Duration::from_millis(1500));
    let mut other = Raw::connect(&address);
    other.fragments(4 * MIB, 7, MIB / 2);
    assert_eq!(other.finish(MIB / 2).0, Status::Failed(Failure::Payload));
    let (status, why) = slow.finish(MIB / 2);
    assert_eq!(status, Status::Rejected(Rejection::Quota));
    assert!(
        why.contains("200ms") && why.contains("unfinished_bodies"),
        "{why}"
    );
    // An honest source is not affected.
    let source = Source::connect(&address).unwrap();
    let add = source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    assert_eq!(add.call(&5).unwrap().wait().unwrap(), 5);
    drop((slow, other));
    serving.stop().unwrap();
}

#[test]
fn the_code_of_a_connection_is_bounded() {
    let builder = few_images(accepting());
    let serving = builder
        .listen("loopback:code-quota")
        .unwrap()
        .spawn(0u64)
        .unwrap();
    let source = Source::connect(serving.address()).unwrap();
    let load = |source: &Source, image: ImageParts| source.load_bytes(&image.encode().unwrap()).unwrap();
    let run = |handle: &Handle<ByName>| handle.call(&5u64.to_le_bytes()).unwrap().wait();
    let (first, second) = (load(&source, images::add()), load(&source, images::set()));
    assert!(run(&first).is_ok() && run(&second).is_ok());
    match run(&load(&source, images::counts())) {
        Err(Error::Rejected {
            why: Rejection::Quota,
            detail,
            ..
        }) => assert!(detail.contains("`images`"), "{detail}"),
        other => panic!("{other:?}"),
    }
    // It is this connection's alone, and what it releases does not count.
    let other = Source::connect(serving.address()).unwrap();
    assert!(run(&load(&other, images::counts())).is_ok());
    drop(second);
    assert!(run(&load(&source, images::counts())).is_ok());
    serving.stop().unwrap();
}

#[test]
fn pinned_images_leave_room_when_their_source_has_left() {
    let builder = few_images(accepting().code_cache(4 * SMALL_CACHE, 6));
    let serving = builder.listen("loopback:pins").unwrap().spawn(0u64).unwrap();
    let image = |number: u8, flags| {
        let image = images::counts();
        ImageParts {
            flags,
            rw: [&[number][..], &image.rw[1..]].concat(),
            ..image
        }
        .encode()
        .unwrap()
    };
    let install = |source: &Source, image: &[u8]| {
        source
            .load_bytes(image)
            .unwrap()
            .call(b"")
            .unwrap()
            .wait()
            .map(drop)
    };
    let mut pinned = 0;
    for number in 0..10 {
        // A pin counts for as long as its connection lives, though its handle was released.
        let source = Source::connect(serving.address()).unwrap();
        let results =
            [0, 1, 2].map(|index| install(&source, &image(10 * number + index, ImageFlags::PINNED)));
        assert!(results[2].is_err());
        pinned += results.iter().filter(|result| result.is_ok()).count();
    }
    assert_eq!(pinned, 3, "half of the cache");
    let honest = Source::connect(serving.address()).unwrap();
    for number in 100..120 {
        install(&honest, &image(number, ImageFlags::NONE)).unwrap();
    }
    serving.stop().unwrap();
}
