//! The capability `files`: files below a folder.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use ifuncd_interfaces::{Files, NodeError};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use crate::capability::Capability;
use crate::node::{Caller, Node};

/// Longest path.
const MAX_PATH: usize = 4096;
/// Bytes of a piece of [`Files::read_each`].
const PIECE: usize = 256 << 10;

/// The folder of the node.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
    /// Longest file that a source may write.
    max_file: u64,
}

/// Nothing that leads out, neither by `..` nor by a link. A link of `/proc` would, too.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

impl Folder {
    /// Opens the folder.
    ///
    /// # Errors
    /// There is none, or it may not be read.
    pub fn open(path: &Path, max_file: u64) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { root, max_file })
    }

    /// Opens what is at a path, in the folder of a peer.
    fn at(&self, folder: &str, path: &str, flags: OFlags) -> Result<OwnedFd, NodeError> {
        if path.len() > MAX_PATH || path.contains('\0') {
            return Err(NodeError::Name);
        }
        let mode = if flags.contains(OFlags::CREATE) {
            Mode::from_raw_mode(0o640)
        } else {
            Mode::empty()
        };
        // A pipe would be waited for.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let below;
        let mut root = self.root.as_fd();
        if !folder.is_empty() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            below = open_beneath(root, folder, flags, Mode::empty()).map_err(error_of)?;
            root = below.as_fd();
        }
        let path = if path.is_empty() { "." } else { path };
        // The kernel gives up when something else is renamed meanwhile.
        for _ in 0..16 {
            match open_beneath(root, path, flags, mode) {
                Err(Errno::AGAIN) => {}
                opened => return opened.map_err(error_of),
            }
        }
        Err(NodeError::Storage)
    }

    fn file(&self, folder: &str, path: &str, flags: OFlags) -> Result<File, NodeError> {
        let file = self.at(folder, path, flags)?;
        let kind = FileType::from_raw_mode(fstat(&file).map_err(error_of)?.st_mode);
        match kind {
            FileType::RegularFile => Ok(File::from(file)),
            _ => Err(NodeError::NotFound),
        }
    }
}

/// Opens what is at a path below a folder.
fn open_beneath(root: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    match openat2(root, path, flags, mode, BENEATH) {
        Err(Errno::NOSYS) => open_by_steps(root, path, flags, mode),
        opened => opened,
    }
}

/// The same where the kernel, or what runs the daemon, has no `openat2`: one folder after the other. It follows no links and takes no `..`.
fn open_by_steps(root: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    if path.starts_with('/') {
        return Err(Errno::XDEV);
    }
    let mut names = path
        .split('/')
        .filter(|name| !matches!(*name, "" | "."))
        .peekable();
    let mut folder: Option<OwnedFd> = None;
    loop {
        let at = folder.as_ref().map_or(root, AsFd::as_fd);
        let name = names.next().unwrap_or(".");
        if name == ".." {
            return Err(Errno::XDEV);
        }
        if names.peek().is_none() {
            return openat(at, name, flags | OFlags::NOFOLLOW, mode);
        }
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = Some(openat(at, name, step, Mode::empty())?);
    }
}

fn error_of(errno: Errno) -> NodeError {
    match errno {
        Errno::NOENT | Errno::NOTDIR => NodeError::NotFound,
        // `XDEV`: it leads out of the folder.
        Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::INVAL => NodeError::Name,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => NodeError::Denied,
        Errno::ISDIR | Errno::NXIO => NodeError::NotFound,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => NodeError::Quota,
        _ => {
            tracing::error!(%errno, "a file cannot be used");
            NodeError::Storage
        }
    }
}

fn failed(error: &io::Error) -> NodeError {
    Errno::from_io_error(error).map_or(NodeError::Storage, error_of)
}

impl Node {
    fn folder(&self) -> Result<(Caller, &Folder), NodeError> {
        let caller = self.caller(Capability::Files)?;
        let files = self.data().files.as_ref().ok_or(NodeError::Denied)?;
        Ok((caller, files))
    }
}

/// Writes down what leads out of the folder: nobody does that by mistake.
fn noted(caller: &Caller, path: &str, error: NodeError) -> NodeError {
    match error {
        NodeError::Name | NodeError::Denied => caller.refuse(error, path),
        _ => error,
    }
}

