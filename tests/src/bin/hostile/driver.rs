//! Starts the roles, watches the target, and judges.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use ifunc_tests::role::{Role, TIMEOUT, number};

use crate::attack::{SHM, TLS};
use crate::observe::Holdings;
use crate::target::{CONNECTIONS, RING, UNFINISHED};

/// Between two looks at the target.
const LOOK: Duration = Duration::from_millis(250);
/// Most memory of the target in KiB, beside what its limits allow attackers: bodies that are not complete, and the windows of all
/// connections.
const OWN: u64 = 128 << 10;
const MOST: u64 = OWN + ((UNFINISHED + CONNECTIONS * 2 * RING as usize) >> 10) as u64;
/// Most descriptors: those of all connections, of half-open ones, and of what waits to be accepted.
const MOST_DESCRIPTORS: usize = 4096;
/// Most bytes of the target's log in a second.
const LOG: u64 = 8 << 10;

/// What is asked for.
struct Options {
    seconds: u64,
    transports: Vec<String>,
    seed: u64,
    libraries: PathBuf,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            seconds: 60,
            transports: vec!["shm".into(), "tls".into()],
            seed: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| since.as_secs()),
            libraries: std::env::var_os("IFUNC_LIB_DIR").map(PathBuf::from).ok_or(
                "IFUNC_LIB_DIR is not set\nhelp: `cargo xtask hostile` builds the ifuncs and sets it",
            )?,
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("`{value}` is not a number"))
            };
            match word {
                "--seconds" => options.seconds = number()?.max(2),
                "--seed" => options.seed = number()?,
                "--transport" => {
                    options.transports = value.split(',').map(str::to_owned).collect();
                    if let Some(other) = options
                        .transports
                        .iter()
                        .find(|name| !["shm", "tls"].contains(&&***name))
                    {
                        return Err(format!("`{other}` is no transport of this run: shm, tls"));
                    }
                }
                other => return Err(format!("`{other}` is no option of this run")),
            }
        }
        Ok(options)
    }
}

