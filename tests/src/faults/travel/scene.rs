//! Three nodes and a source, and a call that is brought to a stage.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{GroupCell, Stage};
use crate::faults::TIMEOUT;
use crate::faults::cell::{Fault, Transport};
use crate::faults::ledger;
use crate::faults::process::{Holdings, Process};
use crate::faults::scene::Setting;

/// Nodes of the group.
const NODES: usize = 3;
/// The visit that stands still where none does.
const NOWHERE: u32 = u32::MAX;

/// A tour that the source has sent.
#[derive(Clone, Debug)]
struct Sent {
    visits: usize,
    /// How it ended, by its source.
    outcome: Option<String>,
}

/// A cell's processes.
#[derive(Debug)]
pub struct Group<'a> {
    setting: &'a Setting,
    /// Which.
    pub cell: GroupCell,
    folder: PathBuf,
    addresses: Vec<String>,
    /// The nodes, by their numbers.
    pub nodes: Vec<Process>,
    /// It is connected to node 0 as `main`, and to node 1 as `other`.
    pub source: Process,
    /// What the nodes held when all was well.
    pub before: Vec<Holdings>,
    sent: BTreeMap<u64, Sent>,
    next: u64,
    starts: u32,
}

impl<'a> Group<'a> {
    /// Starts the processes, and lets two tours meet every link.
    ///
    /// # Errors
    /// Why that does not work, and where every process is.
    pub fn begin(
        setting: &'a Setting,
        cell: GroupCell,
        folder: PathBuf,
    ) -> Result<Self, Box<(String, String)>> {
        let early = |why: String| Box::new((why, String::new()));
        std::fs::create_dir_all(&folder).map_err(|error| early(error.to_string()))?;
        let mut command = Command::new(setting.programs.join("fault-source"));
        command.env("FAULT_LIBRARIES", &setting.libraries);
        let mut group = Self {
            source: Process::start(&mut command, "source", &folder).map_err(early)?,
            setting,
            cell,
            addresses: (0..NODES).map(|_| address(cell.transport)).collect(),
            folder,
            nodes: Vec::new(),
            before: Vec::new(),
            sent: BTreeMap::new(),
            next: 0,
            starts: 0,
        };
        match group.make_ordinary() {
            Ok(()) => Ok(group),
            Err(why) => Err(Box::new((why, group.diagnosis()))),
        }
    }

