//! The daemon, and those who attack it.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ifunc_rt::keys::{PublicKey, SecretKey};
use tempfile::TempDir;

use crate::Failure;

/// What attackers do over each transport: roles of `hostile`.
const ATTACKS: [(&str, &[&str]); 2] = [
    (
        "shm",
        &[
            "garbage",
            "flood",
            "fragments",
            "scribble",
            "bitmap",
            "knock",
            "descriptors",
        ],
    ),
    (
        "tls",
        &[
            "garbage",
            "flood",
            "fragments",
            "garble",
            "loris",
            "knock",
            "strangers",
        ],
    ),
];

pub(crate) struct Node {
    folder: TempDir,
    program: PathBuf,
    process: Option<Child>,
    pub(crate) shm: String,
    pub(crate) tls: String,
    metrics: String,
    pub(crate) key: PublicKey,
}

/// A process that is killed when it is dropped.
pub(crate) struct Attacker(Child);

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The keys of the clients over TLS.
pub(crate) fn key_of(name: &str) -> SecretKey {
    let mut seed = [7; 32];
    for (byte, letter) in seed.iter_mut().zip(name.bytes()) {
        *byte = letter;
    }
    SecretKey::from_seed(seed, name)
}

impl Node {
    pub(crate) fn start(program: &Path, attacker: &SecretKey) -> Result<Self, Failure> {
        let folder = TempDir::new()?;
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("data"))?;
        std::fs::write(path("data/numbers"), "12345\n".repeat(20_000))?;
        let own = SecretKey::generate("ifuncd")?;
        let key = own.public();
        own.write_new(path("ifuncd.key"))?;
        attacker.write_new(path("attacker.key"))?;
        key.write(path("ifuncd.pub"), "ifuncd")?;
        let shm = format!("shm:ifuncd-load-{}", std::process::id());
        let mut text = format!(
            r#"
[listen]
addresses = ["{shm}", "tls://127.0.0.1:0"]
key = "ifuncd.key"
max-connections = 128
[metrics]
address = "127.0.0.1:0"
[log]
level = "warn"
audit = "audit.jsonl"
[faults]
level = "process"
max-run-time = "5s"
[runners]
max-runners = 200
[quotas]
image-bytes = "1 MiB"
payload-bytes = "1 MiB"
answer-bytes = "1 MiB"
[store]
file = "store.redb"
durability = "second"
[files]
folder = "data"
[memory]
max-bytes = "4 MiB"
"#
        );
        let all = r#""store", "files", "memory", "time", "random", "log""#;
        let mut peer = |name: &str, identity: &str, capabilities: &str| {
            let _ = write!(
                text,
                "[[peer]]\nname = \"{name}\"\n{identity}\ncapabilities = [{capabilities}]\nunsigned = true\n\
                 [peer.quotas]\ncalls-per-second = 50_000\nstore-bytes = \"1 MiB\"\nmemory-bytes = \"64 KiB\"\n"
            );
        };
        peer("own", "user = \"own\"", all);
        peer("all", &format!("public = \"{}\"", key_of("all").public()), all);
        peer(
            "less",
            &format!("public = \"{}\"", key_of("less").public()),
            "\"time\"",
        );
        peer("attacker", &format!("public = \"{}\"", attacker.public()), "");
        std::fs::write(path("ifuncd.toml"), text)?;
        let mut node = Self {
            folder,
            program: program.to_owned(),
            process: None,
            shm,
            tls: String::new(),
            metrics: String::new(),
            key,
        };
        node.run()?;
        Ok(node)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the daemon, and waits until it is ready.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.path("log"))?;
        let mut process = Command::new(&self.program)
            .arg("--config")
            .arg(self.path("ifuncd.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let stdout = process.stdout.take().ok_or("no output")?;
        self.process = Some(process);
        let mut ready = 0;
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            if let Some(rest) = line.strip_prefix("ifuncd: metrics http://") {
                self.metrics = rest.trim_end_matches("/metrics").to_owned();
            }
            if let Some(rest) = line.strip_prefix("ifunc: ready ") {
                ready += 1;
                if rest.starts_with("tls") {
                    rest.clone_into(&mut self.tls);
                }
            }
            if ready == 2 {
                return Ok(());
            }
        }
        Err(format!(
            "the daemon does not start: {}",
            std::fs::read_to_string(self.path("log"))?
        )
        .into())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, Child::id)
    }

    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Stops the daemon as a service manager does.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        let mut process = self.process.take().ok_or("it does not run")?;
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = process.wait()?;
        if !status.success() {
            return Err(format!("the daemon ended with {status}").into());
        }
        Ok(())
    }

    /// Starts an attacker of each kind, and one of the metrics' address, until `is_over`.
    pub(crate) fn attackers(
        &self,
        program: &Path,
        is_over: &Arc<AtomicBool>,
    ) -> Result<Vec<Attacker>, Failure> {
        let mut all = Vec::new();
        for (transport, kinds) in ATTACKS {
            let address = if transport == "shm" { &self.shm } else { &self.tls };
            for (seed, kind) in kinds.iter().enumerate() {
                let attacker = Command::new(program)
                    .args(["role", "attack", kind, address, &seed.to_string()])
                    .env("IFUNC_TLS_KEY", self.path("attacker.key"))
                    .env("IFUNC_TLS_PEERS", self.path("ifuncd.pub"))
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()?;
                all.push(Attacker(attacker));
            }
        }
        let metrics = self.metrics.clone();
        let is_over = Arc::clone(is_over);
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(mut stream) = TcpStream::connect(&metrics) {
                    let _ = stream.write_all(b"\x16\x03\x01 this is not HTTP");
                    let _ = stream.read_to_string(&mut String::new());
                }
                let Ok(mut stream) = TcpStream::connect(&metrics) else {
                    break;
                };
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nA: ");
                std::thread::sleep(Duration::from_millis(300));
                let _ = stream.write_all(&[b'a'; 100]);
            }
        });
        Ok(all)
    }

    /// The sum of all samples of the metrics that begin so.
    pub(crate) fn metric(&self, begins: &str) -> Result<f64, Failure> {
        Ok(self.samples(begins)?.into_iter().map(|(_, value)| value).sum())
    }

    /// The samples of the metrics that begin so.
    pub(crate) fn samples(&self, begins: &str) -> Result<Vec<(String, f64)>, Failure> {
        let mut stream = TcpStream::connect(&self.metrics)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let samples = text.lines().filter(|line| line.starts_with(begins));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(samples.filter_map(sample).collect())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
