//! Cells side by side: they sleep most of the time.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::act::act;
use super::cell::Cell;
use super::scene::{Place, Scene, Setting};

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
pub fn run(cells: &[Cell], setting: &Setting, side_by_side: usize) -> usize {
    let mut jobs: Vec<(usize, Place)> = cells
        .iter()
        .enumerate()
        .flat_map(|(row, cell)| Place::of(cell.moment).iter().map(move |&place| (row, place)))
        .collect();
    let mut rows: Vec<Row> = cells
        .iter()
        .map(|cell| Row {
            left: Place::of(cell.moment).len(),
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
            row.places.push(place.point());
            match result {
                Ok(noticed) => row.noticed = row.noticed.max(noticed),
                Err(why) => row.wrong.push(format!("at `{}`: {why}", place.point())),
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

fn next(jobs: &Mutex<Vec<(usize, Place)>>) -> Option<(usize, Place)> {
    jobs.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .pop()
}

fn print(cell: Cell, row: &Row) {
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
fn one(cell: Cell, place: Place, setting: &Setting) -> Result<Option<Duration>, String> {
    let name = format!("{}-{}", cell.to_string().replace('/', "-"), place.point());
    let folder: PathBuf = setting.scratch.join(name);
    let mut scene =
        Scene::begin(setting, cell, folder).map_err(|wrong| format!("{}\n{}", wrong.0, wrong.1))?;
    act(&mut scene, place).map_err(|why| format!("{why}\n{}", scene.diagnosis()))
}
