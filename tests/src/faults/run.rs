//! Cells side by side: they sleep most of the time.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::act::act;
use super::cell::{Cell, Side, Transport};
use super::cell::{Fault, Moment};
use super::scene::{Place, Scene, Setting};
use super::travel::scene::Group;
use super::travel::{self, GroupCell};

/// A cell of the matrix.
#[derive(Clone, Copy, Debug)]
pub enum AnyCell {
    /// A source and its target.
    Pair(Cell),
    /// A call that travels through a group.
    Group(GroupCell),
}

impl AnyCell {
    /// The whole matrix.
    pub fn all() -> Vec<Self> {
        let pairs = Cell::all().into_iter().map(Self::Pair);
        pairs.chain(GroupCell::all().map(Self::Group)).collect()
    }

    /// Whether the name begins as `pattern` does, part by part; `*` stands for any part.
    pub fn matches(self, pattern: &str) -> bool {
        match self {
            Self::Pair(cell) => cell.matches(pattern),
            Self::Group(cell) => super::cell::matches(&cell.names(), pattern),
        }
    }

    /// Whether it runs with every commit: all of shared memory, and one of each moment of UCX; of groups, one for each part.
    pub fn is_quick(self) -> bool {
        let cell = match self {
            Self::Pair(cell) => cell,
            Self::Group(cell) => return cell.is_quick(),
        };
        match cell.transport {
            Transport::Shm => true,
            Transport::Tls | Transport::Ucx | Transport::UcxPut => matches!(
                (cell.moment, cell.victim, cell.fault),
                (Moment::Idle, Side::Source, Fault::Kill)
                    | (Moment::MidFrame, Side::Target, Fault::Kill)
                    | (Moment::Code, Side::Source, Fault::Restart)
                    | (Moment::Credit, Side::Target, Fault::Stop)
                    | (Moment::Answer, Side::Target, Fault::Restart)
            ),
        }
    }

    /// The failpoints of its places.
    fn points(self) -> Vec<&'static str> {
        match self {
            Self::Pair(cell) => Place::of(cell.moment).iter().map(|place| place.point()).collect(),
            Self::Group(cell) => cell.part.stages().iter().map(|stage| stage.point()).collect(),
        }
    }
}

impl std::fmt::Display for AnyCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pair(cell) => cell.fmt(f),
            Self::Group(cell) => cell.fmt(f),
        }
    }
}

/// What became of a cell.
#[derive(Debug, Default)]
struct Row {
    left: usize,
    places: Vec<&'static str>,
    noticed: Option<Duration>,
    took: Duration,
    wrong: Vec<String>,
}

/// Runs these cells, `side_by_side` at a time, and prints a line for each, and the sums; how many failed.
pub fn run(cells: &[AnyCell], setting: &Setting, side_by_side: usize) -> usize {
    let mut jobs: Vec<(usize, usize)> = cells
        .iter()
        .enumerate()
        .flat_map(|(row, cell)| (0..cell.points().len()).map(move |place| (row, place)))
        .collect();
    let mut rows: Vec<Row> = cells
        .iter()
        .map(|cell| Row {
            left: cell.points().len(),
            ..Row::default()
        })
        .collect();
    jobs.reverse();
    let jobs = Mutex::new(jobs);
    let (tell, told) = channel();
    let mut failed = 0;
    std::thread::scope(|scope| {
        for _ in 0..side_by_side {
            let tell = tell.clone();
            let jobs = &jobs;
            scope.spawn(move || {
                while let Some((row, place)) = next(jobs) {
                    let began = Instant::now();
                    let result = one(cells[row], place, setting);
                    let _ = tell.send((row, place, result, began.elapsed()));
                }
            });
        }
        drop(tell);
        for (at, place, result, took) in told {
            let row = &mut rows[at];
            row.left -= 1;
            row.took += took;
            let point = cells[at].points()[place];
            row.places.push(point);
            match result {
                Ok(noticed) => row.noticed = row.noticed.max(noticed),
                Err(why) => row.wrong.push(format!("at `{point}`: {why}")),
            }
            if row.left == 0 {
                failed += usize::from(!row.wrong.is_empty());
                print(cells[at], row);
            }
        }
    });
    let _ = writeln!(
        std::io::stdout(),
        "{} passed, {failed} failed",
        cells.len() - failed
    );
    failed
}

fn next(jobs: &Mutex<Vec<(usize, usize)>>) -> Option<(usize, usize)> {
    jobs.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .pop()
}

fn print(cell: AnyCell, row: &Row) {
    let mark = if row.wrong.is_empty() { "ok    " } else { "FAILED" };
    let noticed = match row.noticed {
        Some(noticed) => format!("noticed in {} ms", noticed.as_millis()),
        None => "goes on".into(),
    };
    let places = row.places.join(", ");
    let mut text = format!(
        "{mark}  {cell:40}  {noticed:18}  {:5.1} s  {places}\n",
        row.took.as_secs_f64()
    );
    for wrong in &row.wrong {
        text.push_str(&format!("    {}\n", wrong.replace('\n', "\n    ")));
    }
    // A closed standard output does not end the run.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// A cell at one of its places. An error says what is wrong, and where everybody was.
fn one(cell: AnyCell, place: usize, setting: &Setting) -> Result<Option<Duration>, String> {
    let both = |wrong: Box<(String, String)>| format!("{}\n{}", wrong.0, wrong.1);
    match cell {
        AnyCell::Pair(cell) => {
            let place = Place::of(cell.moment)[place];
            let name = format!("{}-{}", cell.to_string().replace('/', "-"), place.point());
            let folder: PathBuf = setting.scratch.join(name);
            let mut scene = Scene::begin(setting, cell, folder).map_err(both)?;
            act(&mut scene, place).map_err(|why| format!("{why}\n{}", scene.diagnosis()))
        }
        AnyCell::Group(cell) => {
            let stage = cell.part.stages()[place];
            let folder = travel::scene::folder(&setting.scratch, cell, stage);
            let mut group = Group::begin(setting, cell, folder).map_err(both)?;
            travel::act::act(&mut group, stage).map_err(|why| format!("{why}\n{}", group.diagnosis()))
        }
    }
}
