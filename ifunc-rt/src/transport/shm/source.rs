//! The source's side of making a connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ifunc_abi::hello::WIRE_VERSION;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::connect as connect_socket;
use rustix::net::sockopt::socket_peercred;

use super::barrier::Barriers;
use super::bound_name::{new_socket, socket_address, socket_path};
use super::connection::{Connection, ReadyBit};
use super::directory::{Untrusted, candidates};
use super::handshake::{Answer, Request, Welcome, receive_answer};
use super::layout::Side;
use super::ready::ReadyBitmap;
use super::segment::{AdoptError, Segment};
use super::watch::{Token, Watched, Watcher};
use crate::transport::event_fd::wait_readable;
use crate::transport::{ConnectConfig, ConnectError, Link, Peer};

/// Pause between two attempts while the target has many connections to accept first.
const RETRY: Duration = Duration::from_millis(1);

/// Connects to the target at `name`.
pub(super) fn connect(name: &str, config: &ConnectConfig, deadline: Instant) -> Result<Link, ConnectError> {
    let attempt = Attempt {
        address: format!("shm:{name}"),
        deadline,
    };
    let socket = attempt.reach(name)?;
    let barriers = Barriers::register();
    Request {
        hello: config.hello(),
        barriers,
    }
    .send(socket.as_fd());
    let (welcome, memory, bitmap) = attempt.receive_welcome(&socket)?;
    let unfit = |error| match error {
        AdoptError::Unfit(problem) => attempt.protocol(problem),
        AdoptError::Io(error) => attempt.failed("mapping the memory of the connection", error),
    };
    let segment = Segment::adopt(memory.as_fd(), welcome.layout).map_err(unfit)?;
    let ready_bit = match bitmap {
        Some(bitmap) => ReadyBit::Source(ReadyBitmap::adopt(bitmap.as_fd()).map_err(unfit)?, welcome.bit),
        None => ReadyBit::None,
    };
    let peer = socket_peercred(&socket)
        .map(|peer| Peer {
            uid: Some(peer.uid.as_raw()),
            pid: Some(peer.pid.as_raw_pid()),
        })
        .map_err(|error| attempt.failed("asking for the target's credentials", error.into()))?;

    let watching = |error| attempt.failed("watching the connection", error);
    let watcher = Watcher::of_this_process().map_err(watching)?;
    let watched = (Arc::clone(&watcher), Token::next());
    let token = watched.1;
    let connection = Connection::new(
        segment,
        Side::Source,
        barriers.agree(welcome.barriers),
        socket,
        watched,
        ready_bit,
    );
    let as_watched: Arc<dyn Watched> = Arc::<Connection>::clone(&connection);
    let end = EventFlags::RDHUP | EventFlags::ET;
    watcher
        .watch(token, connection.socket(), end, Arc::downgrade(&as_watched))
        .map_err(watching)?;
    Ok(connection.into_link(peer, welcome.hello))
}

/// One attempt to connect.
struct Attempt {
    address: String,
    deadline: Instant,
}

impl Attempt {
    /// A socket that is connected to a process that listens there.
    fn reach(&self, name: &str) -> Result<OwnedFd, ConnectError> {
        let distrust = |Untrusted { path, problem }| ConnectError::Directory { path, problem };
        let mut looked = None;
        for directory in candidates() {
            let path = socket_path(&directory, name);
            let there = match directory.check() {
                Ok(there) => there,
                // A place that is trusted was looked at before: what others do to this one does not matter.
                Err(_) if looked.is_some() => continue,
                Err(untrusted) => return Err(distrust(untrusted)),
            };
            if there {
                let address = socket_address(&directory, &path).map_err(distrust)?;
                let socket = new_socket().map_err(|error| self.failed("making a socket", error.into()))?;
                loop {
                    match connect_socket(&socket, &address) {
                        Ok(()) => return Ok(socket),
                        Err(Errno::NOENT | Errno::CONNREFUSED) => break,
                        Err(Errno::AGAIN) if Instant::now() < self.deadline => thread::sleep(RETRY),
                        Err(Errno::AGAIN) => return Err(self.timeout("its queue of new connections is full")),
                        Err(Errno::INTR) => {}
                        Err(error) => {
                            return Err(
                                self.failed(&format!("connecting to `{}`", path.display()), error.into())
                            );
                        }
                    }
                }
            }
            looked.get_or_insert(path);
        }
        Err(ConnectError::NobodyListens {
            address: self.address.clone(),
            path: looked,
        })
    }

    /// The target's answer.
    fn receive_welcome(&self, socket: &OwnedFd) -> Result<(Welcome, OwnedFd, Option<OwnedFd>), ConnectError> {
        let mut reset = false;
        let (answer, memory) = loop {
            match receive_answer(socket.as_fd()) {
                Ok(received) => break received,
                // It closed without having read our hello; a refusal may follow the error.
                Err(Errno::CONNRESET) if !reset => reset = true,
                Err(Errno::CONNRESET) => {
                    let gone = io::ErrorKind::ConnectionReset.into();
                    return Err(self.failed("connecting: the target left before it answered", gone));
                }
                Err(Errno::AGAIN) => {
                    if Instant::now() >= self.deadline {
                        return Err(self.timeout("it accepted the connection and did not answer"));
                    }
                    wait_readable(socket.as_fd(), self.deadline);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("receiving the target's answer", error.into())),
            }
        };
        let [memory, bitmap] = memory;
        match (answer, memory) {
            (Answer::Welcome(welcome), Some(memory)) => Ok((welcome, memory, bitmap)),
            (Answer::Welcome(_), None) => {
                Err(self.protocol("it sent no memory, or this process has no file descriptor left for it"))
            }
            (Answer::Refused(reason), _) => Err(ConnectError::Refused {
                address: self.address.clone(),
                reason,
            }),
            (Answer::Busy(reason), _) => Err(ConnectError::Busy {
                address: self.address.clone(),
                reason,
            }),
            (Answer::Version(theirs), _) => Err(ConnectError::Version {
                address: self.address.clone(),
                theirs,
                ours: WIRE_VERSION,
            }),
            (Answer::Malformed(problem), _) => Err(self.protocol(problem)),
        }
    }

    fn timeout(&self, waiting_for: &'static str) -> ConnectError {
        ConnectError::Timeout {
            address: self.address.clone(),
            waiting_for,
        }
    }

    fn protocol(&self, problem: &'static str) -> ConnectError {
        ConnectError::Protocol {
            address: self.address.clone(),
            problem,
        }
    }

    fn failed(&self, doing: &str, source: io::Error) -> ConnectError {
        ConnectError::Io {
            doing: format!("{}: {doing}", self.address),
            source,
        }
    }
}