    fn make_ordinary(&mut self) -> Result<(), String> {
        // Each waits for the others.
        for number in 0..NODES {
            let node = self.start(number)?;
            self.nodes.push(node);
        }
        for node in &mut self.nodes {
            is_ready(node)?;
        }
        let window = match self.cell.fault {
            Fault::Kill => Duration::from_millis(300),
            Fault::Stop | Fault::Restart => TIMEOUT,
        };
        for (name, node) in [("main", 0), ("other", 1)] {
            let (address, patience) = (&self.addresses[node], TIMEOUT.as_millis());
            let connect = format!("connect {name} {address} {patience} {}", window.as_millis());
            self.source.ask(&connect, &format!("connected {name}"), TIMEOUT)?;
        }
        for (name, route) in [("main", "1,2,0"), ("other", "2,1,0")] {
            self.is_answered(name, route)?;
        }
        self.before = self
            .nodes
            .iter()
            .map(Process::holdings)
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    fn start(&mut self, number: usize) -> Result<Process, String> {
        self.starts += 1;
        let name = format!("node-{number}-{}", self.starts);
        let mut command = Command::new(self.setting.programs.join("fault-target"));
        command
            .env("IFUNC_ADDR", &self.addresses[number])
            .env("FAULT_NODE", number.to_string())
            .env("FAULT_NODES", self.addresses.join(","))
            .env("FAULT_JOURNAL", self.folder.join("journal"));
        Process::start(&mut command, &name, &self.folder)
    }

    /// Starts a node in the place of one that was killed.
    ///
    /// # Errors
    /// It cannot join.
    pub fn restart(&mut self, number: usize) -> Result<(), String> {
        let mut node = self.start(number)?;
        is_ready(&mut node)?;
        self.nodes[number] = node;
        Ok(())
    }

    /// How long something is stopped.
    pub fn stop(&self) -> Duration {
        self.setting.stop
    }

    /// How long the call may take that meets the fault: longer than the group needs to learn of a death, shorter than a stop.
    pub fn deadline(&self) -> Duration {
        match (self.cell.fault, self.cell.transport) {
            (Fault::Stop, _) => self.setting.stop * 3 / 5,
            (_, Transport::Shm) => Duration::from_secs(5),
            (_, Transport::Tls | Transport::Ucx | Transport::UcxPut) => Duration::from_secs(10),
        }
    }

    /// Sends a tour; its number.
    ///
    /// # Errors
    /// The source does not send it.
    pub fn send(&mut self, name: &str, route: &str, stand: u32, deadline: Duration) -> Result<u64, String> {
        self.next += 1;
        let id = self.next;
        let tour = format!("tour {name} {id} {stand} {route} {}", deadline.as_millis());
        let visits = 1 + route.split(',').count();
        self.sent.insert(
            id,
            Sent {
                visits,
                outcome: None,
            },
        );
        let said = self.source.ask(&tour, &format!("called {id}"), 2 * TIMEOUT)?;
        if said != "ok" {
            self.tell(id, &said);
        }
        Ok(id)
    }

    fn tell(&mut self, id: u64, said: &str) {
        if let Some(sent) = self.sent.get_mut(&id) {
            sent.outcome = Some(said.to_owned());
        }
    }

    /// Waits for a tour: how it ended.
    ///
    /// # Errors
    /// It does not end.
    pub fn ended(&mut self, id: u64, within: Duration) -> Result<String, String> {
        if let Some(Sent {
            outcome: Some(outcome),
            ..
        }) = self.sent.get(&id)
        {
            return Ok(outcome.clone());
        }
        let wait = format!("wait {id} {}", within.as_millis());
        let said = self.source.ask(&wait, &format!("done {id}"), within + TIMEOUT)?;
        self.tell(id, &said);
        Ok(said)
    }

    /// The same of a new one that meets no fault.
    ///
    /// # Errors
    /// It does not end.
    pub fn tour(&mut self, name: &str, route: &str) -> Result<String, String> {
        let id = self.send(name, route, NOWHERE, TIMEOUT)?;
        self.ended(id, TIMEOUT)
    }

    /// A new tour is answered by its last node.
    ///
    /// # Errors
    /// It is not.
    pub fn is_answered(&mut self, name: &str, route: &str) -> Result<(), String> {
        let last = route.rsplit(',').next().unwrap_or_default();
        match self.tour(name, route)? {
            said if said == format!("executed {last}") => Ok(()),
            said => Err(format!("a tour over {route} by `{name}`: `{said}`")),
        }
    }

    /// Sends the call that meets the fault, and waits until it is at the stage. Its number.
    ///
    /// # Errors
    /// It does not reach the stage.
    pub fn enter(&mut self, stage: Stage) -> Result<u64, String> {
        let point = stage.point();
        let victim = &mut self.nodes[stage.node()];
        let mark = victim.mark();
        victim.ask(point, "armed", TIMEOUT)?;
        let id = self.send("main", "1,2", stage.visit(), self.deadline())?;
        self.nodes[stage.node()].reaches(mark, point, TIMEOUT)?;
        Ok(id)
    }

    /// The first target of a connection awaits no answer, and has nothing to send.
    ///
    /// # Errors
    /// It has, for too long.
    pub fn gives_back(&mut self, name: &str) -> Result<(), String> {
        let expected = "slots 0 outbox 0";
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let held = self
                .source
                .ask(&format!("group {name}"), &format!("group {name}"), TIMEOUT)?;
            if held == expected {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the target of `{name}` still holds {held}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// No node but `without` holds more descriptors and shared memory than before.
    ///
    /// # Errors
    /// One does, for too long.
    pub fn holds_no_more(&self, without: usize) -> Result<(), String> {
        let deadline = Instant::now() + TIMEOUT;
        for number in (0..NODES).filter(|&number| number != without) {
            loop {
                let (holds, before) = (self.nodes[number].holdings()?, self.before[number]);
                if holds.within(before) {
                    break;
                }
                if Instant::now() > deadline {
                    return Err(format!(
                        "node {number} holds {holds:?}, and held {before:?} before"
                    ));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Compares what was sent with what was run: nothing ran twice, and what was answered ran everywhere.
    ///
    /// # Errors
    /// Everything that does not agree.
    pub fn check_journal(&self) -> Result<(), String> {
        let mut runs: BTreeMap<(u64, usize), usize> = BTreeMap::new();
        for invocation in ledger::journal(&self.folder.join("journal"))? {
            let visit = (invocation.id >> 8, (invocation.id & 0xff) as usize);
            *runs.entry(visit).or_default() += 1;
        }
        let mut wrong = Vec::new();
        for (&id, Sent { visits, outcome }) in &self.sent {
            let is_answered = outcome
                .as_ref()
                .is_some_and(|outcome| outcome.starts_with("executed"));
            for visit in 0..*visits {
                let count = runs.remove(&(id, visit)).unwrap_or_default();
                if count > 1 || is_answered && count == 0 {
                    wrong.push(format!(
                        "visit {visit} of tour {id} ran {count} times; its outcome is {outcome:?}"
                    ));
                }
            }
        }
        wrong.extend(runs.iter().map(|((id, visit), count)| {
            format!("visit {visit} of tour {id} ran {count} times, and was not sent")
        }));
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n"))
        }
    }

    /// Where every process is.
    pub fn diagnosis(&self) -> String {
        let all = self.nodes.iter().chain([&self.source]);
        all.map(Process::diagnosis).collect()
    }
}

fn is_ready(node: &mut Process) -> Result<(), String> {
    let said = node.reply(TIMEOUT)?;
    match said.starts_with("ready ") {
        true => Ok(()),
        false => Err(format!("{} said `{said}`", node.name)),
    }
}

/// An address that no other cell has, at which a node can be started again.
fn address(transport: Transport) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        if transport == Transport::Shm {
            return format!("shm:faults-node-{process}-{number}");
        }
        // Below the range from which the kernel chooses ports: it gives the port of a killed node to no other process.
        let port = 20_000 + process.wrapping_mul(37).wrapping_add(number) % 12_000;
        let is_free =
            u16::try_from(port).is_ok_and(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
        if is_free {
            return format!("{}://127.0.0.1:{port}", transport.name());
        }
    }
}

/// The folder of a cell's files at a stage.
pub fn folder(scratch: &Path, cell: GroupCell, stage: Stage) -> PathBuf {
    scratch.join(format!("{}-{stage:?}", cell.names().join("-")))
}
