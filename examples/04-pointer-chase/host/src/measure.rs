//! Chases, some under way at a time, for a while; and whether they have come to the right entries.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use example_servers::{Failure, Moved};

use crate::permutation::{Cut, Permutation};

/// A chase that has ended: its slot, and the entry that it has come to.
pub type Ended = (usize, u64);

/// A way of chasing.
pub trait Chaser {
    /// Begins a chase in a slot that has none.
    ///
    /// # Errors
    /// A server is gone.
    fn begin(&mut self, slot: usize, at: u64) -> Result<(), Failure>;

    /// Waits until one has ended.
    ///
    /// # Errors
    /// A server is gone, or the chase failed.
    fn wait(&mut self) -> Result<Ended, Failure>;
}

/// The least rounds.
const ROUNDS: u32 = 5;

/// What is chased, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The table.
    pub permutation: Permutation,
    /// How it is cut.
    pub cut: Cut,
    /// Number of servers.
    pub servers: u32,
    /// Steps of a chase.
    pub depth: u64,
    /// How long each mode is measured.
    pub time: Duration,
    /// How long a mode has its turn, in each of the rounds, if there is time for the least of them: what else the machine does meets
    /// all modes.
    pub turn: Duration,
}

impl Plan {
    /// How often each mode has its turn.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        let turns = self.time.as_nanos() / self.turn.as_nanos().max(1);
        u32::try_from(turns).unwrap_or(u32::MAX).max(ROUNDS)
    }
}

/// The result of one mode.
#[derive(Clone, Debug)]
pub struct Measured {
    /// `get`, `am`, `ifunc`, or one of these with ` --batch K`.
    pub mode: String,
    /// Chases that ended.
    pub chases: u64,
    /// Chases per second of each round.
    pub rates: Vec<f64>,
    /// Changes of the server on the way of all chases.
    pub changes: u64,
    /// Chases that ended on another server than they began on.
    pub strayed: u64,
    /// Whether all of them have come to the entry that a sequential computation comes to.
    pub checked: bool,
    /// Messages and bytes of all chases.
    pub moved: Moved,
    /// The time of processors that servers and source used.
    pub worked: Duration,
}

/// Measures one round of a mode with `at_a_time` chases under way.
///
/// # Errors
/// A chase failed.
pub fn measure(
    name: &str,
    plan: &Plan,
    at_a_time: usize,
    chaser: &mut impl Chaser,
) -> Result<Measured, Failure> {
    let mode = match at_a_time {
        1 => name.to_owned(),
        more => format!("{name} --batch {more}"),
    };
    // Connections are made, and code is sent.
    chaser.begin(0, 0)?;
    chaser.wait()?;

    let mut starts = vec![0; at_a_time];
    let mut chased = Vec::new();
    let mut next = (0..).map(|number| plan.permutation.start(number));
    let mut begin = |chaser: &mut _, slot: usize| {
        starts[slot] = next.next().unwrap_or_default();
        Chaser::begin(chaser, slot, starts[slot]).map(|()| starts[slot])
    };
    let turn = plan.time / plan.rounds();
    let began = Instant::now();
    let mut under_way = Vec::with_capacity(at_a_time);
    for slot in 0..at_a_time {
        under_way.push(begin(chaser, slot)?);
    }
    let mut left = at_a_time;
    while left > 0 {
        let (slot, end) = chaser.wait()?;
        let start = under_way
            .get_mut(slot)
            .ok_or("a chase that was not begun has ended")?;
        chased.push((*start, end));
        if began.elapsed() < turn {
            *start = begin(chaser, slot)?;
        } else {
            left -= 1;
        }
    }
    let seconds = began.elapsed().as_secs_f64();

    let mut measured = Measured {
        mode,
        chases: chased.len() as u64,
        rates: vec![chased.len() as f64 / seconds],
        changes: 0,
        strayed: 0,
        checked: true,
        moved: Moved::default(),
        worked: Duration::ZERO,
    };
    let server = |at| plan.cut.place(at).0;
    for (start, end) in chased {
        // The entry that the last step comes to is not read.
        let last = (1..plan.depth).fold(start, |at, _| {
            let next = plan.permutation.next(at);
            measured.changes += u64::from(server(at) != server(next));
            next
        });
        measured.strayed += u64::from(server(start) != server(last));
        measured.checked &= plan.permutation.next(last) == end;
    }
    Ok(measured)
}

impl Measured {
    /// With the time of processors that it took.
    #[must_use]
    pub fn with_work(self, worked: Duration) -> Self {
        Self { worked, ..self }
    }

    /// Adds a round to the earlier ones of its mode.
    pub fn add_to(self, all: &mut Vec<Self>) {
        let Some(known) = all.iter_mut().find(|known| known.mode == self.mode) else {
            return all.push(self);
        };
        known.chases += self.chases;
        known.rates.extend(self.rates);
        known.changes += self.changes;
        known.strayed += self.strayed;
        known.checked &= self.checked;
        known.moved.messages += self.moved.messages;
        known.moved.bytes += self.moved.bytes;
        known.worked += self.worked;
    }

    /// Chases in a second: the median of the rounds.
    #[must_use]
    pub fn chases_per_s(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    }

    /// A line of the table.
    #[must_use]
    pub fn line(&self, depth: u64) -> String {
        let per_chase = |number: u64| number as f64 / self.chases as f64;
        format!(
            "{:<18} {:>10.0} {:>12.0} {:>14.1} {:>12.0} {:>12.1}",
            self.mode,
            self.chases_per_s(),
            self.chases_per_s() * depth as f64,
            per_chase(self.moved.messages),
            per_chase(self.moved.bytes),
            self.work_per_chase(),
        )
    }

    /// Microseconds of processors that servers and source use for a chase.
    #[must_use]
    pub fn work_per_chase(&self) -> f64 {
        self.worked.as_secs_f64() * 1e6 / self.chases as f64
    }
}

/// The heads of the columns of [`Measured::line`].
#[must_use]
pub fn heads() -> String {
    format!(
        "{:<18} {:>10} {:>12} {:>14} {:>12} {:>12}",
        "mode", "chases/s", "hops/s", "messages/chase", "bytes/chase", "cpu µs/chase"
    )
}

/// The results as a JSON array.
#[must_use]
pub fn json(plan: &Plan, results: &[Measured]) -> String {
    let mut text = String::from("[");
    for (number, result) in results.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let Measured { mode, checked, .. } = result;
        let (servers, depth) = (plan.servers, plan.depth);
        let chases = result.chases_per_s();
        let hops = chases * depth as f64;
        let Moved { messages, bytes } = result.moved;
        let count = result.chases;
        let cpu = result.work_per_chase();
        let rounds: Vec<String> = result.rates.iter().map(|rate| format!("{rate:.3}")).collect();
        let rounds = rounds.join(", ");
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{comma}\n  {{\"mode\": \"{mode}\", \"servers\": {servers}, \"depth\": {depth}, \"chases_per_s\": {chases:.3}, \
             \"hops_per_s\": {hops:.3}, \"checked\": {checked}, \"chases\": {count}, \"messages\": {messages}, \"bytes\": {bytes}, \
             \"cpu_us_per_chase\": {cpu:.3}, \"rounds\": [{rounds}]}}"
        );
    }
    text.push_str("\n]\n");
    text
}
