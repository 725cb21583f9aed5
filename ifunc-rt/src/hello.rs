//! What this process states about itself when a link is made.

use std::time::SystemTime;

use ifunc_abi::frame::Limits;
use ifunc_abi::hello::{Hello, Roles};

/// The hello of a target that starts to listen. It may invoke over the links that it accepts.
pub(crate) fn serving(limits: Limits) -> Hello {
    hello(Roles::SERVES, limits, epoch())
}

/// A number for this run, larger than that of an earlier run at the same place: the time, in nanoseconds since 1970. Nodes tell by
/// the order which of two processes of one number started later.
fn epoch() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since
        .ok()
        .and_then(|since| u64::try_from(since.as_nanos()).ok())
        .unwrap_or(0)
        .max(1)
}

/// The hello of a source that takes answers of so many bytes.
pub(crate) fn invoking(max_answer: usize) -> Hello {
    let limits = Limits {
        max_payload: 0,
        max_image: 0,
        max_answer: max_answer as u64,
    };
    hello(Roles::INVOKES, limits, 0)
}

/// The hello of a target that connects to another one: it serves over the link, too. `listening` is its listener's.
pub(crate) fn both(listening: &Hello) -> Hello {
    Hello {
        roles: Roles::INVOKES.with(Roles::SERVES),
        ..*listening
    }
}

fn hello(roles: Roles, limits: Limits, epoch: u64) -> Hello {
    Hello {
        arch: ifunc_exec::ARCH,
        roles,
        node: None,
        cpu_features: ifunc_exec::cpu_features(),
        epoch,
        limits,
    }
}
