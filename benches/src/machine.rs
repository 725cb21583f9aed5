//! The machine that the figures were measured on, and its load during the run.

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::cores::Cores;
use crate::row::Row;

/// The id of the row that describes the machine.
pub(crate) const FIGURE: &str = "machine";

/// Largest average number of processors used by other programs in an undisturbed run.
const OTHERS: f64 = 0.05;
/// Largest share of time in which a virtual machine's processors were not available.
const STOLEN: f64 = 0.01;
/// Largest distance between a floor's quartiles.
const APART: f64 = 0.2;

/// Properties of the machine. Unknown ones are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Model of the processor.
    pub(crate) cpu: String,
    /// Number of processors.
    pub(crate) processors: usize,
    /// Processors of the source and the target.
    pub(crate) cores: [usize; 2],
    /// Whether those two are threads of one core.
    pub(crate) threads_of_one_core: bool,
    /// Such as `performance, 3.2 GHz`, as far as the kernel reports it.
    pub(crate) frequency: String,
    /// Whether the processor is virtual.
    pub(crate) virtualised: bool,
    /// Name and release of the kernel.
    pub(crate) kernel: String,
    /// Version of the UCX library; empty without one.
    pub(crate) ucx: String,
    /// Version of the compiler.
    pub(crate) rustc: String,
    /// Version of the measured code.
    pub(crate) commit: String,
    /// Start of the run, in UTC.
    pub(crate) date: String,
    /// Duration of the run in seconds.
    pub(crate) seconds: f64,
    /// Load average over the minute before the run.
    pub(crate) load: f64,
    /// Average number of processors that other programs used during the run.
    pub(crate) others: Option<f64>,
    /// Share of the time in which the host ran something else on the virtual machine's processors.
    pub(crate) stolen: Option<f64>,
    /// Time of a cache line between the cores in nanoseconds: one line that both write, and one line per
    /// direction.
    pub(crate) floors: [Option<f64>; 2],
    /// Reasons why the figures are unreliable.
    pub(crate) disturbed: Vec<String>,
}

/// Whether the processor is one of AMD's.
pub(crate) fn is_amd() -> bool {
    read("/proc/cpuinfo").contains("AuthenticAMD")
}

/// An observation of the machine during a run.
pub(crate) struct Observation {
    machine: Machine,
    started: std::time::Instant,
    used: Option<Used>,
}

impl Observation {
    /// Starts the observation before the run.
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
            ucx: ucx::Library::load().map_or_else(|_| String::new(), |ucx| ucx.version().to_string()),
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

    /// Ends the observation, and returns the row that comes before all others.
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

/// Reasons why figures of this run are unreliable.
fn disturbed(machine: &Machine, floors: &[&Row]) -> Vec<String> {
    let mut reasons = Vec::new();
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    if let Some(others) = machine.others.filter(|others| *others > OTHERS) {
        reasons.push(format!(
            "other programs used {} of a processor during the run",
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
    /// Time of all processes. The kernel attributes its network processing to none.
    all: u64,
    /// Time of this process and its ended children.
    ours: u64,
    /// Time not available to the virtual machine.
    stolen: u64,
}

impl Used {
    fn now() -> Option<Self> {
        // cpu user nice system idle iowait irq softirq steal …
        let all = read("/proc/stat");
        let all: Vec<u64> = numbers(all.lines().next()?.strip_prefix("cpu ")?);
        // After the name, which may contain any character: state is field 3; fields 14 to 17 are times.
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
    // Some fields of a process are negative, but none of those used here.
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

/// The first line of a program's output; empty if it does not start.
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
