//! `cargo xtask chase`: the pointer chase of example 04, each server and the source on a host of its own.
//!
//! A host is a set of namespaces (network, mounts, IPC, names) that lives as long as the process that holds it. One more is the
//! switch to which all of them are connected. UCX sees different machines and takes TCP.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::debian;
use crate::process::{end, ifunc, output};

const EXAMPLE: &str = "04-pointer-chase";
const NAMESPACES: [&str; 4] = ["--net", "--mount", "--ipc", "--uts"];

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

    let switch = Host::new(&scratch, 0)?;
    switch.run("ip", &["link", "add", "switch", "type", "bridge"])?;
    switch.run("ip", &["link", "set", "switch", "up"])?;
    // The last host is the source's.
    let hosts = (1..=servers + 1)
        .map(|number| Host::new(&scratch, number))
        .collect::<Result<Vec<_>, _>>()?;
    for host in &hosts {
        host.plug_into(&switch)?;
    }

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

/// A host made of namespaces, and the process that holds them.
struct Host {
    holder: Running,
    number: usize,
}

/// A program that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Host {
    fn new(scratch: &Path, number: usize) -> Result<Self, String> {
        let mut holder = tied("unshare");
        holder
            .args(NAMESPACES)
            .args(["sleep", "infinity"])
            .stdin(Stdio::null());
        let holder = holder
            .spawn()
            .map_err(|e| format!("`unshare` does not start: {e}"))?;
        let host = Self {
            holder: Running(holder),
            number,
        };
        let until = Instant::now() + Duration::from_secs(10);
        let comm = format!("/proc/{}/comm", host.pid());
        while fs::read_to_string(&comm).unwrap_or_default().trim() != "sleep" {
            if Instant::now() > until {
                return Err("`unshare` has made no namespaces in 10 s; help: it needs root".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        // UCX takes processes of one boot for processes of one machine.
        let boot = scratch.join(format!("boot-{number}"));
        fs::write(&boot, format!("00000000-0000-4000-8000-{:012x}\n", host.pid()))
            .map_err(|e| format!("cannot write `{}`: {e}", boot.display()))?;
        let boot = boot.to_string_lossy();
        host.run("mount", &["--bind", &boot, "/proc/sys/kernel/random/boot_id"])?;
        host.run("mount", &["-t", "tmpfs", "chase", "/dev/shm"])?;
        host.run("ip", &["link", "set", "lo", "up"])?;
        Ok(host)
    }

    fn pid(&self) -> u32 {
        self.holder.0.id()
    }

    fn ip(&self) -> String {
        format!("10.77.0.{}", self.number)
    }

    /// Connects this host to the switch.
    fn plug_into(&self, switch: &Self) -> Result<(), String> {
        let (port, pid) = (format!("port{}", self.number), self.pid().to_string());
        switch.run(
            "ip",
            &[
                "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid,
            ],
        )?;
        switch.run("ip", &["link", "set", &port, "master", "switch", "up"])?;
        self.run(
            "ip",
            &["address", "add", &format!("{}/24", self.ip()), "dev", "eth0"],
        )?;
        self.run("ip", &["link", "set", "eth0", "up"])
    }

    /// A command that runs on this host.
    fn command(&self, program: &str) -> Command {
        let mut command = tied("nsenter");
        command
            .arg(format!("--target={}", self.pid()))
            .args(NAMESPACES)
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<(), String> {
        let output = self.command(program).args(args).output();
        let output = output.map_err(|e| format!("`nsenter` does not start: {e}"))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("`{program} {}`: {}", args.join(" "), said.trim()))
            }
        }
    }
}

/// A command that the kernel kills when this program ends.
fn tied(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}
