//! `cargo xtask chase`: the pointer chase of example 04, each server and the source on a host of its own.
//!
//! The modes take turns, and a ratio is the median of the ratios of turns that follow each other. Where there are fewer
//! processors than processes, all of them run on one, and sleep as soon as a poll finds nothing, in every mode. Without a delay
//! the ratios are then those of work, and repeat. Processes that poll would keep each other from the processors for whole time
//! slices, and which of them wakes another one across processors would differ from run to run.
//!
//! With `--delay`, the same on networks whose switch hands each frame on after that time: what a message costs then is mostly
//! waiting for it, as between machines. The switch has a processor of its own, if there are several. A ping-pong over TCP before
//! each run says how long a message really takes from host to host.

mod report;

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use crate::debian;
use crate::hosts::{Host, Running, line_of, network, network_with_delay};
use crate::process::{built, end, ifunc, output};
use report::Results;

const EXAMPLE: &str = "04-pointer-chase";
/// How long a mode has its turn without a delay.
const TURN: Duration = Duration::from_millis(40);
/// Chases by gets in a turn, one after the other, of which each waits for the network twice for each entry.
const CHASES: u32 = 6;
/// The least turns.
const TURNS: u32 = 5;

/// The command.
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(debian::ensure()
        .and_then(|_| Plan::parse(options))
        .and_then(|plan| plan.run()))
}

/// What is measured.
struct Plan {
    servers: Vec<usize>,
    /// Of the network, from host to host. The first is zero: a switch of the kernel's.
    delays: Vec<Duration>,
    depth: u32,
    /// Each mode, at least.
    seconds: f64,
    spin: Option<String>,
    /// Options of the example.
    passed_on: Vec<String>,
}

impl Plan {
    fn parse(options: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            servers: vec![2, 4],
            delays: vec![Duration::ZERO],
            depth: 64,
            seconds: 1.0,
            spin: None,
            passed_on: Vec::new(),
        };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let value = options.next().ok_or(format!("`{option}` has no value"))?;
            let wrong = |what| format!("`{option} {value}`: {what}");
            let numbers = || value.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>();
            match option.as_str() {
                "--servers" => {
                    let numbers = numbers().map_err(|_| wrong("numbers such as 2,4"))?;
                    plan.servers = numbers.into_iter().map(|number| number as usize).collect();
                }
                "--delay" => {
                    let numbers = numbers().map_err(|_| wrong("microseconds such as 50,200"))?;
                    let delays = numbers
                        .into_iter()
                        .map(|micros| Duration::from_micros(micros.into()));
                    plan.delays.extend(delays.filter(|delay| !delay.is_zero()));
                }
                "--depth" => plan.depth = value.parse().map_err(|_| wrong("a number of entries"))?,
                "--seconds" => plan.seconds = value.parse().map_err(|_| wrong("a number of seconds"))?,
                "--spin" => plan.spin = Some(value.clone()),
                "--entries" | "--batch" | "--modes" => {
                    plan.passed_on.extend([option.clone(), value.clone()]);
                }
                _ => return Err(crate::help::no_option("chase", option)),
            }
        }
        Ok(plan)
    }

    fn run(&self) -> Result<(), String> {
        // Builds the programs and the images.
        let build = [
            "run",
            EXAMPLE,
            "--release",
            "--",
            "--entries",
            "6",
            "--depth",
            "2",
            "--seconds",
            "0.01",
        ];
        output(&mut ifunc(&build)?)?;
        let two_hosts = built(&["two-hosts"])?.join("two-hosts");
        let processors = thread::available_parallelism().map_or(1, usize::from);
        for &servers in &self.servers {
            let is_short = processors < servers + 1;
            let spin = self.spin.clone().or(is_short.then(|| "0".into()));
            if let Some(spin) = &spin {
                println!("{servers} servers and a source poll for {spin} µs before they sleep");
            }
            if is_short {
                println!("{servers} servers and a source run on one of {processors} processors");
            }
            let mut all = Vec::new();
            for &delay in &self.delays {
                let turn = TURN + delay * 2 * self.depth * CHASES;
                let mut options = self.passed_on.clone();
                options.extend(["--depth".into(), self.depth.to_string()]);
                options.extend(["--turn".into(), turn.as_millis().to_string()]);
                let seconds = self.seconds.max((turn * TURNS).as_secs_f64());
                options.extend(["--seconds".into(), seconds.to_string()]);
                options.extend(spin.iter().flat_map(|spin| ["--spin".into(), spin.clone()]));
                let run = Run {
                    two_hosts: &two_hosts,
                    servers,
                    delay,
                    hosts_on: is_short.then_some(0),
                    relay_on: (is_short && processors > 1).then_some(1),
                    options,
                };
                all.push(run.results()?);
            }
            print!("{}", report::table(&all));
        }
        Ok(())
    }
}

