//! A server of time series: columns in memory, a database file behind them, and clients that bring the code of their queries.
//!
//! `cargo ifunc run 11-timeseries -- [ROWS [FILE]]`

pub mod database;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use example_11_timeseries_first_ifuncs::first_append;
use example_11_timeseries_ifuncs::{
    DbError, Expr, Query, append, checkpoint, column, fill, scan, summarize, value_at,
};
use ifunc_rt::{Policy, Source, Target};

use database::Database;

/// An error with its message.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Values of 64 MiB.
const ROWS: u64 = 8 << 20;
/// Rows that clients append beside those.
const MORE: u64 = 1000;

/// Rows of the large series: the first argument.
fn rows() -> Result<u64, Failure> {
    match env::args().nth(1) {
        Some(rows) => Ok(rows.parse()?),
        None => Ok(ROWS),
    }
}

/// The server. It serves until its process is stopped.
///
/// # Errors
/// The file cannot be made, or the server cannot listen.
pub fn target(addr: &str) -> Result<(), Failure> {
    let mut database = database()?;
    // SAFETY: arriving code has the authority of this process. Over shared memory only programs of the same user send it, over
    // UCX all that reach the address.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(addr)?;
    println!("ifunc: ready {}", target.address());
    target.serve(&mut database)?;
    Ok(())
}

/// The database file that the command line names; without one, a file that has no name any more and goes with the process.
fn database() -> Result<Database, Failure> {
    let max_rows = (rows()? + MORE) as usize;
    if let Some(path) = env::args_os().nth(2) {
        return Ok(Database::open(Path::new(&path), max_rows)?);
    }
    let path = env::temp_dir().join(format!("timeseries-{}.redb", std::process::id()));
    let database = Database::open(&path, max_rows);
    fs::remove_file(&path)?;
    Ok(database?)
}

/// The clients: four tasks that append and query, one that fetches a column, and one of an earlier build.
///
/// # Errors
/// A call fails, or a result is not the expected one.
pub fn source(addr: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(clients(addr))
}

async fn clients(addr: &str) -> Result<(), Failure> {
    let rows = rows()?;
    let source = Source::connect(addr)?;
    let filled = source.register::<fill>()?.call_async(&("load", rows)).await?;
    check("rows", filled.rows, rows)?;

    let tasks: Vec<_> = (0..4)
        .map(|task| tokio::spawn(client(addr.to_owned(), task)))
        .collect();
    for task in tasks {
        task.await??;
    }

    // A query is a tree, evaluated where the columns are: nothing is copied but the result.
    let query = Query {
        series: "load".into(),
        filter: (Expr::Number(90.0).less(Expr::Value)).and(Expr::Number(99.0).less(Expr::Time)),
        of: Expr::Value.times(Expr::Number(2.0)),
    };
    let summary = source
        .register::<scan>()?
        .call_async(&query)
        .await?
        .ok_or("no such series")?;
    println!("{} of {} rows are above 90", summary.selected, summary.rows);

    // The same by fetching the column.
    let values = source.register::<column>()?.call("load")?.undecoded().await?;
    println!("the column has {} bytes", values.len());
    let values: Vec<f64> = values
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f64::from_le_bytes(*bytes))
        .collect();
    let times: Vec<i64> = (0..rows as i64).collect();
    check("the fetched column", summarize(&query, &times, &values), summary)?;
    let expected: Vec<f64> = (0..rows).map(value_at).collect();
    if values != expected {
        return Err("the column differs from what was filled in".into());
    }

    // The server is full. A client of its first version, which did not know that error, is served, and sees another one.
    let new = source
        .register::<append>()?
        .call_async(&("load", &[i64::MAX; 2], &[0.0; 2]))
        .await?;
    check("the error", new.error, DbError::Full as i64)?;
    let old = source.register::<first_append>()?;
    let old = old.call_async(&("load", &[i64::MAX; 2], &[0.0; 2])).await?;
    check(
        "the error of the first version",
        old.error,
        example_11_timeseries_first_ifuncs::DbError::Other as i64,
    )?;
    println!(
        "a full server is error {} today, and {} for the first client",
        new.error, old.error
    );

    let (id, committed) = source.register::<checkpoint>()?.call_async("the end").await?;
    check("committed rows", committed.rows, rows + MORE)?;
    // Version 4, as the bits say.
    check("the id's version", id[6] >> 4, 4)?;
    println!("checked: {} rows scanned, fetched and committed", committed.rows);
    Ok(())
}

/// Appends its part of the further rows to a series of its own, and scans it.
async fn client(addr: String, task: u64) -> Result<(), Failure> {
    let source = Source::connect(&addr)?;
    let append = source.register::<append>()?;
    let series = format!("task {task}");
    let mine = MORE / 4;
    for from in (0..mine).step_by(50) {
        let times: Vec<i64> = (from..from + 50).map(|time| time as i64).collect();
        let values = vec![task as f64; 50];
        let appended = append.call_async(&(series.as_str(), &times, &values)).await?;
        check("rows", appended.rows, from + 50)?;
    }
    let all = Query {
        series,
        filter: Expr::Number(1.0),
        of: Expr::Value,
    };
    let summary = source
        .register::<scan>()?
        .call_async(&all)
        .await?
        .ok_or("no such series")?;
    check("the sum", summary.sum, (mine * task) as f64)
}

fn check<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), Failure> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:?} instead of {expected:?}").into()),
    }
}
