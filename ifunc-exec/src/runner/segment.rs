//! The memory that a target shares with a runner process: two mailboxes of one message each, and areas for bodies.
//!
//! Target and runner take turns: each message answers the one before, so one slot per direction is enough, and neither side can
//! overwrite what the other one reads. The runner is not trusted: the target reads each word once, and copies bytes out before
//! it looks at them.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The first word of a segment: it names this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"ifrunr02");
/// Bytes of a body after which the memory that it took is given back.
const KEPT: usize = 1 << 20;

/// Who writes to a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Target,
    Runner,
}

/// What the target tells a runner before it starts, in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Setting {
    #[default]
    Magic,
    /// Hash of the version of this crate.
    Version,
    /// Process id of the target.
    Parent,
    /// Lengths of the areas in bytes.
    Payload,
    Target,
    Answer,
    /// Options of the runner's executor.
    CodeBytes,
    MaxImages,
    MaxImageMemory,
    StackBytes,
    /// Nanoseconds; 0: without a limit.
    RunTime,
    /// Bytes of memory beside what the runner itself takes.
    Memory,
    /// Seconds of CPU time; 0: without a limit.
    CpuTime,
    /// 1: a kernel without Landlock is accepted.
    WithoutLandlock,
}

const SETTINGS: usize = 16;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    /// The runner has confined itself. Word 0: the version of Landlock.
    Ready = 1,
    /// The runner cannot start. The note area has the reason; word 0: its length.
    Broken,
    /// Install an image. Words: its number, its length, and that of the table of functions of the host that it imports. The payload area
    /// has its id, its bytes, and the table: lines of number, name and signature, with tabs between.
    Install,
    /// Drop images. Word 0: how many. The payload area has their numbers, 8 bytes each.
    Release,
    /// Run an invocation: see [`Run`](super::Run).
    Run,
    /// The request was done. Word 0: the code of a status; word 1: the length of the answer in its area, or of the detail of a failure in
    /// the note area.
    Done,
    /// An ifunc logs. Words: the level, the length of the message, in the note area.
    Log,
    /// The answer to `Log`.
    Continue,
    /// An ifunc calls a function of the host. Words: its number, the length of its buffer in the call area. A callback may, too, so calls
    /// and callbacks nest.
    Call,
    /// The answer to `Call`. Word 0: 0, or 1: it panicked, and the note area has the message; word 1: its length.
    Returned,
    /// A function of the host calls a callback that the ifunc passed to it. Words: the function's number, the parameter's number, the
    /// callback's two words in the buffer of the call, and the length of its own buffer in the call area.
    CallBack,
    /// The answer to `CallBack`. Word 0: 0, or 1: the callback ended early.
    CalledBack,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Ready,
        Self::Broken,
        Self::Install,
        Self::Release,
        Self::Run,
        Self::Done,
        Self::Log,
        Self::Continue,
        Self::Call,
        Self::Returned,
        Self::CallBack,
        Self::CalledBack,
    ];
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) words: [u64; 6],
}

impl Message {
    pub(super) fn new<const N: usize>(kind: Kind, some: [u64; N]) -> Self {
        let mut words = [0; 6];
        words[..N].copy_from_slice(&some);
        Self { kind, words }
    }
}

/// A mailbox: one cache line, whose turn is stored last.
#[derive(Debug)]
#[repr(C, align(64))]
struct Mailbox {
    /// Number of messages.
    turn: AtomicU32,
    kind: AtomicU32,
    words: [AtomicU64; 6],
}

/// A word that is alone in its cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Flag(AtomicU32);

/// Areas are multiples of so many bytes, the smallest page of any machine: the whole segment is one mapping.
pub(super) const PAGE: usize = 4096;

/// What a segment begins with.
#[derive(Debug)]
#[repr(C)]
struct Head {
    settings: [AtomicU64; SETTINGS],
    by_target: Mailbox,
    by_runner: Mailbox,
    target_sleeps: Flag,
    runner_sleeps: Flag,
    /// The system call for which the kernel ended the runner, plus one.
    denied: AtomicU64,
}

