//! A target's counters and their encoding.
//!
//! A source sends a `Stats` frame. The target takes a snapshot and answers with its first page; each further
//! `Stats` frame requests the next page:
//!
//! | part | bytes |
//! |---|---|
//! | [`PageHead`] | 24 |
//! | a part of the snapshot | 1 up to the largest answer of the connection |
//!
//! All parts together are [`Stats`] in postcard's encoding. [`VERSION`] changes with every added, removed or
//! moved field.

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

/// Version of the encoding of [`Stats`].
pub const VERSION: u16 = 3;
/// Longest snapshot that a target sends or a source accepts, in bytes.
pub const MAX_BYTES: usize = 16 << 20;
/// Largest number of sources in a snapshot (those that connected first) and of ifuncs (those with the most
/// hits).
pub const MAX_LISTED: usize = 8192;

/// The head of a page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PageHead {
    /// [`VERSION`] of the target.
    pub version: U16,
    /// Zero.
    pub reserved: U16,
    /// Length of the whole snapshot in bytes.
    pub total: U32,
    /// Offset of this page in the snapshot: the requested offset, or 0 if the target no longer had that
    /// snapshot and took a new one.
    pub offset: U32,
    /// Remaining time for which the target serves this snapshot again before it takes a new one, in
    /// microseconds: the request came too soon after the previous one. 0: the target took the snapshot for
    /// this request, or this is not its first page.
    pub cached_for_us: U32,
    /// Number of the snapshot on this connection. Pages of different snapshots do not fit together.
    pub snapshot: U64,
}

impl PageHead {
    /// Size in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// Splits the body of an answer into its head and its part of the snapshot.
    ///
    /// # Errors
    /// A body without a head, or a part that lies outside the stated total.
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

/// Everything that a target has counted since it started.
///
/// A rate is the difference of two snapshots. The target serves while it reads the counters: each one is
/// right, and related ones may differ by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Version of the target's runtime.
    pub runtime: String,
    /// Address that the target listens on.
    pub address: String,
    /// Process id.
    pub pid: u32,
    /// Time since the target started to listen, in nanoseconds.
    pub uptime_ns: u64,
    /// Number of connections accepted so far.
    pub connected: u64,
    /// The connection that requested this snapshot; 0 if the target's own process took it.
    pub asked_by: u64,
    /// Memory for code.
    pub code: CodeMemory,
    /// Which invocations are timed.
    pub timing: Timing,
    /// Sums over all connections, closed ones included.
    pub total: Counts,
    /// The connected sources, in order of their connection number.
    pub sources: Vec<SourceStats>,
    /// The installed ifuncs, and as many refused or evicted ones as the target remembers; those with the most
    /// hits first.
    pub ifuncs: Vec<IfuncStats>,
    /// Sums over the ifuncs that the target no longer remembers.
    pub forgotten: IfuncCounts,
    /// What the target does as a node of a group; `None`: it has joined none.
    pub group: Option<GroupStats>,
    /// Changes of what the target exports.
    pub exports: ExportStats,
    /// The processes in which the target runs ifuncs; `None`: it runs them itself.
    pub runners: Option<RunnerStats>,
}

impl Stats {
    /// Encodes the snapshot.
    ///
    /// # Errors
    /// Out of memory.
    pub fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_allocvec(self)
    }

    /// Decodes a snapshot. No input makes it panic or allocate more than a small multiple of the input's
    /// length.
    ///
    /// # Errors
    /// Bytes that are not a snapshot of this [`VERSION`].
    pub fn decode(bytes: &[u8]) -> Result<Self, postcard::Error> {
        match postcard::take_from_bytes(bytes)? {
            (stats, []) => Ok(stats),
            _ => Err(postcard::Error::DeserializeBadEncoding),
        }
    }
}

