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
//!
//! With `--share`, each host has an equal part of the processors, as machines of equal speed have. On one processor for all, the
//! gets of a source may take the time that the servers leave, and a source of one host could not.

mod report;

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use crate::debian;
use crate::hosts::{Host, Processors, Running, line_of, network, network_with_delay};
use crate::process::{built, end, ifunc, output};
use crate::share::Share;
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
    /// Of a processor, for each host, in percent.
    share: Option<u32>,
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
            share: None,
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
                "--share" => {
                    let share = value.parse().ok().filter(|share| (1..=100).contains(share));
                    plan.share = Some(share.ok_or(wrong("a number from 1 to 100"))?);
                }
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
            if let Some(share) = self.share {
                println!("{servers} servers and a source have {share} % of a processor each");
            } else if is_short {
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
                    share: self.share,
                    is_short,
                    processors,
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
    /// Of a processor, for each host, in percent.
    share: Option<u32>,
    /// One has to do for all hosts that have no shares, and the relay has another one, if there are several.
    is_short: bool,
    processors: usize,
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
            let (_switch, mut hosts) = network(&scratch, count)?;
            return self.on(&mut hosts, &scratch);
        }
        let relay_on = match self.is_short && self.processors > 1 {
            true => Processors::One(1),
            false => Processors::Any,
        };
        let (relay, mut hosts) = network_with_delay(&scratch, count, self.two_hosts, self.delay, relay_on)?;
        let results = self.on(&mut hosts, &scratch)?;
        println!("the switch relayed {}", relay.end()?);
        Ok(results)
    }

    /// As [`results`](Self::results), on these hosts.
    fn on(&self, hosts: &mut [Host], scratch: &Path) -> Result<Results, String> {
        for (number, host) in hosts.iter_mut().enumerate() {
            if let Some(share) = self.share {
                let name = format!("ifunc-chase-{}-{number}", std::process::id());
                host.run_on(Processors::Share(Share::new(&name, share)?));
            } else if self.is_short {
                host.run_on(Processors::One(0));
            }
        }
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

    /// How long a byte takes from the source to the first server, as text.
    fn ping(&self, hosts: &[Host]) -> Result<String, String> {
        let (server, source) = (&hosts[0], &hosts[self.servers]);
        let address = format!("{}:7", server.ip());
        let two_hosts = self.two_hosts.to_string_lossy();
        let mut echo = server.command(&two_hosts);
        let mut echo = Running::start(echo.args(["echo", &address]).stdout(Stdio::piped()))?;
        let lines = echo.0.stdout.take().ok_or("the echo has no output")?;
        line_of(&mut BufReader::new(lines), "listening")?;
        let said = output(source.command(&two_hosts).args(["ping", &address]))?;
        line_of(&mut said.as_bytes(), "one way ")
    }

    /// Runs the example, and returns the JSON that it wrote.
    fn chase(&self, hosts: &[Host], scratch: &Path) -> Result<String, String> {
        let programs = crate::target().join(format!("ifunc/run/example-{EXAMPLE}"));
        let json: PathBuf = scratch.join("results.json");
        let servers = self.servers;
        let start = |host: &Host, side: &str, rank: Option<usize>| {
            let mut command = host.command(&programs.join(side).to_string_lossy());
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
