//! Hosts made of namespaces: each has a network, shared memory, and a name of its own, and looks like another machine to
//! who asks for the machine's identity.
//!
//! Nothing has a name that the system would have to forget: a namespace lives as long as the process that holds it, and that
//! process is killed by the kernel when this program ends, however it ends. What was made goes with it: interfaces, their
//! queues, the firewall's rules.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// A host.
pub(crate) struct Host {
    holder: Child,
    /// Its address, if it has one.
    pub(crate) ip: &'static str,
}

/// The namespaces of a host. Processes and users are those of this one.
pub(crate) const NAMESPACES: [&str; 4] = ["--net", "--mount", "--ipc", "--uts"];

impl Host {
    /// A host without a network.
    ///
    /// # Errors
    /// The kernel makes no namespaces for this user.
    pub(crate) fn new(ip: &'static str, scratch: &Path) -> Result<Self, Failure> {
        let mut holder = tied("unshare");
        holder.args(NAMESPACES).args(["sleep", "infinity"]);
        holder.stdin(Stdio::null()).stdout(Stdio::null());
        let mut host = Self {
            holder: holder
                .spawn()
                .map_err(|e| format!("cannot start `setpriv`: {e}"))?,
            ip,
        };
        host.wait()?;
        // UCX takes processes of one boot for processes of one machine.
        let boot = scratch.join(format!("boot-{}", host.holder.id()));
        std::fs::write(
            &boot,
            format!("00000000-0000-4000-8000-{:012x}\n", host.holder.id()),
        )?;
        host.run(
            "mount",
            &["--bind", text(&boot)?, "/proc/sys/kernel/random/boot_id"],
        )?;
        host.run("mount", &["-t", "tmpfs", "two-hosts", "/dev/shm"])?;
        host.run("ip", &["link", "set", "lo", "up"])?;
        Ok(host)
    }

    /// Waits until the holder has left our namespaces and is asleep.
    fn wait(&mut self) -> Result<(), Failure> {
        let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/uts"));
        let ours = network("self")?;
        let name = self.holder.id().to_string();
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.holder.try_wait()? {
                return Err(format!("`unshare {}`: {status}", NAMESPACES.join(" ")).into());
            }
            let command = std::fs::read_to_string(format!("/proc/{name}/comm")).unwrap_or_default();
            if command.trim() == "sleep" && network(&name).is_ok_and(|theirs| theirs != ours) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err("`unshare` has not made the namespaces of a host in 10 s".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What is put in front of a command, so that it runs on this host.
    pub(crate) fn enter(&self) -> Vec<String> {
        let mut words = vec!["nsenter".to_owned(), format!("--target={}", self.holder.id())];
        words.extend(NAMESPACES.map(str::to_owned));
        // Who enters another tree of mounts starts at its root.
        words.extend(
            std::env::current_dir()
                .ok()
                .map(|dir| format!("--wd={}", dir.display())),
        );
        words
    }

    /// A command that runs on this host, and ends with this program.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let [enter, options @ ..] = &self.enter()[..] else {
            unreachable!("a command has a name")
        };
        let mut command = tied(enter);
        command.args(options).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a command of the system on this host; what it prints.
    ///
    /// # Errors
    /// It fails; with what it said.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> Result<String, Failure> {
        self.run_with(program, args, "")
    }

    /// As [`run`](Self::run), with an input.
    pub(crate) fn run_with(&self, program: &str, args: &[&str], input: &str) -> Result<String, Failure> {
        let mut command = self.command(program);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut to) = child.stdin.take() {
            to.write_all(input.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("`{program} {}`: {}", args.join(" "), said.trim()).into())
            }
        }
    }

    /// Joins this host with another by a pair of virtual interfaces.
    ///
    /// # Errors
    /// The kernel has none.
    pub(crate) fn cable(&self, here: &str, other: &Self, there: &str) -> Result<(), Failure> {
        let holder = other.holder.id().to_string();
        let pair = [
            "link", "add", here, "type", "veth", "peer", "name", there, "netns", &holder,
        ];
        self.run("ip", &pair)?;
        self.up(here)?;
        other.up(there)
    }

    fn up(&self, interface: &str) -> Result<(), Failure> {
        if !self.ip.is_empty() {
            let address = format!("{}/24", self.ip);
            self.run("ip", &["address", "add", &address, "dev", interface])?;
        }
        self.run("ip", &["link", "set", interface, "up"])?;
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A command that the kernel kills when the thread that starts it ends: here the main one, and with it this program.
pub(crate) fn tied(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    // Where `ip`, `tc` and `nft` are, which are not on every user's path.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// A path as text.
pub(crate) fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str()
        .ok_or_else(|| format!("`{}` is not UTF-8", path.display()).into())
}
