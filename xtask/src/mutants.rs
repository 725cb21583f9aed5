//! `cargo xtask mutants`: puts bugs into the sources, one at a time, by `cargo mutants`, and counts those that the tests of the same package
//! find.
//!
//! A mutant is *missed* if all tests pass with it. One that does not compile does not count, and one with which a test does not end counts
//! as found.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::process::{cargo, end};

/// Least score, in percent.
const LEAST: usize = 95;

/// Sources, and the package whose tests must find what is wrong with them.
struct Area {
    name: &'static str,
    package: &'static str,
    options: &'static [&'static str],
}

const AREAS: [Area; 4] = [
    Area {
        name: "ifunc-abi",
        package: "ifunc-abi",
        // Its tests make images, which takes `alloc`.
        options: &["--all-features"],
    },
    Area {
        name: "ifunc-proto",
        package: "ifunc-proto",
        options: &[],
    },
    Area {
        name: "ifunc-exec",
        package: "ifunc-exec",
        options: &[],
    },
    Area {
        name: "transport",
        package: "ifunc-rt",
        options: &["--file", "ifunc-rt/src/transport/**", "--features", "tls"],
    },
];

/// What the command was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    only: Option<String>,
    /// `K/N`: part K, from 0, of N parts of all mutants.
    shard: Option<String>,
}

/// `cargo xtask mutants [--only AREA] [--shard K/N]`
pub(crate) fn command(options: &[String]) -> ExitCode {
    end(parse(options).and_then(|options| run(&options)))
}

fn parse(options: &[String]) -> Result<Options, String> {
    let mut parsed = Options {
        only: None,
        shard: None,
    };
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let place = match word.as_str() {
            "--only" => &mut parsed.only,
            "--shard" => &mut parsed.shard,
            other => return Err(format!("`{other}` is not an option of `cargo xtask mutants`")),
        };
        let value = words.next().ok_or_else(|| format!("`{word}` takes a value"))?;
        *place = Some(value.clone());
    }
    Ok(parsed)
}

fn run(options: &Options) -> Result<(), String> {
    let there = cargo(["mutants", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return Err("`cargo mutants` is missing\nhelp: cargo install cargo-mutants --locked".into());
    }
    let chosen = |area: &&Area| options.only.as_ref().is_none_or(|only| only == area.name);
    let areas: Vec<&Area> = AREAS.iter().filter(chosen).collect();
    if areas.is_empty() {
        let names = AREAS.map(|area| area.name).join(", ");
        return Err(format!("there is no such area\nhelp: it is one of {names}"));
    }
    let mut weak = Vec::new();
    for area in areas {
        let score = area.test(options.shard.as_deref())?;
        println!("{}: {score}", area.name);
        if !score.is_enough() {
            weak.push(area.name);
        }
    }
    match weak[..] {
        [] => Ok(()),
        _ => Err(format!("fewer than {LEAST} % were found in {}", weak.join(", "))),
    }
}

impl Area {
    fn test(&self, shard: Option<&str>) -> Result<Score, String> {
        let folder = crate::scratch().join("mutants").join(self.name);
        // `cargo mutants` keeps the results of its last run but one; what is counted must be of this run.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut command: Command = cargo(["mutants", "--package", self.package]);
        command.args(self.options).arg("--output").arg(&folder);
        if let Some(shard) = shard {
            // Round robin: each part is a sample of all files.
            command.args(["--shard", shard, "--sharding", "round-robin"]);
        }
        let status = command.status().map_err(|error| error.to_string())?;
        // 2: mutants were missed. 3: with some of them, tests did not end.
        match status.code() {
            Some(0 | 2 | 3) => Score::read(&folder.join("mutants.out")),
            _ => Err(format!(
                "`cargo mutants` failed ({status}): the output above says why"
            )),
        }
    }
}

/// How many mutants were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Score {
    caught: usize,
    missed: usize,
}

impl Score {
    fn read(folder: &Path) -> Result<Self, String> {
        let count = |name: &str| {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>(text.lines().filter(|line| !line.trim().is_empty()).count())
        };
        Ok(Self {
            caught: count("caught.txt")? + count("timeout.txt")?,
            missed: count("missed.txt")?,
        })
    }

    fn is_enough(self) -> bool {
        self.caught * 100 >= (self.caught + self.missed) * LEAST
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.caught + self.missed;
        let percent = self.caught as f64 * 100.0 / all.max(1) as f64;
        write!(f, "{} of {all} mutants were found, {percent:.1} %", self.caught)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_counts_what_was_found_and_what_did_not_end() {
        let folder = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert!(Score::read(&folder).is_err());
        for (name, lines) in [("caught.txt", 18), ("timeout.txt", 1), ("missed.txt", 1)] {
            fs::write(folder.join(name), "a mutant\n".repeat(lines)).unwrap();
        }
        let score = Score::read(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(score.to_string(), "19 of 20 mutants were found, 95.0 %");
        assert!(score.is_enough());
        assert!(!Score { missed: 2, ..score }.is_enough());
    }

    #[test]
    fn options_have_values() {
        let parse = |words: &[&str]| parse(&words.iter().map(|&word| word.into()).collect::<Vec<String>>());
        let parsed = parse(&["--only", "transport", "--shard", "0/8"]).unwrap();
        assert_eq!(
            (parsed.only.as_deref(), parsed.shard.as_deref()),
            (Some("transport"), Some("0/8"))
        );
        assert!(parse(&["--only"]).is_err() && parse(&["--all"]).is_err());
    }
}
