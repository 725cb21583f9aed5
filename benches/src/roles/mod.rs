//! What the programs do that are measured, one file per role.

mod exchange;
mod ifunc;
mod lines;
mod memcpy;
mod ucx;

use anyhow::{Result, bail};

use crate::program::Starter;

/// What a role does until its starter has no more questions.
type Role = fn(Starter) -> Result<()>;

/// By its name, as [`Program::start`](crate::program::Program::start) has it.
const ROLES: &[(&str, Role)] = &[
    ("lines", lines::run),
    ("memcpy", memcpy::run),
    ("ifunc", ifunc::run),
    ("ucx-am", ucx::am::run),
];

/// Is the role.
pub(crate) fn run(name: &str) -> Result<()> {
    match ROLES.iter().find(|(role, _)| *role == name) {
        Some((_, run)) => run(Starter::new()?),
        None => bail!("there is no role `{name}`"),
    }
}