#[ifunc::export]
impl Files for Node {
    fn read(&self, path: &str, offset: u64, bytes: &mut [u8]) -> Result<usize, NodeError> {
        let (caller, files) = self.folder()?;
        let file = files.file(&caller.settings.folder, path, OFlags::RDONLY);
        let file = file.map_err(|error| noted(&caller, path, error))?;
        let mut len = 0;
        while len < bytes.len() {
            match file.read_at(&mut bytes[len..], offset.saturating_add(len as u64)) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        caller.moved(len);
        Ok(len)
    }

    fn read_each(
        &self,
        path: &str,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<u64, NodeError> {
        let (caller, files) = self.folder()?;
        let file = files.file(&caller.settings.folder, path, OFlags::RDONLY);
        let file = file.map_err(|error| noted(&caller, path, error))?;
        let mut piece = vec![0; usize::try_from(len).map_or(PIECE, |len| len.min(PIECE))];
        let mut passed = 0_u64;
        while passed < len {
            let want = usize::try_from(len - passed).map_or(PIECE, |left| left.min(PIECE));
            let got = match file.read_at(&mut piece[..want], offset.saturating_add(passed)) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(&error)),
            };
            passed += got as u64;
            caller.moved(got);
            if each(&piece[..got]).is_break() {
                break;
            }
        }
        Ok(passed)
    }

    fn file_len(&self, path: &str) -> Result<u64, NodeError> {
        let (caller, files) = self.folder()?;
        let file = files.file(&caller.settings.folder, path, OFlags::RDONLY);
        let file = file.map_err(|error| noted(&caller, path, error))?;
        file.metadata()
            .map(|about| about.len())
            .map_err(|error| failed(&error))
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<u64, NodeError> {
        let (caller, files) = self.folder()?;
        let folder = files.at(&caller.settings.folder, path, OFlags::RDONLY | OFlags::DIRECTORY);
        let folder = folder.map_err(|error| noted(&caller, path, error))?;
        let mut names = Vec::new();
        for entry in Dir::new(folder).map_err(error_of)? {
            let entry = entry.map_err(error_of)?;
            // A name that is not UTF-8 cannot be asked for, either.
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            match entry.file_type() {
                FileType::RegularFile => names.push(name.to_owned()),
                FileType::Directory if name != "." && name != ".." => names.push(format!("{name}/")),
                _ => {}
            }
        }
        names.sort();
        let mut count = 0;
        for name in &names {
            count += 1;
            if each(name).is_break() {
                break;
            }
        }
        Ok(count)
    }

    fn write(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), NodeError> {
        let (caller, files) = self.folder()?;
        if !caller.settings.writes_files {
            return Err(caller.refuse(NodeError::Denied, path));
        }
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > files.max_file) {
            return Err(caller.refuse(NodeError::Quota, "max-file-bytes"));
        }
        let file = files.file(&caller.settings.folder, path, OFlags::WRONLY | OFlags::CREATE);
        let file = file.map_err(|error| noted(&caller, path, error))?;
        caller.moved(bytes.len());
        file.write_all_at(bytes, offset).map_err(|error| failed(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_lead_where_the_kernel_leads_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("root/sub")).unwrap();
        std::fs::write(path("root/sub/file"), "inside").unwrap();
        std::fs::write(path("outside"), "outside").unwrap();
        for (link, to) in [("root/up", "../outside"), ("root/out", "..")] {
            std::os::unix::fs::symlink(to, path(link)).unwrap();
        }
        let root = rustix::fs::open(path("root"), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let open = |path: &str| {
            let (root, read) = (root.as_fd(), OFlags::RDONLY | OFlags::CLOEXEC);
            let opened = [open_beneath, open_by_steps].map(|open| open(root, path, read, Mode::empty()));
            opened.map(|opened| opened.and_then(|file| Ok(fstat(file)?.st_ino)))
        };
        for inside in ["sub/file", "./sub//file", "sub", ".", "sub/."] {
            let [by_kernel, by_steps] = open(inside);
            assert!(by_kernel.is_ok() && by_kernel == by_steps, "{inside}");
        }
        let absolute = path("outside");
        let absolute = absolute.to_str().unwrap();
        for outside in [
            "up",
            "out/outside",
            "../outside",
            "sub/../../outside",
            absolute,
            "none",
            "sub/file/x",
        ] {
            let [by_kernel, by_steps] = open(outside);
            assert!(by_kernel.is_err() && by_steps.is_err(), "{outside}");
        }
    }
}
