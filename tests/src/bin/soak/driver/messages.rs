//! Messages of all kinds: each executed once, in order, and answered; memory as flat at the end as in the middle.

use std::time::{Duration, Instant};

use ifunc_tests::role::{Role, TIMEOUT, number};

use super::Found;
use super::audit::Audit;
use super::bare;
use super::observe::{Holdings, anonymous};
use super::options::Options;
use super::process;
use super::slope::Slope;

/// Sources that send at the same time.
const SENDERS: u64 = 4;
/// Images that a target keeps: fewer than come.
const IMAGES: usize = 48;
/// The last source of the ledger: the first, unmeasured messages are of it and those before it.
const FIRST: u64 = 63;
/// Without progress for so long, something hangs.
const STUCK: Duration = Duration::from_secs(90);

/// Sends the messages over one transport.
pub(super) fn run(options: &Options, transport: &str) -> Found {
    let (target, address) = process::target(options, transport, "messages", IMAGES)?;
    // What is made once: arenas of the allocator, UCX's pools, the code cache. As many at a time as later.
    let first = (0..SENDERS).map(|i| sender(options, &address, FIRST - i, 400, options.sending, (100, 50)));
    for mut sender in first.collect::<Result<Vec<_>, _>>()? {
        sender.wait_for("done ")?;
        sender.end()?;
    }
    Audit::new(options, &address)?.end()?;
    let before = Holdings::quiet(target.pid())?;

    let each = options.messages / SENDERS;
    let often = if options.quick {
        (400, 100)
    } else {
        (20_000, 2_000)
    };
    let mut senders = (0..SENDERS)
        .map(|source| sender(options, &address, source, each, options.sending, often))
        .collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    let (mut memory, mut memories) = (Slope::default(), vec![Slope::default(); senders.len()]);
    let mut said: Vec<Option<String>> = vec![None; senders.len()];
    let (mut shown, mut moved, mut last) = (Instant::now(), Instant::now(), 0);
    while said.iter().any(Option::is_none) {
        std::thread::sleep(Duration::from_millis(if options.quick { 50 } else { 200 }));
        for ((sender, said), memory) in senders.iter_mut().zip(&mut said).zip(&mut memories) {
            if said.is_some() {
                continue;
            }
            *said = sender.look_for("done ")?;
            if said.is_none()
                && let Ok(kib) = anonymous(sender.pid())
            {
                memory.sample(sender.at, kib);
            }
        }
        let done: u64 = senders.iter().map(|sender| sender.at).sum();
        memory.sample(done, anonymous(target.pid())?);
        if done != last {
            (last, moved) = (done, Instant::now());
        }
        if moved.elapsed() > STUCK {
            return Err(format!("no progress for {STUCK:?} after {done} messages"));
        }
        if shown.elapsed() > Duration::from_secs(5) {
            shown = Instant::now();
            let holds = Holdings::of(target.pid())?;
            println!("        {done} messages over {transport}; the target has {holds}");
        }
    }
    let seconds = begun.elapsed().as_secs_f64();

    let (mut messages, mut bytes, mut connections, mut installs, mut calls) = (0, 0, 0, 0, 0);
    let mut audit = Audit::new(options, &address)?;
    for (source, said) in said.iter().flatten().enumerate() {
        let sent = [
            number(said, "messages")?,
            number(said, "connections")?,
            number(said, "hash")?,
        ];
        agrees(&mut audit, source as u64, sent)?;
        messages += sent[0];
        connections += sent[1];
        bytes += number(said, "bytes")?;
        installs += number(said, "installs")?;
        calls += number(said, "calls")?;
    }
    let [open, abandoned] = audit.open()?;
    if (open, abandoned) != (0, 0) {
        return Err(format!(
            "{open} connections did not say goodbye, {abandoned} were abandoned"
        ));
    }
    audit.end()?;
    for sender in senders {
        sender.end()?;
    }

    let after = Holdings::settled(target.pid(), &before, TIMEOUT / 4)?;
    if after.descriptors > before.descriptors || after.segments > before.segments {
        return Err(format!("the target had {before}, and has {after}"));
    }
    let theirs = memories.iter().map(Slope::growth).fold(0.0, f64::max);
    let growth = memory.growth().max(theirs);
    let (mut bound, mut control) = (bound(options, transport), String::new());
    if transport != "shm" {
        let (target, source) = bare(options, messages, connections)?;
        bound += target.max(source).max(0.0);
        control = format!("; bare UCX grew by {target:+.0} and {source:+.0} KiB");
    }
    let figures = format!(
        "{messages} messages ({} MB, {calls} calls) on {connections} connections with {installs} new images, {:.0}/s; every one once, in order; growth of {} samples: target {:+.0} KiB, sources {theirs:+.0} KiB (bound {bound:.0} KiB); before: {before}; after: {after}{control}",
        bytes / 1_000_000,
        messages as f64 / seconds,
        memory.len(),
        memory.growth(),
    );
    target.end()?;
    match growth > bound {
        true => Err(format!("memory grows: {figures}")),
        false => Ok(figures),
    }
}

