//! Whose code a target runs.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::transport::Peer;

/// A connected source, as far as the kernel vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceInfo {
    /// Number of the connection on this target: what [`Context::sender`](ifunc_abi::context::Context::sender) says.
    pub connection: u64,
    /// Its user id; `None` where the transport cannot know.
    pub uid: Option<u32>,
    /// Its process id.
    pub pid: Option<i32>,
}

impl SourceInfo {
    pub(super) fn new(connection: u64, peer: &Peer) -> Self {
        Self {
            connection,
            uid: peer.uid,
            pid: peer.pid,
        }
    }
}

/// An image that asks to be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageInfo<'a> {
    /// Name that the image gives itself; not an identity.
    pub name: &'a str,
    /// BLAKE3 of its bytes: its identity.
    pub id: &'a [u8; 32],
    /// Its size in bytes.
    pub len: usize,
}

type Judge = dyn Fn(&SourceInfo, &ImageInfo<'_>) -> bool + Send;

/// What the builder decided.
pub(super) enum Policy {
    /// No code at all: the default.
    Nothing,
    /// Whatever a connected source sends.
    Everything,
    /// What a function of the host accepts.
    Judged(Mutex<Box<Judge>>),
}

impl Policy {
    /// Whether the image may be installed; otherwise why not.
    pub(super) fn accepts(&self, source: &SourceInfo, image: &ImageInfo<'_>) -> Result<(), &'static str> {
        match self {
            Self::Nothing => {
                Err("this target accepts no code; help: `Target::builder().accept_code()` on the target")
            }
            Self::Everything => Ok(()),
            Self::Judged(judge) => {
                // One at a time, whoever serves. One that panicked may be asked again.
                let judge = judge.lock().unwrap_or_else(PoisonError::into_inner);
                if judge(source, image) {
                    Ok(())
                } else {
                    Err("the target's own check refused it")
                }
            }
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Everything => "Everything",
            Self::Judged(_) => "Judged",
        })
    }
}
