//! Frames that no honest source sends: the target answers, drops or closes for any content.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{FrameFlags, Header, InstallHead, Kind};
use ifunc_abi::stats::{PageHead, Stats};
use ifunc_abi::status::Status;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use zerocopy::{FromBytes, IntoBytes};

use super::{images, tell};
use crate::target::bench::Bench;
use crate::transport::{Body, Frame, Inbound, LinkError, Outbound, Park};
use ifunc_proto::buffer::AlignedBuffer;

/// A frame as a hostile peer may write it.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    sequence: u32,
    words: [u64; 2],
    body: Vec<u8>,
}

impl Raw {
    pub(super) fn sequence(&self) -> u32 {
        self.sequence
    }
}

/// Delivers what it was given, body aligned as transports do, until it is through.
pub(super) struct Script {
    frames: std::vec::IntoIter<Raw>,
    current: Option<(u32, [u64; 2], AlignedBuffer)>,
    /// Bytes between the alignment of bodies and where they lie.
    misplaced: usize,
}

impl Script {
    pub(super) fn new(frames: Vec<Raw>) -> Self {
        Self {
            frames: frames.into_iter(),
            current: None,
            misplaced: 0,
        }
    }

    /// Delivers bodies so many bytes behind where transports place them.
    fn misplaced(frames: Vec<Raw>, misplaced: usize) -> Self {
        Self {
            misplaced,
            ..Self::new(frames)
        }
    }
}

impl Inbound for Script {
    type Body<'a> = Body<'a>;

    fn peek(&mut self) -> Result<Option<Frame<Body<'_>>>, LinkError> {
        if self.current.is_none() {
            self.current = self.frames.next().map(|raw| {
                let mut body = AlignedBuffer::default();
                body.resize(self.misplaced + raw.body.len());
                body.as_mut_slice()[self.misplaced..].copy_from_slice(&raw.body);
                (raw.sequence, raw.words, body)
            });
        }
        Ok(self.current.as_ref().map(|(sequence, words, body)| {
            let body = Body::from(&body.as_slice()[self.misplaced..]);
            Frame {
                sequence: *sequence,
                words: *words,
                body,
            }
        }))
    }

    fn release(&mut self) {
        self.current = None;
    }

    fn settle(&mut self) {}
}

impl Park for Script {
    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}

    fn park(&mut self) {}

    fn is_idle(&mut self) -> bool {
        self.current.is_none() && self.frames.len() == 0
    }
}

/// Number of occurrences of each status.
type Said = Arc<Mutex<BTreeMap<String, u64>>>;

/// Receives and counts every completion of the target.
struct Ear {
    room: Vec<u8>,
    said: Said,
    sequence: u32,
}

impl Outbound for Ear {
    fn max_body(&self) -> usize {
        self.room.len()
    }

    fn reserve(&mut self, len: usize, _: usize) -> Result<Option<&mut [u8]>, LinkError> {
        Ok(Some(&mut self.room[..len]))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        assert!(len <= self.room.len());
        self.sequence += 1;
        if header.kind == Kind::Completions {
            assert_eq!(header, Header::new(Kind::Completions, 0, 0));
            for (status, token, body) in completions(&self.room[..len]) {
                assert_ne!(token, 0, "no call asked for it");
                assert!(status != Status::Executed || body.len() <= 8);
                *self
                    .said
                    .lock()
                    .unwrap()
                    .entry(format!("in a batch, {status}"))
                    .or_default() += 1;
            }
            return self.sequence;
        }
        assert!(matches!(header.kind, Kind::Completion | Kind::Report));
        let status = Status::from_code(header.handle).expect("a target sends statuses that exist");
        // Longer than an answer of these ifuncs.
        if status == Status::Executed && len > 64 {
            let (head, part) = PageHead::split(&self.room[..len]).expect("a page");
            if part.len() == head.total.get() as usize {
                Stats::decode(part).expect("what was counted");
            }
            *self.said.lock().unwrap().entry("counters".into()).or_default() += 1;
        }
        *self.said.lock().unwrap().entry(status.to_string()).or_default() += 1;
        self.sequence
    }
}

pub(super) fn honest(sequence: u32, header: Header, body: Vec<u8>) -> Raw {
    Raw {
        sequence,
        words: header.words(),
        body,
    }
}

