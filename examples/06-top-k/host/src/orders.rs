//! The orders: made up from their numbers, so that every process computes the same ones.

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, Schema};
use example_06_top_k_ifuncs::{Column, PAGE};

/// Rows of a record batch.
const BATCH: u64 = 64 * PAGE as u64;

/// The columns of the orders from `first` on, in the order of [`Column::ALL`].
#[must_use]
pub fn columns(first: u64, rows: u64) -> [Vec<i64>; 5] {
    let column = |column| (first..first + rows).map(|order| value(column, order)).collect();
    Column::ALL.map(column)
}

/// A column's value of an order.
fn value(column: Column, order: u64) -> i64 {
    let random = hash(order.wrapping_mul(8).wrapping_add(column as u64));
    // Below 2^63.
    let value = match column {
        Column::Order => order,
        Column::Day => random % 365,
        Column::Customer => random % 100_000,
        Column::Quantity => 1 + random % 20,
        // Cheap items are more common.
        Column::Price => 100 + (random % 1000) * (random >> 32 & 0x3ff),
    };
    value as i64
}

/// SplitMix64.
fn hash(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Writes orders to an Arrow file.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, first: u64, rows: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
    let field = |column| Field::new(format!("{column:?}").to_lowercase(), DataType::Int64, false);
    let schema = Arc::new(Schema::new(Column::ALL.map(field).to_vec()));
    // Other processes find the whole file, or none.
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut writer = FileWriter::try_new(File::create(&new)?, &schema)?;
    let end = first + rows;
    for first in (first..end).step_by(BATCH as usize) {
        let columns = columns(first, BATCH.min(end - first));
        let arrays = columns.map(|column| Arc::new(Int64Array::from(column)) as ArrayRef);
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), arrays.to_vec())?)?;
    }
    writer.finish()?;
    std::fs::rename(new, path)?;
    Ok(())
}
