//! `cargo ifunc top`: the activity of a running target.

mod figures;
mod json;
mod rates;
mod screen;
mod table;

use std::time::{Duration, Instant};

use ifunc_rt::stats::Stats;
use ifunc_rt::{Error, Source, SourceOptions, StatsError};

use crate::cli::TopArgs;
use crate::error::Failure;
use crate::shell::Shell;
use rates::Rates;
use screen::Screen;

/// Timeout of the first connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Time to wait for a target that went away to come back.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of one reconnection attempt. The warning appears after the first one.
const RECONNECT_ATTEMPT: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Time to wait for an answer before a warning.
const ANSWER: Duration = Duration::from_secs(3);

pub(crate) fn run(args: &TopArgs, shell: &mut Shell) -> Result<(), Failure> {
    if args.address.starts_with("loopback:") {
        return Err(Failure::Message(
            "a `loopback:` address is reachable from its own process only\n\
             help: use `Target::stats` or `Target::stats_handle` in that process"
                .into(),
        ));
    }
    end_on_interrupt()?;
    let options = SourceOptions::default()
        .connect_timeout(CONNECT)
        .reconnect(RECONNECT_ATTEMPT);
    let source =
        Source::connect_with(&args.address, options).map_err(|error| crate::peer::unreachable(&error))?;
    let mut screen = Screen::new();
    let mut before: Option<Stats> = None;
    let count = if args.once { Some(1) } else { args.count };
    let mut samples = 0;
    loop {
        let began = Instant::now();
        let now = sample(&source, args, &mut screen, shell)?;
        let rates = Rates::between(before.as_ref(), &now);
        if args.json {
            json::print(&now, &rates)?;
        } else {
            screen.show(&table::lines(&now, &rates, screen.area(), args.lines))?;
        }
        samples += 1;
        if count.is_some_and(|count| samples >= count) {
            return Ok(());
        }
        before = Some(now);
        std::thread::sleep(args.interval.saturating_sub(began.elapsed()));
    }
}

/// Takes one sample. Unless `--once` is given, it waits for a target that is gone or does not answer.
fn sample(source: &Source, args: &TopArgs, screen: &mut Screen, shell: &mut Shell) -> Result<Stats, Failure> {
    let address = &args.address;
    let mut silent = Duration::ZERO;
    let mut away: Option<Instant> = None;
    loop {
        match source.target_stats(ANSWER) {
            Ok(stats) => {
                if away.is_some() && !show_note(screen, args, "it is back")? {
                    shell.status("Back", format_args!("the target at `{address}`"));
                }
                return Ok(stats);
            }
            Err(StatsError::Source(Error::Timeout { .. })) if !args.once => {
                silent += ANSWER;
                let silent = silent.as_secs();
                let note = format!(
                    "No answer for {silent} s: the target is stopped, runs one long invocation, or does not poll"
                );
                if !show_note(screen, args, &note)? {
                    shell.warning(format_args!(
                        "the target at `{address}` has not answered for {silent} s: it is stopped, runs one long invocation, or \
                         does not poll"
                    ));
                }
            }
            Err(StatsError::Source(Error::Indeterminate { .. } | Error::PeerGone { .. }))
                if !args.once && away.is_none_or(|since| since.elapsed() < RECONNECT_TIMEOUT) =>
            {
                let timeout = RECONNECT_TIMEOUT.as_secs();
                let first = away.is_none();
                let since = away.get_or_insert_with(Instant::now).elapsed().as_secs();
                let gone = format!(
                    "The target went away {since} s ago; waiting up to {timeout} s for it to come back"
                );
                if !show_note(screen, args, &gone)? && first {
                    shell.warning(format_args!(
                        "the target at `{address}` went away; waiting up to {timeout} s for it to come back"
                    ));
                }
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(Failure::Message(explain(address, &error))),
        }
    }
}

/// Shows a note below the last sample, if the output is a terminal. Returns whether it did.
fn show_note(screen: &mut Screen, args: &TopArgs, what: &str) -> Result<bool, Failure> {
    Ok(!args.json && screen.note(what)?)
}

/// The message for a missing answer.
fn explain(address: &str, error: &StatsError) -> String {
    match error {
        StatsError::Source(Error::Timeout { .. }) => format!(
            "the target at `{address}` accepts connections but does not answer\n\
             help: it is stopped, runs one long invocation, or its program does not call `poll` or `serve`"
        ),
        StatsError::Source(Error::PeerGone { .. } | Error::Indeterminate { .. }) => {
            format!("the target at `{address}` went away and did not come back")
        }
        // The target's text is untrusted.
        other => crate::peer::line(other),
    }
}

/// Ends the command with success on Ctrl-C. It has nothing to clean up, because each sample is written in one
/// step.
fn end_on_interrupt() -> Result<(), Failure> {
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT])
        .map_err(Failure::io("handle signals for", "top"))?;
    std::thread::Builder::new()
        .name("interrupt".into())
        .spawn(move || {
            if signals.forever().next().is_some() {
                // Drawing holds the lock, so a table is never cut.
                let _whole = std::io::stdout().lock();
                std::process::exit(0);
            }
        })
        .map_err(Failure::io("start a thread for", "top"))?;
    Ok(())
}
