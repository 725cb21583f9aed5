//! Machine code of the images of these tests. Code with imports comes with the offset of its slot.

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod here;

/// That of the tests of the executor.
#[cfg_attr(
    target_arch = "aarch64",
    path = "../../../../ifunc-exec/src/arch/aarch64/testing/code.rs"
)]
#[cfg_attr(
    target_arch = "x86_64",
    path = "../../../../ifunc-exec/src/arch/x86_64/testing/code.rs"
)]
#[allow(dead_code, reason = "these tests use a part of it")]
pub(crate) mod code;

pub(crate) use ifunc_exec::ARCH;
pub(crate) use rustix::param::page_size;

pub(crate) use self::here::*;
