//! What a target has counted, as plain data and as it travels.
//!
//! A source asks with a `Stats` frame; the target takes a snapshot and answers with a page of it, and with the next page when it is
//! asked for that:
//!
//! | part | bytes |
//! |---|---|
//! | [`PageHead`] | 24 |
//! | a part of the snapshot | up to the largest answer of the connection, at least 1 |
//!
//! The snapshot, when all of it is there, is [`Stats`] in the encoding of postcard. [`VERSION`] says which fields it has:
//! whatever is added, taken away or put elsewhere makes it another.

mod histogram;
mod tally;

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use histogram::DurationHistogram;
pub use tally::{Reason, Tally};

use crate::ImageId;
use crate::frame::{FrameError, Kind};
use crate::status::{Failure, Rejection};

/// Version of [`Stats`] as it travels.
pub const VERSION: u16 = 1;
/// Longest snapshot that is sent or taken in, in bytes.
pub const MAX_BYTES: usize = 16 << 20;
/// Most sources that a snapshot lists, those that connected first; and most ifuncs, those with the most hits.
pub const MAX_LISTED: usize = 8192;

/// First bytes of a page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PageHead {
    /// [`VERSION`] of the target.
    pub version: U16,
    /// Zero.
    pub reserved: U16,
    /// Length of the whole snapshot in bytes.
    pub total: U32,
    /// Where in it this page begins: where it was asked to, or 0 if the target had no such snapshot (any more) and took a
    /// new one.
    pub offset: U32,
    /// How long this snapshot is told again before a new one is taken, in microseconds: it was asked for too soon after the one
    /// before. 0: it was taken for this question, or this is not its first page.
    pub cached_for_us: U32,
    /// Number of the snapshot on this connection: pages of two do not fit together.
    pub snapshot: U64,
}

impl PageHead {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// Splits the body of an answer into head and part.
    ///
    /// # Errors
    /// A body without a head, or one that lies outside of what it says the whole is.
    pub fn split(body: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let bad = FrameError::Body {
            kind: Kind::Stats,
            len: body.len(),
        };
        let (head, part) = Self::read_from_prefix(body).map_err(|_| bad)?;
        let end = (head.offset.get() as usize).checked_add(part.len());
        if part.is_empty() || end.is_none_or(|end| end > head.total.get() as usize) {
            return Err(bad);
        }
        Ok((head, part))
    }
}

/// What a target has counted so far.
///
/// Everything counts from the target's start; rates are differences of two. Numbers are read while the target serves: each is
/// right, and what belongs together may be one apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Version of the target's runtime.
    pub runtime: String,
    /// Where it listens.
    pub address: String,
    /// Its process.
    pub pid: u32,
    /// How long it listens, in nanoseconds.
    pub uptime_ns: u64,
    /// Number of connections so far.
    pub connected: u64,
    /// The connection over which this snapshot was asked for; 0: none, it was taken in the target's process.
    pub asked_by: u64,
    /// Memory for code.
    pub code: CodeMemory,
    /// Which invocations are timed.
    pub timing: Timing,
    /// All connections, also those that are over.
    pub total: Counts,
    /// The sources that are connected, by number.
    pub sources: Vec<SourceStats>,
    /// The ifuncs that are installed, and those that were asked to be or are no more, as far as they are remembered; those with the most hits first.
    pub ifuncs: Vec<IfuncStats>,
    /// What was counted of ifuncs that are not remembered any more.
    pub forgotten: IfuncCounts,
}

impl Stats {
    /// As it travels.
    ///
    /// # Errors
    /// No memory.
    pub fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_allocvec(self)
    }

    /// What came. No bytes make it panic, or allocate more than a small multiple of their length.
    ///
    /// # Errors
    /// Bytes that are no snapshot of this [`VERSION`].
    pub fn decode(bytes: &[u8]) -> Result<Self, postcard::Error> {
        match postcard::take_from_bytes(bytes)? {
            (stats, []) => Ok(stats),
            _ => Err(postcard::Error::DeserializeBadEncoding),
        }
    }
}

/// Memory for installed code, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeMemory {
    /// Taken by installed images.
    pub used: u64,
    /// Address space that they may take together.
    pub limit: u64,
    /// Installed images.
    pub images: u64,
    /// Most images that may be installed at once.
    pub max_images: u64,
}

/// Which invocations a target times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Timing {
    /// The first 64 of an ifunc on a connection, then one in 64. Two looks at the clock cost more than a small ifunc.
    #[default]
    Sampled,
    /// Every one.
    All,
    /// None.
    Off,
}

/// What was counted of one connection, or of all.
///
/// Every `Exec` frame and every entry of a `Batch` is one of `executed`, `failed` and `rejected`. `frames` counts frames of all
/// kinds: a batch is one, however many entries it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames from sources, of any kind.
    pub frames: u64,
    /// Bytes of payloads and images from sources.
    pub bytes_in: u64,
    /// Bytes of answers and reasons to sources.
    pub bytes_out: u64,
    /// Images bound to handles: one for every `Install` that was accepted.
    pub installs: u64,
    /// Invocations that ran to their end.
    pub executed: u64,
    /// Invocations that were started and did not end well.
    pub failed: Tally<Failure>,
    /// Messages that were not run.
    pub rejected: Tally<Rejection>,
    /// Images that were not installed.
    pub refused: Tally<Rejection>,
    /// Times that frames had to wait because their source did not take in its answers.
    pub stalls: u64,
}

