//! The source's side of making a connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, connect as connect_socket};
use rustix::process::geteuid;

use super::barrier::Barriers;
use super::bound_name::{new_socket, socket_pair};
use super::connection::{Connection, ReadyBit, Role};
use super::directory::candidates;
use super::handshake::{Memory, Request, Welcome, peer_of, receive_answer};
use super::listener::Acceptor;
use super::mapping::AdoptError;
use super::ready::ReadyBitmap;
use super::segment::Segment;
use crate::os::wait_readable;
use crate::transport::watch::{Watch, Watcher};
use crate::transport::{ConnectConfig, ConnectError, Link};

/// Pause between two attempts while the target has many connections to accept first.
const RETRY: Duration = Duration::from_millis(1);

/// Connects to the target `name`.
pub(in super::super) fn connect(
    name: &str,
    config: &ConnectConfig,
    deadline: Instant,
) -> Result<Link, ConnectError> {
    let attempt = Attempt {
        scheme: "shm",
        address: format!("shm:{name}"),
        deadline,
    };
    let socket = attempt.reach(name)?;
    attempt.check_user(&socket, config.other_users)?;
    attempt.connect_over(socket, config, || ())
}

/// Connects to a target of this process, which [admits](Acceptor::admit) the other end of a new pair of sockets.
pub(in super::super) fn connect_here(
    acceptor: &Acceptor,
    address: String,
    config: &ConnectConfig,
) -> Result<Link, ConnectError> {
    let attempt = Attempt {
        scheme: "loopback",
        address,
        deadline: Instant::now(),
    };
    let (ours, theirs) = socket_pair().map_err(|error| attempt.failed("making sockets", error.into()))?;
    attempt.connect_over(ours, config, || acceptor.admit(theirs))
}

/// Whether a source of user `own` connects to a target of user `uid`.
fn is_trusted(uid: u32, own: u32, other_users: bool) -> bool {
    uid == own || uid == 0 || other_users
}

/// One attempt to connect.
struct Attempt {
    /// The transport's name.
    scheme: &'static str,
    address: String,
    deadline: Instant,
}

impl Attempt {
    /// Introduces the source over a connected socket. `sent` is called when its hello is on the way.
    fn connect_over(
        &self,
        socket: OwnedFd,
        config: &ConnectConfig,
        sent: impl FnOnce(),
    ) -> Result<Link, ConnectError> {
        let barriers = Barriers::register();
        let request = Request {
            hello: config.hello,
            barriers,
        };
        request.send(socket.as_fd());
        sent();
        let (welcome, [memory, bitmap]) = self.receive_answer(&socket, config.max_ring)?;
        let memory = memory.ok_or_else(|| {
            self.protocol("it sent no memory, or this process has no file descriptor left for it")
        })?;
        let unfit = |error| match error {
            AdoptError::Unfit(problem) => self.protocol(problem),
            AdoptError::Io(error) => self.failed("mapping the memory of the connection", error),
        };
        let segment = Segment::adopt(memory.as_fd(), welcome.layout).map_err(unfit)?;
        let bitmap = match bitmap {
            Some(bitmap) => Some(ReadyBit::new(
                ReadyBitmap::adopt(bitmap.as_fd()).map_err(unfit)?,
                welcome.bit,
            )),
            None => None,
        };
        let peer = peer_of(&socket)
            .map_err(|error| self.failed("asking for the target's credentials", error.into()))?;
        let watching = |error| self.failed("watching the connection", error);
        let watcher = Watcher::of_this_process().map_err(watching)?;
        let (socket, barriers) = (Watch::new(&watcher, socket), barriers.agree(welcome.barriers));
        let connection = Connection::new(self.scheme, segment, barriers, socket, Role::Source(bitmap))
            .map_err(watching)?;
        Ok(connection.into_link(peer, welcome.hello))
    }

    /// A socket that is connected to a process that listens there.
    fn reach(&self, name: &str) -> Result<OwnedFd, ConnectError> {
        let mut looked = None;
        for directory in candidates() {
            let (path, address) = directory.socket(name);
            match directory.check() {
                Ok(true) => {
                    if let Some(socket) = self.try_reach(&path, &address?)? {
                        return Ok(socket);
                    }
                }
                Ok(false) => {}
                // A trusted directory was searched before: what others do to this one does not matter.
                Err(_) if looked.is_some() => continue,
                Err(untrusted) => return Err(untrusted.into()),
            }
            looked.get_or_insert(path);
        }
        Err(ConnectError::NobodyListens {
            address: self.address.clone(),
            path: looked,
        })
    }

    /// Checks whose target was reached, before it learns anything of this process: where several users may write, another one
    /// may have taken the name first.
    fn check_user(&self, socket: &OwnedFd, other_users: bool) -> Result<(), ConnectError> {
        let peer = peer_of(socket)
            .map_err(|error| self.failed("asking for the target's credentials", error.into()))?;
        match peer.uid {
            Some(uid) if !is_trusted(uid, geteuid().as_raw(), other_users) => Err(ConnectError::OtherUser {
                address: self.address.clone(),
                uid,
            }),
            _ => Ok(()),
        }
    }

    /// A socket that is connected to a process that listens at `path`, if one does.
    fn try_reach(&self, path: &Path, address: &SocketAddrUnix) -> Result<Option<OwnedFd>, ConnectError> {
        let socket = new_socket().map_err(|error| self.failed("making a socket", error.into()))?;
        loop {
            match connect_socket(&socket, address) {
                Ok(()) => return Ok(Some(socket)),
                Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
                Err(Errno::AGAIN) if Instant::now() < self.deadline => thread::sleep(RETRY),
                Err(Errno::AGAIN) => return Err(self.timeout("its queue of new connections is full")),
                Err(Errno::INTR) => {}
                Err(error) => {
                    let doing = format!("connecting to `{}`", path.display());
                    return Err(self.failed(&doing, error.into()));
                }
            }
        }
    }

    /// The target's answer, and the memory that came with it.
    fn receive_answer(&self, socket: &OwnedFd, max_ring: usize) -> Result<(Welcome, Memory), ConnectError> {
        let mut reset = false;
        loop {
            match receive_answer(socket.as_fd(), &self.address, max_ring) {
                Ok(answer) => return answer,
                // It closed without having read our hello; a refusal may follow the error.
                Err(Errno::CONNRESET) if !reset => reset = true,
                Err(Errno::CONNRESET) => {
                    let gone = io::ErrorKind::ConnectionReset.into();
                    return Err(self.failed("connecting: the target left before it answered", gone));
                }
                Err(Errno::AGAIN) if Instant::now() >= self.deadline => {
                    return Err(self.timeout("it accepted the connection and did not answer"));
                }
                Err(Errno::AGAIN) => drop(wait_readable(socket.as_fd(), self.deadline)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("receiving the target's answer", error.into())),
            }
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

#[cfg(test)]
mod tests {
    use super::is_trusted;

    #[test]
    fn only_targets_of_the_same_user_and_of_root_unless_others_are_allowed() {
        assert!(is_trusted(1000, 1000, false) && is_trusted(0, 1000, false) && is_trusted(0, 0, false));
        assert!(!is_trusted(1001, 1000, false) && !is_trusted(1000, 0, false));
        assert!(is_trusted(1001, 1000, true));
    }
}
