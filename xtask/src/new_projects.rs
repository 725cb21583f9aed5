//! The projects that `cargo ifunc new` makes compile against this checkout. Nightly they are built and run.

use std::fs;

use crate::process::{OUR_PROFILE, cargo, ifunc, status};
use crate::steps::Steps;

/// What `--lang` takes.
const LANGUAGES: [&str; 3] = ["rust", "c", "mixed"];

/// Makes and checks one of each language.
pub(crate) fn run(steps: &mut Steps) {
    for language in LANGUAGES {
        let name = format!("a new project in {language}, checked");
        steps.step(&name, || check(language).map(|()| String::new()));
    }
}

fn check(language: &str) -> Result<(), String> {
    let folder = crate::scratch().join("new-projects");
    let project = folder.join(format!("new-{language}"));
    let _ = fs::remove_dir_all(&project);
    fs::create_dir_all(&folder).map_err(|e| format!("cannot create `{}`: {e}", folder.display()))?;
    let root = crate::root().canonicalize().map_err(|e| e.to_string())?;
    status(
        ifunc(&["new", "--lang", language, "--path"])?
            .arg(&root)
            .arg(&project),
    )?;
    fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock"))
        .map_err(|e| format!("cannot copy `Cargo.lock`: {e}"))?;
    status(
        cargo(["check", "--quiet", "--workspace", "--all-targets", "--offline"])
            .args(OUR_PROFILE)
            .current_dir(&project)
            .env("CARGO_TARGET_DIR", crate::target()),
    )
}
