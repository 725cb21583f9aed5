//! `kv`: a key-value server, whose clients bring their operations, beside servers that have them.

use anyhow::{Context, Result};

use super::Figure;
use super::settings::{self, LOOPBACK, Setting};
use crate::Bench;
use crate::kv::{Kind, Listening, Turn, Work};
use crate::processor::{loopback_bytes, time_of};
use crate::program::Program;
use crate::row::Row;
use crate::slots::{Payload, Sample, Side, Slot, median, take_turns_all};

pub(crate) const FIGURE: Figure = Figure {
    id: "kv",
    title: "a key-value server with 100,000 records of 64 bytes: operations of its clients, each with one under way, beside servers in \
            which the operations are compiled in, scripts, or WebAssembly",
    run,
};

const CLIENTS: &[usize] = &[1, 8, 64];

/// Bytes of a record.
const RECORD: usize = 64;

/// Operations of each client over shared memory before the first slot. They write all memory of a connection's rings once: until then each page
/// costs a fault of both sides, and after a second of work none does.
const FIRST_LAP: u64 = 16 << 10;

/// How the names of peers with goals begin.
pub(crate) const COMPILED_IN: &str = "UCX active messages, compiled in";
pub(crate) const GRPC: &str = "tonic (gRPC)";
pub(crate) const REDIS: &str = "Redis";

/// Settings of UCX over shared memory. The better one counts.
const MEMORY: &[Setting] = &[&[("UCX_TLS", "posix,self")], &[]];

/// A server and its clients.
struct Served {
    peer: Peer,
    name: String,
    clients: Program,
    /// Whose processor time counts: the clients, and the server.
    processes: [u32; 2],
    server: Program,
    kind: Kind,
    costs: Vec<Cost>,
    carried_by: String,
}

/// What an operation of a slot cost.
#[derive(Clone, Copy)]
struct Cost {
    /// Processor time in nanoseconds: the clients' and the server's.
    time: [f64; 2],
    /// Bytes on the loopback device.
    bytes: f64,
}

impl Served {
    fn start(
        peer: Peer,
        name: String,
        bench: &Bench,
        clients: usize,
        address: &str,
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let clients = clients.to_string();
        let start = |side, cpu, address: &str| {
            let own = [("BENCH_ADDRESS", address), ("BENCH_CLIENTS", &clients)];
            Program::start(&format!("{}-{side}", peer.role()), cpu, &[env, &own].concat())
        };
        let mut server = start("server", bench.cores.target, address)?;
        let listening: Listening = server.receive()?;
        if peer.polls() {
            server.send(&Turn::Begin)?;
        }
        let mut clients = start("clients", bench.cores.source, &listening.address)?;
        let carried_by = clients.receive_with_peer(&mut server)?;
        if peer.polls() {
            server.request::<()>(&Turn::End)?;
        }
        if let Some(path) = listening.address.strip_prefix("unix:") {
            // All clients are connected.
            let _ = std::fs::remove_file(path);
        }
        Ok(Self {
            peer,
            name,
            carried_by,
            processes: [clients.id(), listening.process],
            clients,
            server,
            kind: Kind::Get,
            costs: Vec::new(),
        })
    }

    /// Medians over the slots.
    fn cost(&self) -> Cost {
        let of = |what: fn(&Cost) -> f64| median(self.costs.iter().map(what).collect());
        Cost {
            time: [of(|cost| cost.time[0]), of(|cost| cost.time[1])],
            bytes: of(|cost| cost.bytes),
        }
    }
}