/// What the straight line may rise by, in KiB, beyond what bare UCX's does.
fn bound(options: &Options, transport: &str) -> f64 {
    const MIB: f64 = 1024.0;
    // In a short one the allocator has not seen all sizes yet.
    let ours = if options.quick { 32.0 * MIB } else { 4.0 * MIB };
    // Over UCX the runtime keeps up to so much for the next messages.
    let kept = if transport == "shm" { 0.0 } else { 8.0 * MIB };
    ours + kept
}

/// Bare UCX that makes as many connections, with a tenth of the messages on each: what its target and its sources grow by.
fn bare(options: &Options, messages: u64, connections: u64) -> Result<(f64, f64), String> {
    const PART: u64 = 10;
    let (target, worker) = bare::target(options)?;
    let each = messages / PART / SENDERS;
    let often = (messages / PART / connections.max(1)).max(1);
    let mut sources = (0..SENDERS)
        .map(|source| bare::source(options, &worker, source, each, options.sending / 3, often))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut memory, mut memories) = (Slope::default(), vec![Slope::default(); sources.len()]);
    let mut done = vec![false; sources.len()];
    while done.contains(&false) {
        std::thread::sleep(Duration::from_millis(50));
        for ((source, done), memory) in sources.iter_mut().zip(&mut done).zip(&mut memories) {
            *done = *done || source.look_for("done ")?.is_some();
            if let (false, Ok(kib)) = (*done, anonymous(source.pid())) {
                memory.sample(source.at, kib);
            }
        }
        memory.sample(
            sources.iter().map(|source| source.at).sum(),
            anonymous(target.pid())?,
        );
    }
    let theirs = memories.iter().map(Slope::growth).fold(0.0, f64::max);
    target.end()?;
    Ok((memory.growth(), theirs))
}

fn sender(
    options: &Options,
    address: &str,
    source: u64,
    messages: u64,
    time: Duration,
    (connection, code): (u64, u64),
) -> Result<Role, String> {
    process::start(
        options,
        "sender",
        &[
            ("address", address.to_owned()),
            ("source", source.to_string()),
            ("messages", messages.to_string()),
            ("milliseconds", time.as_millis().to_string()),
            ("connection", connection.to_string()),
            ("code", code.to_string()),
            ("seed", options.seed.to_string()),
        ],
    )
}

/// Waits until the ledger has what the source reports: what it sent last may still be under way.
fn agrees(audit: &mut Audit, source: u64, sent: [u64; 3]) -> Result<(), String> {
    let deadline = Instant::now() + TIMEOUT / 4;
    loop {
        let came = audit.total(source)?;
        if came == sent {
            return Ok(());
        }
        if Instant::now() > deadline {
            audit.open()?;
            return Err(format!(
                "source {source} sent [messages, connections, hash] {sent:?}, and {came:?} came"
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