/// Attacks a target over each transport. The last line is how many passed.
pub(crate) fn run(words: &[&str]) -> ExitCode {
    let options = match Options::parse(words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", options.seed);
    let mut failed = 0;
    for transport in &options.transports {
        match Folder::new().and_then(|folder| over(&options, transport, &folder.0)) {
            Ok(figures) => println!("ok      over {transport}: {figures}"),
            Err(why) => {
                failed += 1;
                println!("FAILED  over {transport}: {why}");
            }
        }
    }
    println!("{} passed, {failed} failed", options.transports.len() - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A folder for sockets and logs, which is gone with the run.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("ifunc-hostile-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| format!("cannot make `{}`: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts a role; its log goes to `log`.
fn start(args: &[&str], sockets: &Path, log: Stdio) -> Result<Role, String> {
    Role::start(args, |command| {
        command.env("IFUNC_RUNTIME_DIR", sockets).stderr(log);
    })
}

/// A file for a log.
fn log(path: &Path) -> Result<Stdio, String> {
    let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(file.into())
}

fn over(options: &Options, transport: &str, folder: &Path) -> Result<String, String> {
    let address = match transport {
        "shm" => "shm:hostile".to_owned(),
        other => format!("{other}://127.0.0.1:0"),
    };
    let target_log = folder.join("target.log");
    let mut target = start(&["target", &address], folder, log(&target_log)?)?;
    attacked(options, transport, folder, &target_log, &mut target).map_err(|why| {
        let said = std::fs::read_to_string(&target_log).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(60).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        format!("{why}\n{}", last.join("\n"))
    })
}

/// A target that has been started, until it has stopped.
fn attacked(
    options: &Options,
    transport: &str,
    folder: &Path,
    target_log: &Path,
    target: &mut Role,
) -> Result<String, String> {
    let address = target.wait_for("ready ")?;
    let library = options.libraries.join("t_add.so");
    let library = library.to_str().ok_or("a folder whose name is no text")?;
    let mut honest = start(&["honest", &address, library], folder, Stdio::inherit())?;
    honest.wait_for("ready")?;

    let alone = (options.seconds / 6).clamp(1, 60);
    honest.tell(&(alone * 1000).to_string())?;
    let undisturbed = honest.wait_for("calls=")?;
    let before = Holdings::of(target.pid())?;
    println!("        over {transport}, alone:     calls={undisturbed}; the target holds {before}");

    let kinds = if transport == "shm" { SHM } else { TLS };
    let mut attackers = Vec::new();
    for (index, kind) in kinds.into_iter().enumerate() {
        let seed = (options.seed + index as u64).to_string();
        attackers.push((
            kind,
            start(&["attack", kind, &address, &seed], folder, Stdio::null())?,
            0,
        ));
    }
    honest.tell(&(options.seconds * 1000).to_string())?;
    let looks = watch(target, &mut attackers, options.seconds)?;
    let attacked = honest.wait_for("calls=")?;
    println!(
        "        over {transport}, attacked:  calls={attacked}; the target held at most {}",
        looks.most
    );
    let quarters = looks.quarters.map(|quarter| quarter.private.to_string());
    println!(
        "        over {transport}, memory:    {} KiB in the quarters of that time",
        quarters.join(", ")
    );
    let attempts: Vec<String> = attackers
        .iter()
        .map(|(kind, _, attempts)| format!("{kind} {attempts}"))
        .collect();
    println!("        over {transport}, attempts:  {}", attempts.join(", "));
    drop(attackers);
    looks.judge()?;

    let after = settled(target, &before)?;
    honest.tell("100")?;
    let last = honest.wait_for("calls=")?;
    let sum = number(&last, "sum")?;
    honest.close();
    target.close();
    let stopped = target.wait_for("stopped ")?;
    for name in ["counter", "changes"] {
        let found = number(&stopped, name)?;
        if found != sum {
            return Err(format!(
                "the honest source made {sum} calls, and the target's {name} is {found}"
            ));
        }
    }
    let logged = std::fs::metadata(target_log).map_or(0, |about| about.len());
    let lines = std::fs::read_to_string(target_log).map_or(0, |text| text.lines().count());
    if lines == 0 {
        return Err("the target logged none of what it refused".into());
    }
    if logged > LOG * (options.seconds + 10) {
        return Err(format!(
            "the target logged {logged} bytes: strangers fill its log"
        ));
    }
    Ok(format!(
        "{sum} honest calls, all right; after it the target holds {after}; {lines} lines of log, {logged} bytes"
    ))
}

/// What was seen of the target.
#[derive(Default)]
struct Looks {
    most: Holdings,
    /// The most of each quarter of the time.
    quarters: [Holdings; 4],
}

fn watch(target: &mut Role, attackers: &mut [(&str, Role, u64)], seconds: u64) -> Result<Looks, String> {
    let begin = Instant::now();
    let mut looks = Looks::default();
    while begin.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(LOOK);
        if target.has_ended()? {
            return Err("the target ended".into());
        }
        let now = Holdings::of(target.pid())?;
        looks.most = looks.most.max(now);
        let quarter = begin.elapsed().as_secs_f64() / seconds as f64 * 4.0;
        let quarter = &mut looks.quarters[(quarter as usize).min(3)];
        *quarter = quarter.max(now);
        for (kind, role, attempts) in attackers.iter_mut() {
            if let Some(line) = role.last_line() {
                *attempts = number(&line, "attempts")?;
            }
            if role.has_ended()? {
                return Err(format!("the attacker `{kind}` ended"));
            }
        }
    }
    if let Some((kind, ..)) = attackers.iter().find(|(_, _, attempts)| *attempts == 0) {
        return Err(format!("the attacker `{kind}` made no attempt"));
    }
    Ok(looks)
}

impl Looks {
    /// Memory and descriptors are bounded, and grow no more once the attackers have begun.
    fn judge(&self) -> Result<(), String> {
        let most = self.most;
        if most.private > MOST || most.descriptors > MOST_DESCRIPTORS {
            return Err(format!("the target held {most}: its limits allow {MOST} KiB"));
        }
        let [_, second, third, last] = self.quarters;
        let earlier = second.max(third);
        if last.private > earlier.private + earlier.private / 4 + (16 << 10) {
            return Err(format!("the target's memory grows: {second}, {third}, {last}"));
        }
        Ok(())
    }
}

/// What the target holds when the attackers have left.
fn settled(target: &Role, before: &Holdings) -> Result<Holdings, String> {
    let begin = Instant::now();
    loop {
        let now = Holdings::of(target.pid())?;
        if now.descriptors <= before.descriptors {
            return Ok(now);
        }
        if begin.elapsed() > TIMEOUT / 4 {
            return Err(format!(
                "the attackers have left, and the target holds {now}; before: {before}"
            ));
        }
        std::thread::sleep(LOOK);
    }
}
