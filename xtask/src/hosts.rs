//! Hosts made of namespaces: for programs that must not see that they share a machine.
//!
//! A host is a set of namespaces (network, mounts, IPC, names) that lives as long as the process that holds it. One more is the
//! switch to which all of them are connected. UCX sees different machines and takes TCP.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const NAMESPACES: [&str; 4] = ["--net", "--mount", "--ipc", "--uts"];

/// A switch, and hosts that are connected by it. `scratch` is a folder for files of theirs.
pub(crate) fn network(scratch: &Path, count: usize) -> Result<(Host, Vec<Host>), String> {
    let switch = Host::new(scratch, 0)?;
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

/// A host made of namespaces, and the process that holds them.
pub(crate) struct Host {
    holder: Running,
    number: usize,
}

/// A program that ends with this value.
pub(crate) struct Running(pub(crate) Child);

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
    pub(crate) fn command(&self, program: &str) -> Command {
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
