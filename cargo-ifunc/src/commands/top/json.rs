//! A sample as one line of JSON.

use std::io::Write;

use ifunc_rt::stats::Stats;
use serde::Serialize;

use super::rates::Rates;
use crate::error::Failure;

#[derive(Serialize)]
struct Sample<'a> {
    interval_s: f64,
    rates: &'a Rates,
    stats: &'a Stats,
}

pub(super) fn print(stats: &Stats, rates: &Rates) -> Result<(), Failure> {
    let sample = Sample {
        interval_s: rates.interval_s,
        rates,
        stats,
    };
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &sample).map_err(std::io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}
