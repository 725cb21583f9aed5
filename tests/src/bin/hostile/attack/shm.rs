//! A connection over shared memory, made by hand: the handshake, and the segment that the target sends.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ifunc_abi::frame::{INLINE, Limits, commit_word};
use ifunc_abi::hello::{Hello, Roles, TransportTag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, send,
    sendmsg, socket_with,
};

use super::Wire;
use crate::Result;
use crate::random::Random;

/// Size of a slot, and of the parts of a segment.
pub(super) const SLOT: usize = 64;
const GRANULE: usize = 1 << 16;
/// Where the credits lie that the source returns, in the control words: two lines for each side's words, two for its credits.
const CREDITS_OF_SOURCE: usize = 3 * 128;

/// Memory that a target shares.
pub(super) struct Shared {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
}

impl Shared {
    fn map(fd: &OwnedFd) -> Result<Self> {
        let len = fstat(fd)?.st_size as usize;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so that nothing is replaced.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or("no memory")?;
        Ok(Self { base, len })
    }

    /// A word of it.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        let at = (at % (self.len - 7)) & !7;
        // SAFETY: within the mapping, which lives as long as this value, and aligned; the target uses atomics, too.
        unsafe { AtomicU64::from_ptr(self.base.add(at).as_ptr().cast()) }
    }

    /// Writes bytes, as words.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(at + 8 * index)
                .store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A connection.
pub(super) struct Raw {
    socket: OwnedFd,
    pub(super) segment: Shared,
    pub(super) bitmap: Option<Shared>,
    pub(super) slots: usize,
    pub(super) data: usize,
    /// Where the data ring to the target begins.
    pub(super) data_at: usize,
    /// Frames sent, and bytes of the data ring.
    pub(super) sent: u64,
    pub(super) used: u64,
}

/// A connected socket.
pub(super) fn knock(name: &str) -> Result<OwnedFd> {
    let folder = PathBuf::from(std::env::var_os("IFUNC_RUNTIME_DIR").ok_or("IFUNC_RUNTIME_DIR is not set")?);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(
        &socket,
        &SocketAddrUnix::new(folder.join(format!("{name}.sock")))?,
    )?;
    Ok(socket)
}

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Sends bytes, if the target still listens.
pub(super) fn say(socket: &OwnedFd, bytes: &[u8]) {
    let _ = send(socket, bytes, SEND);
}

/// A source's first message.
fn hello() -> Vec<u8> {
    let hello = Hello {
        arch: 62,
        roles: Roles::INVOKES,
        cpu_features: 0,
        node: None,
        epoch: 0,
        limits: Limits {
            max_payload: 0,
            max_image: 0,
            max_answer: 1 << 20,
        },
    };
    // It cannot use `membarrier`.
    [&hello.encode(TransportTag::SHM)[..], &[1, 0, 0, 0]].concat()
}

/// Waits for an answer.
fn is_answered(socket: &OwnedFd) -> bool {
    let timeout = Timespec {
        tv_sec: 2,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&timeout)), Ok(1))
}

/// A hello with as many descriptors as a message can have.
pub(super) fn send_descriptors(name: &str, random: &mut Random) -> Result {
    let mut held = Vec::new();
    for _ in 0..1 + random.below(100) {
        let socket = knock(name)?;
        let file = std::fs::File::open("/dev/null")?;
        let fds = vec![file.as_fd(); 1 + random.below(250)];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let _ = sendmsg(&socket, &[IoSlice::new(&hello())], &mut ancillary, SEND);
        held.push(socket);
    }
    std::thread::sleep(Duration::from_millis(random.below(100) as u64));
    Ok(())
}

impl Raw {
    /// Makes a connection as a source does.
    pub(super) fn connect(name: &str) -> Result<Self> {
        let socket = knock(name)?;
        say(&socket, &hello());
        if !is_answered(&socket) {
            return Err("no answer".into());
        }
        let mut buffer = [0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut buffer)],
            &mut ancillary,
            flags,
        )?;
        let mut memory = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                memory.extend(fds);
            }
        }
        let mut memory = memory.into_iter();
        let segment = Shared::map(&memory.next().ok_or("the target sent no memory")?)?;
        let bitmap = memory.next().map(|fd| Shared::map(&fd)).transpose()?;
        let terms = buffer[..received.bytes]
            .get(Hello::SIZE + 4..)
            .ok_or("a short answer")?;
        let number = |at: usize| -> Result<usize> {
            let bytes = terms.get(4 * at..4 * at + 4).ok_or("a short answer")?;
            Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
        };
        let (slots, data, slots_to_source) = (number(0)?, number(1)?, number(2)?);
        let of_slots = |slots: usize| (slots * SLOT).next_multiple_of(GRANULE);
        Ok(Self {
            socket,
            segment,
            bitmap,
            slots,
            data,
            data_at: GRANULE + of_slots(slots) + of_slots(slots_to_source),
            sent: 0,
            used: 0,
        })
    }

    /// Offset of a frame's slot.
    pub(super) fn slot(&self, frame: u64) -> usize {
        GRANULE + (frame as usize % self.slots) * SLOT
    }

    /// Wakes the target, as a source does for one that sleeps. `false`: the target has ended the connection.
    pub(super) fn ring(&self) -> bool {
        if let Some(bitmap) = &self.bitmap {
            bitmap.word(128).store(u64::MAX, Ordering::Relaxed);
        }
        !matches!(send(&self.socket, &[1], SEND), Err(error) if error != rustix::io::Errno::AGAIN)
    }
}

impl Wire for Raw {
    fn send(&mut self, words: [u64; 2], body: &[u8]) -> bool {
        // What the target has released is in the control words; an attacker only waits now and then.
        let slot = self.slot(self.sent);
        let is_inline = body.len() <= INLINE;
        let flag = u64::from(is_inline) << 8;
        if is_inline {
            self.segment.write(slot + 24, body);
        } else {
            let at = self.used as usize % self.data;
            let whole = body.len().min(self.data - at);
            self.segment.write(self.data_at + at, &body[..whole]);
            self.segment.write(self.data_at, &body[whole..]);
            self.used += body.len().next_multiple_of(64) as u64;
        }
        self.segment
            .word(slot + 8)
            .store(words[0] | flag, Ordering::Relaxed);
        self.segment.word(slot + 16).store(words[1], Ordering::Relaxed);
        self.sent += 1;
        let commit = commit_word(self.sent as u32, body.len() as u32);
        self.segment.word(slot).store(commit, Ordering::Release);
        // The rings have a few hundred slots: an attacker that never waited would overwrite its own frames.
        if self.sent.is_multiple_of(32) {
            std::thread::yield_now();
            return self.ring();
        }
        true
    }

    fn credit(&mut self, random: &mut Random) {
        if random.one_in(50) {
            self.segment
                .word(CREDITS_OF_SOURCE)
                .store(random.odd_number(), Ordering::Relaxed);
        }
        self.ring();
    }
}
