//! `cargo xtask chase`: the pointer chase of example 04, each server and the source on a host of its own.
//!
//! The modes take turns of 40 ms, and a ratio is the median of the ratios of turns that follow each other. Where there are fewer
//! processors than processes, all of them run on one, and sleep as soon as a poll finds nothing, in every mode. The ratios are then
//! those of work, and repeat. Processes that poll would keep each other from the processors for whole time slices, and which of them
//! wakes another one across processors would differ from run to run.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};
use std::thread;

use crate::debian;
use crate::hosts::{Host, Running, network};
use crate::process::{end, ifunc, output};

const EXAMPLE: &str = "04-pointer-chase";
const HELP: &str = "cargo xtask chase [--servers 2,4] [--depth D] [--entries LOG2] [--batch K] [--seconds S] [--modes get,am,ifunc] [--spin MICROSECONDS]";

/// The command.
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(debian::ensure().and_then(|_| run(options)))
}

fn run(options: &[String]) -> Result<(), String> {
    let mut servers = vec![2, 4];
    let mut passed_on = vec!["--depth".to_owned(), "64".into()];
    let mut spin = None;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let value = options.next().ok_or(format!("`{option}` has no value"))?;
        match option.as_str() {
            "--servers" => {
                let numbers = value.split(',').map(str::parse).collect::<Result<_, _>>();
                servers = numbers.map_err(|_| format!("`--servers {value}`: numbers such as 2,4"))?;
            }
            "--depth" => passed_on[1].clone_from(value),
            "--spin" => spin = Some(value.clone()),
            "--entries" | "--seconds" | "--batch" | "--modes" => {
                passed_on.extend([option.clone(), value.clone()]);
            }
            _ => return Err(format!("unknown option `{option}`\nhelp: {HELP}")),
        }
    }
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
    let processors = thread::available_parallelism().map_or(1, usize::from);
    for servers in servers {
        let mut options = passed_on.clone();
        let is_short = processors < servers + 1;
        if let Some(spin) = spin.clone().or(is_short.then(|| "0".into())) {
            println!("{servers} servers and a source poll for {spin} µs before they sleep");
            options.extend(["--spin".into(), spin]);
        }
        if is_short {
            println!("{servers} servers and a source run on one of {processors} processors");
        }
        let results = between_hosts(servers, is_short, &options)?;
        report(servers, &results)?;
    }
    Ok(())
}

/// Runs the example, and returns the JSON that it wrote. `on_one`: all processes run on one processor.
fn between_hosts(servers: usize, on_one: bool, options: &[String]) -> Result<String, String> {
    let programs = crate::target().join(format!("ifunc/run/example-{EXAMPLE}"));
    let scratch = crate::scratch().join("chase");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).map_err(|e| format!("cannot create `{}`: {e}", scratch.display()))?;
    let json = scratch.join("results.json");

    // The last host is the source's.
    let (_switch, hosts) = network(&scratch, servers + 1)?;

    let start = |host: &Host, side: &str, rank: Option<usize>| {
        let program = programs.join(side);
        let mut command = if on_one {
            let mut command = host.command("taskset");
            command.args(["--cpu-list", "0"]).arg(program);
            command
        } else {
            host.command(&program.to_string_lossy())
        };
        command.args(["--servers", &servers.to_string()]).args(options);
        command.arg("--json").arg(&json);
        command.env("IFUNC_ADDR", format!("ucx://{}:0", host.ip()));
        command.env("IFUNC_HOST", host.ip());
        command.env("IFUNC_JOB", format!("chase {}", std::process::id()));
        command.env("IFUNC_RENDEZVOUS", &scratch);
        command.env("IFUNC_LIB_DIR", crate::target().join("ifunc/release"));
        command.env("IFUNC_SIZE", servers.to_string());
        if let Some(rank) = rank {
            command.env("IFUNC_RANK", rank.to_string());
        }
        command
    };
    let mut running = Vec::new();
    for (rank, host) in hosts[..servers].iter().enumerate() {
        let mut command = start(host, "target", Some(rank));
        let child = command.stdout(Stdio::piped()).spawn();
        running.push(Running(
            child.map_err(|e| format!("server {rank} does not start: {e}"))?,
        ));
    }
    let ready = running[0].0.stdout.take().ok_or("server 0 has no output")?;
    let mut lines = BufReader::new(ready).lines().map_while(Result::ok);
    if !lines.any(|line| line.starts_with("ifunc: ready ")) {
        return Err("the servers are not ready".into());
    }
    output(&mut start(&hosts[servers], "source", None))?;
    fs::read_to_string(&json).map_err(|e| format!("cannot read `{}`: {e}", json.display()))
}

