//! Rows as CSV: nested values get columns of their own.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::row::Row;

#[derive(Serialize)]
struct Line<'a> {
    figure: &'a str,
    case: &'a str,
    size: u64,
    image: Option<u64>,
    ours: f64,
    peer: Option<f64>,
    peer_name: Option<&'a str>,
    ratio: Option<f64>,
    ratio_first_quartile: Option<f64>,
    ratio_third_quartile: Option<f64>,
    floor: Option<f64>,
    floor_name: Option<&'a str>,
    floor_ratio: Option<f64>,
    unit: &'a str,
    ours_p50: Option<f64>,
    ours_p99: Option<f64>,
    ours_p999: Option<f64>,
    peer_p50: Option<f64>,
    peer_p99: Option<f64>,
    peer_p999: Option<f64>,
    ours_carried_by: Option<&'a str>,
    peer_carried_by: Option<&'a str>,
    note: &'a str,
}

impl<'a> From<&'a Row> for Line<'a> {
    fn from(row: &'a Row) -> Self {
        let percentile = |side: usize, at: usize| row.percentiles[side].map(|all| all[at]);
        Self {
            figure: &row.figure,
            case: &row.case,
            size: row.size,
            image: row.image,
            ours: row.ours,
            peer: row.peer,
            peer_name: row.peer_name.as_deref(),
            ratio: row.ratio,
            ratio_first_quartile: row.spread.map(|[first, _]| first),
            ratio_third_quartile: row.spread.map(|[_, third]| third),
            floor: row.floor,
            floor_name: row.floor_name.as_deref(),
            floor_ratio: row.floor_ratio,
            unit: &row.unit,
            ours_p50: percentile(0, 0),
            ours_p99: percentile(0, 1),
            ours_p999: percentile(0, 2),
            peer_p50: percentile(1, 0),
            peer_p99: percentile(1, 1),
            peer_p999: percentile(1, 2),
            ours_carried_by: row.carried_by[0].as_deref(),
            peer_carried_by: row.carried_by[1].as_deref(),
            note: &row.note,
        }
    }
}

/// Writes a line per row, with a header line.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(file: &Path, rows: &[Row]) -> Result<()> {
    let about = || format!("writing {}", file.display());
    let mut writer = csv::Writer::from_path(file).with_context(about)?;
    for row in rows {
        writer.serialize(Line::from(row)).with_context(about)?;
    }
    writer.flush().with_context(about)
}
