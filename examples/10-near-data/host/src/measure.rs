//! The client: asks in both ways, compares the answers, and says how long each took.

use std::env;
use std::time::{Duration, Instant};

use example_10_near_data_ifuncs::Group;
use ifunc_rt::{Source, SourceOptions};

use crate::{Failure, Options, link, query};

/// Longer than the file takes over the link.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Asks the node at `IFUNC_ADDR`.
///
/// # Errors
/// The node is gone, or the two answers differ.
pub fn source() -> Result<(), Failure> {
    let options = Options::parse()?;
    let mut address =
        env::var("IFUNC_ADDR").map_err(|_| "IFUNC_ADDR is not set; help: `cargo ifunc run 10-near-data`")?;
    match (options.link, address.strip_prefix("tls://")) {
        (Some(bits), Some(host)) => address = format!("tls://{}", link::limited(host, bits)?),
        (Some(_), None) => {
            return Err(
                "`--gbits` limits a network; help: `cargo ifunc run 10-near-data --transport tls`".into(),
            );
        }
        (None, _) => {}
    }
    let source = Source::connect_with(&address, SourceOptions::default().timeout(TIMEOUT))?;
    let len = query::len(&source)?;
    let (near, near_took) = timed(|| query::by_ifuncs(&source, len))?;
    let (fetched, fetch_took) = timed(|| query::by_fetching(&source, len))?;
    if near != fetched {
        return Err("the node and this client answer differently".into());
    }
    let rows: u64 = near.iter().map(|group| group.rows).sum();
    let link = options.link.map_or_else(
        || "a link without a limit".to_owned(),
        |bits| format!("a link of {} Gbit/s", bits as f64 / 1e9),
    );
    let mib = |took: Duration| len as f64 / took.as_secs_f64() / f64::from(1 << 20);
    let moved = size_of_val(near.as_slice());
    println!("{len} bytes beside the node, {link}");
    println!(
        "the parser sent to the node: {near_took:.2?} ({:.0} MiB/s); an answer of {moved} bytes",
        mib(near_took)
    );
    println!(
        "the file fetched:            {fetch_took:.2?} ({:.0} MiB/s); {:.1} times as long",
        mib(fetch_took),
        fetch_took.as_secs_f64() / near_took.as_secs_f64()
    );
    let hottest = near
        .iter()
        .max_by_key(|group: &&Group| group.max)
        .ok_or("no rows")?;
    println!(
        "checked: {rows} rows of {} sensors; the greatest value is {}.{:02}, of sensor {}",
        near.len(),
        hottest.max / 100,
        hottest.max % 100,
        hottest.sensor
    );
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Duration), Failure> {
    let began = Instant::now();
    let done = work()?;
    Ok((done, began.elapsed()))
}