const _: () = assert!(size_of::<Head>() <= PAGE);

/// An area of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    /// Payloads and images.
    Payload,
    /// Target arguments.
    Target,
    /// Answers.
    Answer,
    /// Details of failures and messages for the log: [`NOTE`] bytes.
    Note,
    /// Arguments of functions of the host, and of callbacks: [`CALL`] bytes.
    Call,
}

/// Length of [`Area::Call`] in bytes.
pub(super) const CALL: usize = 1 << 20;

/// Length of [`Area::Note`] in bytes.
const NOTE: usize = 64 << 10;

/// Lengths of the areas in bytes, each a multiple of [`PAGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lens {
    pub(super) payload: usize,
    pub(super) target: usize,
    pub(super) answer: usize,
}

impl Lens {
    fn total(self) -> Option<usize> {
        let Self {
            payload,
            target,
            answer,
        } = self;
        let areas = payload
            .checked_add(target)?
            .checked_add(answer)?
            .checked_add(NOTE + CALL)?;
        let are_pages = [payload, target, answer].iter().all(|len| len % PAGE == 0);
        areas.checked_add(PAGE).filter(|_| are_pages)
    }
}

/// A segment that is mapped.
#[derive(Debug)]
pub(super) struct Segment {
    base: NonNull<c_void>,
    lens: Lens,
}

// SAFETY: the mapping belongs to this value; it is bound to no thread, and words are accessed atomically.
unsafe impl Send for Segment {}
// SAFETY: as above; bodies are copied by the side whose turn it is.
unsafe impl Sync for Segment {}

