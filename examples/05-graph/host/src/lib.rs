//! Breadth-first search and PageRank on a graph that is cut over several servers. The source sends both algorithms, which no
//! server knows; they go from server to server in batches, and `Source::finish` returns when every invocation has ended. Then
//! the source fetches the graph instead, to compare both the results and what they cost.
//!
//! `cargo ifunc run 05-graph -- [FILE] [--servers N] [--json FILE]`; `--help` lists all options.

pub mod cluster;
pub mod input;
pub mod part;
pub mod report;
pub mod rmat;
pub mod rows;
pub mod sequential;
pub mod snap;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use example_05_graph_ifuncs::{Array, ONE, Part, UNREACHED};
use example_servers::{Args, Failure, Server, addresses, run};
use ifunc_rt::{Policy, Target};

use cluster::Cluster;
use input::Input;
use part::Store;
use report::{Cost, Run, json, table};
use rmat::Rmat;
use rows::Rows;

const HELP: &str = "\
Breadth-first search and PageRank on a graph that is cut over several servers

Usage: cargo ifunc run 05-graph -- [FILE] [OPTIONS]

  FILE               An edge list of SNAP: lines FROM<TAB>TO, comments begin with `#`.
                     Without it, the graph is a random one (R-MAT)
  --directed         Edges lead from FROM to TO only; otherwise both ways
  --servers N        Number of servers [default: 4]
  --root VERTEX      Where the search begins [default: the vertex with most neighbours]
  --steps N          Steps of PageRank [default: 10]
  --json FILE        Write the table as a JSON array of objects, too
  --scale LOG2       The random graph has 2^LOG2 vertices [default: 14]
  --edge-factor N    ... and N edges per vertex [default: 16]
  --seed SEED        ... and is another one for each SEED [default: 1]";

/// The command line, the same for servers and source.
#[derive(Clone, Debug)]
struct Options {
    file: Option<PathBuf>,
    directed: bool,
    servers: u32,
    root: Option<u64>,
    steps: u64,
    json: Option<PathBuf>,
    rmat: Rmat,
}

impl Options {
    fn from_env() -> Result<Self, Failure> {
        let mut args = Args::from_env();
        args.help(HELP);
        let options = Self {
            directed: args.flag("--directed"),
            servers: args.number("--servers", 4, 1, 64)? as u32,
            root: args.option("--root")?,
            steps: args.number("--steps", 10, 1, 10_000)?,
            json: args.option("--json")?,
            rmat: Rmat {
                scale: args.number("--scale", 14, 1, 28)? as u32,
                edge_factor: args.number("--edge-factor", 16, 1, 1024)?,
                seed: args.number("--seed", 1, 0, u64::MAX)?,
            },
            file: args.positional().map(PathBuf::from),
        };
        args.end("cargo ifunc run 05-graph -- --help")?;
        Ok(options)
    }

    fn input(&self) -> Result<Input, Failure> {
        Input::open(self.file.as_deref(), self.rmat)
    }
}

/// Lends the part of one server, or of all in this process, until the process is stopped.
///
/// # Errors
/// The graph cannot be read, or a server cannot listen.
pub fn target(addr: &str) -> Result<(), Failure> {
    let options = Options::from_env()?;
    // Before other servers start: they would report the same error.
    let input = options.input()?;
    run(addr, options.servers, |server| {
        serve(server, &input, options.directed)
    })
}

fn serve(mut server: Server, input: &Input, directed: bool) -> Result<(), Failure> {
    let part = Part::new(input.vertices(), server.size, server.rank);
    let rows = Rows::new(input, directed, part.range())?;
    // SAFETY: arriving code has the authority of this process. Over shared memory only programs of the same user send it, over
    // UCX all that reach the address.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    // A server may send all of a step before another one receives it: at most 16 bytes for each vertex.
    let outbox = (16 * input.vertices() as usize).max(16 << 20) * 2;
    let mut target = builder.outbox(outbox).listen(server.address())?;
    server.join(&mut target)?;
    target.serve(&mut Store::new(part, rows))?;
    Ok(())
}

