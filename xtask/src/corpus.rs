//! `cargo xtask corpus`

use std::process::{Command, Stdio};

use crate::steps::{Steps, cargo, last_line, output, status};

/// Every case once, and all settings on a few of them.
pub(crate) fn run(steps: &mut Steps) {
    corpus(steps, &[]);
}

/// Every case with every setting.
pub(crate) fn full(steps: &mut Steps) {
    corpus(steps, &["--full"]);
}

fn corpus(steps: &mut Steps, args: &[&str]) {
    steps.step("the corpus, sent to another process", || {
        // With the features of the whole workspace: what the tests were built from is not compiled again.
        let driver = [
            "build",
            "--quiet",
            "--locked",
            "--workspace",
            "--bin",
            "corpus-driver",
        ];
        status(&mut cargo(driver))?;
        let mut driver = Command::new(crate::target().join("debug/corpus-driver"));
        driver.args(args).current_dir(crate::root()).stdin(Stdio::null());
        output(&mut driver).map(|said| last_line(&said))
    });
}
