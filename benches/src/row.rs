//! A row of the results: one figure at one size. The field names are those of the file that `--json` writes.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::report::format;
use crate::slots::{Series, Slot};

/// A measured value and its peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Id of the figure.
    pub(crate) figure: String,
    /// The case within the figure: `fresh`, `static`, `code in every frame`. Empty for figures with one case.
    #[serde(default)]
    pub(crate) case: String,
    /// Payload size in bytes; for `first-arrival`, that of the image.
    pub(crate) size: u64,
    /// Size of the image in bytes, if one travels.
    pub(crate) image: Option<u64>,
    /// Our median.
    pub(crate) ours: f64,
    /// The peer's median.
    pub(crate) peer: Option<f64>,
    /// The peer and its configuration.
    pub(crate) peer_name: Option<String>,
    /// Median of the ratios of ours to the peer's, for pairs of consecutive slots.
    pub(crate) ratio: Option<f64>,
    /// Quartiles of the ratios; without a peer, of the slots relative to their median.
    #[serde(default)]
    pub(crate) spread: Option<[f64; 2]>,
    /// The lower bound on this machine, from the same run.
    pub(crate) floor: Option<f64>,
    /// What the lower bound is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor_name: Option<String>,
    /// Median of the ratios of the lower bound to the peer's, as [`ratio`](Self::ratio) is of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) floor_ratio: Option<f64>,
    /// Unit of `ours`, `peer` and `floor`: `ns`, `messages/s`, `instructions`.
    pub(crate) unit: String,
    /// 50th, 99th and 99.9th percentile of single operations, in nanoseconds: of ours, and of the peer's.
    #[serde(default)]
    pub(crate) percentiles: [Option<[f64; 3]>; 2],
    /// Processor time per operation in nanoseconds, of the clients and of the server: ours, and the peer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) processor: Option<[[f64; 2]; 2]>,
    /// Bytes per operation that crossed the network: ours, and the peer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<[f64; 2]>,
    /// The transports of ours and of the peer, as they report themselves.
    #[serde(default)]
    pub(crate) carried_by: [Option<String>; 2],
    /// A note.
    #[serde(default)]
    pub(crate) note: String,
    /// In the row of figure `machine` only: the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Machine>,
}

impl Row {
    /// The row's name within its figure: `fresh, 4 KiB`.
    pub(crate) fn name(&self) -> String {
        let image = self.image.filter(|image| *image != self.size);
        let image = image.map_or_else(String::new, |image| format!("image of {}", format::bytes(image)));
        let mut parts = vec![self.case.clone(), format::bytes(self.size), image];
        parts.retain(|part| !part.is_empty());
        parts.join(", ")
    }
}

impl Row {
    /// A row in nanoseconds per operation.
    pub(crate) fn latency(figure: &str, slot: Slot, ours: &Series, peer: Option<&Series>) -> Self {
        let ratio = peer.map(|peer| ours.ratio(peer));
        Self {
            figure: figure.into(),
            size: slot.size as u64,
            ours: ours.median(),
            peer: peer.map(Series::median),
            ratio: ratio.map(|(ratio, _)| ratio),
            spread: ratio.map(|(_, spread)| spread),
            unit: "ns".into(),
            ..Self::default()
        }
    }

    /// A row in operations per second, with the ratio of rates.
    pub(crate) fn rate(figure: &str, slot: Slot, ours: &Series, peer: Option<&Series>) -> Self {
        let ratio = peer.map(|peer| peer.ratio(ours));
        Self {
            ours: ours.per_second(),
            peer: peer.map(Series::per_second),
            ratio: ratio.map(|(ratio, _)| ratio),
            spread: ratio.map(|(_, spread)| spread),
            unit: "messages/s".into(),
            ..Self::latency(figure, slot, ours, None)
        }
    }

    /// The row with a lower bound that was measured beside ours and the peer's.
    pub(crate) fn with_floor(self, name: &str, floor: &Series, peer: Option<&Series>) -> Self {
        let is_time = self.unit == "ns";
        let ratio = peer.map(|peer| {
            let (ratio, _) = if is_time {
                floor.ratio(peer)
            } else {
                peer.ratio(floor)
            };
            ratio
        });
        Self {
            floor: Some(if is_time {
                floor.median()
            } else {
                floor.per_second()
            }),
            floor_name: Some(name.into()),
            floor_ratio: ratio,
            ..self
        }
    }
}
