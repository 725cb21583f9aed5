//! A cable that takes its time: what arrives at one interface leaves by the other after a delay, whole frames, whatever is in
//! them. The kernel's own (`netem`) is not built into every kernel.
//!
//! Frames are taken from and given to the interfaces by packet sockets, each with the kernel's note on what is still to be
//! done to it (`virtio_net_hdr`: its checksum, cutting it into segments), so that what a virtual interface left undone
//! stays so.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::Failure;

/// Larger than any frame that an interface hands on in one piece, with the kernel's note.
const LARGEST: usize = (64 << 10) + 512;
/// More frames than are on their way at a time; what comes beyond them is lost, as on any network.
const MOST: usize = 1 << 16;

/// Relays between two interfaces of this network until it is killed.
///
/// # Errors
/// There is no such interface, or the kernel takes no packet sockets.
pub(crate) fn run(one: &str, other: &str, delay: Duration) -> Result<(), Failure> {
    let sockets = [open(one)?, open(other)?];
    // By the interface that it arrived at, frames and when they are due at the other one.
    let mut waiting: [VecDeque<(Instant, Vec<u8>)>; 2] = [VecDeque::new(), VecDeque::new()];
    let mut frame = vec![0; LARGEST];
    println!("relaying");
    loop {
        let due = waiting
            .iter()
            .filter_map(|queue| queue.front())
            .map(|(due, _)| *due)
            .min();
        let until = due.map(|due| due.saturating_duration_since(Instant::now()));
        let until = until.and_then(|time| Timespec::try_from(time).ok());
        let mut fds = sockets
            .each_ref()
            .map(|socket| PollFd::new(socket, PollFlags::IN));
        match poll(&mut fds, until.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let now = Instant::now();
        for (socket, queue) in sockets.iter().zip(&mut waiting) {
            while let Ok(len) = rustix::io::read(socket, &mut *frame) {
                if queue.len() < MOST {
                    queue.push_back((now + delay, frame[..len].to_vec()));
                }
            }
        }
        for (to, queue) in [1, 0].into_iter().zip(&mut waiting) {
            while queue.front().is_some_and(|(due, _)| *due <= now) {
                if let Some((_, frame)) = queue.pop_front() {
                    // What an interface does not take is lost.
                    let _ = rustix::io::write(&sockets[to], &frame);
                }
            }
        }
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