/// A body of entries. Alike ones share a run.
pub(super) fn batch<'a>(entries: impl IntoIterator<Item = (u32, u64, &'a [u8])>) -> Vec<u8> {
    let mut body = Vec::new();
    let mut entries = entries.into_iter().peekable();
    while let Some((handle, token, payload)) = entries.next() {
        let len = payload.len() as u32;
        let (mut run, mut count) = (payload.to_vec(), 1);
        let is_alike = |&(other, next, payload): &(u32, u64, &[u8]), count| {
            let follows = if token == 0 { 0 } else { token + u64::from(count) };
            (other, next, payload.len() as u32) == (handle, follows, len)
        };
        while let Some((_, _, payload)) = entries.next_if(|entry| is_alike(entry, count)) {
            run.extend_from_slice(payload);
            count += 1;
        }
        body.extend_from_slice(RunHead::new(handle, token, len, len, count).as_bytes());
        body.extend_from_slice(&run);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    body
}

/// Decodes a body of `Completions`: statuses, tokens, answers or details.
pub(super) fn completions(mut body: &[u8]) -> Vec<(Status, u64, Vec<u8>)> {
    let mut all = Vec::new();
    while !body.is_empty() {
        let (head, rest) = RunHead::read_from_prefix(body).expect("a head");
        let (len, count) = (head.len.get() as usize, head.count.get() as usize);
        assert_eq!(head.stride, head.len, "answers need no alignment");
        let room = head.run_len().expect("a valid head") - RunHead::SIZE;
        let (here, behind) = rest.split_at_checked(room).expect("as long as it says");
        assert!(here[len * count..].iter().all(|&byte| byte == 0), "zeros behind");
        let status = Status::from_code(head.code.get()).expect("a target sends statuses that exist");
        for index in 0..count {
            let token = head.token.get() + index as u64;
            all.push((status, token, here[len * index..][..len].to_vec()));
        }
        body = behind;
    }
    all
}

/// What an honest source would send.
fn conversation() -> Vec<Raw> {
    let install = |image: ifunc_abi::image::ImageParts| {
        let entries = image.entries.len() as u16;
        let image = image.encode().unwrap();
        let mut body = InstallHead::unsigned(*blake3::hash(&image).as_bytes(), entries)
            .as_bytes()
            .to_vec();
        body.extend_from_slice(&image);
        body
    };
    let counts = install(images::counts());
    let (first, last) = counts.split_at(100);
    let number = 3u64.to_le_bytes();
    let many = [
        (0, 20, &number[..]),
        (1, 21, &[]),
        (0, 0, &number),
        (9, 22, b"lost"),
        (0, 23, &number),
        (0, 24, &number),
        (0, 25, &number),
    ];
    vec![
        honest(1, Header::new(Kind::Install, 0, 0), install(images::add())),
        honest(2, Header::new(Kind::Exec, 0, 7), 5u64.to_le_bytes().to_vec()),
        honest(3, Header::new(Kind::Exec, 0, 0), 5u64.to_le_bytes().to_vec()),
        honest(4, Header::new(Kind::Install, 1, 9), install(images::panics())),
        honest(5, Header::new(Kind::Exec, 1, 8), vec![]),
        honest(
            6,
            Header::new(Kind::Fragment, 1, counts.len() as u64),
            first.to_vec(),
        ),
        honest(
            7,
            Header {
                flags: FrameFlags::ASSEMBLED,
                ..Header::new(Kind::Install, 2, 0)
            },
            last.to_vec(),
        ),
        honest(8, Header::new(Kind::Batch, 0, 0), batch(many)),
        honest(9, Header::new(Kind::Unbind, 1, 0), vec![]),
        honest(10, Header::new(Kind::Sync, 0, 10), vec![]),
        honest(11, Header::new(Kind::Stats, 0, 11), vec![]),
        honest(12, Header::new(Kind::Stats, 40, 12), vec![]),
        honest(13, Header::new(Kind::Batch, 0, 0), batch(many)),
    ]
}

#[derive(Clone, Debug)]
enum Mutation {
    Flip {
        frame: usize,
        bit: usize,
    },
    FlipBody {
        frame: usize,
        bit: usize,
    },
    Truncate {
        frame: usize,
        len: usize,
    },
    Lengthen {
        frame: usize,
        by: usize,
    },
    Sequence {
        frame: usize,
        to: u32,
    },
    Handle {
        frame: usize,
        to: u32,
    },
    /// The handle, the length, the number of entries or their distance, of a run of a batch.
    RunHead {
        frame: usize,
        begin: usize,
        field: usize,
        to: u32,
    },
    Swap {
        a: usize,
        b: usize,
    },
    Repeat {
        frame: usize,
    },
    Drop {
        frame: usize,
    },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let frame = 0..13usize;
    prop_oneof![
        (frame.clone(), 0..128usize).prop_map(|(frame, bit)| Mutation::Flip { frame, bit }),
        (frame.clone(), any::<usize>()).prop_map(|(frame, bit)| Mutation::FlipBody { frame, bit }),
        (frame.clone(), any::<usize>()).prop_map(|(frame, len)| Mutation::Truncate { frame, len }),
        (frame.clone(), 1..200usize).prop_map(|(frame, by)| Mutation::Lengthen { frame, by }),
        (frame.clone(), prop_oneof![0..20u32, any::<u32>()])
            .prop_map(|(frame, to)| Mutation::Sequence { frame, to }),
        (frame.clone(), prop_oneof![0..5u32, any::<u32>()])
            .prop_map(|(frame, to)| Mutation::Handle { frame, to }),
        (
            any::<bool>(),
            0..5usize,
            0..4usize,
            prop_oneof![0..40u32, any::<u32>()]
        )
            .prop_map(|(last, run, field, to)| Mutation::RunHead {
                frame: if last { 12 } else { 7 },
                begin: [0, 32, 56, 88, 120][run],
                field: [0, 4, 16, 20][field],
                to,
            }),
        (frame.clone(), frame.clone()).prop_map(|(a, b)| Mutation::Swap { a, b }),
        frame.clone().prop_map(|frame| Mutation::Repeat { frame }),
        frame.prop_map(|frame| Mutation::Drop { frame }),
    ]
}

fn mutate(frames: &mut Vec<Raw>, mutation: &Mutation) {
    let last = frames.len().saturating_sub(1);
    let at = |frame: usize| frame.min(last);
    match *mutation {
        _ if frames.is_empty() => {}
        Mutation::Flip { frame, bit } => frames[at(frame)].words[bit / 64] ^= 1 << (bit % 64),
        Mutation::FlipBody { frame, bit } => {
            let body = &mut frames[at(frame)].body;
            if !body.is_empty() {
                let bit = bit % (body.len() * 8);
                body[bit / 8] ^= 1 << (bit % 8);
            }
        }
        Mutation::Truncate { frame, len } => {
            let body = &mut frames[at(frame)].body;
            body.truncate(len % (body.len() + 1));
        }
        Mutation::Lengthen { frame, by } => frames[at(frame)].body.extend(std::iter::repeat_n(0xa5, by)),
        Mutation::Sequence { frame, to } => frames[at(frame)].sequence = to,
        Mutation::Handle { frame, to } => {
            let words = &mut frames[at(frame)].words;
            words[0] = words[0] & 0xffff_ffff | u64::from(to) << 32;
        }
        Mutation::RunHead {
            frame,
            begin,
            field,
            to,
        } => {
            let body = &mut frames[at(frame)].body;
            if let Some(field) = body
                .get_mut(begin + field..)
                .and_then(|rest| rest.first_chunk_mut())
            {
                *field = to.to_le_bytes();
            }
        }
        Mutation::Swap { a, b } => frames.swap(at(a), at(b)),
        Mutation::Repeat { frame } => {
            let again = frames[at(frame)].clone();
            frames.push(again);
        }
        Mutation::Drop { frame } => drop(frames.remove(at(frame))),
    }
}

#[test]
fn mutated_frames_are_refused_or_harmless() {
    let said = Said::default();
    let mut ended = BTreeMap::<String, u64>::new();
    let mut bench = Bench::new();
    // A body that was changed under its id is refused by its hash, so that only our own code ever runs here.
    let config = Config {
        cases: 10_000,
        failure_persistence: None,
        ..Config::default()
    };
    let strategy = proptest::collection::vec(mutation(), 1..5);
    let looks = RefCell::new((&mut bench, &mut ended));
    TestRunner::new(config)
        .run(&strategy, |mutations| {
            let mut frames = conversation();
            for mutation in &mutations {
                mutate(&mut frames, mutation);
            }
            let rx = Script::new(frames);
            let tx = Ear {
                room: vec![0; 1 << 16],
                said: said.clone(),
                sequence: 0,
            };
            let (bench, ended) = &mut *looks.borrow_mut();
            let how = match bench.look(tx, rx) {
                Ok(()) => "all frames were dealt with".to_owned(),
                // Without the numbers in it.
                Err(why) => format!(
                    "closed: {}",
                    why.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default()
                ),
            };
            *ended.entry(how).or_default() += 1;
            Ok(())
        })
        .unwrap();
    let said = said.lock().unwrap();
    let mut tally = String::from("hostile frames, by how they ended:\n");
    for (how, count) in &ended {
        tally += &format!("{count:>6}  {how}\n");
    }
    for (status, count) in said.iter() {
        tally += &format!("{count:>6}  said: {status}\n");
    }
    tell(&tally);
    let cases: u64 = ended.values().sum();
    assert!(cases >= 10_000);
    assert!(ended.len() > 5, "the mutations reach several ways to be closed");
    assert!(ended.contains_key("closed: a batch with a run that is malformed or cut off"));
    for reached in [
        "executed",
        "counters",
        "failed: the payload does not decode",
        "failed: the ifunc panicked",
        "rejected: the image's bytes do not have the id",
        "rejected: no image is bound",
        "in a batch, executed",
        "in a batch, failed: the ifunc panicked",
        "in a batch, failed: the payload does not decode",
        "in a batch, rejected: no image is bound",
    ] {
        assert!(
            said.keys().any(|key| key.starts_with(reached)),
            "no case reached `{reached}`"
        );
    }
}

/// A payload is copied if its source can change it and is not trusted to leave it alone: it is of another user, or nothing is known of it.
#[test]
fn payloads_are_copied_that_another_user_can_change() {
    let me = rustix::process::geteuid().as_raw();
    for (uid, shares_bodies, is_copied) in [
        (Some(me), true, false),
        (Some(me), false, false),
        (Some(me + 1), true, true),
        (None, true, true),
        (None, false, false),
    ] {
        let tx = Ear {
            room: Vec::new(),
            said: Said::default(),
            sequence: 0,
        };
        let mut link = Bench::link(tx, Script::new(Vec::new()), me);
        (link.peer.uid, link.shares_bodies) = (uid, shares_bodies);
        assert_eq!(
            Bench::new().copies_payloads(link),
            is_copied,
            "{uid:?} {shares_bodies}"
        );
    }
}

/// The image fails unless its payload is aligned as it asks: a payload in a frame of its own, and those of a run that one call of the
/// image's batch function takes.
#[test]
fn a_payload_that_is_not_aligned_is_copied_before_it_is_read() {
    const COUNT: u32 = 10;
    let image = images::with_batch(images::wants_alignment()).encode().unwrap();
    let head = InstallHead::unsigned(*blake3::hash(&image).as_bytes(), 1);
    let install = honest(
        1,
        Header::new(Kind::Install, 0, 0),
        [head.as_bytes(), &image].concat(),
    );
    let alone = (2..2 + COUNT).map(|sequence| {
        let header = Header::new(Kind::Exec, 0, u64::from(sequence));
        honest(sequence, header, vec![sequence as u8; 8])
    });
    let entries = (0..COUNT).map(|n| (0, 2 + u64::from(n), &[7; 8][..]));
    let together = honest(2, Header::new(Kind::Batch, 0, 0), batch(entries));
    for misplaced in [0, 1, 8, 32] {
        for (frames, executed) in [
            (alone.clone().collect(), "executed"),
            (vec![together.clone()], "in a batch, executed"),
        ] {
            let frames: Vec<Raw> = std::iter::once(install.clone()).chain(frames).collect();
            let said = Said::default();
            let tx = Ear {
                room: vec![0; 1 << 16],
                said: said.clone(),
                sequence: 0,
            };
            let looked = Bench::new().look(tx, Script::misplaced(frames, misplaced));
            assert_eq!(looked, Ok(()), "{misplaced} bytes");
            let said = said.lock().unwrap().clone();
            assert_eq!(
                said.into_iter().collect::<Vec<_>>(),
                [(executed.to_owned(), u64::from(COUNT))],
                "{misplaced} bytes"
            );
        }
    }
}
