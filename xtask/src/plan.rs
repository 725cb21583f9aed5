//! The two tiers: which part of the tests runs with every commit, and which every night.

use std::process::ExitCode;

use crate::beside::Beside;
use crate::steps::Steps;
use crate::{
    aarch64, bench, build_time, capi, corpus, debian, examples, faults, fuzz, hostile, ifuncd, installed,
    instructions, launcher, lint, loom, mutants, new_projects, package, predecessors, programs, readme,
    simulate, soak, two_hosts, ucx_bindings, variants,
};

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// `cargo xtask test`: at least one test of each kind, in twelve minutes.
    Commit,
    /// `cargo xtask nightly`: all of that, and everything else.
    Nightly,
}

impl Tier {
    /// The name of its command.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Commit => "test",
            Self::Nightly => "nightly",
        }
    }
}

/// A part of the tests, of one or several steps.
struct Part {
    /// What `--only` takes.
    name: &'static str,
    when: When,
    run: fn(&mut Steps),
    /// It computes or compiles and waits for nothing. All such parts run one after the other in a process of their own, which
    /// has a low priority and fills the time in which the other parts wait.
    is_beside: bool,
}

/// The tiers that a part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Both. The part may ask [`Steps::tier`] how much to do.
    Both,
    /// The commit tier. The nightly part of this name includes it.
    Commit(&'static str),
    Nightly,
}

/// All parts, in the order in which they run.
const PARTS: &[Part] = &[
    both("needs", debian::needs),
    commit("simulate", "simulate-full", simulate::quick).beside(),
    both("build", programs::built),
    both("lint", lint::run).beside(),
    both("programs", programs::all),
    both("doctests", programs::doctests),
    both("ucx-linked", programs::ucx_linked),
    both("transports", variants::over_ucx),
    nightly("tls", variants::over_tls),
    commit("smallest", "smallest-all", variants::smallest_brief),
    nightly("smallest-all", variants::smallest),
    nightly("corpus-full", corpus::full),
    commit("faults", "faults-full", faults::quick),
    nightly("faults-full", faults::full),
    both("examples", examples::run),
    both("installed", installed::run),
    both("launcher", launcher::run),
    commit("soak", "soak-full", soak::quick),
    nightly("soak-full", soak::full),
    commit("bench", "bench-all", bench::one_figure),
    nightly("bench-all", bench::every_figure),
    commit("loom", "loom-full", loom::small).beside(),
    nightly("loom-full", loom::run),
    commit("two-hosts", "two-hosts-full", two_hosts::quick),
    nightly("two-hosts-full", two_hosts::full),
    nightly("aarch64", aarch64::full),
    nightly("predecessors", predecessors::run),
    nightly("instructions", instructions::run),
    nightly("simulate-full", simulate::full),
    nightly("ucx-bindings", ucx_bindings::check_if_possible),
    nightly("capi-header", capi::check_header),
    nightly("build-time", build_time::run),
    nightly("fuzz", fuzz::quick),
    nightly("mutants", mutants::tests),
    nightly("hostile", hostile::full),
    nightly("ifuncd", ifuncd::load),
    nightly("package", package::run),
    both("new-projects", new_projects::run).beside(),
    // Last beside the others: by then the macros are compiled that it takes a copy of.
    commit("corpus", "corpus-full", corpus::brief).beside(),
    both("readme", readme::here),
];

const fn both(name: &'static str, run: fn(&mut Steps)) -> Part {
    part(name, When::Both, run)
}

const fn commit(name: &'static str, nightly: &'static str, run: fn(&mut Steps)) -> Part {
    part(name, When::Commit(nightly), run)
}

const fn nightly(name: &'static str, run: fn(&mut Steps)) -> Part {
    part(name, When::Nightly, run)
}

const fn part(name: &'static str, when: When, run: fn(&mut Steps)) -> Part {
    Part {
        name,
        when,
        run,
        is_beside: false,
    }
}

impl Part {
    const fn beside(mut self) -> Self {
        self.is_beside = true;
        self
    }

    fn is_in(&self, tier: Tier) -> bool {
        match self.when {
            When::Both => true,
            When::Commit(_) => tier == Tier::Commit,
            When::Nightly => tier == Tier::Nightly,
        }
    }
}

