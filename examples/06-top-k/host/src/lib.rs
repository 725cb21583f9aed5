//! Top rows of columns that lie on several servers. Each server owns an Arrow file and lends its columns, page by page. The
//! source sends a query, and the code that runs it, to all of them at once; only the best rows of each come back, and the
//! source merges them. Then it fetches the columns instead, to compare both the result and what it cost.
//!
//! `cargo ifunc run 06-top-k -- [--servers N] [--rows N] [--k K] [--folder DIR]`

pub mod compare;
pub mod orders;
pub mod table;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use example_06_top_k_ifuncs::{Column, Condition, Query, Top, fetch, top_k};
use example_servers::{Args, Bytes, Failure, Moved, Server, addresses, moved, run};
use ifunc_rt::{Handle, Policy, Source, Target};

use table::Table;

const USAGE: &str = "cargo ifunc run 06-top-k -- [--servers N] [--rows ROWS_OF_A_SERVER] [--k ROWS_OF_THE_RESULT] [--folder DIR]";

/// The command line, the same for servers and source.
#[derive(Clone, Debug)]
struct Options {
    servers: u32,
    /// Rows of each server.
    rows: u64,
    k: u32,
    /// Where the files are kept; a temporary folder without it.
    folder: Option<PathBuf>,
}

impl Options {
    fn from_env() -> Result<Self, Failure> {
        let mut args = Args::from_env();
        let options = Self {
            servers: args.number("--servers", 4, 1, 64)? as u32,
            rows: args.number("--rows", 500_000, 1, 1 << 32)?,
            // The rows of one server fit into an answer.
            k: args.number("--k", 10, 1, 1000)? as u32,
            folder: args.option("--folder")?,
        };
        args.end(USAGE)?;
        Ok(options)
    }
}

/// Owns the file of one server, or of all in this process, and lets sources query it until the process is stopped.
///
/// # Errors
/// A file cannot be written or read, or a server cannot listen.
pub fn target(addr: &str) -> Result<(), Failure> {
    let options = Options::from_env()?;
    run(addr, options.servers, |server| serve(server, &options))
}

fn serve(mut server: Server, options: &Options) -> Result<(), Failure> {
    let mut table = table_of(&server, options)?;
    // SAFETY: arriving code has the authority of this process. Over shared memory only programs of the same user send it, over
    // UCX all that reach the address.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(server.address())?;
    let published = server.ready(&target)?;
    target.serve(&mut table)?;
    drop(published);
    Ok(())
}

/// Opens the server's file. Writes it first if it is not there.
fn table_of(server: &Server, options: &Options) -> Result<Table, Failure> {
    let first = u64::from(server.rank) * options.rows;
    let name = format!("orders-{first}-{}.arrow", first + options.rows);
    if let Some(folder) = &options.folder {
        fs::create_dir_all(folder)?;
        let path = folder.join(name);
        if !path.exists() {
            orders::write(&path, first, options.rows)?;
        }
        return Ok(Table::open(&path)?);
    }
    let path = std::env::current_exe()?.with_file_name(format!("{}-{name}", std::process::id()));
    orders::write(&path, first, options.rows)?;
    let table = Table::open(&path);
    fs::remove_file(&path)?;
    Ok(table?)
}

/// Queries all servers, fetches their columns, and compares results and costs.
///
/// # Errors
/// A server cannot be reached or fails, or the results differ.
pub fn source(addr: &str) -> Result<(), Failure> {
    let options = Options::from_env()?;
    let servers = addresses(addr, options.servers)?;
    let servers: Vec<Source> = servers
        .iter()
        .map(|at| Source::connect(at))
        .collect::<Result<_, _>>()?;
    let all = u64::from(options.servers) * options.rows;
    println!("{all} orders in Arrow files of {} servers", options.servers);

    let query = Query {
        k: options.k,
        conditions: vec![
            Condition {
                column: Column::Day,
                least: 100,
                most: 199,
            },
            Condition {
                column: Column::Quantity,
                least: 5,
                most: i64::MAX,
            },
        ],
    };
    let before = moved(&servers)?;
    let began = Instant::now();
    let top = query_all(&servers, &query)?;
    let seconds = began.elapsed().as_secs_f64();
    let by_ifunc = Cost {
        seconds,
        moved: moved(&servers)? - before,
    };
    for row in top.rows.iter().take(5) {
        println!(
            "order {} of customer {}: {}",
            row.order,
            row.customer,
            Cents(row.revenue)
        );
    }
    println!(
        "top {} of {} orders with 5 items or more on days 100 to 199, worth {} together",
        top.rows.len(),
        top.selected,
        Cents(top.revenue)
    );

    let before = moved(&servers)?;
    let began = Instant::now();
    let columns = fetch_all(&servers)?;
    let fetched = compare::in_memory(&query, &columns);
    let seconds = began.elapsed().as_secs_f64();
    let by_fetch = Cost {
        seconds,
        moved: moved(&servers)? - before,
    };
    if fetched != top {
        return Err(format!("the fetched columns give another result: {fetched:?}").into());
    }
    let expected = compare::in_memory(&query, &orders::columns(0, all));
    if expected != top {
        return Err(format!("a sequential computation gives another result: {expected:?}").into());
    }
    println!("checked: a sequential computation and the fetched columns give the same result");

    println!("{:<20} {:>8} {:>10} {:>10}", "", "messages", "bytes", "time");
    println!("{:<20} {by_ifunc}", "sending the query");
    println!("{:<20} {by_fetch}", "fetching the columns");
    Ok(())
}

/// Sends the query to all servers, and merges what comes back.
fn query_all(servers: &[Source], query: &Query) -> Result<Top, Failure> {
    let handles: Vec<_> = servers
        .iter()
        .map(Source::register::<top_k>)
        .collect::<Result<_, _>>()?;
    // All of them work at the same time.
    let calls: Vec<_> = handles
        .iter()
        .map(|top| top.call(query))
        .collect::<Result<_, _>>()?;
    let mut all = Top::default();
    for call in calls {
        let top = call.wait()?;
        all.selected += top.selected;
        all.revenue += top.revenue;
        all.rows.extend(top.rows);
    }
    compare::rank(&mut all.rows, query.k);
    Ok(all)
}

/// Fetches all columns of all servers.
fn fetch_all(servers: &[Source]) -> Result<[Vec<i64>; 5], Failure> {
    let handles: Vec<Handle<fetch>> = servers
        .iter()
        .map(Source::register::<fetch>)
        .collect::<Result<_, _>>()?;
    let mut columns = [const { Vec::new() }; 5];
    for handle in &handles {
        for (number, column) in columns.iter_mut().enumerate() {
            compare::fetch_column(handle, number as u64, column)?;
        }
    }
    Ok(columns)
}

/// What one way to the result has cost.
struct Cost {
    moved: Moved,
    seconds: f64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Moved { messages, bytes } = self.moved;
        write!(
            f,
            "{messages:>8} {:>10} {:>7.1} ms",
            Bytes(bytes),
            self.seconds * 1e3
        )
    }
}

/// An amount of money.
struct Cents(i64);

impl std::fmt::Display for Cents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}
