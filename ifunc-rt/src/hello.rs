//! What this process states about itself when a link is made.

use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

use ifunc_abi::frame::Limits;
use ifunc_abi::hello::{Hello, Roles};

/// The hello of a target that starts to listen. It may invoke over the links that it accepts.
pub(crate) fn serving(limits: Limits) -> Hello {
    // Keys from the system's random numbers, a counter, the time: a different number in every run.
    let epoch = RandomState::new().hash_one((std::process::id(), SystemTime::now())) | 1;
    hello(Roles::SERVES, limits, epoch)
}

/// The hello of a source.
pub(crate) fn invoking() -> Hello {
    const NOTHING: Limits = Limits {
        max_payload: 0,
        max_image: 0,
        max_answer: 0,
    };
    hello(Roles::INVOKES, NOTHING, 0)
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
