//! Sources that come and go: one after the other, many at once, some of them killed; one that stays is served all along.
//! What the target holds at the end is what it held before.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::Found;
use super::audit::Audit;
use super::looks::{Holdings, Remains};
use super::options::Options;
use super::process::{PATIENCE, Role};

/// Visitors at the same time.
const AT_ONCE: usize = 16;
/// How long a visitor may live that is killed wherever it is by then: before it is connected, or while it sends.
const LIFE: u64 = 40_000;
/// How long the end of a process may stay unnoticed.
const NOTICED: Duration = Duration::from_secs(30);

/// Numbers for who is killed and when.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Below `bound`.
    pub(super) fn throw(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Over one transport.
pub(super) fn run(options: &Options, transport: &str) -> Found {
    let (target, address) = Role::target(options, transport, "many", 16)?;
    let mut pids = HashSet::from([target.pid()]);
    let mut stays = Role::start(options, "visitor", &visitor(&address, 0, options.seed, "stay"))?;
    pids.insert(stays.pid());
    stays.wait_for("ready")?;

    // What is made once.
    let mut dice = Dice::new(options.seed);
    let warm = if options.quick { AT_ONCE } else { 10 * AT_ONCE };
    visits(options, &address, warm, &mut dice, &mut stays, &mut pids)?;
    live(options, &address, &mut stays, &mut pids)?;
    let before = Holdings::quiet(target.pid())?;

    let killed = visits(
        options,
        &address,
        options.visits,
        &mut dice,
        &mut stays,
        &mut pids,
    )?;
    live(options, &address, &mut stays, &mut pids)?;
    let after = Holdings::settled(target.pid(), &before, NOTICED)?;

    let mut audit = Audit::new(options, &address)?;
    audit.open()?;
    audit.end()?;
    stays.tell("leave")?;
    stays.wait_for("done ")?;
    stays.end()?;
    target.end()?;
    let remains = Remains::of(&options.folders, &pids);

    let figures = format!(
        "{} came and went ({killed} killed), {} at a time; then {} at once, half of them killed; before: {before}; after: {after}; left behind: {remains}",
        options.visits, AT_ONCE, options.live,
    );
    let grown = after.anonymous.saturating_sub(before.anonymous);
    let leaks = after.descriptors > before.descriptors
        || after.segments > before.segments
        || grown > bound(options)
        // UCX's own, see docs/testing.md.
        || (transport == "shm" && remains.count() > 0);
    match leaks {
        true => Err(figures),
        false => Ok(figures),
    }
}

/// What the target's private memory may have grown by, in KiB.
fn bound(options: &Options) -> u64 {
    if options.quick { 16 << 10 } else { 2 << 10 }
}

fn visitor(address: &str, source: usize, seed: u64, how: &str) -> Vec<(&'static str, String)> {
    vec![
        ("address", address.to_owned()),
        ("source", source.to_string()),
        ("seed", (seed + source as u64).to_string()),
        ("how", how.to_owned()),
    ]
}

/// So many sources come and go, a few at a time; how many of them were killed.
fn visits(
    options: &Options,
    address: &str,
    count: usize,
    dice: &mut Dice,
    stays: &mut Role,
    pids: &mut HashSet<u32>,
) -> Result<usize, String> {
    let mut here: Vec<(Role, Option<Instant>)> = Vec::new();
    let (mut came, mut killed) = (0, 0);
    let (mut asked, mut shown) = (None::<Instant>, Instant::now());
    while came < count || !here.is_empty() {
        if came < count && here.len() < AT_ONCE {
            came += 1;
            // Three of five leave; the others are killed, at a moment that was not chosen.
            let end = (dice.throw(5) >= 3).then(|| Instant::now() + Duration::from_micros(dice.throw(LIFE)));
            let how = if end.is_some() { "flood" } else { "leave" };
            let visitor = Role::start(options, "visitor", &visitor(address, came, options.seed, how))?;
            pids.insert(visitor.pid());
            here.push((visitor, end));
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut i = 0;
        while i < here.len() {
            let (visitor, end) = &mut here[i];
            let gone = match end {
                Some(end) if Instant::now() < *end => false,
                Some(_) => {
                    visitor.kill();
                    killed += 1;
                    true
                }
                None => visitor.has_ended()?,
            };
            match gone {
                true => drop(here.swap_remove(i)),
                false => i += 1,
            }
        }
        // One that stays is served, whatever becomes of the others.
        match asked {
            None => {
                stays.tell("send")?;
                asked = Some(Instant::now());
            }
            Some(since) => {
                if stays.look_for("sent")?.is_some() {
                    asked = None;
                } else if since.elapsed() > PATIENCE {
                    return Err(format!("the source that stays was not served for {PATIENCE:?}"));
                }
            }
        }
        if shown.elapsed() > Duration::from_secs(5) {
            shown = Instant::now();
            println!("        {came} of {count} came, {killed} were killed");
        }
    }
    if asked.is_some() {
        stays.wait_for("sent")?;
    }
    Ok(killed)
}

/// Many sources at the same time; all of them are served; then half of them leave, and half are killed.
fn live(options: &Options, address: &str, stays: &mut Role, pids: &mut HashSet<u32>) -> Result<(), String> {
    let mut all = (0..options.live)
        .map(|source| {
            Role::start(
                options,
                "visitor",
                &visitor(address, source, options.seed, "stay"),
            )
        })
        .collect::<Result<Vec<_>, _>>()?;
    pids.extend(all.iter().map(Role::pid));
    for source in &mut all {
        source.wait_for("ready")?;
    }
    for _ in 0..3 {
        for source in &mut all {
            source.tell("send")?;
        }
        for source in &mut all {
            source.wait_for("sent")?;
        }
    }
    for (i, source) in all.iter_mut().enumerate() {
        match i % 2 {
            0 => source.kill(),
            _ => source.tell("leave")?,
        }
    }
    for source in all.iter_mut().skip(1).step_by(2) {
        source.wait_for("done ")?;
    }
    stays.tell("send")?;
    stays.wait_for("sent")?;
    Ok(())
}
