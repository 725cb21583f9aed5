//! The dump of installed code that `perf inject --jit` reads: `tools/perf/Documentation/jitdump-specification.txt` of the
//! kernel's sources.
//!
//! One file per process, `jit-PID.dump`. `perf record` learns of it by an executable mapping of its first page. The mapping
//! has no other purpose: it is private, never writable, and shows the header and no code. After the header a record that
//! every reader skips fills the page.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};

use super::Placement;
use super::object::DebugObject;
use crate::arch::ARCH;
use crate::page::page_size;

/// "JiTD"
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const HEADER: u32 = 40;
const CODE_LOAD: u32 = 0;
const CODE_CLOSE: u32 = 3;
/// Of the prefix that all records have.
const PREFIX: usize = 16;

/// Most bytes of a dump: images come and go for as long as a target lives.
const MAX_DUMP: u64 = 256 << 20;

/// The dump of this process; `None` if it could not be made, or is over.
static DUMP: OnceLock<Mutex<Option<Dump>>> = OnceLock::new();

/// Makes the dump, unless it is there.
pub(super) fn start() {
    DUMP.get_or_init(|| {
        let folder = std::env::var_os("JITDUMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = folder.join(format!("jit-{}.dump", std::process::id()));
        let dump = Dump::create(&path).map_err(|error| {
            let path = path.display();
            tracing::warn!(target: crate::LOG, %error, "no dump for perf: cannot make `{path}`; help: set JITDUMPDIR to a folder");
        });
        Mutex::new(dump.ok())
    });
}

/// Dumps an image: its functions if they are known, else the whole as one.
pub(super) fn loaded(placement: &Placement<'_>, object: Option<&DebugObject>) {
    let Some(slot) = DUMP.get() else { return };
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(dump) = &mut *slot else { return };
    let parts: Vec<_> = placement
        .parts()
        .into_iter()
        .map(|(at, len, entry)| {
            (
                format!("{}{}", entry.name, ifunc_abi::symbols::MAIN_SUFFIX),
                at,
                len,
            )
        })
        .collect();
    let functions: Vec<_> = match object {
        Some(object) => object
            .functions()
            .iter()
            .map(|function| (&*function.name, function.at as usize, function.size as usize))
            .collect(),
        None => parts.iter().map(|(name, at, len)| (&**name, *at, *len)).collect(),
    };
    for (name, at, len) in functions {
        let Some(code) = placement.code.get(at..at.saturating_add(len)) else {
            continue;
        };
        if let Err(error) = dump.load(name, placement.base + at, code) {
            // A full disk may have room again later, and a reader could not see what is missing in between.
            tracing::warn!(target: crate::LOG, %error, "the dump for perf ends here");
            *slot = None;
            return;
        }
    }
}

#[derive(Debug)]
struct Dump {
    file: File,
    /// Bytes of whole records in it.
    len: u64,
    limit: u64,
    next: u64,
    /// A record could not be written.
    broken: bool,
}

impl Dump {
    fn create(path: &Path) -> io::Result<Self> {
        let open = || {
            // A new file of this process: other users may write to the folder.
            OpenOptions::new()
                .read(true)
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(path)
        };
        let mut file = open().or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                // Of an earlier process with this number.
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
        let mut dump = Self {
            file,
            len: HEADER.into(),
            limit: MAX_DUMP,
            next: 0,
            broken: false,
        };
        // The mapping below is executable, so it must hold nothing that could be run. Of all records this one holds the
        // least.
        dump.record(CODE_CLOSE, &vec![0; page_size() - HEADER as usize - PREFIX])?;
        // SAFETY: a fresh mapping at an address of the kernel's choice. It stays for as long as the process lives.
        unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                page_size(),
                ProtFlags::READ | ProtFlags::EXEC,
                MapFlags::PRIVATE,
                &dump.file,
                0,
            )?;
        }
        Ok(dump)
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
        let len = PREFIX + body.len();
        // Leaves room for the last record.
        let room = self.limit.saturating_sub(self.len + PREFIX as u64);
        if kind == CODE_LOAD && len as u64 > room {
            return Err(io::Error::other(format!("it has grown to {} bytes", self.len)));
        }
        let mut record = Vec::with_capacity(len);
        record.extend_from_slice(&kind.to_le_bytes());
        record.extend_from_slice(&(len as u32).to_le_bytes());
        record.extend_from_slice(&now().to_le_bytes());
        record.extend_from_slice(body);
        if let Err(error) = self.file.write_all(&record) {
            self.broken = true;
            // A part of a record would make the rest unreadable.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        self.len += len as u64;
        Ok(())
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        // A dump without its end is as good.
        if !self.broken {
            let _ = self.record(CODE_CLOSE, &[]);
        }
    }
}

