//! Hosts made of namespaces: for programs that must not see that they share a machine.
//!
//! A host is a set of namespaces (network, mounts, IPC, names) that lives as long as the process that holds it. One more is the
//! switch to which all of them are connected. UCX sees different machines and takes TCP.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::share::Share;

const NAMESPACES: [&str; 4] = ["--net", "--mount", "--ipc", "--uts"];

/// A switch, and hosts that are connected by it. `scratch` is a folder for files of theirs.
pub(crate) fn network(scratch: &Path, count: usize) -> Result<(Host, Vec<Host>), String> {
    let (switch, hosts) = plugged(scratch, count)?;
    for host in &hosts {
        switch.run("ip", &["link", "set", &host.port(), "master", "switch"])?;
    }
    Ok((switch, hosts))
}

/// As [`network`], with a switch that hands each frame on after a delay, by the relay of the program `two-hosts`, which runs there.
pub(crate) fn network_with_delay(
    scratch: &Path,
    count: usize,
    two_hosts: &Path,
    delay: Duration,
    processors: Processors,
) -> Result<(Relay, Vec<Host>), String> {
    let (mut switch, hosts) = plugged(scratch, count)?;
    switch.run_on(processors);
    let mut relay = switch.command(&two_hosts.to_string_lossy());
    relay
        .args(["relay", &delay.as_micros().to_string()])
        .args(hosts.iter().map(Host::port))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut program = Running::start(&mut relay)?;
    let output = program.0.stdout.take().ok_or("the relay has no output")?;
    let mut output = BufReader::new(output);
    line_of(&mut output, "relaying")?;
    let relay = Relay {
        _switch: switch,
        program,
        output,
    };
    Ok((relay, hosts))
}

/// The namespaces of a switch, and hosts whose interfaces have their other ends there.
fn plugged(scratch: &Path, count: usize) -> Result<(Host, Vec<Host>), String> {
    let switch = Host::new(scratch, 0)?;
    // First, so that no port has the number of the host's interface: UCX makes no connection over an interface whose number is that of
    // its other end.
    switch.run("ip", &["link", "add", "switch", "type", "bridge"])?;
    switch.run("ip", &["link", "set", "switch", "up"])?;
    let hosts = (1..=count)
        .map(|number| Host::new(scratch, number))
        .collect::<Result<Vec<_>, _>>()?;
    for host in &hosts {
        host.plug_into(&switch)?;
    }
    Ok((switch, hosts))
}

/// What follows `start` on the next line of a program that begins so.
pub(crate) fn line_of(output: &mut impl BufRead, start: &str) -> Result<String, String> {
    for line in output.lines() {
        let line = line.map_err(|e| format!("cannot read what a program says: {e}"))?;
        if let Some(rest) = line.strip_prefix(start) {
            return Ok(rest.trim().to_owned());
        }
    }
    Err(format!("a program ended without saying `{start}…`"))
}

/// A switch that is a program.
pub(crate) struct Relay {
    _switch: Host,
    program: Running,
    output: BufReader<ChildStdout>,
}

impl Relay {
    /// Ends it. Returns what it says about the frames.
    pub(crate) fn end(mut self) -> Result<String, String> {
        drop(self.program.0.stdin.take());
        line_of(&mut self.output, "relayed ")
    }
}

/// A host made of namespaces, and the process that holds them.
pub(crate) struct Host {
    holder: Running,
    number: usize,
    processors: Processors,
}

/// Where a host's programs run.
pub(crate) enum Processors {
    Any,
    One(usize),
    Share(Share),
}

/// A program that ends with this value.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let child = command.spawn();
        child.map(Self).map_err(|e| {
            let name = command.get_program().to_string_lossy();
            format!("`{name}` does not start: {e}")
        })
    }
}

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
        let host = Self {
            holder: Running::start(&mut holder)?,
            number,
            processors: Processors::Any,
        };
        let until = Instant::now() + Duration::from_secs(60);
        let comm = format!("/proc/{}/comm", host.pid());
        while fs::read_to_string(&comm).unwrap_or_default().trim() != "sleep" {
            if Instant::now() > until {
                return Err("`unshare` has made no namespaces in 60 s; help: it needs root".into());
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

    /// Its address in the network.
    pub(crate) fn ip(&self) -> String {
        format!("10.77.0.{}", self.number)
    }

    /// The switch's end of its interface.
    fn port(&self) -> String {
        format!("port{}", self.number)
    }

    /// Gives this host an interface whose other end is the switch's.
    fn plug_into(&self, switch: &Self) -> Result<(), String> {
        let (port, pid) = (self.port(), self.pid().to_string());
        switch.run(
            "ip",
            &[
                "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid,
            ],
        )?;
        switch.run("ip", &["link", "set", &port, "up"])?;
        self.run(
            "ip",
            &["address", "add", &format!("{}/24", self.ip()), "dev", "eth0"],
        )?;
        self.run("ip", &["link", "set", "eth0", "up"])
    }

    /// What starts from now on runs there.
    pub(crate) fn run_on(&mut self, processors: Processors) {
        self.processors = processors;
    }

    /// A command that runs on this host.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = tied("nsenter");
        command
            .arg(format!("--target={}", self.pid()))
            .args(NAMESPACES)
            .stdin(Stdio::null());
        match &self.processors {
            Processors::Any => &mut command,
            Processors::One(number) => command.args(["taskset", "--cpu-list", &number.to_string()]),
            Processors::Share(share) => command
                .args(["sh", "-c", "echo $$ > \"$0\" && exec \"$@\""])
                .arg(share.processes()),
        }
        .arg(program);
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
