//! Sources that come and go: one after the other, many at once, some of them killed; one that stays is served all along.
//! What the target holds at the end is what it held before.

use std::collections::HashSet;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ifunc_tests::role::{Role, TIMEOUT};

use super::Found;
use super::audit::Audit;
use super::bare;
use super::observe::{Holdings, Remains};
use super::options::Options;
use super::process;

/// Visitors at the same time.
const AT_ONCE: usize = 16;
/// How long a visitor may live that is killed wherever it is by then: before it is connected, or while it sends.
const LIFE: u64 = 40_000;
/// How long a source of bare UCX may be there: it sends twenty messages. Those that hang poll all the time.
const HANGS: Duration = Duration::from_secs(3);
/// How long the end of a process may stay unnoticed.
const NOTICED: Duration = Duration::from_secs(30);

/// Starts a visitor: its number, and whether it shall `leave`, `flood` until it is killed, or `stay`.
type Start<'a> = dyn FnMut(usize, &str) -> Result<Role, String> + 'a;

/// Numbers for who is killed and when.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Below `bound`.
    fn throw(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Over one transport. UCX's part in it is taken from bare UCX, which does the same beside it.
pub(super) fn run(options: &Options, transport: &str) -> Found {
    let ours = ours(options, transport)?;
    let figures = format!(
        "{} came and went ({} killed), {AT_ONCE} at a time; then {} at once, half of them killed; {ours}",
        ours.came, ours.killed, options.live,
    );
    let mut allowed = Grown::default();
    let mut figures_of_control = String::new();
    if transport != "shm" {
        // Once for all transports over it.
        static CONTROL: OnceLock<Result<Visited, String>> = OnceLock::new();
        let control = CONTROL.get_or_init(|| bare(options)).as_ref()?;
        figures_of_control = format!(
            "; bare UCX, of whose sources {} hung or were lost: {control}",
            control.hung
        );
        allowed = control.grown();
        // A process that is killed at the wrong moment leaves a file: how many of them do is chance.
        allowed.remains = 2 * allowed.remains + 4;
    }
    let grown = ours.grown();
    let leaks = grown.descriptors > allowed.descriptors
        || grown.segments > allowed.segments
        || grown.anonymous > allowed.anonymous + bound(options)
        || grown.remains > allowed.remains;
    match leaks {
        true => Err(format!("{figures}{figures_of_control}")),
        false => Ok(format!("{figures}{figures_of_control}")),
    }
}

/// What was found before and after.
struct Visited {
    came: usize,
    killed: usize,
    hung: usize,
    before: Holdings,
    after: Holdings,
    remains: Remains,
}

/// By how much it is more than before.
#[derive(Default)]
struct Grown {
    descriptors: usize,
    segments: usize,
    anonymous: u64,
    remains: usize,
}

impl Visited {
    fn grown(&self) -> Grown {
        Grown {
            descriptors: self.after.descriptors.saturating_sub(self.before.descriptors),
            segments: self.after.segments.saturating_sub(self.before.segments),
            anonymous: self.after.anonymous.saturating_sub(self.before.anonymous),
            remains: self.remains.count(),
        }
    }
}

impl fmt::Display for Visited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            before,
            after,
            remains,
            ..
        } = self;
        write!(f, "before: {before}; after: {after}; left behind: {remains}")
    }
}

/// Our target and sources.
fn ours(options: &Options, transport: &str) -> Result<Visited, String> {
    let earlier = Remains::now(&options.folders);
    let (target, address) = process::target(options, transport, "many", 16)?;
    let mut start = |source: usize, how: &str| {
        let args = [
            ("address", address.clone()),
            ("source", source.to_string()),
            ("seed", (options.seed + source as u64).to_string()),
            ("how", how.to_owned()),
        ];
        process::start(options, "visitor", &args)
    };
    let mut stays = start(0, "stay")?;
    let mut pids = HashSet::from([target.pid(), stays.pid()]);
    stays.wait_for("ready")?;

    // What is made once.
    let mut dice = Dice::new(options.seed);
    visits(warm(options), &mut dice, &mut start, Some(&mut stays), &mut pids)?;
    live(options, &mut start, &mut stays, &mut pids)?;
    let before = Holdings::quiet(target.pid())?;

    let mut visited = || -> Result<(usize, Holdings), String> {
        let (killed, _) = visits(options.visits, &mut dice, &mut start, Some(&mut stays), &mut pids)?;
        live(options, &mut start, &mut stays, &mut pids)?;
        Ok((killed, Holdings::settled(target.pid(), &before, NOTICED)?))
    };
    let (mut came, (mut killed, mut after)) = (options.visits, visited()?);
    if after.anonymous > before.anonymous + bound(options) {
        // What the allocators keep goes up and down by as much. After twice as many visits the bound is the same, and what leaks is twice
        // as far above it.
        let again = visited()?;
        came += options.visits;
        killed += again.0;
        after = again.1;
    }

    let mut audit = Audit::new(options, &address)?;
    audit.open()?;
    audit.end()?;
    stays.tell("leave")?;
    stays.wait_for("done ")?;
    stays.end()?;
    target.end()?;
    let remains = Remains::left_since(&earlier, &options.folders, &pids);
    remains.remove(&options.folders);
    Ok(Visited {
        came,
        killed,
        hung: 0,
        before,
        after,
        remains,
    })
}

