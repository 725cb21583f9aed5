//! What the processes do that the driver starts.

mod auditor;
mod bare;
mod caller;
mod idler;
mod random;
mod sender;
mod target;
mod visitor;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ifunc_rt::{Source, SourceOptions};

/// What ends a role. The driver shows it.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Longer than anything takes on a machine that is busy with something else.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Does what the first argument says.
pub(crate) fn run(args: &[String]) -> Result {
    let (role, args) = args.split_first().ok_or("no role")?;
    let args = Arguments(args);
    match role.as_str() {
        "target" => target::run(&args),
        "sender" => sender::run(&args),
        "visitor" => visitor::run(&args),
        "idler" => idler::run(&args),
        "auditor" => auditor::run(&args),
        "bare-source" => bare::source(&args),
        "bare-target" => bare::target(),
        "caller" => caller::run(&args),
        other => Err(format!("there is no role `{other}`").into()),
    }
}

/// `name=value` arguments of a role.
pub(crate) struct Arguments<'a>(&'a [String]);

impl Arguments<'_> {
    fn text(&self, name: &str) -> Result<&str> {
        self.0
            .iter()
            .find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
            .ok_or_else(|| format!("no argument `{name}`").into())
    }

    fn number<T: FromStr<Err: std::error::Error + 'static>>(&self, name: &str) -> Result<T> {
        Ok(self.text(name)?.parse()?)
    }
}

/// A connection. A lost one is an error here: no target closes it by itself.
fn connect(args: &Arguments<'_>) -> Result<Source> {
    let options = SourceOptions::default()
        .timeout(TIMEOUT)
        .connect_timeout(TIMEOUT)
        .reconnect(Duration::ZERO);
    Ok(Source::connect_with(args.text("address")?, options)?)
}

/// The library of an ifunc.
fn library(args: &Arguments<'_>, name: &str) -> Result<PathBuf> {
    Ok(PathBuf::from(args.text("libraries")?).join(format!("{name}.so")))
}

/// Says something to the driver, at once.
fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // A driver that is gone needs to be told nothing.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Waits until the driver says something; it says nothing more when it is gone.
fn wait_for_driver() {
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}
