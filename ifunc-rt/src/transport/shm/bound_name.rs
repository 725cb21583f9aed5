//! A name in the file system: `NAME.sock`, and `NAME.lock`, which a living target keeps locked.
//!
//! The lock tells a stale socket from a living one: its holder may remove and replace the socket. The kernel releases it
//! when the process ends.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, socketpair};

use super::directory::Directory;
use crate::os::raise_descriptor_limit_near;
use crate::transport::ListenError;

/// Connections that may wait until the watcher accepts them.
const BACKLOG: i32 = 128;
/// How often the lock is tried while others remove theirs, or hold it to sweep.
const TRIES: usize = 20;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);
/// How many files a new target looks at to remove what killed ones left.
const SWEPT_AT_ONCE: usize = 1000;

/// A name that this process holds. Dropping it removes both files.
#[derive(Debug)]
pub(super) struct BoundName {
    socket: PathBuf,
    lock: PathBuf,
    /// Locked while open.
    _locked: File,
    /// A child that was forked without exec must not remove its parent's.
    process: u32,
}

/// A socket as `listen` and `connect` want it.
pub(super) fn new_socket() -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    raise_descriptor_limit_near(socket.as_fd());
    Ok(socket)
}

/// Two sockets that are connected to each other, such as [`new_socket`] makes.
pub(super) fn socket_pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    raise_descriptor_limit_near(pair.1.as_fd());
    Ok(pair)
}

impl BoundName {
    /// Takes `name` and listens there.
    pub(super) fn take(
        directory: &Directory,
        name: &str,
        other_users: bool,
    ) -> Result<(Self, OwnedFd), ListenError> {
        directory.prepare()?;
        let (path, address) = directory.socket(name);
        let address = address?;
        let lock = directory.path().join(format!("{name}.lock"));
        let locked = take_lock(&lock, name)?;

        let failed = |doing: &str| {
            let doing = format!("{doing} `{}`", path.display());
            move |source: io::Error| ListenError::Io { doing, source }
        };
        // Under the lock: no living process listens there.
        remove(&path).map_err(failed("removing the stale socket"))?;
        let socket = new_socket().map_err(|error| failed("making a socket for")(error.into()))?;
        bind(&socket, &address).map_err(|error| failed("binding a socket to")(error.into()))?;
        // From here on dropped, and so removed, on errors.
        let place = Self {
            socket: path.clone(),
            lock,
            _locked: locked,
            process: std::process::id(),
        };
        let mode = if other_users { 0o666 } else { 0o600 };
        std::fs::set_permissions(&path, Permissions::from_mode(mode))
            .map_err(failed("setting the mode of"))?;
        listen(&socket, BACKLOG).map_err(|error| failed("listening at")(error.into()))?;
        if directory.is_ours() {
            sweep(directory.path());
        }
        Ok((place, socket))
    }
}

impl Drop for BoundName {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // Still locked, and `take_lock` of others notices that its file is gone.
            let _ = remove(&self.socket);
            let _ = remove(&self.lock);
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Locks the file, and writes into it who did.
fn take_lock(path: &Path, name: &str) -> Result<File, ListenError> {
    let failed = |source| ListenError::Io {
        doing: format!("locking `{}`", path.display()),
        source,
    };
    let mut holder = None;
    for _ in 0..TRIES {
        let mut file = open_lock(path, true).map_err(failed)?;
        if try_lock(&file, path).map_err(failed)? {
            // For people only: the lock holds without it.
            let _ = file.set_len(0);
            let _ = writeln!(file, "{}", std::process::id());
            return Ok(file);
        }
        let mut text = String::new();
        let _ = file.take(32).read_to_string(&mut text);
        holder = text.trim().parse().ok();
        thread::sleep(PAUSE);
    }
    Err(ListenError::InUse {
        address: format!("shm:{name}"),
        holder,
    })
}

fn open_lock(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
}

/// Whether `file` is locked now, and still what is at `path`: the process that held the lock may have removed the file after
/// this process opened it.
fn try_lock(file: &File, path: &Path) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let ours = file.metadata()?;
    let there = std::fs::symlink_metadata(path);
    Ok(there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())))
}

/// Removes what killed targets left: a name that is not used again would stay for ever.
fn sweep(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten().take(SWEPT_AT_ONCE) {
        let lock = entry.path();
        if lock.extension().is_some_and(|extension| extension == "lock")
            && let Ok(file) = open_lock(&lock, false)
            && let Ok(true) = try_lock(&file, &lock)
        {
            let _ = remove(&lock.with_extension("sock"));
            let _ = remove(&lock);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::fs::fcntl_getfl;
    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;

    /// Calls on them state no such flag themselves.
    #[test]
    fn sockets_do_not_block_and_do_not_pass_to_other_programs() {
        let (one, other) = socket_pair().unwrap();
        for socket in [one, other, new_socket().unwrap()] {
            assert!(fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK));
            assert_eq!(fcntl_getfd(&socket).unwrap(), FdFlags::CLOEXEC);
        }
    }

    #[test]
    fn only_a_file_that_is_not_there_is_removed_already() {
        let base = std::env::temp_dir().join(format!("ifunc-remove-{}", std::process::id()));
        remove(&base).unwrap();
        std::fs::create_dir(&base).unwrap();
        assert!(remove(&base).is_err());
        std::fs::remove_dir(&base).unwrap();
    }
}
