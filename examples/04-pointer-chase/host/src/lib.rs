//! A pointer chase over a table that is cut over several servers, as Three-Chains measures it. Each entry of the table is the
//! place of the next one. The source follows them in several ways, and compares what they cost:
//!
//! | mode | how |
//! |---|---|
//! | `get` | the source reads each entry by a one-sided get of UCX |
//! | `am` | a UCX active message, whose handler was compiled into the servers, goes from server to server |
//! | `ifunc` | the chaser itself, which no server knows, goes from server to server |
//!
//! `cargo ifunc run 04-pointer-chase -- --servers N --depth D --entries LOG2 --json FILE`

pub mod by_ifunc;
pub mod by_ucx;
pub mod description;
pub mod measure;
pub mod part;
pub mod peer;
pub mod permutation;
pub mod waiting;

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use example_04_pointer_chase_ifuncs::{Walk, address, meet, worked};
use example_servers::{Args, Failure, Moved, Server, addresses, run};
use ifunc_rt::{Handle, Policy, Source, SourceOptions, Target};

use by_ifunc::Ifunc;
use by_ucx::{ActiveMessage, Client, Get};
use description::{Description, decode_all};
use measure::{Measured, Plan, heads, json, measure};
use part::{Part, process_time};
use permutation::{Cut, Permutation};
use waiting::Spin;

const USAGE: &str = "cargo ifunc run 04-pointer-chase -- [--servers N] [--depth D] [--entries LOG2] [--batch K] [--seconds S] \
                     [--modes get,am,ifunc] [--spin MICROSECONDS] [--turn MILLISECONDS] [--seed SEED] [--json FILE]";

/// The command line, the same for servers and source.
#[derive(Clone, Debug)]
struct Options {
    plan: Plan,
    /// Chases under way at a time, in the second run of each mode.
    batch: usize,
    modes: Vec<Mode>,
    spin: Spin,
    json: Option<PathBuf>,
}

/// A way of chasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Get,
    Am,
    Ifunc,
}

impl FromStr for Mode {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        match name {
            "get" => Ok(Self::Get),
            "am" => Ok(Self::Am),
            "ifunc" => Ok(Self::Ifunc),
            _ => Err(format!("`--modes {name}`: the modes are get, am and ifunc").into()),
        }
    }
}

impl Options {
    fn from_env() -> Result<Self, Failure> {
        let mut args = Args::from_env();
        let servers = args.number("--servers", 2, 1, 64)? as u32;
        let entries = args.number("--entries", 20, 6, 36)? as u32;
        let seconds = args.option("--seconds")?.unwrap_or(1.0);
        let modes = args.option::<String>("--modes")?;
        let modes = modes.as_deref().unwrap_or("get,am,ifunc").split(',');
        let spin = args.option::<u64>("--spin")?.map(Duration::from_micros);
        let options = Self {
            plan: Plan {
                permutation: Permutation::new(entries, args.number("--seed", 1, 0, u64::MAX)?),
                cut: Cut::new(1 << entries, servers),
                servers,
                depth: args.number("--depth", 64, 1, 4096)?,
                time: Duration::try_from_secs_f64(seconds)?,
                turn: Duration::from_millis(args.number("--turn", 40, 1, 60_000)?),
            },
            batch: args.number("--batch", 16, 1, 1024)? as usize,
            modes: modes.map(str::parse).collect::<Result<_, _>>()?,
            spin: spin.map(Spin::from).unwrap_or_default(),
            json: args.option("--json")?,
        };
        args.end(USAGE)?;
        Ok(options)
    }
}

/// Owns the part of one server, or of all in this process, until the process is stopped.
///
/// # Errors
/// There is too little memory, or a server cannot listen.
pub fn target(addr: &str) -> Result<(), Failure> {
    let Options { plan, spin, .. } = Options::from_env()?;
    run(addr, plan.servers, |server| serve(server, &plan, spin))
}

fn serve(mut server: Server, plan: &Plan, spin: Spin) -> Result<(), Failure> {
    let mut part = Part::new(plan.permutation, plan.cut, server.rank, spin)?;
    // SAFETY: arriving code has the authority of this process. Over shared memory only programs of the same user send it, over
    // UCX all that reach the address.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.spin(spin.server).listen(server.address())?;
    server.join(&mut target)?;
    target.serve(&mut part)?;
    Ok(())
}