/// What a node of a group has sent to other nodes, and what it holds now.
///
/// `invocations` is the work; the other frames are what the group needs to answer and to end it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStats {
    /// Its number in the group.
    pub node: u32,
    /// Number of nodes that it has a link to.
    pub linked: u64,
    /// Frames with invocations that it forwarded or sent to other nodes.
    pub invocations: u64,
    /// Frames with answers, partial answers or failures of calls.
    pub replies: u64,
    /// Frames that return the weight of scopes, by which the source of a scope learns that everything in it has ended.
    pub weights: u64,
    /// Other frames: the windows of streams, reports of lost nodes, and invocations that are sent back.
    pub others: u64,
    /// Bytes of invocations for other nodes, or for itself, that were not sent.
    pub outbox_bytes: u64,
    /// Calls of its sources that were forwarded and have no answer yet.
    pub slots: u64,
    /// Scopes in which something has not ended.
    pub scopes: u64,
}

/// Changes of what a target exports.
///
/// A change adds, replaces or removes a symbol or a library, or several that take effect together. It has ended when no
/// invocation runs any more that could use what it replaced or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStats {
    /// Changes made.
    pub changes: u64,
    /// How long the latest change took until the target knew that it had ended, in nanoseconds; `None`: there was none, or it
    /// has not ended: an invocation still runs that began before it, or a pinned image imports what it replaced.
    ///
    /// A change waits for that end if what it replaces has an owner. For the others, and after a timeout, the target looks
    /// whenever it is idle.
    pub last_ns: Option<u64>,
}

/// The runner processes of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerStats {
    /// Processes that run. The target learns that one has ended when it needs it.
    pub running: u64,
    /// Limit of `running`.
    pub max: u64,
    /// Processes that took the place of one that had ended.
    pub restarts: u64,
    /// Processes that ended by themselves, were killed, or were ended by the target for what they did.
    pub crashes: u64,
    /// Version of Landlock that confines them; 0: the kernel has none.
    pub landlock: u64,
}

/// Memory for installed code, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeMemory {
    /// Used by installed images.
    pub used: u64,
    /// Limit of the address space that installed images take together.
    pub limit: u64,
    /// Installed images.
    pub images: u64,
    /// Limit of `images`.
    pub max_images: u64,
}

/// Which invocations a target times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Timing {
    /// The first 64 invocations of an ifunc on a connection, then one in 64. Reading the clock twice costs
    /// more than a small ifunc.
    #[default]
    Sampled,
    /// Every invocation.
    All,
    /// None.
    Off,
}

/// Counters of one connection, or of all.
///
/// Every `Exec` frame and every entry of a `Batch` counts once, in `executed`, `failed` or `rejected`.
/// `frames` counts frames of all kinds; a batch is one frame.
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
    /// Invocations that succeeded.
    pub executed: u64,
    /// Invocations that started and failed.
    pub failed: Tally<Failure>,
    /// Messages that the target did not run.
    pub rejected: Tally<Rejection>,
    /// Images that the target did not install.
    pub refused: Tally<Rejection>,
    /// How often frames waited because their source did not read its answers.
    pub stalls: u64,
}

impl Counts {
    /// Adds the counts of `other`.
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
    /// The source's user id, if the kernel vouches for it.
    pub uid: Option<u32>,
    /// The source's process id.
    pub pid: Option<i32>,
    /// The transport and its lanes: `shm`, or lanes of UCX such as `tcp/eth0`.
    pub lanes: Vec<String>,
    /// Time since it connected, in nanoseconds.
    pub connected_ns: u64,
    /// Images bound to its handles.
    pub bound: u64,
    /// Whether its next frame waits because it does not read its answers.
    pub stalled: bool,
    /// Counters of the connection.
    pub counts: Counts,
}

/// Counters of an ifunc, which its image identifies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IfuncStats {
    /// BLAKE3 of the image.
    #[serde(with = "hex")]
    pub id: ImageId,
    /// The name in the image.
    pub name: String,
    /// Size of the image in bytes.
    pub size: u64,
    /// Bytes of code memory that the image occupies; 0 if it is not installed.
    pub memory: u64,
    /// Whether it is installed.
    pub installed: bool,
    /// Handles bound to it now, on all connections.
    pub bound: u64,
    /// Counters of the ifunc.
    pub counts: IfuncCounts,
}

