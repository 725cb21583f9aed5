//! `cargo xtask corpus`

use crate::process::{cargo, last_line, output};
use crate::steps::Steps;

/// Every case once, and one other setting on a few of them.
pub(crate) fn brief(steps: &mut Steps) {
    corpus(steps, &["--", "--brief"]);
}

/// Every case once, and all settings on a few of them.
pub(crate) fn run(steps: &mut Steps) {
    corpus(steps, &[]);
}

/// Every case with every setting.
pub(crate) fn full(steps: &mut Steps) {
    corpus(steps, &["--", "--full"]);
}

fn corpus(steps: &mut Steps, args: &[&str]) {
    steps.step("the corpus, sent to another process", || {
        // With its own features alone, not those of the whole workspace: what is called directly is compared with an image,
        // which has no others.
        let driver = ["run", "--quiet", "--locked", "--package", "corpus-driver"];
        output(cargo(driver).args(args)).map(|said| last_line(&said))
    });
}
