//! The fault matrix: what becomes of a source and its target when one of them is killed, stopped or restarted, in every
//! state that their connection can be in, on every transport. `docs/testing.md` says what it proves.
//!
//! `source` and `target` are the two roles, each a process, of a runtime that has failpoints; [`process`] is how a cell holds them; [`cell`] names the
//! cells; [`scene`] brings two processes and a bystander into a state; [`act`] does to the victim what the cell says, and
//! looks at the survivor; [`ledger`] compares what was sent with what was run; [`run`] runs cells side by side.

pub mod act;
#[macro_use]
pub mod cell;
pub mod ledger;
pub mod process;
mod role;
pub mod run;
pub mod scene;
pub mod source;
pub mod target;
pub mod travel;

use std::time::Duration;

/// Frames that a source may send ahead.
const CREDITS: u32 = 16;
/// A payload that a target's ring does not hold.
const LARGE: usize = 256 << 10;
/// Longer than anything takes that is not meant to wait.
const TIMEOUT: Duration = Duration::from_secs(20);
