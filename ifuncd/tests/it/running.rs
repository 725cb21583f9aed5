//! A daemon as a process of its own, and the ifuncs that are sent to it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ifunc::Ifunc;
use ifunc_build::{BuildOptions, Quiet, build_packages};
use ifunc_rt::{Handle, Source, SourceOptions};
use tempfile::TempDir;

/// Longer than anything here takes on a machine that is busy with something else.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The folder of the built ifuncs.
pub(crate) fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let options = BuildOptions {
            current_dir: Some(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()),
            packages: vec!["ifuncd-tests-ifuncs".into()],
            ..BuildOptions::default()
        };
        let built = build_packages(&options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
        assert!(built.len() >= 16, "{}", built.len());
        built[0].path.parent().unwrap().to_owned()
    })
}

/// A peer that is recognised by the user of these tests.
pub(crate) const OWN: &str = r#"
[[peer]]
name = "own"
user = "own"
capabilities = ["store", "files", "memory", "time", "random", "log"]
unsigned = true
writes-files = true
"#;

/// A folder with a configuration, and the daemon that runs by it.
pub(crate) struct Daemon {
    pub(crate) folder: TempDir,
    pub(crate) address: String,
    level: &'static str,
    /// Its variables.
    pub(crate) env: Vec<(&'static str, PathBuf)>,
    process: Option<Child>,
    lines: Option<Receiver<String>>,
    metrics: Option<String>,
}

impl Daemon {
    /// Starts one with these peers.
    pub(crate) fn start(level: &'static str, peers: &str) -> Self {
        let mut daemon = Self::prepare(level);
        daemon.write(peers, "");
        daemon.run();
        daemon
    }

    /// A folder without a configuration.
    pub(crate) fn prepare(level: &'static str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            address: format!("shm:ifuncd-test-{}-{number}", std::process::id()),
            folder,
            level,
            env: Vec::new(),
            process: None,
            lines: None,
            metrics: None,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration, with more lines in `[listen]`.
    pub(crate) fn write(&self, peers: &str, listen: &str) {
        let mut text = format!(
            "[listen]\naddresses = [\"{}\"{}]\n",
            self.address,
            if listen.contains("key =") {
                ", \"tls://127.0.0.1:0\""
            } else {
                ""
            }
        );
        text.push_str(listen);
        let _ = write!(
            text,
            r#"
[metrics]
address = "127.0.0.1:0"
[log]
audit = "audit.jsonl"
[faults]
level = "{}"
max-run-time = "10s"
[store]
file = "store.redb"
durability = "second"
[files]
folder = "data"
writable = true
max-file-bytes = "1 KiB"
[memory]
max-bytes = "1 MiB"
{peers}"#,
            self.level
        );
        std::fs::write(self.path("ifuncd.toml"), text).unwrap();
    }

    /// Starts the daemon, and waits until it is ready.
    pub(crate) fn run(&mut self) {
        let mut process = Command::new(env!("CARGO_BIN_EXE_ifuncd"))
            .arg("--config")
            .arg(self.path("ifuncd.toml"))
            .env_remove("RUST_LOG")
            .env_remove("NOTIFY_SOCKET")
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        let stdout = process.stdout.take().unwrap();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        self.process = Some(process);
        self.lines = Some(lines);
        let metrics = self.wait_for("ifuncd: metrics http://");
        self.metrics = metrics.strip_suffix("/metrics").map(str::to_owned);
        let address = self.address.clone();
        self.wait_for(&format!("ifunc: ready {address}"));
    }

    /// Waits for a line, and returns what follows.
    pub(crate) fn wait_for(&self, begins: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.as_ref().unwrap().recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(begins) {
                        return rest.to_owned();
                    }
                }
                Err(_) => panic!("no line `{begins}…`; the log: {}", self.log()),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The lines of the audit log.
    pub(crate) fn audit(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.path("audit.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits until the log has a line with this text.
    pub(crate) fn wait_for_log(&self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "`{text}` is not in {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until the process has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut process = self.process.take().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = process.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > deadline {
                let _ = process.kill();
                panic!("the daemon does not end; the log: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the process at once.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub(crate) fn connect(&self) -> Source {
        connect(&self.address)
    }

    /// The body of an answer of the metrics' address.
    pub(crate) fn get(&self, path: &str) -> String {
        let address = self.metrics.as_deref().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        body.to_owned()
    }

    /// The sum of all samples whose name and labels begin so.
    pub(crate) fn metric(&self, begins: &str) -> f64 {
        let text = self.get("/metrics");
        let samples = text.lines().filter(|line| line.starts_with(begins));
        samples
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

/// A connection whose waits end.
pub(crate) fn connect(address: &str) -> Source {
    let options = SourceOptions::default().timeout(TIMEOUT).reconnect(TIMEOUT);
    Source::connect_with(address, options).unwrap()
}

/// An ifunc of the tests, by its library.
pub(crate) fn handle<F: Ifunc>(source: &Source, name: &str) -> Handle<F> {
    source
        .register_path::<F>(libraries().join(format!("{name}.so")))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}
