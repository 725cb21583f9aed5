//! `ifuncd`: a ready-made target of injected functions.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use ifuncd::audit::AuditLog;
use ifuncd::config::Config;
use ifuncd::daemon::Daemon;
use ifuncd::logging;
use ifuncd::sandbox;

/// A ready-made target of injected functions: a store, files and memory beside the data, for the sources that its configuration names.
///
/// SIGHUP reads the configuration again; SIGTERM runs what was sent, and stops.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Args {
    /// The configuration.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/ifuncd/ifuncd.toml",
        env = "IFUNCD_CONFIG"
    )]
    config: PathBuf,
    /// Says whether the configuration is right, and if not, where and why. Changes nothing.
    #[arg(long)]
    check_config: bool,
    /// Prints a configuration with all that it may have.
    #[arg(long, conflicts_with = "check_config")]
    sample_config: bool,
    /// Prints the manual page.
    #[arg(long, hide = true)]
    man: bool,
}

fn main() -> ExitCode {
    // A target at the level `process` starts this program as its runner.
    ifunc_rt::run_if_started_by_target();
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    if args.man {
        let page = clap_mangen::Man::new(Args::command()).section("8").date("");
        return Ok(page.render(&mut std::io::stdout())?);
    }
    if args.sample_config {
        print!("{}", ifuncd::config::SAMPLE);
        return Ok(());
    }
    let config = Config::read(&args.config)?;
    if args.check_config {
        println!("{}: ok", args.config.display());
        return Ok(());
    }
    let audit = config.log.audit.clone().map(|path| {
        let opened = AuditLog::open(path.clone());
        opened.map_err(|error| format!("cannot open the audit log `{}`: {error}", path.display()))
    });
    let audit = audit.transpose()?;
    logging::start(&config.log, audit.clone())?;
    // Before there are other threads, which would not be confined.
    match sandbox::confine(&config)? {
        true => {}
        false => tracing::warn!(
            "the kernel does not enforce all of Landlock's rules: the daemon may reach more files than it needs"
        ),
    }
    // SAFETY: who starts the daemon lets the author of the configuration decide whose code runs.
    let daemon = unsafe { Daemon::start(config, audit) }?;
    Ok(daemon.run()?)
}
