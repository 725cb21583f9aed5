//! What a target accepts: code, by source and by image, and the type that its target arguments have.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::transport::Peer;

/// A connected source, as far as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceInfo {
    /// Number of the connection on this target: the value of [`Context::sender`](ifunc_abi::context::Context::sender).
    pub connection: u64,
    /// Its user id; `None` if the transport does not know it.
    pub uid: Option<u32>,
    /// Its process id.
    pub pid: Option<i32>,
}

impl SourceInfo {
    pub(crate) fn new(connection: u64, peer: &Peer) -> Self {
        Self {
            connection,
            uid: peer.uid,
            pid: peer.pid,
        }
    }
}

/// An image that asks to be installed, by one of its entries. An image with several entries is accepted if each of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageInfo<'a> {
    /// Name that the image gives the entry; not an identity.
    pub name: &'a str,
    /// BLAKE3 of its bytes: its identity.
    pub id: &'a [u8; 32],
    /// Its size in bytes.
    pub len: usize,
}

type Check = dyn Fn(&SourceInfo, &ImageInfo<'_>) -> bool + Send;

/// Which code the builder accepts.
pub(crate) enum Policy {
    /// No code at all: the default.
    Nothing,
    /// Any code from a connected source.
    Everything,
    /// Code that a function of the host accepts.
    Checked(Mutex<Box<Check>>),
}

impl Policy {
    /// Whether the image may be installed; otherwise why not.
    pub(crate) fn accepts(&self, source: &SourceInfo, image: &ImageInfo<'_>) -> Result<(), &'static str> {
        match self {
            Self::Nothing => {
                Err("this target accepts no code; help: `Target::builder().accept_code()` on the target")
            }
            Self::Everything => Ok(()),
            Self::Checked(check) => {
                // The host's function is called by one thread at a time. After a panic it may be called again.
                let check = check.lock().unwrap_or_else(PoisonError::into_inner);
                if check(source, image) {
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
            Self::Checked(_) => "Checked",
        })
    }
}