/// Counters of one ifunc, or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IfuncCounts {
    /// Invocations that started.
    pub hits: u64,
    /// Invocations that failed.
    pub failed: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes of their answers.
    pub answer_bytes: u64,
    /// How often it was bound to a handle.
    pub installs: u64,
    /// How often the target did not install it, by reason.
    pub refused: Tally<Rejection>,
    /// Durations of the timed invocations.
    pub times: DurationHistogram,
}

impl IfuncCounts {
    /// Adds the counts of `other`.
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

/// Serialises an id as 64 hexadecimal digits in readable formats, as 32 bytes in binary ones.
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
            exports: ExportStats {
                changes: 2,
                last_ns: Some(1_000),
            },
            runners: Some(RunnerStats {
                running: 2,
                crashes: u64::MAX,
                ..RunnerStats::default()
            }),
            ..Stats::default()
        }
    }

    #[test]
    fn a_snapshot_round_trips_and_its_prefixes_are_refused() {
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
    fn bytes_of_a_peer_are_validated() {
        let bytes = some().encode().unwrap();
        for at in 0..bytes.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                // Decoding does not panic, and what decodes is encodable again.
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

    #[test]
    fn a_readable_id_has_64_digits() {
        use serde::de::IntoDeserializer as _;
        use serde::de::value::{Error, StrDeserializer};
        let read = |text: &str| {
            let from: StrDeserializer<'_, Error> = text.into_deserializer();
            hex::deserialize(from).ok()
        };
        assert_eq!(read(&"a5".repeat(32)), Some([0xa5; 32]));
        assert_eq!(read(&"0F".repeat(32)), Some([0x0f; 32]));
        for wrong in [
            &"a5".repeat(31),
            &"a5".repeat(33),
            &"g5".repeat(32),
            &"5g".repeat(32),
            "",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn counts_add_up() {
        let (mut failed, mut rejected, mut refused) = (Tally::default(), Tally::default(), Tally::default());
        failed.add(Failure::Panic, 6);
        rejected.add(Rejection::Policy, 7);
        refused.add(Rejection::Quota, 8);
        let one = Counts {
            frames: 1,
            bytes_in: 2,
            bytes_out: 3,
            installs: 4,
            executed: 5,
            failed: failed.clone(),
            rejected: rejected.clone(),
            refused: refused.clone(),
            stalls: u64::MAX,
        };
        let mut two = one.clone();
        two.merge(&one);
        failed.merge(&failed.clone());
        rejected.merge(&rejected.clone());
        refused.merge(&refused.clone());
        assert_eq!(failed.get(Failure::Panic), 12);
        let expected = Counts {
            frames: 2,
            bytes_in: 4,
            bytes_out: 6,
            installs: 8,
            executed: 10,
            failed,
            rejected,
            refused: refused.clone(),
            stalls: u64::MAX,
        };
        assert_eq!(two, expected);
        let mut times = DurationHistogram::default();
        times.record(9);
        let one = IfuncCounts {
            hits: 1,
            failed: 2,
            payload_bytes: 3,
            answer_bytes: 4,
            installs: u64::MAX,
            refused: refused.clone(),
            times: times.clone(),
        };
        let mut two = one.clone();
        two.merge(&one);
        times.record(9);
        refused.merge(&refused.clone());
        let expected = IfuncCounts {
            hits: 2,
            failed: 4,
            payload_bytes: 6,
            answer_bytes: 8,
            installs: u64::MAX,
            refused,
            times,
        };
        assert_eq!(two, expected);
    }

    #[test]
    fn an_id_is_written_as_its_digits() {
        struct Shown(ImageId);
        impl core::fmt::Display for Shown {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                hex::serialize(&self.0, f)
            }
        }
        let mut id = [0; 32];
        (id[0], id[1], id[31]) = (0x0f, 0xa5, 0xf0);
        let expected = alloc::format!("0fa5{}f0", "0".repeat(58));
        assert_eq!(alloc::format!("{}", Shown(id)), expected);
    }
}