/// Computes on the servers, then with the fetched graph, and compares results and costs.
///
/// # Errors
/// A server cannot be reached or fails, or the results differ.
pub fn source(addr: &str) -> Result<(), Failure> {
    let options = Options::from_env()?;
    let addresses = addresses(addr, options.servers)?;
    let input = options.input()?;
    let vertices = input.vertices();
    let graph = Rows::new(&input, options.directed, 0..vertices)?;
    let cluster = Cluster::connect(&addresses, vertices)?;
    let run = describe(&options, &graph);
    let root = match options.root {
        Some(id) => input.vertex(id)?,
        None => most_neighbours(&graph),
    };

    let (mut bfs, visits) = measured("bfs", &cluster, || cluster.search(root))?;
    bfs.without_answers(visits, run.cut_edges);
    let (mut pagerank, additions) = measured("pagerank", &cluster, || cluster.rank(options.steps))?;
    pagerank.without_answers(additions, run.cut_edges * options.steps);
    let (fetch, fetched) = measured("fetch", &cluster, || cluster.graph())?;
    if fetched != graph {
        return Err("the fetched graph is not the one that the source read".into());
    }
    let (levels, search_alone) = timed(|| sequential::levels(&fetched, root));
    let (ranks, rank_alone) = timed(|| sequential::ranks(&fetched, options.steps));
    if cluster.column(Array::Levels)? != levels {
        return Err("the levels are not those of a sequential search".into());
    }
    if cluster.column(Array::Ranks)? != ranks {
        return Err("the ranks are not those of a sequential computation".into());
    }

    let reached = levels.iter().filter(|&&level| level != UNREACHED);
    println!(
        "{} vertices are at most {} steps away from vertex {}",
        reached.clone().count(),
        reached.max().unwrap_or(&0),
        input.id(root)
    );
    let first = (0..vertices)
        .max_by_key(|&vertex| ranks[vertex as usize])
        .unwrap_or(0);
    let percent = ranks[first as usize] as f64 / ONE as f64 * 100.0;
    println!("vertex {} has the greatest rank: {percent:.3} %", input.id(first));
    println!("checked: levels and ranks are those of a sequential computation, bit by bit");

    let costs = [
        bfs,
        fetch.followed_by("bfs", search_alone),
        pagerank,
        fetch.followed_by("pagerank", rank_alone),
    ];
    println!("{}", table(&costs));
    if let Some(file) = options.json {
        fs::write(&file, json(run, &costs))
            .map_err(|why| format!("cannot write `{}`: {why}", file.display()))?;
    }
    Ok(())
}

/// Prints and returns what the graph is.
fn describe(options: &Options, graph: &Rows) -> Run {
    let vertices = graph.offsets.len() as u32 - 1;
    let part = Part::new(vertices, options.servers, 0);
    let rows = (0..).zip(graph.iter());
    let cut = |(vertex, row): (u32, &[u32])| {
        let elsewhere = |to: &&u32| part.owner(**to) != part.owner(vertex);
        row.iter().filter(elsewhere).count() as u64
    };
    let run = Run {
        servers: options.servers,
        vertices,
        edges: graph.targets.len(),
        cut_edges: rows.map(cut).sum(),
    };
    println!(
        "{vertices} vertices and {} edges, {} of them between two of {} servers",
        run.edges, run.cut_edges, run.servers
    );
    run
}

/// The vertex with most neighbours; of several, the first.
fn most_neighbours(graph: &Rows) -> u32 {
    let rows = (0..).zip(graph.iter());
    let most = rows.min_by_key(|(_, row)| std::cmp::Reverse(row.len()));
    most.map_or(0, |(vertex, _)| vertex)
}

/// Runs `compute`, which works on the servers; returns its cost and its result.
fn measured<T>(
    algorithm: &'static str,
    cluster: &Cluster,
    compute: impl FnOnce() -> Result<T, Failure>,
) -> Result<(Cost, T), Failure> {
    let before = cluster.moved()?;
    let (result, seconds) = timed(compute);
    let cost = Cost {
        algorithm,
        mode: "ifunc",
        moved: cluster.moved()? - before,
        seconds,
        one_per_edge: None,
    };
    Ok((cost, result?))
}

fn timed<T>(compute: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let result = compute();
    (result, began.elapsed().as_secs_f64())
}
