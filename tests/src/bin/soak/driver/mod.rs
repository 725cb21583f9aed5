//! Starts the roles, looks at them from outside, and judges.

mod audit;
mod bare;
mod idle;
mod many;
mod messages;
mod observe;
mod options;
mod process;
mod slope;
mod wakes;

use std::process::ExitCode;
use std::time::Instant;

use options::{Options, Part};

/// What a part of the soak found: figures, or what is wrong.
type Found = Result<String, String>;

/// Runs the parts that were asked for, over the transports that were asked for.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", options.seed);
    let mut table = Table::default();
    std::thread::scope(|scope| {
        // What is idle is measured by its own processor time, whatever goes on beside it.
        let idle = options
            .parts
            .contains(&Part::Idle)
            .then(|| scope.spawn(|| timed(|| idle::run(&options))));
        let runs: [(Part, &str, Run); 3] = [
            (Part::Wakes, "wake-ups", wakes::run),
            (Part::Many, "many sources", many::run),
            (Part::Messages, "messages", messages::run),
        ];
        for (part, name, run) in runs {
            for transport in &options.transports {
                if options.parts.contains(&part) {
                    table.line(
                        &format!("{name} over {transport}"),
                        timed(|| run(&options, transport)),
                    );
                }
            }
        }
        if let Some(idle) = idle {
            let found = idle.join();
            table.line("idle", found.unwrap_or_else(|_| (0.0, Err("it panicked".into()))));
        }
    });
    table.end()
}

/// A part, over a transport.
type Run = fn(&Options, &str) -> Found;

/// What was found, and the seconds that it took.
fn timed(run: impl FnOnce() -> Found) -> (f64, Found) {
    let begun = Instant::now();
    let found = run();
    (begun.elapsed().as_secs_f64(), found)
}

/// One line for each part.
#[derive(Default)]
struct Table {
    passed: usize,
    failed: usize,
}

impl Table {
    fn line(&mut self, name: &str, (seconds, found): (f64, Found)) {
        let (mark, note) = match &found {
            Ok(figures) => {
                self.passed += 1;
                ("ok    ", figures)
            }
            Err(why) => {
                self.failed += 1;
                ("FAILED", why)
            }
        };
        println!("{mark}  {name:24}  {seconds:7.1} s  {note}");
    }

    fn end(&self) -> ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed);
        match self.failed {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}
