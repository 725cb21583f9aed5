//! The seam between what decides that an image may run, and where it runs.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ifunc_abi::ImageId;
use ifunc_abi::refusal::{Failed, Refusal};

use crate::runner::{RunnerCounts, Tenant};
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

    /// Installs an image, unless it is installed: in this process, or in the [runner process](crate::runner) of a tenant.
    ///
    /// # Errors
    /// An import is not there, or there is no room. The tenant's process does not start, or the executor has none.
    fn install(&self, image: &ValidImage<'_>, tenant: Option<&Tenant>) -> Result<Arc<Self::Image>, Refusal>;

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
    /// `invocation` makes the invocation, once more where its end is unusual: nothing of it is kept meanwhile.
    ///
    /// # Errors
    /// It did not end with an answer that fits.
    fn run<'a>(
        session: &mut Self::Session<'_>,
        invocation: impl Fn() -> Invocation<'a, Self::Entry>,
        answer: Option<&mut [u8]>,
    ) -> Result<usize, Box<Failed>>
    where
        Self::Entry: 'a;

    /// Whether [`run_batch`](Self::run_batch) can run this entry.
    fn has_batch(entry: &Self::Entry) -> bool;

    /// Runs entries of a batch in one crossing of the call gate. Stops after one that has no answer, and before one for whose
    /// answer there may be too little memory. At least one is started.
    ///
    /// # Panics
    /// If the entry [has none](Self::has_batch), or there is too little memory for one answer.
    fn run_batch(
        session: &mut Self::Session<'_>,
        batch: Batch<'_, Self::Entry>,
        answers: Option<BatchAnswers<'_>>,
    ) -> BatchEnd;
}

/// Entries of a batch for one entry of an image, which are run in order.
#[derive(Debug)]
pub struct Batch<'a, Entry = InstalledEntry> {
    /// The first invocation.
    pub(crate) first: Invocation<'a, Entry>,
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

impl<'a, Entry> Batch<'a, Entry> {
    /// `count` invocations, at least one, with payloads of one length. Two of them are `stride` bytes apart.
    ///
    /// # Safety
    /// What [`Invocation::new`] requires, for each of them.
    #[must_use]
    pub unsafe fn new(first: Invocation<'a, Entry>, stride: usize, count: usize) -> Self {
        Self { first, stride, count }
    }
}

/// Memory for the answers of a batch. Each begins at a multiple of 8 bytes from the first, right after the one before.
#[derive(Debug)]
pub struct BatchAnswers<'a> {
    /// At least `max_answer` bytes.
    pub memory: &'a mut [u8],
    /// Length of the longest answer.
    pub max_answer: usize,
    /// The lengths of the answers: at least as many as there are entries.
    pub lens: &'a mut [u32],
}

impl BatchAnswers<'_> {
    /// Makes the first `count` lengths those of answers that lie in the memory: an ifunc can overwrite them.
    pub(crate) fn validate(&mut self, count: usize) {
        // Most often all are alike and fit. This loop has no branch, so that the processor compares several at once.
        let first = self.lens[0];
        let differ = self.lens[..count]
            .iter()
            .fold(0, |differ, len| differ | (len ^ first));
        let used = (first as usize).next_multiple_of(8).saturating_mul(count);
        if differ == 0 && first as usize <= self.max_answer && used <= self.memory.len() {
            return;
        }
        let mut left = self.memory.len();
        for len in &mut self.lens[..count] {
            *len = (*len).min(self.max_answer.min(left) as u32);
            left = left.saturating_sub((*len as usize).next_multiple_of(8));
        }
    }
}

/// How far a batch was run.
#[derive(Debug)]
pub struct BatchEnd {
    /// Number of entries that ended well.
    pub executed: usize,
    /// Why the entry after them has no answer; `None`: it was not started.
    pub failed: Option<Box<Failed>>,
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

// A derive would ask the same of the entry.
impl<Entry> Copy for Invocation<'_, Entry> {}

impl<Entry> Clone for Invocation<'_, Entry> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'a, Entry> Invocation<'a, Entry> {
    /// Of `entry`, on a payload of `size` bytes and the target arguments `target`, for the connection `sender`.
    ///
    /// # Safety
    /// The host accepted the image's code. Whenever the invocation runs, the payload is readable and aligned as the entry asks,
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

/// Learns of installed and evicted images, and of changes of exports.
pub trait Observer: fmt::Debug + Send + Sync {
    /// An image was written into code memory, while the code cache is locked, or into a runner process.
    fn installed(&self, image: &InstalledImage);

    /// An image was taken out of code memory, while the code cache is locked, or out of a runner process, on any thread.
    fn evicted(&self, image: &ImageProperties);

    /// A change of the exports was made; changes are numbered from 1.
    fn exports_changed(&self, change: u64);

    /// No invocation runs any more that could use what this change replaced; `took`: since it began. A change that another one
    /// follows may have no end.
    fn change_ended(&self, change: u64, took: Duration);

    /// Runner processes were started, or ended.
    fn runners_changed(&self, counts: RunnerCounts);
}

/// Keeps nothing of it.
impl Observer for () {
    fn installed(&self, _: &InstalledImage) {}
    fn evicted(&self, _: &ImageProperties) {}
    fn exports_changed(&self, _: u64) {}
    fn change_ended(&self, _: u64, _: Duration) {}
    fn runners_changed(&self, _: RunnerCounts) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_answers_never_exceed_their_memory() {
        let validated = |lens: &[u32], max_answer: usize, memory: usize| {
            let mut lens = lens.to_vec();
            let count = lens.len() - 1;
            let mut answers = BatchAnswers {
                memory: &mut vec![0; memory],
                max_answer,
                lens: &mut lens,
            };
            answers.validate(count);
            lens
        };
        const UNUSED: u32 = 99;
        for (lens, max_answer, memory, expected) in [
            // All alike, which fit exactly and do not.
            ([5, 5, 5, UNUSED], 8, 24, [5, 5, 5, UNUSED]),
            ([5, 5, 5, UNUSED], 8, 23, [5, 5, 5, UNUSED]),
            ([5, 5, 5, UNUSED], 8, 20, [5, 5, 4, UNUSED]),
            ([8, 8, 8, UNUSED], 8, 8, [8, 0, 0, UNUSED]),
            ([9, 9, 9, UNUSED], 8, 1000, [8, 8, 8, UNUSED]),
            // One is too long, or two are.
            ([4, 4, 100, UNUSED], 8, 1000, [4, 4, 8, UNUSED]),
            ([4, 100, 100, UNUSED], 8, 1000, [4, 8, 8, UNUSED]),
            ([0, 100, 0, UNUSED], 8, 1000, [0, 8, 0, UNUSED]),
            ([u32::MAX; 4], usize::MAX, 16, [16, 0, 0, u32::MAX]),
        ] {
            let validated = validated(&lens, max_answer, memory);
            assert_eq!(validated, expected, "{lens:?} {max_answer} {memory}");
        }
    }

    #[test]
    fn an_invocation_has_the_length_of_its_payload() {
        // SAFETY: it is not run.
        let invocation = unsafe { Invocation::new(&7, std::ptr::null(), 40, std::ptr::null_mut(), 1) };
        assert_eq!((invocation.payload_len(), *invocation.entry()), (40, 7));
    }
}
