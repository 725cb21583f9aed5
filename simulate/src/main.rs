//! Drives connections of `ifunc-proto` over simulated links, and checks after every step what they promise.
//!
//! ```text
//! ifunc-simulate [--seeds N] [--steps N] [--json]     runs many seeds, on all cores
//! ifunc-simulate --floods [--seeds N] …               only those in which two nodes flood each other
//! ifunc-simulate --seed S [--steps N] [--json]        runs one, prints its steps, and drops those that do not matter
//! ifunc-simulate --find N                             runs seeds until one violates a promise, N steps in all at most
//! ```
//!
//! A seed determines everything: nodes, links and steps. A step is a call of a connection by its driver, or something that
//! the network does.
//!
//! | module | holds |
//! |---|---|
//! | `world` | nodes, ports, links, and which step is drawn |
//! | `driver`, `network` | the steps of drivers, and those of links and machines |
//! | `settle` | liveness: drivers that sleep until they are told to go on |
//! | `ledger` | the oracle: what was submitted, sent, run and answered |
//! | `link` | a link that reorders, delays and dies |
//! | `host`, `port`, `image` | a node's serving side, a connection and its driver, images |
//! | `mesh` | groups of nodes: invocations that travel on, and their oracle |
//! | `run` | one seed, and its reduction to the steps that matter |
//! | `report` | what is printed |

mod driver;
mod host;
mod image;
mod ledger;
mod link;
mod mesh;
mod network;
mod port;
mod report;
mod rng;
mod run;
mod settle;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)) {
        Ok(options) => {
            run::keep_panics();
            match (options.find, options.seed) {
                (Some(steps), _) => report::find(steps, options.steps),
                (_, Some(seed)) => report::one(seed, &options),
                _ => report::many(&options),
            }
        }
        Err(error) => {
            eprintln!("error: {error}\nhelp: [--seeds N] [--floods] [--seed S] [--steps N] [--json]");
            ExitCode::from(2)
        }
    }
}

/// What is run.
#[derive(Debug)]
struct Options {
    seeds: u64,
    seed: Option<u64>,
    /// Steps that are drawn for each seed. The end of a run takes more.
    steps: u64,
    find: Option<u64>,
    has_only_floods: bool,
    is_json: bool,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seeds: 5_000,
            seed: None,
            steps: 1_000,
            find: None,
            has_only_floods: false,
            is_json: false,
        };
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().ok_or_else(|| format!("`{word}` needs a number"))?;
                let digits: String = value.chars().filter(|&digit| digit != '_').collect();
                digits
                    .parse()
                    .map_err(|_| format!("`{word} {value}`: not a number"))
            };
            match word.as_str() {
                "--seeds" => options.seeds = number()?,
                "--seed" => options.seed = Some(number()?),
                "--steps" => options.steps = number()?,
                "--find" => options.find = Some(number()?),
                "--floods" => options.has_only_floods = true,
                "--json" => options.is_json = true,
                _ => return Err(format!("unknown option `{word}`")),
            }
        }
        Ok(options)
    }
}