impl Counts {
    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.frames = self.frames.saturating_add(other.frames);
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
        self.installs = self.installs.saturating_add(other.installs);
        self.executed = self.executed.saturating_add(other.executed);
        self.failed.merge(&other.failed);
        self.rejected.merge(&other.rejected);
        self.refused.merge(&other.refused);
        self.stalls = self.stalls.saturating_add(other.stalls);
    }
}

/// A connected source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStats {
    /// Number of its connection on this target.
    pub connection: u64,
    /// Its user id, as far as the kernel vouches for it.
    pub uid: Option<u32>,
    /// Its process id.
    pub pid: Option<i32>,
    /// What carries the connection, as the transport itself says: `shm`, or lanes of UCX such as `tcp/eth0`.
    pub lanes: Vec<String>,
    /// How long it is connected, in nanoseconds.
    pub connected_ns: u64,
    /// Images that it has bound.
    pub bound: u64,
    /// Whether its next frame waits because it does not take in its answers.
    pub stalled: bool,
    /// What was counted.
    pub counts: Counts,
}

/// An ifunc, by its image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IfuncStats {
    /// BLAKE3 of the image.
    #[serde(with = "hex")]
    pub id: ImageId,
    /// The name that it gives itself.
    pub name: String,
    /// Size of the image in bytes.
    pub size: u64,
    /// Bytes of code memory that it takes; 0 when it is not installed.
    pub memory: u64,
    /// Whether it is installed.
    pub installed: bool,
    /// Handles that stand for it now, of all connections.
    pub bound: u64,
    /// What was counted.
    pub counts: IfuncCounts,
}

/// What was counted of an ifunc.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IfuncCounts {
    /// Invocations: `executed` and failed ones.
    pub hits: u64,
    /// Invocations that did not end well.
    pub failed: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes of their answers.
    pub answer_bytes: u64,
    /// Times that it was bound to a handle.
    pub installs: u64,
    /// Times that it was not installed.
    pub refused: Tally<Rejection>,
    /// How long invocations took, of those that were timed.
    pub times: DurationHistogram,
}

impl IfuncCounts {
    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.hits = self.hits.saturating_add(other.hits);
        self.failed = self.failed.saturating_add(other.failed);
        self.payload_bytes = self.payload_bytes.saturating_add(other.payload_bytes);
        self.answer_bytes = self.answer_bytes.saturating_add(other.answer_bytes);
        self.installs = self.installs.saturating_add(other.installs);
        self.refused.merge(&other.refused);
        self.times.merge(&other.times);
    }
}

/// An id as 64 hexadecimal digits for people, as 32 bytes for machines.
mod hex {
    use super::{Deserialize, Deserializer, ImageId, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(id: &ImageId, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return id.serialize(serializer);
        }
        let digits = id.map(|byte| [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[digit as usize]));
        serializer.serialize_str(core::str::from_utf8(digits.as_flattened()).unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ImageId, D::Error> {
        if !deserializer.is_human_readable() {
            return ImageId::deserialize(deserializer);
        }
        let text = alloc::string::String::deserialize(deserializer)?;
        let mut id = [0; 32];
        let wrong = || serde::de::Error::custom("an id has 64 hexadecimal digits");
        if text.len() != 64 {
            return Err(wrong());
        }
        for (byte, digits) in id.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
            let digit = |at: usize| char::from(digits[at]).to_digit(16).ok_or_else(wrong);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Stats {
        let mut times = DurationHistogram::default();
        times.record(3);
        times.record(1_000_000);
        let mut refused = Tally::default();
        refused.add(Rejection::Policy, 2);
        Stats {
            address: "shm:x".into(),
            uptime_ns: u64::MAX,
            sources: alloc::vec![SourceStats {
                connection: 1,
                uid: Some(0),
                lanes: alloc::vec!["tcp/lo".into()],
                ..SourceStats::default()
            }],
            ifuncs: alloc::vec![IfuncStats {
                id: [0xa5; 32],
                name: "add".into(),
                counts: IfuncCounts {
                    hits: 7,
                    refused,
                    times,
                    ..IfuncCounts::default()
                },
                ..IfuncStats::default()
            }],
            ..Stats::default()
        }
    }

    #[test]
    fn a_snapshot_survives_the_way_and_none_of_its_parts_does() {
        let stats = some();
        let bytes = stats.encode().unwrap();
        assert_eq!(Stats::decode(&bytes).as_ref(), Ok(&stats));
        for len in 0..bytes.len() {
            assert!(Stats::decode(&bytes[..len]).is_err(), "{len}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Stats::decode(&longer).is_err());
    }

    #[test]
    fn bytes_of_a_peer_are_judged() {
        let bytes = some().encode().unwrap();
        for at in 0..bytes.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                // Whatever it says: without a panic, and encodable again.
                if let Ok(stats) = Stats::decode(&changed) {
                    stats.encode().unwrap();
                }
            }
        }
        let head = |total: u32, offset: u32| PageHead {
            version: U16::new(VERSION),
            reserved: U16::ZERO,
            total: U32::new(total),
            offset: U32::new(offset),
            cached_for_us: U32::ZERO,
            snapshot: U64::new(1),
        };
        let page = |total, offset, part: &[u8]| [head(total, offset).as_bytes(), part].concat();
        assert!(PageHead::split(&page(3, 1, b"xx")).is_ok());
        assert!(PageHead::split(&page(2, 1, b"xx")).is_err());
        assert!(PageHead::split(&page(2, u32::MAX, b"xx")).is_err());
        assert!(PageHead::split(&page(2, 0, b"")).is_err());
        assert!(PageHead::split(&[0; PageHead::SIZE - 1]).is_err());
    }
}
