//! The target: keeps the ledger of one source's numbered messages.

use ifunc::prelude::*;
use ifunc_rt::{Policy, Target};

use crate::Failure;

/// What was run. The ifuncs `t_follow` and `t_ledger` have the same definition of it.
#[derive(Debug, Default, Layout)]
#[repr(C)]
pub(crate) struct Ledger {
    /// The number that comes next.
    pub(crate) next: u64,
    /// Messages that were run.
    pub(crate) executed: u64,
    /// Of them, those whose number had been before.
    pub(crate) repeated: u64,
    /// Numbers that were left out.
    pub(crate) skipped: u64,
    /// Messages that did not hold what follows from their number.
    pub(crate) wrong: u64,
}

/// Serves until it is killed.
///
/// # Errors
/// The address cannot be listened on.
pub(crate) fn run(address: &str) -> Result<(), Failure> {
    // SAFETY: these hosts are namespaces that only this program reaches.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let mut target = builder.listen(address)?;
    println!("ifunc: ready {}", target.address());
    target.serve(&mut Ledger::default())?;
    Ok(())
}