impl Side for Served {
    fn slot(&mut self, slot: Slot) -> Result<Sample> {
        let times = |processes: [u32; 2]| -> Result<[f64; 2]> {
            Ok([time_of(processes[0])?, time_of(processes[1])?])
        };
        if self.peer.polls() {
            self.server.send(&Turn::Begin)?;
        }
        let (before, bytes) = (times(self.processes)?, loopback_bytes()?);
        let sample = self.clients.request(&Work {
            kind: self.kind,
            operations: slot.operations,
            timed: slot.timed,
        })?;
        let (after, operations) = (times(self.processes)?, slot.operations as f64);
        self.costs.push(Cost {
            time: [0, 1].map(|side| (after[side] - before[side]) / operations),
            bytes: (loopback_bytes()? - bytes) as f64 / operations,
        });
        if self.peer.polls() {
            self.server.request::<()>(&Turn::End)?;
        }
        Ok(sample)
    }
}

/// The transport whose rings are in memory.
const SHARED_MEMORY: &str = "shm";

/// A transport.
struct Carrier {
    name: &'static str,
    ours: String,
    env: Setting,
    /// Settings of UCX. The better one counts.
    ucx: &'static [Setting],
    /// What gRPC and Redis listen at.
    socket: fn(&str) -> String,
    /// Whether all bytes cross the loopback device.
    counts_bytes: bool,
}

fn carriers() -> [Carrier; 2] {
    let unix = |peer: &str| {
        let name = format!("bench-kv-{peer}-{}", std::process::id());
        format!("unix:{}", std::env::temp_dir().join(name).display())
    };
    [
        Carrier {
            name: SHARED_MEMORY,
            ours: format!("shm:bench-kv-{}", std::process::id()),
            env: &[],
            ucx: MEMORY,
            socket: unix,
            counts_bytes: false,
        },
        Carrier {
            name: "ucx over TCP",
            ours: "ucx://127.0.0.1:0".into(),
            env: LOOPBACK,
            ucx: &[LOOPBACK],
            socket: |_| "127.0.0.1:0".into(),
            counts_bytes: true,
        },
    ]
}

/// Who has the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Ours,
    Ucx,
    #[cfg(feature = "wasm")]
    Wasm,
    #[cfg(feature = "tonic")]
    Grpc,
    Redis,
}

impl Peer {
    fn role(self) -> &'static str {
        match self {
            Self::Ours => "kv",
            Self::Ucx => "kv-ucx",
            #[cfg(feature = "wasm")]
            Self::Wasm => "kv-ucx",
            #[cfg(feature = "tonic")]
            Self::Grpc => "kv-tonic",
            Self::Redis => "kv-redis",
        }
    }

    /// Whether its server polls for as long as it has its turn. The others sleep between their slots.
    fn polls(self) -> bool {
        self.role() == Self::Ucx.role()
    }
}

/// Ours, and after it the peers.
fn sides(bench: &mut Bench, carrier: &Carrier, clients: usize) -> Result<Vec<Served>> {
    let mut all = vec![(
        Peer::Ours,
        "ours".to_owned(),
        carrier.ours.clone(),
        carrier.env.to_vec(),
    )];
    let tried = if bench.plan.quick { 1 } else { carrier.ucx.len() };
    for setting in &carrier.ucx[..tried] {
        let name = format!("{COMPILED_IN}, {}", settings::name(setting));
        all.push((Peer::Ucx, name, String::new(), setting.to_vec()));
    }
    #[cfg(feature = "wasm")]
    {
        let env = [carrier.ucx[0], &[("BENCH_HANDLER", "wasm")]].concat();
        let name = format!(
            "wasmtime behind UCX active messages, {}",
            settings::name(carrier.ucx[0])
        );
        all.push((Peer::Wasm, name, String::new(), env));
    }
    #[cfg(feature = "tonic")]
    all.push((
        Peer::Grpc,
        format!("{GRPC}, compiled in"),
        (carrier.socket)("tonic"),
        Vec::new(),
    ));
    if has_redis() {
        all.push((
            Peer::Redis,
            format!("{REDIS}, Lua"),
            (carrier.socket)("redis"),
            Vec::new(),
        ));
    } else {
        let why = "there is no `redis-server`; help: apt-get install redis-server";
        bench.rows.status().warning(why);
    }
    let started = all.into_iter().map(|(peer, name, address, env)| {
        let what = format!("starting {name}");
        Served::start(peer, name, bench, clients, &address, &env).context(what)
    });
    started.collect()
}