/// What `perf record -k mono` stamps its events with: nanoseconds.
pub(super) fn now() -> u64 {
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

    /// A folder of a test's own.
    fn scratch(what: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ifunc-perf-{what}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The kinds of the records after the first page, whole ones only.
    fn kinds(bytes: &[u8]) -> Vec<u32> {
        let (mut at, mut kinds) = (page_size(), Vec::new());
        while at < bytes.len() {
            kinds.push(u32_at(bytes, at));
            at += u32_at(bytes, at + 4) as usize;
        }
        assert_eq!(at, bytes.len());
        kinds
    }

    #[test]
    fn a_dump_has_an_end() {
        let folder = scratch("limit");
        let path = folder.join("jit.dump");
        let mut dump = Dump::create(&path).unwrap();
        dump.limit = page_size() as u64 + 200;
        dump.load("add_main", 0x7000, &[0x90; 64]).unwrap();
        let error = dump.load("add_main", 0x8000, &[0x90; 64]).unwrap_err();
        assert!(error.to_string().contains("has grown to"), "{error}");
        drop(dump);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(kinds(&bytes), [CODE_LOAD, CODE_CLOSE]);
        assert!(bytes.len() <= page_size() + 200);
    }

    #[test]
    fn the_last_record_of_code_leaves_room_for_the_end() {
        let folder = scratch("room");
        // The prefix of a record, six words and two half ones, and the name with its end.
        let record = (PREFIX + 5 * 8 + "add_main".len() + 1 + 64) as u64;
        for (room, fits) in [(record - 1, false), (record, true)] {
            let path = folder.join(format!("jit-{room}.dump"));
            let mut dump = Dump::create(&path).unwrap();
            assert_eq!(dump.len, page_size() as u64);
            dump.limit = dump.len + room + PREFIX as u64;
            assert_eq!(dump.load("add_main", 0x7000, &[0x90; 64]).is_ok(), fits);
            let limit = dump.limit;
            drop(dump);
            let len = std::fs::metadata(&path).unwrap().len();
            assert_eq!(len == limit, fits, "{len} {limit}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn nothing_is_written_after_an_error() {
        let folder = scratch("broken");
        let path = folder.join("jit.dump");
        let mut dump = Dump::create(&path).unwrap();
        dump.load("add_main", 0x7000, &[0x90; 64]).unwrap();
        // As if the disk were full.
        let writable = std::mem::replace(&mut dump.file, File::open(&path).unwrap());
        dump.load("add_main", 0x8000, &[0x90; 64]).unwrap_err();
        dump.file = writable;
        drop(dump);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(kinds(&bytes), [CODE_LOAD]);
    }

    #[test]
    fn the_dump_has_the_format_that_perf_reads() {
        let folder = scratch("format");
        let path = folder.join("jit.dump");
        std::fs::write(&path, "left over").unwrap();
        let mut dump = Dump::create(&path).unwrap();
        dump.load("add_main", 0x7000, &[0xb8, 7, 0, 0, 0, 0xc3]).unwrap();
        dump.load("mul_main", 0x7040, &[0xc3]).unwrap();
        drop(dump);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();

        assert_eq!(
            (u32_at(&bytes, 0), u32_at(&bytes, 4), u32_at(&bytes, 8)),
            (MAGIC, 1, 40)
        );
        assert_eq!(
            (u32_at(&bytes, 12), u32_at(&bytes, 20)),
            (ARCH.into(), std::process::id())
        );
        // The page that is mapped.
        assert_eq!(
            (u32_at(&bytes, 40), 40 + u32_at(&bytes, 44)),
            (CODE_CLOSE, page_size() as u32)
        );
        assert!(bytes[56..page_size()].iter().all(|&byte| byte == 0));
        let mut at = page_size();
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
