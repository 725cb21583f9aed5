//! The seam between what decides that an image may run, and where it runs.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use ifunc_abi::ImageId;
use ifunc_abi::refusal::{Failed, Refusal};

use crate::{EntryProperties, ImageProperties, InstalledEntry, InstalledImage, ValidImage};

/// Where injected code runs. The caller decides whether an image may run at all: policy and target type are its own.
///
/// A thread that serves has a [`Thread`](Self::Thread), opens a [`Session`](Self::Session) on it for a run of invocations, and
/// runs one invocation at a time.
pub trait Executor {
    /// An installed image. It stays installed as long as its `Arc` is held.
    type Image: Deref<Target = ImageProperties>;
    /// An entry of an installed image. Its image stays installed as long as it is held.
    type Entry: Deref<Target = EntryProperties>;
    /// What the invocations of one thread run on.
    type Thread;
    /// While it lives, the invocations of a thread can call the host.
    type Session<'t>;

    /// Checks an image that was sent under `id`. Changes nothing.
    ///
    /// # Errors
    /// The bytes have another id, are no image, or this executor cannot run them.
    fn validate<'a>(&self, id: &ImageId, bytes: &'a [u8]) -> Result<ValidImage<'a>, Refusal>;

    /// Installs an image, unless it is installed.
    ///
    /// # Errors
    /// An import is not there, or there is no room.
    fn install(&self, image: &ValidImage<'_>) -> Result<Arc<Self::Image>, Refusal>;

    /// The entries of an image, in their order.
    fn entries(image: &Arc<Self::Image>) -> impl ExactSizeIterator<Item = Arc<Self::Entry>>;

    /// Number of installed images.
    fn image_count(&self) -> usize;

    /// A thread's state. The thread that runs invocations on it makes it itself: debuggers follow a backtrace upwards alone,
    /// and the kernel maps downwards.
    ///
    /// # Errors
    /// The kernel's, for memory.
    fn thread(&self) -> io::Result<Self::Thread>;

    /// Runs an invocation and returns the length of its answer, which it writes to `answer`; `None`: no caller waits for one.
    ///
    /// # Errors
    /// It did not end with an answer that fits.
    fn run(
        session: &mut Self::Session<'_>,
        invocation: Invocation<'_, Self::Entry>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>>;
}

/// Everything that an invocation is given.
#[derive(Debug)]
pub struct Invocation<'a, Entry = InstalledEntry> {
    pub(crate) entry: &'a Entry,
    pub(crate) payload: *const u8,
    pub(crate) size: usize,
    pub(crate) target: *mut c_void,
    pub(crate) sender: u64,
}

impl<'a, Entry> Invocation<'a, Entry> {
    /// Of `entry`, on a payload of `size` bytes and the target arguments `target`, for the connection `sender`.
    ///
    /// # Safety
    /// The host accepted the image's code. While the invocation runs, the payload is readable and aligned as the entry asks,
    /// and `target` is of the type that the entry takes.
    #[inline]
    #[must_use]
    pub unsafe fn new(
        entry: &'a Entry,
        payload: *const u8,
        size: usize,
        target: *mut c_void,
        sender: u64,
    ) -> Self {
        Self {
            entry,
            payload,
            size,
            target,
            sender,
        }
    }

    /// The entry that runs.
    #[must_use]
    pub fn entry(&self) -> &'a Entry {
        self.entry
    }

    /// Length of the payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.size
    }
}

/// Learns of installed and evicted images, while the code cache is locked.
pub trait Observer: fmt::Debug + Send + Sync {
    /// An image was written into code memory.
    fn installed(&self, image: &InstalledImage);

    /// An image was taken out of code memory.
    fn evicted(&self, image: &InstalledImage);
}