/// The results of a mode.
struct Mode<'a> {
    name: &'a str,
    /// Chases per second in each round.
    rounds: Vec<f64>,
    cpu_us_per_chase: f64,
}

impl<'a> Mode<'a> {
    /// Reads a line of the JSON.
    fn parse(line: &'a str) -> Option<Self> {
        let field = |name: &str| Some(line.split_once(&format!("\"{name}\": "))?.1);
        let (name, _) = field("mode")?.strip_prefix('"')?.split_once('"')?;
        let (rounds, _) = field("rounds")?.strip_prefix('[')?.split_once(']')?;
        let rounds = rounds
            .split(", ")
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        let (cpu, _) = field("cpu_us_per_chase")?.split_once(',')?;
        Some(Self {
            name,
            rounds,
            cpu_us_per_chase: cpu.parse().ok()?,
        })
    }

    /// The median of the ratios in the rounds, and their quartiles.
    fn to(&self, other: &Self) -> [f64; 3] {
        let rounds = self.rounds.iter().zip(&other.rounds);
        let mut ratios: Vec<f64> = rounds.map(|(own, other)| own / other).collect();
        ratios.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| {
            ratios
                .get(ratios.len() * quarter / 4)
                .copied()
                .unwrap_or(f64::NAN)
        })
    }
}

/// Prints the ratios, and what they should be.
fn report(servers: usize, results: &str) -> Result<(), String> {
    if results.contains("\"checked\": false") {
        return Err("a chase came to a wrong entry".into());
    }
    let modes: Vec<Mode<'_>> = results.lines().filter_map(Mode::parse).collect();
    let find = |name: &str, is_batched: bool| {
        modes.iter().find(|mode| match mode.name.split_once(" --batch ") {
            Some((batched, _)) => is_batched && batched == name,
            None => !is_batched && mode.name == name,
        })
    };
    let ratio = |mode: (&str, bool), to: (&str, bool), goal: Option<f64>| {
        let (Some(mode), Some(to)) = (find(mode.0, mode.1), find(to.0, to.1)) else {
            return;
        };
        let [low, median, high] = mode.to(to);
        let (name, to_name) = (mode.name, to.name);
        print!("{servers} servers: {name} / {to_name} = {median:.2} ({low:.2} – {high:.2})");
        match goal {
            Some(goal) if median >= goal => println!("; at least {goal:.2}: met"),
            Some(goal) => println!("; at least {goal:.2}: missed"),
            None => println!(),
        }
    };
    let n = servers as f64;
    if servers > 1 {
        // A get is a message there and one back; a hop is one message, and one of N needs none.
        let ideal = 0.8 * 2.0 * n / (n - 1.0);
        ratio(("ifunc", false), ("get", false), Some(ideal));
        ratio(("ifunc", false), ("am", false), Some(0.9));
    }
    ratio(("ifunc", true), ("get", true), Some(3.0));
    // What this machine can show: the same with a handler that was compiled in.
    ratio(("am", true), ("get", true), None);
    ratio(("ifunc", true), ("am", true), None);
    for mode in &modes {
        let Mode {
            name,
            cpu_us_per_chase,
            ..
        } = mode;
        println!("{servers} servers: {name}: {cpu_us_per_chase:.1} µs of processors per chase");
    }
    if modes.is_empty() {
        return Err("the source wrote no results".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Mode;

    #[test]
    fn a_ratio_is_the_median_of_the_rounds() {
        let line = |mode: &str, rounds: &str| {
            format!(
                "  {{\"mode\": \"{mode}\", \"chases_per_s\": 7.000, \"cpu_us_per_chase\": 12.500, \"rounds\": [{rounds}]}},"
            )
        };
        let (own, other) = (
            line("ifunc --batch 16", "1.000, 8.000, 3.000"),
            line("am", "2.000, 4.000, 3.000"),
        );
        let (own, other) = (Mode::parse(&own).unwrap(), Mode::parse(&other).unwrap());
        assert_eq!((own.name, own.cpu_us_per_chase), ("ifunc --batch 16", 12.5));
        assert_eq!(own.to(&other), [0.5, 1.0, 2.0]);
        assert!(Mode::parse("]").is_none());
    }
}