fn has_redis() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("redis-server").is_file())
}

fn run(bench: &mut Bench) -> Result<()> {
    let counts = if bench.plan.quick { &[1, 8] } else { CLIENTS };
    for carrier in carriers() {
        for &clients in counts {
            let mut sides = sides(bench, &carrier, clients)?;
            if carrier.name == SHARED_MEMORY && !bench.plan.quick {
                warm_up(&mut sides, clients)?;
            }
            for kind in Kind::ALL {
                for row in rows(bench, &carrier, clients, kind, &mut sides)? {
                    bench.rows.push(row);
                }
            }
        }
    }
    Ok(())
}

/// Runs operations that are not measured, on the sides whose messages are in memory.
fn warm_up(sides: &mut [Served], clients: usize) -> Result<()> {
    let slot = Slot {
        operations: FIRST_LAP * clients as u64,
        ..Slot::new(RECORD, Payload::Fresh)
    };
    for side in sides {
        if side.peer == Peer::Ours || side.peer.polls() {
            for kind in [Kind::Get, Kind::Put] {
                side.kind = kind;
                side.slot(slot)?;
            }
        }
    }
    Ok(())
}

/// A row for each peer; of UCX's settings, the best one.
fn rows(
    bench: &Bench,
    carrier: &Carrier,
    clients: usize,
    kind: Kind,
    sides: &mut [Served],
) -> Result<Vec<Row>> {
    let slot = Slot::new(RECORD, Payload::Fresh);
    for side in &mut *sides {
        side.kind = kind;
        side.costs.clear();
    }
    let mut turns: Vec<&mut dyn Side> = Vec::new();
    for side in &mut *sides {
        turns.push(side);
    }
    let all = take_turns_all(&bench.plan, slot, &mut turns)?;
    let mut timed = Vec::new();
    for (side, series) in sides.iter_mut().zip(&all) {
        let operations = (2.0 * bench.plan.slot.as_nanos() as f64 / series.median()).max(1.0);
        let slot = Slot {
            operations: operations as u64,
            timed: true,
            ..slot
        };
        timed.push(side.slot(slot)?.percentiles);
    }
    let ucx = (0..sides.len()).filter(|at| sides[*at].peer == Peer::Ucx);
    let best = ucx.min_by(|one, other| all[*one].median().total_cmp(&all[*other].median()));
    let peers = (1..sides.len()).filter(|at| sides[*at].peer != Peer::Ucx || Some(*at) == best);
    // Over TCP, a message of UCX's and its answer are the least that a server of operations takes that arrive.
    let floor = best.filter(|_| carrier.counts_bytes);
    let row = |at: usize| {
        let both = [0, at];
        let costs = both.map(|side| sides[side].cost());
        let case = format!(
            "{}, {clients} client{}, {}",
            carrier.name,
            plural(clients),
            kind.name()
        );
        let row = Row {
            case,
            unit: "operations/s".into(),
            peer_name: Some(sides[at].name.clone()),
            percentiles: both.map(|side| timed[side]),
            carried_by: both.map(|side| Some(sides[side].carried_by.clone())),
            processor: Some(costs.map(|cost| cost.time)),
            bytes: carrier.counts_bytes.then(|| costs.map(|cost| cost.bytes)),
            ..Row::rate(FIGURE.id, slot, &all[0], Some(&all[at]))
        };
        match floor.filter(|best| *best != at) {
            Some(best) => row.with_floor(&sides[best].name, &all[best], Some(&all[at])),
            None => row,
        }
    };
    Ok(peers.map(row).collect())
}

fn plural(clients: usize) -> &'static str {
    if clients == 1 { "" } else { "s" }
}
