//! What is asked for.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::ledger::SLOTS;

/// A part of the soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Nothing happens, and costs nothing.
    Idle,
    /// Both sides sleep and are woken.
    Wakes,
    /// Sources come and go, and are killed.
    Many,
    /// Messages of all kinds, counted.
    Messages,
}

const PARTS: [(&str, Part); 4] = [
    ("idle", Part::Idle),
    ("wakes", Part::Wakes),
    ("many", Part::Many),
    ("messages", Part::Messages),
];

/// How much of everything.
#[derive(Debug)]
pub(super) struct Options {
    /// A short one.
    pub(super) quick: bool,
    /// Messages, of all sources together.
    pub(super) messages: u64,
    /// How long messages are sent at most.
    pub(super) sending: Duration,
    /// Rounds of sleeping and waking.
    pub(super) rounds: u64,
    /// How long rounds go on at most.
    pub(super) waking: Duration,
    /// Sources that come and go.
    pub(super) visits: usize,
    /// Sources that are there at the same time.
    pub(super) live: usize,
    /// How long nothing happens.
    pub(super) idle: Duration,
    pub(super) transports: Vec<String>,
    pub(super) parts: Vec<Part>,
    /// Of everything that is random.
    pub(super) seed: u64,
    /// Where the libraries of the ifuncs are.
    pub(super) libraries: PathBuf,
    pub(super) folders: Folders,
}

impl Options {
    pub(super) fn parse(args: &[String]) -> Result<Self, String> {
        let quick = args.iter().any(|arg| arg == "--quick");
        let for_ever = Duration::from_secs(24 * 3600);
        let seconds = |quickly, thoroughly| Duration::from_secs_f64(if quick { quickly } else { thoroughly });
        let mut options = Self {
            quick,
            messages: if quick { u64::MAX } else { 10_000_000 },
            sending: if quick { Duration::from_secs(2) } else { for_ever },
            rounds: if quick { u64::MAX } else { 1_000_000 },
            waking: if quick {
                Duration::from_millis(1500)
            } else {
                for_ever
            },
            visits: if quick { 32 } else { 1000 },
            live: if quick { 8 } else { 64 },
            idle: seconds(2.0, 10.0),
            transports: available(quick),
            parts: PARTS.iter().map(|(_, part)| *part).collect(),
            seed: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| since.as_secs()),
            libraries: std::env::var_os("IFUNC_LIB_DIR")
                .map(PathBuf::from)
                .ok_or("IFUNC_LIB_DIR is not set\nhelp: `cargo xtask soak` builds the ifuncs and sets it")?,
            folders: Folders::new()?,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
            let number = |text: &String| {
                let digits: String = text.chars().filter(|c| *c != '_').collect();
                digits
                    .parse::<u64>()
                    .map_err(|_| format!("`{text}` is not a number"))
            };
            match arg.as_str() {
                "--quick" => {}
                "--messages" => {
                    options.messages = number(value()?)?;
                    options.sending = for_ever;
                }
                "--rounds" => {
                    options.rounds = number(value()?)?;
                    options.waking = for_ever;
                }
                "--visits" => {
                    options.visits = number(value()?)? as usize;
                    if options.visits > SLOTS / 2 {
                        return Err(format!("the ledger has room for {} visits at most", SLOTS / 2));
                    }
                }
                "--seed" => options.seed = number(value()?)?,
                "--transport" => {
                    options.transports = value()?.split(',').map(str::to_owned).collect();
                    for transport in &options.transports {
                        if address(transport, "x").is_none() {
                            return Err(format!(
                                "`{transport}` is no transport between processes: shm, tls, ucx, ucx-put"
                            ));
                        }
                    }
                }
                "--part" => {
                    options.parts = value()?
                        .split(',')
                        .map(|name| {
                            let part = PARTS.iter().find(|(known, _)| *known == name);
                            part.map(|(_, part)| *part).ok_or_else(|| {
                                format!("`{name}` is no part of the soak: idle, wakes, many, messages")
                            })
                        })
                        .collect::<Result<_, _>>()?;
                }
                other => return Err(format!("`{other}` is no option of the soak")),
            }
        }
        Ok(options)
    }
}

/// The transports between processes that this machine has.
fn available(quick: bool) -> Vec<String> {
    let mut names = vec!["shm".to_owned()];
    // A short run does without TLS, unless it is asked for.
    if !quick && std::env::var_os("IFUNC_TLS_KEY").is_some() {
        names.push("tls".into());
    }
    match ucx::Library::load() {
        Ok(_) => names.extend(
            ["ucx", "ucx-put"]
                .into_iter()
                .filter(|name| address(name, "x").is_some())
                .map(str::to_owned),
        ),
        Err(error) => eprintln!("not over UCX: {error}"),
    }
    names
}

/// An address for a target to listen at; `None` if there is no such transport.
pub(super) fn address(transport: &str, name: &str) -> Option<String> {
    let address = match transport {
        "shm" | "loopback" => format!("{transport}:soak-{}-{name}", std::process::id()),
        other => format!("{other}://127.0.0.1:0"),
    };
    address.parse::<ifunc_rt::Address>().is_ok().then_some(address)
}

/// Folders that are gone with the run: of sockets, and of the files that UCX makes of shared memory. In folders of their
/// own, what is left behind is told from what others have.
#[derive(Debug)]
pub(super) struct Folders {
    pub(super) sockets: PathBuf,
    pub(super) memory: PathBuf,
}

impl Folders {
    fn new() -> Result<Self, String> {
        let make = |parent: PathBuf| {
            let path = parent.join(format!("ifunc-soak-{}", std::process::id()));
            let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
            made.map_err(|error| format!("cannot make `{}`: {error}", path.display()))?;
            Ok::<_, String>(path)
        };
        Ok(Self {
            sockets: make(std::env::temp_dir())?,
            memory: make("/dev/shm".into())?,
        })
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        for folder in [&self.sockets, &self.memory] {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
