//! A row of the results: one figure at one size. The names of its fields are those of the file that `--json` writes.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::report::format;
use crate::slots::{Series, Slot};

/// What was measured, beside what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Id of the figure.
    pub(crate) figure: String,
    /// What of the figure: `fresh`, `static`, `code in every frame`. Empty where a figure is one thing.
    #[serde(default)]
    pub(crate) case: String,
    /// Bytes of payload; of the image for `first-arrival`.
    pub(crate) size: u64,
    /// Bytes of the image, where one travels.
    pub(crate) image: Option<u64>,
    /// Median of ours.
    pub(crate) ours: f64,
    /// Median of the peer's.
    pub(crate) peer: Option<f64>,
    /// Who the peer is, and how it was configured.
    pub(crate) peer_name: Option<String>,
    /// Median of the ratios ours ÷ peer, each of two slots behind each other.
    pub(crate) ratio: Option<f64>,
    /// Quartiles of the ratios; without a peer, of the slots ÷ their median.
    #[serde(default)]
    pub(crate) spread: Option<[f64; 2]>,
    /// The least that this could be on this machine, in the same run.
    pub(crate) floor: Option<f64>,
    /// Unit of `ours`, `peer`, `floor` and the percentiles: `ns`, `messages/s`, `instructions`.
    pub(crate) unit: String,
    /// 50th, 99th and 99.9th percentile of ours, and of the peer's.
    #[serde(default)]
    pub(crate) percentiles: [Option<[f64; 3]>; 2],
    /// What carried ours, and the peer, by the transports' own account.
    #[serde(default)]
    pub(crate) carried_by: [Option<String>; 2],
    /// What is to be known about it.
    #[serde(default)]
    pub(crate) note: String,
    /// Of the figure `machine` alone: what the others were measured on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Machine>,
}

impl Row {
    /// What tells it from the other rows of its figure: `fresh, 4 KiB`.
    pub(crate) fn name(&self) -> String {
        let image = self.image.filter(|image| *image != self.size);
        let image = image.map_or_else(String::new, |image| format!("image of {}", format::bytes(image)));
        let mut parts = vec![self.case.clone(), format::bytes(self.size), image];
        parts.retain(|part| !part.is_empty());
        parts.join(", ")
    }
}

impl Row {
    /// Of nanoseconds per operation.
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

    /// Of operations per second: the ratio is that of rates.
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
}
