//! The measured programs, one file per role.

mod calls;
mod code;
mod crowd;
mod exchange;
#[cfg(feature = "tonic")]
mod grpc;
mod ifunc;
mod irregular;
mod kv;
mod lines;
mod memcpy;
mod ring;
mod scale;
mod served;
mod ucx;

use anyhow::{Result, bail};

pub(crate) use calls::{Calls, Compiled};
pub(crate) use code::kernel::KERNEL_BYTES;
pub(crate) use crowd::{Order, Received, Sent, now};
pub(crate) use ucx::dropin;

use crate::program::Starter;
use crate::slots::{Sample, Slot};

/// Replies to each slot with the nanoseconds per operation that `measure` returns, until the input is closed.
fn time_slots(mut starter: Starter, mut measure: impl FnMut(Slot) -> Result<f64>) -> Result<()> {
    while let Some(slot) = starter.next::<Slot>()? {
        starter.reply(&Sample {
            ns: measure(slot)?,
            percentiles: None,
        })?;
    }
    Ok(())
}

/// Runs a role until its input is closed.
type Role = fn(Starter) -> Result<()>;

/// The roles by name, as [`Program::start`](crate::program::Program::start) uses them.
const ROLES: &[(&str, Role)] = &[
    ("lines", lines::run),
    ("memcpy", memcpy::run),
    ("ring", ring::run),
    ("ifunc", ifunc::run),
    ("ucx-am", ucx::am::run),
    ("code-target", code::target::run),
    ("arrivals", code::arrivals::calls),
    ("arrivals-stream", code::arrivals::stream),
    #[cfg(target_arch = "x86_64")]
    ("arrivals-bare", code::bare::run),
    ("dlopen", code::dlopen::plain),
    ("dlopen-hashed", code::dlopen::hashed),
    #[cfg(feature = "wasm")]
    ("wasm", code::wasm::run),
    ("host-call", code::host_call::out_of_an_ifunc),
    ("got-call", code::host_call::through_a_got),
    ("kernel", code::kernel::run),
    ("level", code::level::run),
    ("ucx-put", ucx::put::run),
    ("ucx-put-ring", ucx::put_ring::run),
    ("drop-in", ucx::dropin::run),
    ("calls-source", calls::ifunc::source),
    ("calls-target", served::run),
    ("calls-c-source", calls::c::source),
    ("calls-c-target", calls::c::target),
    ("calls-ucx-source", calls::ucx::source),
    ("calls-ucx-target", calls::ucx::target),
    #[cfg(feature = "tonic")]
    ("calls-tonic-source", calls::tonic::source),
    #[cfg(feature = "tonic")]
    ("calls-tonic-target", calls::tonic::target),
    ("crowd-source", crowd::ifunc::source),
    ("crowd-target", served::run),
    ("crowd-ucx-source", crowd::ucx::source),
    ("crowd-ucx-target", crowd::ucx::target),
    ("kv-clients", kv::ifunc::run),
    ("kv-server", kv::ifunc::server),
    ("kv-ucx-clients", kv::ucx::run),
    ("kv-ucx-server", kv::ucx::server),
    ("kv-redis-clients", kv::redis::run),
    ("kv-redis-server", kv::redis::server),
    #[cfg(feature = "tonic")]
    ("kv-tonic-clients", kv::tonic::run),
    #[cfg(feature = "tonic")]
    ("kv-tonic-server", kv::tonic::server),
    ("scale-sources", scale::sources),
    ("scale-target", served::run),
    ("table-source", irregular::ifuncs::source),
    ("table-target", irregular::ifuncs::target),
    ("table-bare", irregular::bare::run),
    ("table-remote-source", irregular::remote::source),
    ("table-remote-target", irregular::remote::target),
    ("table-ucx-source", irregular::ucx::source),
    ("table-ucx-target", irregular::ucx::target),
];

/// Runs a role.
pub(crate) fn run(name: &str) -> Result<()> {
    match ROLES.iter().find(|(role, _)| *role == name) {
        Some((_, run)) => run(Starter::new()?),
        None => bail!("there is no role `{name}`"),
    }
}