impl Segment {
    /// A new one, and its file for the runner.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn create(lens: Lens) -> io::Result<(Self, OwnedFd)> {
        let total = lens.total().ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("ifunc-runner", flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create("ifunc-runner", flags))?;
        rustix::fs::ftruncate(&file, total as u64)?;
        // The runner cannot shorten what the target reads.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let segment = Self::map(&file, lens)?;
        // SAFETY: advice about our own mapping.
        let _ = unsafe { rustix::mm::madvise(segment.base.as_ptr(), segment.len(), Advice::LinuxDontFork) };
        segment.set(Setting::Magic, MAGIC);
        segment.set(Setting::Version, version());
        segment.set(Setting::Payload, lens.payload as u64);
        segment.set(Setting::Target, lens.target as u64);
        segment.set(Setting::Answer, lens.answer as u64);
        Ok((segment, file))
    }

    /// The one of a file, in the runner.
    ///
    /// # Errors
    /// It is no segment, or the kernel's.
    pub(super) fn open(file: impl AsFd) -> io::Result<Self> {
        let len = rustix::fs::fstat(&file)?.st_size;
        let len = usize::try_from(len).ok().filter(|len| *len >= PAGE + NOTE + CALL);
        let len = len.ok_or(io::ErrorKind::InvalidData)?;
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let head = Self::map(
            &file,
            Lens {
                payload: 0,
                target: 0,
                answer: 0,
            },
        )?;
        let area = |setting| usize::try_from(head.get(setting)).unwrap_or(usize::MAX);
        let lens = Lens {
            payload: area(Setting::Payload),
            target: area(Setting::Target),
            answer: area(Setting::Answer),
        };
        if head.get(Setting::Magic) != MAGIC || lens.total() != Some(len) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(file, lens)
    }

    /// Maps a file that is as long as its areas say.
    fn map(file: impl AsFd, lens: Lens) -> io::Result<Self> {
        let len = lens.total().ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, lens })
    }

    /// Bytes of the mapping.
    fn len(&self) -> usize {
        self.lens.total().unwrap_or(PAGE)
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping has at least a page, which lives as long as this value and holds atomic words alone.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    pub(super) fn set(&self, setting: Setting, value: u64) {
        self.head().settings[setting as usize].store(value, Ordering::Relaxed);
    }

    pub(super) fn get(&self, setting: Setting) -> u64 {
        self.head().settings[setting as usize].load(Ordering::Relaxed)
    }

    /// Whether the target that made it is of this version.
    pub(super) fn is_of_this_version(&self) -> bool {
        self.get(Setting::Version) == version()
    }

    /// The system call that was denied.
    pub(super) fn denied(&self) -> Option<u64> {
        self.head().denied.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Notes a system call that was denied. For handlers of signals.
    pub(super) fn note_denied(&self, call: u64) {
        self.head().denied.store(call.wrapping_add(1), Ordering::Relaxed);
    }

    pub(super) fn len_of(&self, area: Area) -> usize {
        match area {
            Area::Payload => self.lens.payload,
            Area::Target => self.lens.target,
            Area::Answer => self.lens.answer,
            Area::Note => NOTE,
            Area::Call => CALL,
        }
    }

    /// The address of an area.
    pub(super) fn area(&self, area: Area) -> *mut u8 {
        let Lens {
            payload,
            target,
            answer,
        } = self.lens;
        let offset = match area {
            Area::Payload => 0,
            Area::Target => payload,
            Area::Answer => payload + target,
            Area::Note => payload + target + answer,
            Area::Call => payload + target + answer + NOTE,
        };
        self.base.as_ptr().cast::<u8>().wrapping_add(PAGE + offset)
    }

    /// Copies bytes into an area, from `at` on.
    ///
    /// # Panics
    /// They do not fit.
    pub(super) fn write(&self, area: Area, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(
            end.is_some_and(|end| end <= self.len_of(area)),
            "a body that fits its area"
        );
        // SAFETY: they are borrowed, and fit.
        unsafe { self.write_from(area, at, bytes.as_ptr(), bytes.len()) };
    }

    /// Copies `len` bytes into an area, from `at` on. A peer may change them meanwhile.
    ///
    /// # Safety
    /// They are readable, and fit.
    pub(super) unsafe fn write_from(&self, area: Area, at: usize, from: *const u8, len: usize) {
        // SAFETY: the caller's promise; the area is mapped as long as this lives, and the other side does not use it while it is this
        // side's turn. A runner that does so all the same changes bytes that the target copies out before it looks at them.
        unsafe { std::ptr::copy_nonoverlapping(from, self.area(area).wrapping_add(at), len) };
    }

    /// Copies the first bytes of an area out.
    ///
    /// # Panics
    /// It is shorter.
    pub(super) fn read(&self, area: Area, bytes: &mut [u8]) {
        assert!(bytes.len() <= self.len_of(area), "an area that has so many bytes");
        // SAFETY: they are borrowed, and fit.
        unsafe { self.read_to(area, 0, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies `len` bytes out of an area, from `at` on. A peer may change them meanwhile.
    ///
    /// # Safety
    /// They are in the area, and `to` may be written.
    pub(super) unsafe fn read_to(&self, area: Area, at: usize, to: *mut u8, len: usize) {
        // SAFETY: as in `write_from`.
        unsafe { std::ptr::copy_nonoverlapping(self.area(area).wrapping_add(at), to, len) };
    }

    /// The first `len` bytes of an area; `None`: there is no memory for them, or it is shorter.
    pub(super) fn copy(&self, area: Area, len: usize) -> Option<Vec<u8>> {
        if len > self.len_of(area) {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, 0);
        self.read(area, &mut bytes);
        Some(bytes)
    }

    /// Writes the detail of a failure or a message, as far as it fits, and returns its length.
    pub(super) fn write_note(&self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(NOTE)];
        self.write(Area::Note, 0, bytes);
        bytes.len()
    }

    /// What the other side wrote as a note of so many bytes; nothing, if there is no memory for it.
    pub(super) fn note(&self, len: usize) -> Vec<u8> {
        self.copy(Area::Note, len.min(NOTE)).unwrap_or_default()
    }

    /// A note that is a text.
    pub(super) fn note_text(&self, len: u64) -> String {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        String::from_utf8_lossy(&self.note(len)).into_owned()
    }

    /// Gives the memory of a long body back to the kernel.
    pub(super) fn trim(&self, file: impl AsFd, area: Area, used: usize) {
        if used <= KEPT {
            return;
        }
        let begin = self.area(area).addr() - self.base.as_ptr().addr();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let len = used.next_multiple_of(PAGE).min(self.len_of(area));
        // Without it the memory stays in use, and nothing else is wrong.
        let _ = rustix::fs::fallocate(file, flags, begin as u64, len as u64);
    }

    fn mailbox(&self, of: Side) -> &Mailbox {
        match of {
            Side::Target => &self.head().by_target,
            Side::Runner => &self.head().by_runner,
        }
    }

    fn sleeps(&self, side: Side) -> &AtomicU32 {
        match side {
            Side::Target => &self.head().target_sleeps.0,
            Side::Runner => &self.head().runner_sleeps.0,
        }
    }

    /// Sends message number `turn` as `from`. Returns whether the other side sleeps.
    pub(super) fn send(&self, from: Side, turn: u32, message: &Message) -> bool {
        let mailbox = self.mailbox(from);
        mailbox.kind.store(message.kind as u32, Ordering::Relaxed);
        for (word, value) in mailbox.words.iter().zip(message.words) {
            word.store(value, Ordering::Relaxed);
        }
        // Against the sleeper, which states that it sleeps and then looks at the turn: one of the two sees the other's store.
        mailbox.turn.store(turn, Ordering::SeqCst);
        self.sleeps(from.other()).load(Ordering::SeqCst) != 0
    }

    /// Message number `turn` of `from`, if it was sent. An unknown kind is an error.
    pub(super) fn poll(&self, from: Side, turn: u32) -> Option<Result<Message, Malformed>> {
        let mailbox = self.mailbox(from);
        if mailbox.turn.load(Ordering::Acquire) != turn {
            return None;
        }
        let kind = mailbox.kind.load(Ordering::Relaxed);
        let words = std::array::from_fn(|i| mailbox.words[i].load(Ordering::Relaxed));
        let kind = Kind::ALL.into_iter().find(|known| *known as u32 == kind);
        Some(kind.map(|kind| Message { kind, words }).ok_or(Malformed))
    }

    /// States whether a side sleeps. After `true` it looks once more before it does.
    pub(super) fn set_sleeps(&self, side: Side, sleeps: bool) {
        self.sleeps(side).store(sleeps.into(), Ordering::SeqCst);
        if sleeps {
            // The load of the turn that follows is no such operation: weakly ordered processors could do it first.
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
impl Segment {
    /// Sends message number `turn`, of a kind that no version defines.
    pub(super) fn send_malformed(&self, from: Side, turn: u32) {
        self.mailbox(from).kind.store(99, Ordering::Relaxed);
        self.mailbox(from).turn.store(turn, Ordering::SeqCst);
    }
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Target => Self::Runner,
            Self::Runner => Self::Target,
        }
    }
}

/// A message that this version does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: this value owns the whole range.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.len()) };
        debug_assert!(result.is_ok());
    }
}

/// Names the version of this crate, which target and runner have in common.
fn version() -> u64 {
    crate::fingerprint::of(concat!("ifunc-runner ", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENS: Lens = Lens {
        payload: 2 * PAGE,
        target: PAGE,
        answer: PAGE,
    };

    #[test]
    fn both_sides_see_what_the_other_one_writes() {
        let (target, file) = Segment::create(LENS).unwrap();
        let runner = Segment::open(&file).unwrap();
        assert!(runner.is_of_this_version());
        assert_eq!(runner.len_of(Area::Payload), LENS.payload);
        assert_eq!(runner.poll(Side::Target, 1), None);
        target.write(Area::Target, 8, b"bytes");
        let message = Message::new(Kind::Install, [1, 2, 3]);
        assert!(!target.send(Side::Target, 1, &message));
        assert_eq!(runner.poll(Side::Target, 1), Some(Ok(message)));
        assert_eq!(&runner.copy(Area::Target, 13).unwrap()[8..], b"bytes");
        assert_eq!(runner.copy(Area::Target, PAGE + 1), None);
        // A note that is too long, and a length that is.
        assert_eq!(runner.write_note(&[b'x'; NOTE + 1]), NOTE);
        assert_eq!(target.note(usize::MAX).len(), NOTE);
        assert_eq!(runner.write_note("caf\u{e9}".as_bytes()), 5);
        assert_eq!(target.note_text(5), "caf\u{e9}");
        assert_eq!(target.note_text(4), "caf\u{fffd}");
        target.set_sleeps(Side::Target, true);
        assert!(runner.send(Side::Runner, 1, &message));
        // What no version defines.
        runner.send_malformed(Side::Runner, 2);
        assert_eq!(target.poll(Side::Runner, 2), Some(Err(Malformed)));
        assert_eq!(target.denied(), None);
        runner.note_denied(0);
        assert_eq!(target.denied(), Some(0));
    }

    #[test]
    fn areas_follow_each_other_and_end_with_the_segment() {
        let (segment, file) = Segment::create(LENS).unwrap();
        let at = |area| segment.area(area).addr() - segment.base.as_ptr().addr();
        assert_eq!(at(Area::Payload), PAGE);
        assert_eq!(at(Area::Target), 3 * PAGE);
        assert_eq!(at(Area::Answer), 4 * PAGE);
        assert_eq!(at(Area::Note), 5 * PAGE);
        assert_eq!(at(Area::Call), 5 * PAGE + NOTE);
        let end = 5 * PAGE + NOTE + CALL;
        assert_eq!((segment.len(), LENS.total()), (end, Some(end)));
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, end as i64);
        let flags = rustix::io::fcntl_getfd(&file).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        for wrong in [PAGE + 1, usize::MAX, usize::MAX - PAGE + 1] {
            let lens = Lens {
                answer: wrong,
                ..LENS
            };
            assert_eq!(lens.total(), None);
            assert!(Segment::create(lens).is_err());
        }
    }

    #[test]
    fn a_segment_of_another_version_is_not_of_this_one() {
        let (segment, _) = Segment::create(LENS).unwrap();
        segment.set(Setting::Version, segment.get(Setting::Version) ^ 1 << 40);
        assert!(!segment.is_of_this_version());
        // A fingerprint, by which versions differ.
        assert!(version() > u32::MAX.into());
    }

    #[test]
    fn memory_of_long_bodies_goes_back_to_the_kernel() {
        let lens = Lens {
            payload: 4 << 20,
            ..LENS
        };
        let (segment, file) = Segment::create(lens).unwrap();
        let blocks = || rustix::fs::fstat(&file).unwrap().st_blocks;
        segment.write(Area::Payload, 0, &vec![1; 4 << 20]);
        let before = blocks();
        // A short body stays, and so do the other areas.
        segment.write(Area::Target, 0, &[2; PAGE]);
        segment.trim(&file, Area::Payload, KEPT);
        assert_eq!(segment.copy(Area::Payload, 1).unwrap(), [1]);
        segment.trim(&file, Area::Payload, 4 << 20);
        assert!(blocks() < before / 100, "{before} blocks, then {}", blocks());
        let is = |area, byte, len| segment.copy(area, len).unwrap() == vec![byte; len];
        assert!(is(Area::Payload, 0, 4 << 20) && is(Area::Target, 2, PAGE));
    }

    #[test]
    fn other_files_are_no_segments() {
        let (segment, file) = Segment::create(LENS).unwrap();
        segment.set(Setting::Payload, 1 << 40);
        assert!(Segment::open(&file).is_err());
        segment.set(Setting::Payload, LENS.payload as u64);
        segment.set(Setting::Magic, 0);
        assert!(Segment::open(&file).is_err());
        let empty = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC).unwrap();
        assert!(Segment::open(&empty).is_err());
    }
}
