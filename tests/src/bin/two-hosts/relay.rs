//! A switch that takes its time: what arrives at one interface leaves by another after a delay, whole frames, whatever is in
//! them. The kernel's own (`netem`) is not built into every kernel.
//!
//! Frames are taken from and given to the interfaces by packet sockets, each with the kernel's note on what is still to be
//! done to it (`virtio_net_hdr`: its checksum, cutting it into segments), so that what a virtual interface left undone
//! stays so. A frame is due a delay after the kernel received it, however late this program reads it.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::Failure;

/// Larger than any frame that an interface hands on in one piece, with the kernel's note.
const LARGEST: usize = (64 << 10) + 512;
/// More frames than are on their way at a time; what comes beyond them is lost, as on any network.
const MOST: usize = 1 << 16;
/// Frames that are read from an interface before those that are due leave.
const BUDGET: usize = 64;
/// Length of the kernel's note, `struct virtio_net_hdr`. The addresses of the frame's receiver and sender follow it.
const NOTE: usize = 10;
/// A station's address.
type Mac = [u8; 6];

/// A frame on its way.
struct Frame {
    /// When the kernel received it.
    arrived: Instant,
    due: Instant,
    bytes: Vec<u8>,
}

/// Relays between these interfaces of this network until standard input ends; then prints how long frames were on their way.
///
/// # Errors
/// There is no such interface, or the kernel takes no packet sockets.
pub(crate) fn run(interfaces: &[&str], delay: Duration) -> Result<(), Failure> {
    let sockets: Vec<OwnedFd> = interfaces
        .iter()
        .map(|name| open(name))
        .collect::<Result<_, _>>()?;
    let _awake = be_punctual()?;
    // By the interface that it arrived at.
    let mut waiting: Vec<VecDeque<Frame>> = sockets.iter().map(|_| VecDeque::new()).collect();
    let mut stations: HashMap<Mac, usize> = HashMap::new();
    let mut times = Times::default();
    let mut memory = vec![0; LARGEST];
    let input = io::stdin();
    println!("relaying");
    loop {
        let due = waiting
            .iter()
            .filter_map(|queue| queue.front())
            .map(|frame| frame.due)
            .min();
        let until = due.map(|due| due.saturating_duration_since(Instant::now()));
        let until = until.and_then(|time| Timespec::try_from(time).ok());
        let mut fds: Vec<PollFd<'_>> = sockets
            .iter()
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        fds.push(PollFd::new(&input, PollFlags::IN));
        match poll(&mut fds, until.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if is_ready.last() == Some(&true) {
            // It is never written to: it has ended.
            return Ok(writeln!(io::stdout(), "{times}")?);
        }
        for ((socket, queue), _) in sockets
            .iter()
            .zip(&mut waiting)
            .zip(is_ready)
            .filter(|(_, is_ready)| *is_ready)
        {
            for _ in 0..BUDGET {
                let Ok(len) = rustix::io::read(socket, &mut *memory) else {
                    break;
                };
                let arrived = Instant::now()
                    .checked_sub(age(socket))
                    .unwrap_or_else(Instant::now);
                if queue.len() < MOST {
                    queue.push_back(Frame {
                        arrived,
                        due: arrived + delay,
                        bytes: memory[..len].to_vec(),
                    });
                }
            }
        }
        for (from, queue) in waiting.iter_mut().enumerate() {
            while let Some(frame) = queue.pop_front_if(|frame| frame.due <= Instant::now()) {
                times.add(frame.arrived.elapsed());
                send(&sockets, &mut stations, from, &frame.bytes);
            }
        }
    }
}

/// Sends a frame that arrived at interface `from` to where its receiver is, or, if that is unknown or all are meant, to all others. What
/// an interface does not take is lost.
fn send(sockets: &[OwnedFd], stations: &mut HashMap<Mac, usize>, from: usize, frame: &[u8]) {
    let Some((to, sender)) = addresses(frame) else {
        return;
    };
    stations.insert(sender, from);
    let to = stations.get(&to).copied();
    for (number, socket) in sockets.iter().enumerate() {
        if number != from && to.is_none_or(|to| to == number) {
            let _ = rustix::io::write(socket, frame);
        }
    }
}

/// The receiver and the sender of a frame that follows the kernel's note.
fn addresses(frame: &[u8]) -> Option<(Mac, Mac)> {
    let (to, rest) = frame.get(NOTE..)?.split_first_chunk()?;
    Some((*to, *rest.first_chunk()?))
}

/// Lets timers end at their time, and not up to 50 µs later; and keeps idle processors awake, if that is allowed, until the file is
/// closed: in a virtual machine one that sleeps takes longer to wake up than a network between two machines of a rack.
fn be_punctual() -> io::Result<Option<File>> {
    // SAFETY: sets a number of this thread; no memory is involved.
    checked(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) })?;
    let awake = File::options().write(true).open("/dev/cpu_dma_latency").ok();
    // The longest time, in microseconds, that a processor may take to wake up.
    Ok(awake.filter(|mut file| file.write_all(&0i32.to_ne_bytes()).is_ok()))
}

