//! The test programs with another environment: over other transports than shared memory, or with the smallest credit window
//! and ring that a target can have.

use crate::debian;
use crate::plan::Tier;
use crate::programs::{self, Program, Runs};
use crate::steps::Steps;
use crate::{transports, warm};

/// Programs whose tests run source and target as processes of their own, over any transport.
const BETWEEN_PROCESSES: &[&str] = &["mixed", "restart", "mismatch", "c_side"];
/// The ones of them that compile nothing.
const COMPILE_NOTHING: &[&str] = &["mixed", "restart"];
/// Two credits and the smallest ring: frames wait for each other, wrap around and travel in fragments.
const SMALLEST: [(&str, &str); 2] = [("IFUNC_CREDITS", "2"), ("IFUNC_RING", "65536")];

/// The program whose tests run groups of nodes, and those of its tests that take long over UCX.
const GROUPS: &[&str] = &["groups"];
const LONG_GROUPS: &[&str] = &["eight::", "flood::"];

/// The tests between processes, and those of groups, over UCX.
pub(crate) fn over_ucx(steps: &mut Steps) {
    for over in transports::over_ucx() {
        let name = format!("tests between processes, over {over}");
        run(steps, &name, COMPILE_NOTHING, &[], &[("IFUNC_TRANSPORT", over)]);
        let name = format!("tests of groups, over {over}");
        let skipped = match steps.tier() {
            Tier::Commit => LONG_GROUPS,
            // What is sent a million times is sent over shared memory.
            Tier::Nightly => &["for_long", "a_million"],
        };
        run(steps, &name, GROUPS, skipped, &[("IFUNC_TRANSPORT", over)]);
    }
}

/// The same over TLS.
pub(crate) fn over_tls(steps: &mut Steps) {
    let mut key = None;
    let made = steps.step("a key for TLS", || {
        let files = transports::key()?.map(|(name, path)| (name, path.to_string_lossy().into_owned()));
        key = Some(files);
        Ok(String::new())
    });
    let Some([secret, public]) = key.filter(|_| made) else {
        return;
    };
    let over = [
        ("IFUNC_TRANSPORT", "tls"),
        (secret.0, &*secret.1),
        (public.0, &*public.1),
    ];
    run(
        steps,
        "tests between processes, over tls",
        BETWEEN_PROCESSES,
        &[],
        &over,
    );
    let skipped = ["for_long", "a_million"];
    run(steps, "tests of groups, over tls", GROUPS, &skipped, &over);
}

/// Some of the tests between processes with the smallest window.
pub(crate) fn smallest_brief(steps: &mut Steps) {
    let name = "tests between processes, 2 credits and the smallest ring";
    run(steps, name, COMPILE_NOTHING, &[], &SMALLEST);
}

/// Every test with the smallest window, and the tests between processes over every transport.
pub(crate) fn smallest(steps: &mut Steps) {
    run(
        steps,
        "tests, 2 credits and the smallest ring",
        &[],
        &[],
        &SMALLEST,
    );
    for over in transports::over_ucx() {
        let name = format!("tests between processes, over {over}, 2 credits and the smallest ring");
        let [credits, ring] = SMALLEST;
        run(
            steps,
            &name,
            BETWEEN_PROCESSES,
            &[],
            &[credits, ring, ("IFUNC_TRANSPORT", over)],
        );
    }
}

/// Runs the programs with these names, or all of them, without the tests that have one of `skipped` in their names, with this
/// environment.
fn run(steps: &mut Steps, name: &str, names: &[&str], skipped: &[&str], env: &[(&str, &str)]) {
    let Some(all) = programs::of(steps) else { return };
    let chosen: Vec<Program> = all
        .iter()
        .filter(|program| names.is_empty() || names.contains(&program.name()))
        .cloned()
        .collect();
    let mut args = match steps.tier() {
        Tier::Commit => vec![],
        // What is measured is the default configuration.
        Tier::Nightly => vec!["--include-ignored", "--skip", "measured_"],
    };
    args.extend(skipped.iter().flat_map(|name| ["--skip", name]));
    let warm = names.is_empty().then(|| programs::warmed(steps)).flatten();
    let mut runs = Runs::new(&args);
    runs.env.extend(env);
    if let Some(warm) = &warm {
        runs.env.push((warm::VARIABLE, warm));
    }
    if debian::is_debian() {
        runs.env.push(("IFUNC_REQUIRE_UCX", "1"));
        runs.env.push(("IFUNC_REQUIRE_AARCH64", "1"));
    }
    steps.step(name, || programs::run(&chosen, &runs));
}
