//! Starts the roles, looks at them from outside, and judges.

mod audit;
mod bare;
mod idle;
mod looks;
mod many;
mod messages;
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
    let transports = options.transports.clone();
    for part in options.parts.clone() {
        match part {
            Part::Idle => table.part("idle", || idle::run(&options)),
            Part::Wakes => {
                for transport in &transports {
                    table.part(&format!("wake-ups over {transport}"), || {
                        wakes::run(&options, transport)
                    });
                }
            }
            Part::Many => {
                for transport in &transports {
                    table.part(&format!("many sources over {transport}"), || {
                        many::run(&options, transport)
                    });
                }
            }
            Part::Messages => {
                for transport in &transports {
                    table.part(&format!("messages over {transport}"), || {
                        messages::run(&options, transport)
                    });
                }
            }
        }
    }
    table.end()
}

/// One line for each part.
#[derive(Default)]
struct Table {
    passed: usize,
    failed: usize,
}

impl Table {
    fn part(&mut self, name: &str, run: impl FnOnce() -> Found) {
        let begun = Instant::now();
        let found = run();
        let seconds = begun.elapsed().as_secs_f64();
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
