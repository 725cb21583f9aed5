//! What ifuncs can do on an `ifuncd`, the ready-made target: its interfaces, for both sides.
//!
//! An ifunc takes one of them, or [`Node`], which is all of them:
//!
//! ```
//! use ifunc::prelude::*;
//! use ifuncd_interfaces::{Files, Node};
//!
//! /// The number of lines of a file.
//! #[ifunc]
//! pub fn lines(path: &str, files: &dyn Files) -> Option<u64> {
//!     let (mut lines, mut offset, mut bytes) = (0, 0, [0; 4096]);
//!     loop {
//!         let len = files.read(path, offset, &mut bytes).ok()?;
//!         if len == 0 {
//!             return Some(lines);
//!         }
//!         lines += bytes[..len].iter().filter(|byte| **byte == b'\n').count() as u64;
//!         offset += len as u64;
//!     }
//! }
//!
//! /// Copies the beginning of a file into the store.
//! #[ifunc]
//! pub fn keep(path: &str, node: &dyn Node) -> bool {
//!     let mut bytes = [0; 64];
//!     let Ok(len) = node.read(path, 0, &mut bytes) else { return false };
//!     node.put(path.as_bytes(), &bytes[..len]).is_ok()
//! }
//! ```
//!
//! Which of them a source may use is said by the configuration of the daemon. A call that it does not allow returns
//! [`NodeError::Denied`], and the daemon writes it to its audit log; an image whose interfaces the source may use none of is refused when
//! it arrives.
//!
//! Every method crosses at each level of the daemon, also between the daemon and the confined process in which an ifunc may run. A callback costs a
//! round trip between the two there, so [`Files::read_each`] passes on large pieces.
//!
//! The names of keys, files and regions are those of the source's namespace: two sources of one daemon do not see each other's data unless
//! the configuration lets them share it.

#![no_std]
#![allow(
    clippy::type_complexity,
    reason = "a callback's type is what an author writes"
)]

mod error;
mod files;
mod memory;
mod store;
mod system;

pub use error::NodeError;
pub use files::Files;
pub use memory::Memory;
pub use store::Store;
pub use system::{Clock, Log, Random};

/// All interfaces of an `ifuncd`.
///
/// An ifunc that takes `&dyn Node` runs for every source that may use one of them; each method answers for itself.
#[ifunc::interface(name = "ifuncd_node")]
pub trait Node: Store + Files + Memory + Clock + Random + Log {}
