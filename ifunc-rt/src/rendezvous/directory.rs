//! A folder that all processes of a job see, with a file for each rank.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::RendezvousError;
use super::entry::{Entry, LONGEST, Publisher};
use crate::transport::address::Address;

/// First and longest pause between two polls: all processes of a job poll the same file server.
const SOON: Duration = Duration::from_millis(5);
const LATER: Duration = Duration::from_millis(250);
/// How often a folder is created again that another process removes at the same time.
const ATTEMPTS: u32 = 100;

/// The folder of a job.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    job: String,
    folder: PathBuf,
}

/// A published address; other processes [find](super::Rendezvous::find) it until this is dropped.
#[derive(Debug)]
#[must_use = "an address is published as long as this lives"]
pub struct Published(pub(super) Option<Written>);

/// A file of an entry, and its content.
#[derive(Debug)]
pub(super) struct Written {
    file: PathBuf,
    text: String,
}

impl Drop for Published {
    fn drop(&mut self) {
        let Some(Written { file, text }) = &self.0 else {
            return;
        };
        // Keeps a file that has replaced it.
        if read(file).is_ok_and(|there| there == *text) {
            let _ = fs::remove_file(file);
        }
        // Succeeds only for the last process: otherwise the folder is not empty.
        let _ = file.parent().map(fs::remove_dir);
    }
}

impl Directory {
    pub(super) fn new(directory: PathBuf, job: &str) -> Result<Self, RendezvousError> {
        if job.is_empty() || job.len() > 256 || job.chars().any(char::is_control) {
            return Err(RendezvousError::Job(job.into()));
        }
        let plain = job
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        let name = match plain && job.len() <= 64 {
            true => format!("ifunc-{job}"),
            false => format!("ifunc-{}", &blake3::hash(job.as_bytes()).to_hex()[..32]),
        };
        Ok(Self {
            job: job.into(),
            folder: directory.join(name),
        })
    }

    pub(super) fn publish(&self, rank: u32, address: &str) -> Result<Published, RendezvousError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let by = Publisher::this();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Unique among all processes of all hosts.
        let new = format!("{rank}.{}-{}-{number}.new", by.boot, std::process::id());
        let (new, file) = (self.folder.join(new), self.folder.join(rank.to_string()));
        let entry = Entry {
            job: self.job.clone(),
            rank,
            by,
            address: address.into(),
        };
        let text = entry.encode();
        for attempt in 1.. {
            self.make()?;
            match write(&new, text.as_bytes()).and_then(|()| fs::rename(&new, &file)) {
                Ok(()) => break,
                // Another process, the last one of its run, has removed the folder meanwhile.
                Err(error) if is_gone(&error) && attempt < ATTEMPTS => {}
                Err(error) => {
                    let _ = fs::remove_file(&new);
                    return Err(RendezvousError::io("write", &file)(error));
                }
            }
        }
        Ok(Published(Some(Written { file, text })))
    }

    pub(super) fn find(
        &self,
        rank: u32,
        began: Instant,
        timeout: Duration,
    ) -> Result<String, RendezvousError> {
        let this = Publisher::this();
        let (mut pause, mut remark) = (SOON, None);
        loop {
            match self.look(&this, rank)? {
                Ok(entry) => return reachable(&this, rank, entry),
                Err(found) => remark = found.or(remark),
            }
            let waited = began.elapsed();
            let Some(left) = timeout.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(RendezvousError::Missing {
                    rank,
                    waited,
                    folder: self.folder.clone(),
                    remark,
                });
            };
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LATER);
        }
    }

    /// The entry of the rank, or a remark about what is there instead.
    fn look(
        &self,
        this: &Publisher,
        rank: u32,
    ) -> Result<Result<Entry, Option<&'static str>>, RendezvousError> {
        // Opening the folder makes an NFS client check a cached absent name with the server.
        if !self.is_there()? {
            return Ok(Err(None));
        }
        let file = self.folder.join(rank.to_string());
        let text = match read(&file) {
            Ok(text) => text,
            Err(error) if is_gone(&error) => return Ok(Err(None)),
            Err(error) => return Err(RendezvousError::io("read", &file)(error)),
        };
        Ok(match Entry::decode(&text) {
            None => Err(Some("The file there holds no address.")),
            Some(entry) if entry.job != self.job || entry.rank != rank => {
                Err(Some("The file there is of another job."))
            }
            Some(entry) if this.knows_dead(&entry.by) => {
                Err(Some("The file there is of a process that has ended."))
            }
            Some(entry) => Ok(entry),
        })
    }

    /// Creates the folder, for the user alone.
    fn make(&self) -> Result<(), RendezvousError> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = self.folder.parent().unwrap_or(&self.folder);
                return Err(RendezvousError::io("find the directory", above)(error));
            }
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(RendezvousError::io("make", &self.folder)(error));
            }
            _ => {}
        }
        // If the last process of a run removed it meanwhile, the next attempt creates it again.
        self.is_there().map(drop)
    }

    /// Whether the folder is there; an error if others than this user could have written to it.
    fn is_there(&self) -> Result<bool, RendezvousError> {
        let path = &self.folder;
        // The owner of a link could redirect it after the check.
        let folder = match open(path, OFlags::DIRECTORY) {
            Ok(folder) => folder,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(RendezvousError::io("open", path)(error)),
        };
        let about = folder.metadata().map_err(RendezvousError::io("look at", path))?;
        let problem = if about.uid() != rustix::process::geteuid().as_raw() {
            "it belongs to another user; help: choose a directory of your own"
        } else if about.mode() & 0o022 != 0 {
            "others may write to it; help: `chmod go-w` it, or remove it"
        } else {
            return Ok(true);
        };
        Err(RendezvousError::Directory {
            path: path.clone(),
            problem,
        })
    }
}

/// Opens a file for reading without following a link.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NOFOLLOW | flags).bits()).unwrap_or_default();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Returns the address if it can be reached from this host.
fn reachable(this: &Publisher, rank: u32, entry: Entry) -> Result<String, RendezvousError> {
    let address: Address = entry.address.parse()?;
    if address.is_of_one_host() && !this.is_neighbour(&entry.by) {
        return Err(RendezvousError::Unreachable {
            rank,
            address: entry.address,
            problem: "is reached from its own host only, which is another one; help: let it listen on an address of a network: `ucx://HOST:0`",
        });
    }
    Ok(entry.address)
}

/// Writes a new file, to the disk.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Reads a file of an entry, up to the longest valid length.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    open(path, OFlags::empty())?
        .take(LONGEST)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the file does not exist, or no longer does: NFS reports a stale handle for a file that was replaced or
/// removed.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::STALE)
}
