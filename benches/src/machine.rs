//! What the figures were measured on, and what else it did meanwhile.

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::cores::Cores;
use crate::row::Row;

/// The figure that is no figure: what the others were measured on.
pub(crate) const FIGURE: &str = "machine";

/// Processors that others may have used on average before a run is called disturbed.
const OTHERS: f64 = 0.05;
/// The part of the time that a virtual machine may have been without its processors.
const STOLEN: f64 = 0.01;
/// By how much a floor's quartiles may lie apart.
const APART: f64 = 0.2;

/// What is known of the machine. What it does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Model of the processor.
    pub(crate) cpu: String,
    /// How many processors there are.
    pub(crate) processors: usize,
    /// On which the source ran, and the target.
    pub(crate) cores: [usize; 2],
    /// Whether those two are threads of one core.
    pub(crate) threads_of_one_core: bool,
    /// `performance, 3.2 GHz`, as far as the kernel knows.
    pub(crate) frequency: String,
    /// Whether the processor says that it is a virtual machine's.
    pub(crate) virtualised: bool,
    /// Name and release.
    pub(crate) kernel: String,
    /// Version of the UCX library; empty without one.
    pub(crate) ucx: String,
    /// Version of the compiler.
    pub(crate) rustc: String,
    /// Version of what was measured.
    pub(crate) commit: String,
    /// When it began, in UTC.
    pub(crate) date: String,
    /// Seconds that it took.
    pub(crate) seconds: f64,
    /// How many processes wanted to run in the minute before.
    pub(crate) load: f64,
    /// How many processors others used meanwhile, on average.
    pub(crate) others: Option<f64>,
    /// The part of the time in which a virtual machine's processors were somebody else's.
    pub(crate) stolen: Option<f64>,
    /// A cache line from core to core in nanoseconds: one that both write, and one per direction.
    pub(crate) floors: [Option<f64>; 2],
    /// Why the figures are not to be relied on; empty if nothing speaks against them.
    pub(crate) disturbed: Vec<String>,
}

/// A look at the machine before a run, which is completed afterwards.
pub(crate) struct Observation {
    machine: Machine,
    started: std::time::Instant,
    used: Option<Used>,
}

impl Observation {
    /// Before anything is measured.
    pub(crate) fn start(cores: Cores) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map_or("", |(_, value)| value.trim())
        };
        let uname = rustix::system::uname();
        let machine = Machine {
            cpu: field("model name").to_owned(),
            processors: cpuinfo
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            cores: [cores.source, cores.target],
            threads_of_one_core: cores.are_threads_of_one_core(),
            frequency: frequency(cores.target, field("cpu MHz")),
            virtualised: field("flags").split(' ').any(|flag| flag == "hypervisor"),
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            ucx: ucx_sys::Ucx::load().map_or_else(|_| String::new(), |ucx| ucx.version().to_string()),
            rustc: output_of(Command::new("rustc").arg("--version")),
            commit: output_of(
                Command::new("git")
                    .args(["describe", "--always", "--dirty", "--exclude=*"])
                    .current_dir(env!("CARGO_MANIFEST_DIR")),
            ),
            date: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
            ..Machine::default()
        };
        Self {
            machine,
            started: std::time::Instant::now(),
            used: Used::now(),
        }
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// After everything, with what was found: the row that stands before the others.
    pub(crate) fn finish(self, rows: &[Row]) -> Row {
        let Self {
            mut machine,
            started,
            used,
        } = self;
        let seconds = started.elapsed().as_secs_f64();
        machine.seconds = seconds.round();
        if let Some((before, now)) = used.zip(Used::now()) {
            let ticks = rustix::param::clock_ticks_per_second() as f64;
            let others =
                (now.all - before.all).saturating_sub(now.ours - before.ours) as f64 / ticks / seconds;
            let stolen =
                (now.stolen - before.stolen) as f64 / ticks / seconds / machine.processors.max(1) as f64;
            machine.others = Some(thousandths(others));
            machine.stolen = Some(thousandths(stolen));
        }
        let floors: Vec<&Row> = rows.iter().filter(|row| row.figure == "floors").collect();
        machine.floors = ["one line", "one line per direction"].map(|case| {
            let row = floors.iter().find(|row| row.case == case);
            row.map(|row| row.ours)
        });
        machine.disturbed = disturbed(&machine, &floors);
        Row {
            figure: FIGURE.into(),
            ours: machine.processors as f64,
            unit: "processors".into(),
            machine: Some(machine),
            ..Row::default()
        }
    }
}

/// What speaks against relying on figures of this run.
fn disturbed(machine: &Machine, floors: &[&Row]) -> Vec<String> {
    let mut reasons = Vec::new();
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    if let Some(others) = machine.others.filter(|others| *others > OTHERS) {
        reasons.push(format!(
            "others used {} of a processor meanwhile",
            percent(others)
        ));
    }
    if let Some(stolen) = machine.stolen.filter(|stolen| *stolen > STOLEN) {
        let stolen = percent(stolen);
        reasons.push(format!(
            "the host of this virtual machine ran something else for {stolen} of the time"
        ));
    }
    if machine.threads_of_one_core {
        reasons.push("both sides ran on threads of one core".into());
    }
    for row in floors {
        if let Some([low, high]) = row.spread.filter(|[low, high]| high - low > APART) {
            let case = &row.case;
            let (low, high) = (percent(low), percent(high));
            reasons.push(format!(
                "the floor ({case}) was between {low} and {high} of its median in half of its slots"
            ));
        }
    }
    reasons
}

/// Processor time in ticks.
struct Used {
    /// Of every process. What the kernel does for the network is nobody's.
    all: u64,
    /// Of this process, and of its children that ended.
    ours: u64,
    /// That a virtual machine did not get.
    stolen: u64,
}

impl Used {
    fn now() -> Option<Self> {
        // cpu user nice system idle iowait irq softirq steal …
        let all = read("/proc/stat");
        let all: Vec<u64> = numbers(all.lines().next()?.strip_prefix("cpu ")?);
        // Behind the name, which may hold anything: state, and the 4th field; the 14th to the 17th are times.
        let own = read("/proc/self/stat");
        let (_, own) = own.rsplit_once(") ")?;
        let own: Vec<u64> = numbers(own.split_once(' ')?.1);
        Some(Self {
            all: [0, 1, 2].iter().map(|at| all.get(*at)).sum::<Option<u64>>()?,
            ours: own.get(10..14)?.iter().sum(),
            stolen: *all.get(7)?,
        })
    }
}

fn numbers(text: &str) -> Vec<u64> {
    // Some of a process's are negative: none of those that are asked for.
    let number = |word: &str| word.parse().unwrap_or_default();
    text.split_ascii_whitespace().map(number).collect()
}

fn frequency(cpu: usize, mhz: &str) -> String {
    let file = |name: &str| read(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}"));
    let governor = file("scaling_governor").trim().to_owned();
    let khz = file("scaling_cur_freq").trim().parse::<f64>().ok();
    let mhz = khz.map(|khz| khz / 1e3).or_else(|| mhz.parse().ok());
    let ghz = mhz.map(|mhz| format!("{:.2} GHz", mhz / 1e3));
    [Some(governor).filter(|governor| !governor.is_empty()), ghz]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// The first line of what a program says; nothing if it cannot be started.
fn output_of(command: &mut Command) -> String {
    let stdout = command.stderr(std::process::Stdio::null()).output();
    let stdout = stdout.map_or_else(|_| Vec::new(), |output| output.stdout);
    String::from_utf8_lossy(&stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
