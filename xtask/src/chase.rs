//! `cargo xtask chase`: the pointer chase of example 04, each server and the source on a host of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};

use crate::debian;
use crate::hosts::{Host, Running, network};
use crate::process::{end, ifunc, output};

const EXAMPLE: &str = "04-pointer-chase";

/// The command.
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(debian::ensure().and_then(|_| run(options)))
}

fn run(options: &[String]) -> Result<(), String> {
    let mut servers = vec![2, 4];
    let mut passed_on = vec!["--depth".to_owned(), "64".into()];
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let value = options.next().ok_or(format!("`{option}` has no value"))?;
        match option.as_str() {
            "--servers" => {
                let numbers = value.split(',').map(str::parse).collect::<Result<_, _>>();
                servers = numbers.map_err(|_| format!("`--servers {value}`: numbers such as 2,4"))?;
            }
            "--depth" => passed_on[1].clone_from(value),
            "--entries" | "--seconds" | "--batch" => passed_on.extend([option.clone(), value.clone()]),
            _ => {
                return Err(format!(
                    "unknown option `{option}`\nhelp: cargo xtask chase [--servers 2,4] [--depth D] [--entries LOG2] [--batch K] [--seconds S]"
                ));
            }
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
    for servers in servers {
        let results = between_hosts(servers, &passed_on)?;
        report(servers, &results)?;
    }
    Ok(())
}

/// Runs the example, and returns the JSON that it wrote.
fn between_hosts(servers: usize, options: &[String]) -> Result<String, String> {
    let programs = crate::target().join(format!("ifunc/run/example-{EXAMPLE}"));
    let scratch = crate::scratch().join("chase");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).map_err(|e| format!("cannot create `{}`: {e}", scratch.display()))?;
    let json = scratch.join("results.json");

    // The last host is the source's.
    let (_switch, hosts) = network(&scratch, servers + 1)?;

    let start = |host: &Host, side: &str, rank: Option<usize>| {
        let mut command = host.command(programs.join(side).as_os_str().to_string_lossy().as_ref());
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

/// Prints the ratios, and what they should be.
fn report(servers: usize, results: &str) -> Result<(), String> {
    let chases = |mode: &str| {
        let line = results
            .lines()
            .find(|line| line.contains(&format!("\"mode\": \"{mode}\"")))?;
        let (_, value) = line.split_once("\"chases_per_s\": ")?;
        value.split(',').next()?.parse::<f64>().ok()
    };
    let batches = ["get", "am", "ifunc"].map(|mode| {
        let quoted = format!("\"{mode} --batch ");
        results.lines().find_map(|line| {
            Some(format!(
                "{mode} --batch {}",
                line.split_once(&quoted)?.1.split_once('"')?.0
            ))
        })
    });
    let ratio = |mode: &str, to: &str, goal: f64| -> Result<(), String> {
        match (chases(mode), chases(to)) {
            (Some(mode_per_s), Some(to_per_s)) => {
                let ratio = mode_per_s / to_per_s;
                let met = if ratio >= goal { "met" } else { "missed" };
                println!("{servers} servers: {mode} / {to} = {ratio:.2}; at least {goal:.2}: {met}");
                Ok(())
            }
            _ => Err(format!("there is no result of `{mode}` or `{to}`")),
        }
    };
    if results.contains("\"checked\": false") {
        return Err("a chase came to a wrong entry".into());
    }
    let n = servers as f64;
    if servers > 1 {
        // A get is a message there and one back; a hop is one message, and one of N needs none.
        ratio("ifunc", "get", 0.8 * 2.0 * n / (n - 1.0))?;
        ratio("ifunc", "am", 0.9)?;
    }
    if let [Some(get), _, Some(ifunc)] = &batches {
        ratio(ifunc, get, 3.0)?;
    }
    Ok(())
}
