//! `cargo xtask corpus`: runs the driver of `corpus/driver`.

use crate::process::{cargo, last_line, output};
use crate::steps::Steps;

/// The cases of the language and those in C with the release setting, a few of those in C with one other setting. Those of other projects' crates
/// compile for long.
pub(crate) fn brief(steps: &mut Steps) {
    corpus(steps, &["--no-default-features", "--", "--brief"]);
}

/// Every case with the release setting, a few with all settings.
pub(crate) fn run(steps: &mut Steps) {
    corpus(steps, &["--features", "products"]);
}

/// Every case with every setting.
pub(crate) fn full(steps: &mut Steps) {
    corpus(steps, &["--features", "products", "--", "--full"]);
}

fn corpus(steps: &mut Steps, args: &[&str]) {
    steps.step("the corpus, sent to another process", || {
        // Not with the features of the whole workspace: the code that is called directly must have those of the image.
        let driver = ["run", "--quiet", "--locked", "--package", "corpus-driver"];
        output(cargo(driver).args(args)).map(|said| last_line(&said))
    });
}