/// How long ago the kernel received the frame that was last read from this socket.
fn age(socket: &OwnedFd) -> Duration {
    // `asm-generic/sockios.h`: `libc` does not have it.
    const SIOCGSTAMPNS: libc::c_ulong = 0x8907;
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the request writes a `timespec` there.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS, &raw mut at) } < 0 {
        // The kernel notes times from the first question on.
        return Duration::ZERO;
    }
    let at = Duration::new(
        at.tv_sec.max(0).cast_unsigned(),
        at.tv_nsec.max(0).cast_unsigned() as u32,
    );
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The clock may have been set meanwhile.
    now.checked_sub(at)
        .filter(|age| *age < Duration::from_secs(1))
        .unwrap_or_default()
}

/// How long frames were on their way: how many for each number of microseconds.
#[derive(Default)]
struct Times {
    frames: u64,
    by_micros: Vec<u64>,
}

impl Times {
    /// Times from here on are one.
    const LONGEST: usize = 1_000_000;

    fn add(&mut self, time: Duration) {
        let micros = (time.as_micros() as usize).min(Self::LONGEST);
        if self.by_micros.len() <= micros {
            self.by_micros.resize(micros + 1, 0);
        }
        self.by_micros[micros] += 1;
        self.frames += 1;
    }

    /// So many of a hundred frames took no longer.
    fn percentile(&self, percent: u64) -> usize {
        let mut left = self.frames * percent / 100;
        let longer = |&count: &u64| match left.checked_sub(count) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        };
        self.by_micros
            .iter()
            .position(longer)
            .unwrap_or(self.by_micros.len().saturating_sub(1))
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [median, most, nearly_all] = [50, 90, 99].map(|percent| self.percentile(percent));
        let frames = self.frames;
        write!(
            f,
            "relayed {frames} frames in {median} µs (90 %: {most}, 99 %: {nearly_all})"
        )
    }
}

/// A socket for the frames of this interface, that never blocks.
fn open(interface: &str) -> io::Result<OwnedFd> {
    let index = index_of(interface)?;
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: opens a socket; no memory is involved.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            i32::from(all),
        )
    };
    checked(fd)?;
    // SAFETY: the descriptor was just opened, and only this function has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // The kernel's note comes with each frame; what this socket sends does not come back.
    for option in [libc::PACKET_VNET_HDR, libc::PACKET_IGNORE_OUTGOING] {
        let on: libc::c_int = 1;
        // SAFETY: the option's value is one `c_int`, of the length that is said.
        checked(unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        })?;
    }
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: all,
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: a whole address of the family that it names, of the length that is said.
    checked(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })?;
    Ok(socket)
}

/// The number of an interface of this network.
fn index_of(interface: &str) -> io::Result<i32> {
    let name = std::ffi::CString::new(interface).map_err(io::Error::other)?;
    // SAFETY: a text that ends in zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    match i32::try_from(index) {
        Ok(0) => Err(io::Error::last_os_error()),
        Ok(index) => Ok(index),
        Err(error) => Err(io::Error::other(error)),
    }
}

fn checked(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
