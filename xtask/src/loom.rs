//! `cargo xtask loom`: the models of what threads and processes share, in every order of their steps that loom explores.
//!
//! The cfg is given to our own crate alone, by a package of its own (`ifunc-rt/models`). It is built with the other test programs,
//! and its dependencies are theirs.

use crate::programs::{self, Program, Runs};
use crate::steps::Steps;

/// The packages that have models.
const PACKAGES: &[&str] = &["ifunc-rt-models"];
/// How often loom preempts a thread that could go on, in one execution.
const PREEMPTIONS: &str = "LOOM_MAX_PREEMPTIONS";

/// The model with the most orders: more than all others together.
const LONGEST: &str = "driver::model::a_thread_that_gives_up_hands_over_the_lead";

/// With two preemptions, and one in the longest model.
pub(crate) fn small(steps: &mut Steps) {
    models(steps, "2", &["model::", "--skip", LONGEST]);
    models(steps, "1", &[LONGEST, "--exact"]);
}

/// With three, which finds nearly everything and still ends.
pub(crate) fn run(steps: &mut Steps) {
    models(steps, "3", &["model::"]);
}

/// Whether a program runs models. Its other tests do not run under loom.
pub(crate) fn has_models(program: &Program) -> bool {
    PACKAGES.contains(&program.package.as_str())
}

fn models(steps: &mut Steps, preemptions: &str, chosen: &[&str]) {
    let asked = std::env::var(PREEMPTIONS);
    let preemptions = asked.as_deref().unwrap_or(preemptions);
    let name = format!("models, {preemptions} preemptions");
    steps.step(&name, || {
        let all = programs::models()?;
        let mut runs = Runs::new(chosen);
        runs.env.push((PREEMPTIONS, preemptions));
        runs.logs = "models";
        programs::run(&all, &runs)
    });
}
