//! What the programs do that are measured, one file per role.

mod code;
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
    ("code-target", code::target::run),
    ("arrivals", code::arrivals::calls),
    ("arrivals-stream", code::arrivals::stream),
    ("dlopen", code::dlopen::plain),
    ("dlopen-hashed", code::dlopen::hashed),
    #[cfg(feature = "wasm")]
    ("wasm", code::wasm::run),
    ("host-call", code::host_call::out_of_an_ifunc),
    ("got-call", code::host_call::through_a_got),
];

/// Is the role.
pub(crate) fn run(name: &str) -> Result<()> {
    match ROLES.iter().find(|(role, _)| *role == name) {
        Some((_, run)) => run(Starter::new()?),
        None => bail!("there is no role `{name}`"),
    }
}
