//! A target on one host, a source on the other, numbered messages between them, and the figures.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Failure;
use crate::hosts::{Host, text};
use crate::program::Program;
use crate::source::RIGHT;

/// Between whom, and over what.
pub(crate) struct Route<'a> {
    pub(crate) source: &'a Host,
    pub(crate) target: &'a Host,
    /// The scheme of the address.
    pub(crate) transport: &'static str,
}

/// Where things are.
pub(crate) struct Places {
    /// The images that are sent.
    pub(crate) libraries: PathBuf,
    /// For what this run writes; gone afterwards.
    pub(crate) scratch: PathBuf,
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
}

/// What was done, as the source says it.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    sent: u64,
    executed: u64,
    skipped: u64,
    answers: u64,
    unknown: u64,
    bytes: u64,
    ms: u64,
    /// What UCX says of the lanes that it took, on both sides, and what else is to be said of the transport.
    pub(crate) lanes: String,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            executed,
            skipped,
            answers,
            unknown,
            bytes,
            ms,
            lanes,
        } = self;
        let seconds = *ms as f64 / 1000.0;
        write!(
            f,
            "{sent} messages ({:.1} MB) in {seconds:.2} s, {executed} executed once and in order, {answers} answers right",
            *bytes as f64 / 1e6
        )?;
        if *skipped + *unknown > 0 {
            write!(
                f,
                ", {skipped} lost of at most {unknown} that were said to be in doubt"
            )?;
        }
        write!(f, "; {lanes}")
    }
}

impl Route<'_> {
    /// The address of a target on its host.
    pub(crate) fn address(&self, port: u16) -> String {
        match self.transport {
            // Made when it listens.
            "ucx-worker" => "ucx-worker:".into(),
            scheme => format!("{scheme}://{}:{port}", self.target.ip),
        }
    }

    /// Sends `messages` of at most `largest` bytes; `watch` hears each line of the source when it is said.
    ///
    /// # Errors
    /// What was run is not what was sent.
    pub(crate) fn exchange(
        &self,
        places: &Places,
        messages: u64,
        largest: usize,
        patience: Duration,
        mut watch: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<Figures, Failure> {
        let this = crate::this();
        let logs = places.scratch.join("ucx");
        let _ = std::fs::remove_dir_all(&logs);
        std::fs::create_dir_all(&logs)?;
        let log = |name: &str| Ok::<_, Failure>(text(&logs.join(name))?.to_owned());

        let mut target = self.target.command(&this);
        target.args(["target", &self.address(0)]);
        target.envs([("UCX_LOG_LEVEL", "info"), ("UCX_LOG_FILE", &log("target")?)]);
        let mut target = Program::start("target", &mut target, patience)?;
        let address = target.wait_for("ifunc: ready ")?;

        let mut source = self.source.command(&this);
        source.args(["source", &address, text(&places.libraries)?]);
        source.args([messages.to_string(), largest.to_string()]);
        source.envs([("UCX_LOG_LEVEL", "info"), ("UCX_LOG_FILE", &log("source")?)]);
        let mut source = Program::start("source", &mut source, patience)?;
        while let Some(line) = source.line()? {
            watch(line)?;
        }
        let ended = source.end();
        // UCX 1.13 ends a process that cannot answer a put, also one that closes its connection: see docs/transports.md.
        let is_end_of_ucx = |error: &Failure| {
            self.transport == "ucx-put"
                && source.said.last().is_some_and(|line| line == RIGHT)
                && error.to_string().contains("(ucp_put_handler+")
        };
        let remark = match ended {
            Err(error) if is_end_of_ucx(&error) => "; UCX ended the source while it closed the connection",
            Err(error) => return Err(error),
            Ok(()) => "",
        };
        let said = source.said.iter().find(|line| line.starts_with("sent "));
        let mut figures = Figures::parse(said.ok_or("the source said no figures")?)?;
        figures.lanes = match self.transport {
            "tls" => "tcp/eth0, which is the only path".into(),
            _ => lanes(&logs)?,
        };
        figures.lanes.push_str(remark);
        Ok(figures)
    }
}

impl Figures {
    /// How long the sending took, from the first message to the last answer.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_millis(self.ms)
    }

    /// Reads `sent 5 executed 5 …`.
    fn parse(line: &str) -> Result<Self, Failure> {
        let mut figures = Self::default();
        let words: Vec<&str> = line.split(' ').collect();
        for pair in words.chunks(2) {
            let [name, number] = *pair else { continue };
            let number = number.parse()?;
            match name {
                "sent" => figures.sent = number,
                "executed" => figures.executed = number,
                "skipped" => figures.skipped = number,
                "answers" => figures.answers = number,
                "unknown" => figures.unknown = number,
                "bytes" => figures.bytes = number,
                "ms" => figures.ms = number,
                _ => {}
            }
        }
        Ok(figures)
    }
}

/// What UCX wrote of the lanes that it took: `ep_cfg[1]: am(tcp/eth0) …`.
///
/// # Errors
/// It took none of a network.
pub(crate) fn lanes(logs: &Path) -> Result<String, Failure> {
    let mut all: Vec<String> = Vec::new();
    for log in std::fs::read_dir(logs)? {
        let log = std::fs::read(log?.path())?;
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines = log
            .lines()
            .filter_map(|line| line.split_once("ep_cfg[").map(|(_, rest)| rest));
        all.extend(lines.filter_map(|line| line.split_once(": ").map(|(_, lanes)| lanes.trim().to_owned())));
    }
    all.sort();
    all.dedup();
    match all.iter().any(|lanes| lanes.contains("/eth0")) {
        true => Ok(format!("UCX took {}", all.join(", "))),
        false => Err(format!("UCX took no lane between the hosts: {all:?}").into()),
    }
}
