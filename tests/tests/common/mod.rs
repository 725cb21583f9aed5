//! Targets as processes of their own, and the ifuncs that are sent to them.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "every test binary uses a part of it"
)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ifunc_build::{BuildOptions, Quiet, build_packages};
use ifunc_rt::{Source, SourceOptions};

pub mod scratch;
mod transport;
#[path = "../../../ifunc-build/tests/common/warm.rs"]
mod warm;

pub use transport::{Transport, over_there, unique, unique_shm, unique_within};

/// Longer than anything here takes on a machine that is busy with something else.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The folder that holds the built ifuncs of `ifunc-tests-ifuncs` and `ifunc-ops`.
pub fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // Test binaries run one after the other, tests of one binary side by side: built once each.
        let options = BuildOptions {
            current_dir: Some(workspace()),
            packages: vec!["ifunc-tests-ifuncs".into(), "ifunc-ops".into()],
            ..BuildOptions::default()
        };
        let built = build_packages(&options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
        assert!(
            built.len() >= 12,
            "all ifuncs of the package, Rust and C: {}",
            built.len()
        );
        built[0].path.parent().unwrap().to_owned()
    })
}

/// The root of this checkout.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The library of an ifunc.
pub fn library(name: &str) -> PathBuf {
    libraries().join(format!("{name}.so"))
}

/// The target of these tests, linked as static-pie in a target directory of its own.
pub fn static_target() -> PathBuf {
    let folder = workspace().join("target/e2e-static");
    let host = "x86_64-unknown-linux-gnu";
    let status = Command::new(env!("CARGO"))
        .current_dir(workspace())
        .args([
            "build",
            "--quiet",
            "--package",
            "ifunc-tests",
            "--bin",
            "e2e-target",
            "--target",
            host,
        ])
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", "-Ctarget-feature=+crt-static -Crelocation-model=pie")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .unwrap();
    assert!(status.success(), "the static target does not build");
    folder.join(host).join("debug/e2e-target")
}

/// A connection whose waits end.
pub fn connect(address: &str) -> Source {
    Source::connect_with(
        address,
        SourceOptions::default().timeout(TIMEOUT).reconnect(TIMEOUT),
    )
    .unwrap()
}

/// A process that is killed when the test is done with it, however it is done.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    /// What it has said so far.
    pub said: Vec<String>,
}

impl Process {
    /// Starts the target of these tests and waits until it is ready.
    pub fn target(address: &str) -> Self {
        Self::target_from(Path::new(env!("CARGO_BIN_EXE_e2e-target")), address)
    }

    /// Starts the target of these tests, with room for several calls before it runs the first, and waits until it is ready.
    pub fn roomy_target(address: &str) -> Self {
        let mut command = over_there(env!("CARGO_BIN_EXE_e2e-target"));
        command.env("IFUNC_ADDR", address).env("IFUNC_CREDITS", "64");
        Self::start_target(&mut command, address)
    }

    /// Starts a target from this executable and waits until it is ready.
    pub fn target_from(executable: &Path, address: &str) -> Self {
        Self::start_target(over_there(executable).env("IFUNC_ADDR", address), address)
    }

    /// Starts a target by a command that tells it this address, and waits until it is ready.
    pub fn start_target(command: &mut Command, address: &str) -> Self {
        let mut process = Self::start(command);
        process.wait_for(&format!("ifunc: ready {address}"));
        process
    }

    /// Starts a process whose standard output is read.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { break };
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Waits until the process says this line.
    pub fn wait_for(&mut self, line: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.said.iter().any(|said| said == line) {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(said) => self.said.push(said),
                Err(RecvTimeoutError::Timeout) => panic!("not said in time: `{line}`; said: {:?}", self.said),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended without `{line}`; said: {:?}", self.said)
                }
            }
        }
    }

    /// Waits until the process says this line after all that was waited for before.
    pub fn wait_for_last(&mut self, line: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(said) => self.said.push(said),
                Err(error) => panic!("no further `{line}` ({error}); said: {:?}", self.said),
            }
            if self.said.last().is_some_and(|said| said == line) {
                return;
            }
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended by itself.
    pub fn wait_for_end(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        // Its output ends with it.
        loop {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(said) => self.said.push(said),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end; said: {:?}", self.said),
            }
        }
        self.child.wait().unwrap();
    }

    /// Kills it the hard way and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether it is still there.
    pub fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Its memory map.
    pub fn maps(&self) -> Vec<Mapping> {
        Mapping::of(self.pid()).unwrap()
    }

    /// What it holds for the sake of its peers: memory that it shares with them, descriptors.
    pub fn holds(&self) -> Vec<String> {
        let shared = self.maps().into_iter().map(|mapping| mapping.name);
        let mut all: Vec<_> = shared.filter(|name| name.starts_with("/memfd:")).collect();
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        all.push(format!("{} descriptors", descriptors.count()));
        all.sort();
        all
    }

    /// Processor time it has used, user and system together, in clock ticks.
    pub fn ticks(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let behind_name = text.rsplit_once(") ").unwrap().1;
        behind_name
            .split(' ')
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().unwrap())
            .sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// `rwxp`.
    pub access: String,
    /// File or `[name]`; empty for anonymous memory.
    pub name: String,
}

impl Mapping {
    /// The memory map of a process, unless it has ended.
    pub fn of(pid: u32) -> std::io::Result<Vec<Self>> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(text.lines().map(Self::parse).collect())
    }

    fn parse(line: &str) -> Self {
        let mut fields = line.split_whitespace();
        let access = fields.nth(1).unwrap().to_owned();
        let name = fields.skip(3).collect::<Vec<_>>().join(" ");
        Self { access, name }
    }

    /// Writable and executable.
    pub fn is_writable_and_executable(&self) -> bool {
        self.access.contains('w') && self.access.contains('x')
    }

    /// A mapping of a file in a file system.
    pub fn is_file(&self) -> bool {
        self.name.starts_with('/') && !self.name.starts_with("/memfd:")
    }
}
