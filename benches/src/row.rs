//! A row of the results: one figure at one size. The names of its fields are those of the file that `--json` writes.

use serde::{Deserialize, Serialize};

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
    pub peer_name: Option<String>,
    /// Median of the ratios ours ÷ peer, each of two slots behind each other.
    pub(crate) ratio: Option<f64>,
    /// Quartiles of the ratios.
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
    pub carried_by: [Option<String>; 2],
    /// What is to be known about it.
    #[serde(default)]
    pub(crate) note: String,
}