/// Chases in every mode, and compares the results with those of a sequential computation.
///
/// # Errors
/// A server cannot be reached or fails, or a chase comes to a wrong entry.
pub fn source(addr: &str) -> Result<(), Failure> {
    let Options {
        plan,
        batch,
        modes,
        spin,
        json: file,
    } = Options::from_env()?;
    let servers = addresses(addr, plan.servers)?;
    let servers: Vec<Source> = servers
        .iter()
        .map(|at| Source::connect_with(at, SourceOptions::default().spin(spin.source)))
        .collect::<Result<_, _>>()?;
    // A server whose UCX waits for that of a source that does not use it would not sleep.
    let uses_ucx = modes.iter().any(|&mode| mode != Mode::Ifunc);
    let mut client = uses_ucx.then(|| introduce(&servers, &plan, spin));
    let mut chaser = Ifunc::new(&servers, &plan, spin)?;
    let work = Work::new(&servers)?;
    let at_a_time = if batch > 1 { &[1, batch][..] } else { &[1] };
    let mut results: Vec<Measured> = Vec::new();
    for round in 0..plan.rounds() as usize {
        for &batch in at_a_time {
            // One after the other, so that each is beside those that it is compared with. Another one begins each round: what the machine
            // does again and again does not meet the same mode each time.
            for turn in 0..modes.len() {
                let mode = modes[(round + turn) % modes.len()];
                let before = work.done()?;
                let measured = match (mode, &mut client) {
                    (Mode::Ifunc, _) => chased(&plan, batch, &mut chaser)?,
                    (Mode::Get, Some(Ok(client))) => got(&plan, batch, client)?,
                    (Mode::Am, Some(Ok(client))) => sent(&plan, batch, client)?,
                    (_, Some(Err(_)) | None) => continue,
                };
                let worked = work.done()? - before;
                measured.with_work(worked).add_to(&mut results);
            }
        }
    }

    println!("{}", heads());
    for result in &results {
        println!("{}", result.line(plan.depth));
    }
    match client {
        Some(Ok(client)) => println!("UCX uses {} to the first server", client.carried_by()),
        Some(Err(why)) => println!("without get and am, which need UCX: {why}"),
        None => {}
    }

    if let Some(file) = file {
        fs::write(&file, json(&plan, &results))
            .map_err(|e| format!("cannot write `{}`: {e}", file.display()))?;
    }
    if let Some(wrong) = results.iter().find(|result| !result.checked) {
        return Err(format!(
            "{} does not come where a sequential computation comes",
            wrong.mode
        )
        .into());
    }
    let chases: u64 = results.iter().map(|result| result.chases).sum();
    println!("checked: {chases} chases come where a sequential computation comes");
    Ok(())
}

/// A round of gets.
fn got(plan: &Plan, at_a_time: usize, client: &mut Client) -> Result<Measured, Failure> {
    let mut measured = measure("get", plan, at_a_time, &mut Get::new(client))?;
    let gets = measured.chases * plan.depth;
    measured.moved = Moved {
        messages: 2 * gets,
        bytes: 8 * gets,
    };
    Ok(measured)
}

/// A round of active messages.
fn sent(plan: &Plan, at_a_time: usize, client: &mut Client) -> Result<Measured, Failure> {
    let mut measured = measure("am", plan, at_a_time, &mut ActiveMessage::new(client))?;
    let messages = measured.changes + 2 * measured.chases;
    let bytes = peer::Walk::LEN as u64 * messages;
    measured.moved = Moved { messages, bytes };
    Ok(measured)
}

/// A round of ifuncs.
fn chased(plan: &Plan, at_a_time: usize, chaser: &mut Ifunc) -> Result<Measured, Failure> {
    let mut measured = measure("ifunc", plan, at_a_time, chaser)?;
    let walks = measured.chases + measured.changes;
    let answers = measured.chases + measured.strayed;
    measured.moved = Moved {
        messages: walks + answers,
        bytes: size_of::<Walk>() as u64 * walks + 8 * answers,
    };
    Ok(measured)
}

/// How much servers and source work.
struct Work(Vec<Handle<worked>>);

impl Work {
    fn new(servers: &[Source]) -> Result<Self, Failure> {
        let servers = servers.iter().map(Source::register::<worked>);
        Ok(Self(servers.collect::<Result<_, _>>()?))
    }

    /// The time that they have used of all processors.
    fn done(&self) -> Result<Duration, Failure> {
        let mut all = process_time();
        for server in &self.0 {
            all += server.call(&())?.wait()?;
        }
        Ok(Duration::from_nanos(all))
    }
}

/// Introduces the servers and the source to each other, for what goes by UCX alone.
fn introduce(servers: &[Source], plan: &Plan, spin: Spin) -> Result<Client, Failure> {
    let (mut client, own) = Client::new(plan.cut, plan.depth, spin)?;
    let mut all = Vec::new();
    for server in servers {
        all.extend(server.register::<address>()?.call(&())?.wait_bytes()?);
    }
    let described = decode_all(&all)?;
    if described.len() != servers.len() {
        return Err("a server has no UCX".into());
    }
    client.connect(&described)?;
    all.extend(Description::encode(&own));
    for server in servers {
        match server.register::<meet>()?.call(&all[..])?.wait()? {
            0 => {}
            error => return Err(format!("a server cannot connect to the others: error {error}").into()),
        }
    }
    Ok(client)
}
