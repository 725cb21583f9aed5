//! The test programs again: over other transports than shared memory, and with the least room that a target can have.

use crate::debian;
use crate::programs::{self, Program, Runs};
use crate::steps::Steps;
use crate::transports;

/// Those whose processes are peers of each other, whatever carries the frames.
const BETWEEN_PROCESSES: &[&str] = &["mixed", "restart", "mismatch", "c_side"];
/// Of them, those that compile nothing.
const SOON: &[&str] = &["mixed", "restart"];
/// Two credits and the smallest ring: frames wait for each other, wrap around and travel in fragments.
const SMALLEST: [(&str, &str); 2] = [("IFUNC_CREDITS", "2"), ("IFUNC_RING", "65536")];

/// The tests between processes over UCX.
pub(crate) fn over_ucx(steps: &mut Steps) {
    for over in transports::over_ucx() {
        let name = format!("tests between processes, over {over}");
        again(steps, &name, SOON, &[("IFUNC_TRANSPORT", over)]);
    }
}

/// Some of the tests between processes with the least room.
pub(crate) fn least_room(steps: &mut Steps) {
    let name = "tests between processes, 2 credits and the smallest ring";
    again(steps, name, SOON, &SMALLEST);
}

/// Everything with the least room, and what is between processes over every transport.
pub(crate) fn smallest(steps: &mut Steps) {
    again(steps, "tests, 2 credits and the smallest ring", &[], &SMALLEST);
    for over in transports::over_ucx() {
        let name = format!("tests between processes, over {over}, 2 credits and the smallest ring");
        let [credits, ring] = SMALLEST;
        again(
            steps,
            &name,
            BETWEEN_PROCESSES,
            &[credits, ring, ("IFUNC_TRANSPORT", over)],
        );
    }
}

/// Runs the programs of these names, or all, with this environment.
fn again(steps: &mut Steps, name: &str, names: &[&str], env: &[(&str, &str)]) {
    let Some(all) = programs::of(steps) else { return };
    let chosen: Vec<Program> = all
        .iter()
        .filter(|program| names.is_empty() || names.contains(&program.name()))
        .cloned()
        .collect();
    let mut runs = Runs::of_tier(steps.tier());
    runs.env.extend(env);
    if debian::is_debian() {
        runs.env.push(("IFUNC_REQUIRE_UCX", "1"));
    }
    steps.step(name, || programs::run(&chosen, &runs));
}
