//! The parts of `ifuncd`, a ready-made target of injected functions for hosts on which no program of one's own runs: storage nodes, DPUs.
//!
//! | a source | file |
//! |---|---|
//! | is named in the configuration, with what it may use | `config`, `peer.rs`, `capability.rs` |
//! | connects, and sends an image | `policy.rs`, `Node::check` in `node.rs` |
//! | calls the node's interfaces | `Node::caller`, then `store.rs`, `files.rs`, `memory.rs`, `system.rs` |
//! | is refused | `audit.rs` |
//!
//! | the daemon | file |
//! |---|---|
//! | starts, reads its configuration again, stops | `daemon`, `notify.rs` |
//! | confines itself | `sandbox.rs` |
//! | is observed | `metrics.rs`, `http.rs`, `logging.rs` |

pub mod audit;
pub mod capability;
pub mod config;
pub mod daemon;
pub mod files;
pub mod http;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod node;
pub mod notify;
pub mod peer;
pub mod policy;
mod rate;
pub mod sandbox;
pub mod store;
mod system;