/// `cargo xtask test|nightly [--list] [--only PART]...`
pub(crate) fn command(tier: Tier, options: &[String]) -> ExitCode {
    let parts: Vec<&Part> = PARTS.iter().filter(|part| part.is_in(tier)).collect();
    let only = match only(&parts, options) {
        Ok(Some(only)) => only,
        Ok(None) => {
            for part in parts {
                println!("{}", part.name);
            }
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let mut steps = Steps::new(tier);
    let all_are_beside = only.iter().all(|part| part.is_beside);
    let mut beside = None;
    for part in &only {
        if part.is_beside && !all_are_beside {
            beside.get_or_insert_with(|| {
                let parts = only.iter().filter(|part| part.is_beside);
                Beside::start(&parts.map(|part| part.name).collect::<Vec<_>>(), tier)
            });
            continue;
        }
        (part.run)(&mut steps);
        if steps.is_over() {
            break;
        }
    }
    if let Some(beside) = beside {
        beside.join(&mut steps);
    }
    steps.summary()
}

/// The parts that these options choose; `None` for `--list`.
fn only<'a>(parts: &[&'a Part], options: &[String]) -> Result<Option<Vec<&'a Part>>, String> {
    let mut names: Vec<&str> = Vec::new();
    let mut options = options.iter().map(String::as_str);
    while let Some(option) = options.next() {
        match option {
            "--list" => return Ok(None),
            "--only" => names.push(options.next().ok_or("`--only` needs the name of a part")?),
            other => {
                return Err(format!(
                    "unknown option `{other}`\nhelp: [--list] [--only PART]..."
                ));
            }
        }
    }
    if let Some(name) = names
        .iter()
        .find(|name| !parts.iter().any(|part| part.name == **name))
    {
        return Err(format!(
            "this tier has no part `{name}`\nhelp: `--list` names all of them"
        ));
    }
    let chosen = parts
        .iter()
        .filter(|part| names.is_empty() || names.contains(&part.name));
    Ok(Some(chosen.copied().collect()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::{PARTS, Part, Tier, When, only};

    fn find(name: &str) -> Option<&'static Part> {
        PARTS.iter().find(|part| part.name == name)
    }

    #[test]
    fn nightly_includes_every_part_of_the_commit_tier() {
        for part in PARTS.iter().filter(|part| part.is_in(Tier::Commit)) {
            match part.when {
                When::Both => assert!(part.is_in(Tier::Nightly)),
                When::Commit(instead) => {
                    let instead =
                        find(instead).unwrap_or_else(|| panic!("`{}`: no part `{instead}`", part.name));
                    assert!(instead.is_in(Tier::Nightly), "`{}` is not nightly", instead.name);
                }
                When::Nightly => unreachable!("filtered"),
            }
        }
    }

    /// The reasons that `docs/testing.md` allows: no test is left out by both tiers.
    #[test]
    fn ignored_tests_are_nightly() {
        let mut others = Vec::new();
        for (path, text) in sources() {
            for line in text.lines().map(str::trim_start) {
                let Some(rest) = line.strip_prefix("#[ignore") else {
                    continue;
                };
                let reason = rest.strip_prefix(" = \"").unwrap_or_default();
                if !reason.starts_with("nightly: ") && !reason.starts_with("role: ") {
                    others.push(format!("{}: {line}", path.display()));
                }
            }
        }
        assert!(
            others.is_empty(),
            "neither `nightly: …` nor `role: …`:\n{}",
            others.join("\n")
        );
    }

    /// Every Rust file of the checkout.
    fn sources() -> Vec<(PathBuf, String)> {
        let mut folders = vec![crate::root().to_owned()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type().unwrap().is_dir() {
                    let is_cargos = folder == crate::root() && name.starts_with("target");
                    if !is_cargos && !name.starts_with('.') {
                        folders.push(path);
                    }
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    files.push((path.clone(), fs::read_to_string(path).unwrap()));
                }
            }
        }
        assert!(files.len() > 100, "the checkout has more files");
        files
    }

    #[test]
    fn names_are_given_once() {
        for (n, part) in PARTS.iter().enumerate() {
            assert!(
                !PARTS[..n].iter().any(|other| other.name == part.name),
                "`{}`",
                part.name
            );
        }
    }

    #[test]
    fn only_takes_names_of_the_tier() {
        let parts: Vec<&Part> = PARTS.iter().filter(|part| part.is_in(Tier::Commit)).collect();
        let only = |text: &str| {
            let options: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            only(&parts, &options)
                .map(|chosen| chosen.map(|chosen| chosen.iter().map(|part| part.name).collect::<Vec<_>>()))
        };
        assert_eq!(only("--list"), Ok(None));
        assert_eq!(
            only("--only soak --only faults"),
            Ok(Some(vec!["faults", "soak"]))
        );
        assert_eq!(only("").unwrap().unwrap().len(), parts.len());
        assert!(
            only("--only soak-full")
                .unwrap_err()
                .contains("no part `soak-full`")
        );
        assert!(only("--only").unwrap_err().contains("needs the name"));
        assert!(only("--fast").unwrap_err().contains("unknown option"));
    }
}
