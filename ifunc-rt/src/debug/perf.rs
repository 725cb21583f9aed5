//! The dump of installed code that `perf inject --jit` reads: `tools/perf/Documentation/jitdump-specification.txt` of the
//! kernel's sources.
//!
//! One file per process, `jit-PID.dump`. `perf record` learns of it by an executable mapping of its first page, which is
//! there for nothing else: private, never writable, and the header is written before.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};

use super::Place;
use super::companion::Companion;
use crate::exec::ARCH;
use crate::exec::arena::PAGE;

/// "JiTD"
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const HEADER: u32 = 40;
const CODE_LOAD: u32 = 0;
const CODE_CLOSE: u32 = 3;
/// Of the prefix that all records have.
const PREFIX: usize = 16;

/// The dump of this process; `None` if it could not be made.
static DUMP: OnceLock<Option<Mutex<Dump>>> = OnceLock::new();

/// Makes the dump, unless it is there.
pub(super) fn start() {
    DUMP.get_or_init(|| match Dump::new(&folder()) {
        Ok(dump) => Some(Mutex::new(dump)),
        Err((path, error)) => {
            let path = path.display();
            tracing::warn!(%error, "no dump for perf: cannot make `{path}`; help: set JITDUMPDIR to a folder");
            None
        }
    });
}

fn folder() -> PathBuf {
    std::env::var_os("JITDUMPDIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Tells of an image: by its functions if they are known, else as one.
pub(super) fn loaded(place: &Place<'_>, companion: Option<&Companion>) {
    let Some(Some(dump)) = DUMP.get() else { return };
    let mut dump = dump.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = format!("{}{}", place.image.name(), ifunc_abi::symbols::MAIN_SUFFIX);
    let functions: Vec<_> = match companion {
        Some(companion) => companion
            .functions()
            .iter()
            .map(|function| (&*function.name, function.at as usize, function.size as usize))
            .collect(),
        None => vec![(&*whole, 0, place.code.len())],
    };
    for (name, at, len) in functions {
        let Some(code) = place.code.get(at..at.saturating_add(len)) else {
            continue;
        };
        if let Err(error) = dump.load(name, place.base + at, code) {
            tracing::warn!(%error, "the dump for perf is incomplete");
            return;
        }
    }
}

#[derive(Debug)]
struct Dump {
    file: File,
    next: u64,
}

impl Dump {
    fn new(folder: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let path = folder.join(format!("jit-{}.dump", std::process::id()));
        Self::create(&path).map_err(|error| (path, error))
    }

    fn create(path: &Path) -> io::Result<Self> {
        let open = || {
            // New and our own: the folder may be everybody's.
            OpenOptions::new()
                .read(true)
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(path)
        };
        let mut file = open().or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                // Of a process that had our number before.
                std::fs::remove_file(path)?;
                open()
            }
            _ => Err(error),
        })?;
        let mut header = Vec::with_capacity(HEADER as usize);
        for word in [MAGIC, VERSION, HEADER, ARCH.into(), 0, std::process::id()] {
            header.extend_from_slice(&word.to_le_bytes());
        }
        header.extend_from_slice(&now().to_le_bytes());
        header.extend_from_slice(&0u64.to_le_bytes());
        file.write_all(&header)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice. It stays for as long as the process lives.
        unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                PAGE,
                ProtFlags::READ | ProtFlags::EXEC,
                MapFlags::PRIVATE,
                &file,
                0,
            )?;
        }
        Ok(Self { file, next: 0 })
    }

    fn load(&mut self, name: &str, address: usize, code: &[u8]) -> io::Result<()> {
        let mut body = Vec::with_capacity(64 + name.len() + code.len());
        body.extend_from_slice(&std::process::id().to_le_bytes());
        body.extend_from_slice(&(rustix::thread::gettid().as_raw_nonzero().get() as u32).to_le_bytes());
        for word in [address as u64, address as u64, code.len() as u64, self.next] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(code);
        self.next += 1;
        self.record(CODE_LOAD, &body)
    }

    /// Writes a record at once: a process may end at any time.
    fn record(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(PREFIX + body.len());
        record.extend_from_slice(&kind.to_le_bytes());
        record.extend_from_slice(&((PREFIX + body.len()) as u32).to_le_bytes());
        record.extend_from_slice(&now().to_le_bytes());
        record.extend_from_slice(body);
        self.file.write_all(&record)
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        // A dump without its end is as good.
        let _ = self.record(CODE_CLOSE, &[]);
    }
}

/// What `perf record -k mono` stamps its events with: nanoseconds.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn what_is_written_is_what_perf_reads() {
        let folder = std::env::temp_dir().join(format!("ifunc-perf-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("jit-{}.dump", std::process::id()));
        std::fs::write(&path, "left over").unwrap();
        let mut dump = Dump::new(&folder).unwrap();
        dump.load("add_main", 0x7000, &[0xb8, 7, 0, 0, 0, 0xc3]).unwrap();
        dump.load("mul_main", 0x7040, &[0xc3]).unwrap();
        drop(dump);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();

        assert_eq!(
            (u32_at(&bytes, 0), u32_at(&bytes, 4), u32_at(&bytes, 8)),
            (MAGIC, 1, 40)
        );
        assert_eq!((u32_at(&bytes, 12), u32_at(&bytes, 20)), (62, std::process::id()));
        let mut at = 40;
        let mut stamp = u64_at(&bytes, 24);
        let mut seen = Vec::new();
        while at < bytes.len() {
            let (kind, size) = (u32_at(&bytes, at), u32_at(&bytes, at + 4) as usize);
            assert!(u64_at(&bytes, at + 8) >= stamp);
            stamp = u64_at(&bytes, at + 8);
            if kind == CODE_LOAD {
                let [address, again, len, index] = [24, 32, 40, 48].map(|word| u64_at(&bytes, at + word));
                assert_eq!((address, index), (again, seen.len() as u64));
                let name = bytes[at + 56..].split(|&byte| byte == 0).next().unwrap();
                assert_eq!(size, 56 + name.len() + 1 + len as usize);
                seen.push((String::from_utf8(name.to_vec()).unwrap(), address, len));
            } else {
                assert_eq!((kind, size, at + size), (CODE_CLOSE, PREFIX, bytes.len()));
            }
            at += size;
        }
        assert_eq!(
            seen,
            [("add_main".into(), 0x7000, 6), ("mul_main".into(), 0x7040, 1)]
        );
    }
}
