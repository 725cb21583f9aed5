//! Parts of the tests that run beside the others: this program again, with a low priority.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Instant;

use crate::child;
use crate::plan::Tier;
use crate::steps::Steps;
use crate::tail::Tail;
use crate::usage::Usage;

/// The process, while it runs.
#[derive(Debug)]
pub(crate) struct Beside {
    /// The names of the parts.
    name: String,
    log: PathBuf,
    started: Instant,
    child: Result<Child, String>,
}

impl Beside {
    /// Starts the parts of these names, which run one after the other.
    pub(crate) fn start(names: &[&str], tier: Tier) -> Self {
        let name = names.join(", ");
        eprintln!("\n==> {name}: beside what follows");
        let log = crate::scratch().join("beside.log");
        Self {
            name,
            started: Instant::now(),
            child: start(names, tier, &log),
            log,
        }
    }

    /// Waits for its end and prints what it printed.
    pub(crate) fn join(self, steps: &mut Steps) {
        let Self {
            name,
            log,
            started,
            child,
        } = self;
        eprintln!("\n==> {name}");
        let (cpu, result) = match child {
            Ok(child) => child::wait(child, None),
            Err(reason) => (std::time::Duration::ZERO, Err(reason)),
        };
        let wall = started.elapsed();
        let said = fs::read(log).unwrap_or_default();
        let _ = std::io::stderr().write_all(&said);
        let result = match result {
            Ok(()) => Ok("beside the steps above".into()),
            // Its summary is at its end.
            Err(reason) => {
                let mut tail = Tail::default();
                String::from_utf8_lossy(&said)
                    .lines()
                    .for_each(|line| tail.push(line));
                Err(format!("{reason}{tail}"))
            }
        };
        steps.add(&name, Usage { wall, cpu }, result);
    }
}

fn start(names: &[&str], tier: Tier, log: &std::path::Path) -> Result<Child, String> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let scratch = crate::scratch();
    fs::create_dir_all(&scratch).map_err(|e| format!("cannot create `{}`: {e}", scratch.display()))?;
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(this);
    command.arg(tier.command());
    for name in names {
        command.args(["--only", name]);
    }
    child::start(command.current_dir(crate::root()), log)
}
