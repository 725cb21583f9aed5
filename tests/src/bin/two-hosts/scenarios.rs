//! The runs between two hosts: over a good link, and over impaired ones.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::exchange::{Places, Route};
use crate::hosts::Host;
use crate::impairment::{INTERFACE, link, lose, lose_nothing, slow, slow_no_more};
use crate::program::Program;
use crate::report::Report;

/// How long anything may take on a machine that is busy with something else.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long a silent host is waited for before it is taken for dead, and what more a busy machine needs to say so.
const BOUND: Duration = Duration::from_secs(20);

/// Numbered messages over each link between two hosts that one cable joins.
pub(crate) fn run(
    quick: bool,
    hosts: [&Host; 2],
    transports: &[&'static str],
    places: &Places,
    report: &mut Report,
) {
    for &transport in transports {
        let route = Route {
            source: hosts[0],
            target: hosts[1],
            transport,
        };
        let name = |what: &str| format!("{transport}, {what}");
        let many = if quick { 2_000 } else { 20_000 };
        let plain = |_: &str| Ok(());
        report.try_this(&name("a good link"), || {
            Ok(route.exchange(places, many, 200_000, TIMEOUT, plain)?.to_string())
        });
        if quick && transport == "ucx-worker" {
            // What differs from `ucx` is how a connection begins.
            continue;
        }
        let losses: &[_] = match quick {
            true => &[("one frame in twenty lost, each way", 5, 500)],
            false => &[
                ("one frame in a hundred lost, each way", 1, 5_000),
                ("one frame in twenty lost, each way", 5, 1_500),
            ],
        };
        for &(what, percent, messages) in losses {
            report.try_this(&name(what), || {
                lose(hosts, percent)?;
                let done = route.exchange(places, messages, 20_000, TIMEOUT, plain);
                let lost = lose_nothing(hosts);
                Ok(format!("{}; {} frames were lost", done?, lost?))
            });
        }
        report.try_this(&name("20 Mbit/s, each way"), || {
            slow(hosts, 20)?;
            let done = route.exchange(places, if quick { 400 } else { 2_000 }, 50_000, TIMEOUT, plain);
            slow_no_more(hosts)?;
            Ok(done?.to_string())
        });
        report.try_this(&name("the link down for 1 s"), || {
            let done = outage(&route, places, Duration::from_secs(1))?;
            match done.1 {
                None => Ok(format!("the connection went on: {}", done.0)),
                Some(_) => Err("the connection was given up".into()),
            }
        });
        if !quick && transport == "ucx-put" {
            // As where a peer is killed: UCX 1.13 ends the process of a target whose answer to an emulated put cannot be sent.
            println!(
                "NOT TRIED: {}: over TCP UCX 1.13 ends the process of one side when it gives the other up",
                name("the link down for 25 s")
            );
        } else if !quick {
            report.try_this(&name("the link down for 25 s"), || {
                let (figures, noticed) = outage(&route, places, Duration::from_secs(25))?;
                match noticed {
                    Some(after) if after < BOUND => Ok(format!(
                        "noticed after {:.1} s, connected again when it was up: {figures}",
                        after.as_secs_f64()
                    )),
                    Some(after) => Err(format!("noticed after {:.1} s only", after.as_secs_f64()).into()),
                    None => Err("not noticed".into()),
                }
            });
        }
    }
}

/// Takes the target's link down in the middle, for `time`. The figures, and how long after that the source said that the
/// connection was lost, if it did.
fn outage(route: &Route<'_>, places: &Places, time: Duration) -> Result<(String, Option<Duration>), Failure> {
    let (mut down, mut noticed, mut lifting) = (None, None, None);
    let hosts = [route.source, route.target];
    // So that what is sent takes longer than it takes to act on a line that was read.
    slow(hosts, 8)?;
    let figures = route.exchange(places, 2_000, 20_000, TIMEOUT, |line| {
        if line == "at 500" {
            down = Some(Instant::now());
            link(route.target, false)?;
            // What comes up again does so while the source sends.
            let mut up = route.target.command("sh");
            up.args([
                "-c",
                &format!("sleep {} && exec ip link set {INTERFACE} up", time.as_secs_f64()),
            ]);
            lifting = Some(up.spawn()?);
        }
        if line.starts_with("lost ") && noticed.is_none() {
            noticed = down.map(|at| at.elapsed());
        }
        Ok(())
    });
    if let Some(mut lifting) = lifting {
        let _ = lifting.kill();
        lifting.wait()?;
    }
    link(route.target, true)?;
    slow_no_more(hosts)?;
    let figures = figures?;
    match down {
        Some(_) if figures.time() >= time => Ok((figures.to_string(), noticed)),
        Some(_) => Err(format!("all was sent before the link went down: {figures}").into()),
        None => Err(format!("the link was never down: {figures}").into()),
    }
}

/// Numbered messages between two hosts with a relay between them that takes its time.
pub(crate) fn far_apart(
    quick: bool,
    transports: &[&'static str],
    places: &Places,
    report: &mut Report,
) -> Result<(), Failure> {
    let scratch = &places.scratch;
    let (one, middle, other) = (
        Host::new("10.78.0.1", scratch)?,
        Host::new("", scratch)?,
        Host::new("10.78.0.2", scratch)?,
    );
    one.cable(INTERFACE, &middle, "one")?;
    other.cable(INTERFACE, &middle, "other")?;
    let ms: u64 = 25;
    let mut relay = middle.command(crate::this());
    relay.args(["relay", &(ms * 1000).to_string(), "one", "other"]);
    // It relays until its input ends: with this program.
    relay.stdin(Stdio::piped());
    let mut relay = Program::start("relay", &mut relay, TIMEOUT * 4)?;
    relay.wait_for("relaying")?;
    for &transport in transports {
        let route = Route {
            source: &one,
            target: &other,
            transport,
        };
        report.try_this(&format!("{transport}, {ms} ms later, each way"), || {
            let messages = if quick { 300 } else { 2_000 };
            let mut connected = String::new();
            let figures = route.exchange(places, messages, 20_000, TIMEOUT, |line| {
                if line.starts_with("connected ") {
                    connected = line.to_owned();
                }
                Ok(())
            })?;
            Ok(format!("{connected}; {figures}"))
        });
    }
    Ok(())
}