/// A run of the example.
struct Run<'a> {
    two_hosts: &'a Path,
    servers: usize,
    delay: Duration,
    /// The processor of all hosts, and that of the relay; `None`: any.
    hosts_on: Option<usize>,
    relay_on: Option<usize>,
    options: Vec<String>,
}

impl Run<'_> {
    /// Measures, and prints what came out.
    fn results(&self) -> Result<Results, String> {
        let scratch = crate::scratch().join("chase");
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).map_err(|e| format!("cannot create `{}`: {e}", scratch.display()))?;
        // The last host is the source's.
        let count = self.servers + 1;
        if self.delay.is_zero() {
            let (_switch, hosts) = network(&scratch, count)?;
            return self.on(&hosts, &scratch);
        }
        let (relay, hosts) = network_with_delay(&scratch, count, self.two_hosts, self.delay, self.relay_on)?;
        let results = self.on(&hosts, &scratch)?;
        println!("the switch relayed {}", relay.end()?);
        Ok(results)
    }

    /// As [`results`](Self::results), on these hosts.
    fn on(&self, hosts: &[Host], scratch: &Path) -> Result<Results, String> {
        let one_way = self.ping(hosts)?;
        let delay = self.delay.as_micros();
        println!(
            "{} servers, a delay of {delay} µs: a byte over TCP takes {one_way}",
            self.servers
        );
        let json = self.chase(hosts, scratch)?;
        let results = Results::parse(self.servers, self.delay, &one_way, &json)?;
        print!("{results}");
        Ok(results)
    }

    /// A command on a host, on the processor of the hosts.
    fn command(&self, host: &Host, program: &Path) -> std::process::Command {
        host.command_on(self.hosts_on, &program.to_string_lossy())
    }

    /// How long a byte takes from the source to the first server, as text.
    fn ping(&self, hosts: &[Host]) -> Result<String, String> {
        let (server, source) = (&hosts[0], &hosts[self.servers]);
        let address = format!("{}:7", server.ip());
        let mut echo = self.command(server, self.two_hosts);
        let mut echo = Running::start(echo.args(["echo", &address]).stdout(Stdio::piped()))?;
        let lines = echo.0.stdout.take().ok_or("the echo has no output")?;
        line_of(&mut BufReader::new(lines), "listening")?;
        let said = output(self.command(source, self.two_hosts).args(["ping", &address]))?;
        line_of(&mut said.as_bytes(), "one way ")
    }

    /// Runs the example, and returns the JSON that it wrote.
    fn chase(&self, hosts: &[Host], scratch: &Path) -> Result<String, String> {
        let programs = crate::target().join(format!("ifunc/run/example-{EXAMPLE}"));
        let json: PathBuf = scratch.join("results.json");
        let servers = self.servers;
        let start = |host: &Host, side: &str, rank: Option<usize>| {
            let mut command = self.command(host, &programs.join(side));
            command
                .args(["--servers", &servers.to_string()])
                .args(&self.options);
            command.arg("--json").arg(&json);
            command.env("IFUNC_ADDR", format!("ucx://{}:0", host.ip()));
            command.env("IFUNC_HOST", host.ip());
            command.env("IFUNC_JOB", format!("chase {}", std::process::id()));
            command.env("IFUNC_RENDEZVOUS", scratch);
            command.env("IFUNC_LIB_DIR", crate::target().join("ifunc/release"));
            command.env("IFUNC_SIZE", servers.to_string());
            if let Some(rank) = rank {
                command.env("IFUNC_RANK", rank.to_string());
            }
            command
        };
        let mut running = Vec::new();
        for (rank, host) in hosts[..servers].iter().enumerate() {
            running.push(Running::start(
                start(host, "target", Some(rank)).stdout(Stdio::piped()),
            )?);
        }
        let ready = running[0].0.stdout.take().ok_or("server 0 has no output")?;
        line_of(&mut BufReader::new(ready), "ifunc: ready ")?;
        output(&mut start(&hosts[servers], "source", None))?;
        fs::read_to_string(&json).map_err(|e| format!("cannot read `{}`: {e}", json.display()))
    }
}
