//! The workspace's test programs: built by one `cargo test --no-run`, then run side by side.
//!
//! `cargo test` runs one program after the other. Many of ours wait for processes and deadlines, so that a core stays idle.

mod build;
mod run;

use std::path::PathBuf;
use std::rc::Rc;

pub(crate) use run::{Runs, run};

use crate::process::{WHOLE, cargo};
use crate::steps::Steps;
use crate::{debian, loom, warm};

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its main file, from the checkout's root: `ifunc-rt/src/lib.rs`.
    pub(crate) source: String,
    /// The name of its package.
    pub(crate) package: String,
    /// The folder of its package: what cargo makes a test's current directory.
    pub(crate) folder: PathBuf,
    pub(crate) executable: PathBuf,
}

impl Program {
    /// Its target's name, as `cargo test --test NAME` takes it.
    pub(crate) fn name(&self) -> &str {
        let path = self.source.strip_suffix("/main.rs").unwrap_or(&self.source);
        let file = path.rsplit('/').next().unwrap_or(path);
        file.strip_suffix(".rs").unwrap_or(file)
    }
}

/// The programs that take longest. They start first, so that no core is idle while the last of them ends, and those that build
/// in the same target directory do not start together.
const LONGEST: [&str; 6] = [
    "cargo-ifunc/tests/it/main.rs",
    "ifunc-rt/src/lib.rs",
    "ifunc-link/tests/it/main.rs",
    "ifunc-build/tests/it/main.rs",
    "tests/tests/it/main.rs",
    "tests/tests/mismatch.rs",
];

/// Builds all of them.
pub(crate) fn built(steps: &mut Steps) {
    let mut programs = None;
    steps.step("test programs, built", || {
        let mut all = build::build()?;
        all.retain(|program| !loom::has_models(program));
        all.sort_by_key(|program| {
            LONGEST
                .iter()
                .position(|&source| source == program.source)
                .unwrap_or(LONGEST.len())
        });
        let note = format!("{} programs", all.len());
        programs = Some(all.into());
        Ok(note)
    });
    steps.programs = programs;
}

/// The programs, which are built if no step has done that yet; `None` if they do not build.
pub(crate) fn of(steps: &mut Steps) -> Option<Rc<[Program]>> {
    if steps.programs.is_none() {
        built(steps);
    }
    steps.programs.clone()
}

/// The programs with models, which are no part of [`all`]. They are built with the others.
pub(crate) fn models() -> Result<Vec<Program>, String> {
    let mut models = build::build()?;
    models.retain(loom::has_models);
    Ok(models)
}

/// Builds the images that tests run, and the SDK for those that build others: in the directory that is returned, for
/// [`warm::VARIABLE`].
pub(crate) fn warmed(steps: &mut Steps) -> Option<String> {
    let (mut warm, tier) = (None, steps.tier());
    steps.step("the SDK, built for nested builds", || {
        warm = warm::target(tier)?.to_str().map(str::to_owned);
        Ok(String::new())
    });
    warm
}

/// Runs all of them.
pub(crate) fn all(steps: &mut Steps) {
    let Some(programs) = of(steps) else { return };
    let mut runs = Runs::of_tier(steps.tier());
    let warm = warmed(steps);
    if let Some(warm) = &warm {
        runs.env.push((warm::VARIABLE, warm));
    }
    if debian::is_debian() {
        // It was installed: a test that does not find UCX fails.
        runs.env.push(("IFUNC_REQUIRE_UCX", "1"));
        runs.env.push(("IFUNC_REQUIRE_AARCH64", "1"));
    }
    steps.step("tests", || run(&programs, &runs));
}

/// The examples in the documentation.
pub(crate) fn doctests(steps: &mut Steps) {
    // The models' sources are those of the runtime, where the examples are.
    let mut tests = cargo(["test", "--no-fail-fast", "--doc", "--exclude", "ifunc-rt-models"]);
    steps.tests("examples in the documentation", tests.args(WHOLE));
}

/// UCX linked at build time instead of found at run time.
pub(crate) fn ucx_linked(steps: &mut Steps) {
    if debian::is_debian() {
        let tests = ["test", "--package", "ucx-sys", "--features", "link", "--locked"];
        steps.tests("UCX, linked", &mut cargo(tests));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::process::cargo;

    /// These packages and all that they depend on, with their features.
    fn features(packages: &[&str], of: &str) -> BTreeSet<String> {
        let mut tree = cargo(["tree", "--locked", "--offline", "--prefix=none"]);
        let tree = tree.args(packages).args(["--format={p} {f}", "--edges", of]);
        let output = tree.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| line.trim_end_matches(" (*)").to_owned())
            .collect()
    }

    #[test]
    fn builds_share_what_tests_compile() {
        let (tests, builds) = (
            features(&["--workspace"], "normal,build,dev"),
            features(&["--workspace"], "normal,build"),
        );
        assert!(!builds.is_empty());
        let others: Vec<_> = builds.difference(&tests).collect();
        assert!(
            others.is_empty(),
            "compiled once more without tests: {others:#?}\nhelp: `tests/Cargo.toml` switches on what only tests need"
        );
    }

    /// The corpus is built with the features of its own packages, which the tier chooses: those of foreign crates differ, those of
    /// the runtime need not.
    #[test]
    fn the_corpus_shares_the_runtime_of_the_tests() {
        let (tests, corpus) = (
            features(&["--workspace"], "normal,build,dev"),
            features(&["--package", "corpus-driver"], "normal,build"),
        );
        let is_ours = |line: &&String| line.contains("(/") && !line.starts_with("corpus-");
        let ours: Vec<_> = corpus.iter().filter(is_ours).collect();
        assert!(
            ours.iter().any(|line| line.starts_with("ifunc-rt ")),
            "{corpus:#?}"
        );
        let others: Vec<_> = ours.into_iter().filter(|&line| !tests.contains(line)).collect();
        assert!(
            others.is_empty(),
            "compiled once more for the corpus: {others:#?}\nhelp: `corpus/driver/Cargo.toml` switches on what the tests do"
        );
    }

    #[test]
    fn the_longest_programs_are_there() {
        for source in super::LONGEST {
            assert!(crate::root().join(source).is_file(), "`{source}`");
        }
    }
}