/// Bare UCX: as many come and go, and are killed.
fn bare(options: &Options) -> Result<Visited, String> {
    let earlier = Remains::now(&options.folders);
    let (target, worker) = bare::target(options)?;
    let mut start = |source: usize, how: &str| {
        let messages = if how == "flood" { u64::MAX } else { 20 };
        bare::source(
            options,
            &worker,
            source as u64,
            messages,
            Duration::from_secs(3600),
            u64::MAX >> 1,
        )
    };
    let mut pids = HashSet::from([target.pid()]);
    let mut dice = Dice::new(options.seed);
    visits(warm(options), &mut dice, &mut start, None, &mut pids)?;
    let before = Holdings::quiet(target.pid())?;
    let (killed, hung) = visits(options.visits, &mut dice, &mut start, None, &mut pids)?;
    let after = Holdings::settled(target.pid(), &before, NOTICED / 6)?;
    target.end()?;
    let remains = Remains::left_since(&earlier, &options.folders, &pids);
    remains.remove(&options.folders);
    Ok(Visited {
        came: options.visits,
        killed,
        hung,
        before,
        after,
        remains,
    })
}

/// Visits before anything is measured: what the allocator keeps grows for as long.
fn warm(options: &Options) -> usize {
    if options.quick { AT_ONCE } else { 30 * AT_ONCE }
}

/// What the target's private memory may have grown by, in KiB.
fn bound(options: &Options) -> u64 {
    if options.quick { 16 << 10 } else { 4 << 10 }
}

/// So many sources come and go, a few at a time. Returns how many of them were killed, and how many hung or were lost, which is an
/// error where another one `stays`: sources of bare UCX 1.13 wait now and then for ever after others were killed, or lose their connection,
/// which says nothing of ours.
fn visits(
    count: usize,
    dice: &mut Dice,
    start: &mut Start<'_>,
    mut stays: Option<&mut Role>,
    pids: &mut HashSet<u32>,
) -> Result<(usize, usize), String> {
    let mut here: Vec<(Role, Option<Instant>, Instant)> = Vec::new();
    let (mut came, mut killed, mut hung) = (0, 0, 0);
    let (mut asked, mut shown) = (None::<Instant>, Instant::now());
    while came < count || !here.is_empty() {
        if came < count && here.len() < AT_ONCE {
            came += 1;
            // Three of five leave; the others are killed, at a moment that was not chosen.
            let end = (dice.throw(5) >= 3).then(|| Instant::now() + Duration::from_micros(dice.throw(LIFE)));
            let how = if end.is_some() { "flood" } else { "leave" };
            let visitor = start(came, how)?;
            pids.insert(visitor.pid());
            here.push((visitor, end, Instant::now()));
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut i = 0;
        while i < here.len() {
            let (visitor, end, came) = &mut here[i];
            let gone = match end {
                Some(end) if Instant::now() < *end => false,
                Some(_) => {
                    visitor.kill();
                    killed += 1;
                    true
                }
                None if stays.is_none() && came.elapsed() > HANGS => {
                    visitor.kill();
                    hung += 1;
                    true
                }
                None if came.elapsed() > TIMEOUT => {
                    return Err(format!(
                        "a source that leaves by itself was there for {TIMEOUT:?}"
                    ));
                }
                None => match visitor.has_ended() {
                    Err(_) if stays.is_none() => {
                        hung += 1;
                        true
                    }
                    ended => ended?,
                },
            };
            match gone {
                true => drop(here.swap_remove(i)),
                false => i += 1,
            }
        }
        // One that stays is served, whatever becomes of the others.
        if let Some(stays) = &mut stays {
            asked = match asked {
                None => {
                    stays.tell("send")?;
                    Some(Instant::now())
                }
                Some(since) if since.elapsed() > TIMEOUT => {
                    return Err(format!("the source that stays was not served for {TIMEOUT:?}"));
                }
                Some(_) if stays.look_for("sent")?.is_some() => None,
                since => since,
            };
        }
        if shown.elapsed() > Duration::from_secs(5) {
            shown = Instant::now();
            println!("        {came} of {count} came, {killed} were killed");
        }
    }
    if let (Some(stays), Some(_)) = (stays, asked) {
        stays.wait_for("sent")?;
    }
    Ok((killed, hung))
}

/// Many sources at the same time; all of them are served; then half of them leave, and half are killed.
fn live(
    options: &Options,
    start: &mut Start<'_>,
    stays: &mut Role,
    pids: &mut HashSet<u32>,
) -> Result<(), String> {
    let mut all = (0..options.live)
        .map(|source| start(source, "stay"))
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
