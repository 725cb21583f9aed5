//! Requests of the batch tests, and the receiver of their completions.

use std::sync::{Arc, Mutex, MutexGuard};

use ifunc_abi::frame::{Header, InstallHead, Kind};
use ifunc_abi::image::ImageParts;
use ifunc_abi::status::Status;
use zerocopy::IntoBytes;

use crate::tests::hostile_frames::{Raw, completions, honest};
use crate::tests::images;
use crate::transport::{LinkError, Outbound};

/// A frame, but for its number.
pub(super) type Frame = (Header, Vec<u8>);
/// What became of a request: its token is 0 if it asked for nothing.
pub(super) type Said = (Status, u64, Vec<u8>);

/// Frames that were sent to a source, up to the credit that it grants.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) room: usize,
    pub(super) frames: Vec<Frame>,
    /// Longest body for which credit was requested.
    pub(super) longest: usize,
}

/// A source that grants credit for a frame when the test allows it.
#[derive(Clone)]
pub(super) struct Ear(Arc<Mutex<Heard>>);

impl Ear {
    pub(super) fn new(room: usize) -> Self {
        Self(Arc::new(Mutex::new(Heard {
            room,
            ..Heard::default()
        })))
    }

    /// Its sending end, for frames with bodies of at most `max_body` bytes.
    pub(super) fn mouth(&self, max_body: usize) -> Mouth {
        Mouth {
            to: self.clone(),
            body: vec![0; max_body],
        }
    }

    pub(super) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap()
    }
}

/// Where the target speaks.
pub(super) struct Mouth {
    to: Ear,
    body: Vec<u8>,
}

impl Outbound for Mouth {
    fn max_body(&self) -> usize {
        self.body.len()
    }

    fn reserve(&mut self, len: usize, _: usize) -> Result<Option<&mut [u8]>, LinkError> {
        let mut heard = self.to.heard();
        heard.longest = heard.longest.max(len);
        Ok((heard.room > 0).then_some(&mut self.body[..len]))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let mut heard = self.to.heard();
        heard.room -= 1;
        heard.frames.push((header, self.body[..len].to_vec()));
        heard.frames.len() as u32
    }
}

/// The completions in the frames, single or combined: reports have no token.
pub(super) fn told(frames: &[Frame]) -> Vec<Said> {
    let one = |(header, body): &Frame| match header.kind {
        Kind::Completions => completions(body),
        Kind::Completion => vec![(
            Status::from_code(header.handle).unwrap(),
            header.token,
            body.clone(),
        )],
        Kind::Report => vec![(Status::from_code(header.handle).unwrap(), 0, body.clone())],
        kind => panic!("{kind:?}"),
    };
    frames.iter().flat_map(one).collect()
}

/// Handles of [`installs`], and others.
pub(super) const ADD: u32 = 0;
pub(super) const PANICS: u32 = 1;
pub(super) const COUNTS: u32 = 2;
pub(super) const FILLS: u32 = 3;
pub(super) const ALIGNED: u32 = 4;
pub(super) const REFUSED: u32 = 5;
pub(super) const UNBOUND: u32 = 6;
pub(super) const TOO_MANY: u32 = 64;

pub(super) fn install(image: ImageParts) -> Vec<u8> {
    let entries = image.entries.len() as u16;
    let image = image.encode().unwrap();
    let head = InstallHead::unsigned(*blake3::hash(&image).as_bytes(), entries);
    [head.as_bytes(), &image].concat()
}

/// Images, with functions for batches or without.
pub(super) fn installs(has_batches: bool) -> Vec<Frame> {
    let mut refused = images::everything();
    refused.imports[0].symbol = "nobody_has_this".into();
    let images = [
        images::add(),
        images::panics(),
        images::counts(),
        images::fills(),
        images::wants_alignment(),
        refused,
    ];
    (0..)
        .zip(images)
        .map(|(handle, image)| {
            let image = if has_batches {
                images::with_batch(image)
            } else {
                image
            };
            (Header::new(Kind::Install, handle, 0), install(image))
        })
        .collect()
}

pub(super) fn numbered(frames: Vec<Frame>) -> Vec<Raw> {
    (1..)
        .zip(frames)
        .map(|(sequence, (header, body))| honest(sequence, header, body))
        .collect()
}
