//! An `ifuncd` under load, under attack and killed: `ifuncd/examples/load`, whose comment says what it proves.

use std::process::{Command, Stdio};

use crate::process::{WHOLE, build_ifuncs, built, cargo, last_line, output, status};
use crate::steps::Steps;

/// How long it is under load.
const SECONDS: &str = "300";

/// The load, as a step.
pub(crate) fn load(steps: &mut Steps) {
    steps.step("an ifuncd under load and attack", run);
}

fn run() -> Result<String, String> {
    let programs = built(&["ifuncd", "hostile"])?;
    build_ifuncs("ifuncd-tests-ifuncs")?;
    status(cargo(["build", "--quiet", "--example", "load"]).args(WHOLE))?;
    let mut load = Command::new(programs.join("examples/load"));
    load.args(["--seconds", SECONDS, "--libraries"])
        .arg(crate::target().join("ifunc/release"))
        .args([programs.join("ifuncd"), programs.join("hostile")])
        .stdin(Stdio::null());
    output(&mut load).map(|said| {
        let refusals = said.lines().rfind(|line| line.contains(" refusals, each "));
        refusals.map_or_else(|| last_line(&said), str::to_owned)
    })
}
