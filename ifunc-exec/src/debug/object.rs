//! The debug object of an image: its symbols, lines and call frames, which do not travel. It lies beside the image in the
//! library that `cargo ifunc build` wrote, if that is on this machine.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ifunc_abi::slices::Slices;
use ifunc_abi::{ImageId, symbols};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use rustix::fs::OFlags;

/// Larger libraries are not read.
const MAX_LIBRARY: u64 = 256 << 20;

/// A relocatable ELF file. Its contents come from a file of this user, so every offset in it is checked.
#[derive(Debug)]
pub struct DebugObject {
    bytes: Box<[u8]>,
    functions: Functions,
}

/// The functions of an image, by address; of several at one address the global one.
#[derive(Debug)]
pub struct Functions(Vec<Function>);

/// A function of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Offset in the image.
    pub(super) at: u32,
    pub(super) size: u32,
    /// As the compiler wrote it.
    pub(super) name: String,
    global: bool,
}

impl DebugObject {
    /// That of an image, from the first of the folders that holds its library.
    pub(crate) fn find(folders: &[PathBuf], name: &str, id: &ImageId) -> Option<Self> {
        if !ifunc_abi::name::is_valid(name) {
            return None;
        }
        let file = format!("{name}.so");
        folders
            .iter()
            .find_map(|folder| Self::read(&folder.join(&file), name, id))
    }

    /// That in a library, if an image of the library has this id.
    #[must_use]
    pub fn read(path: &Path, name: &str, id: &ImageId) -> Option<Self> {
        let mut bytes = Vec::new();
        // A folder or a pipe is no library. Opening a pipe would wait for its writer.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)
            .ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        file.take(MAX_LIBRARY).read_to_end(&mut bytes).ok()?;
        let library = object::File::parse(&*bytes).ok()?;
        let section = |prefix: &str| {
            let section = library.section_by_name(&format!("{prefix}{name}"))?;
            section.data().ok()
        };
        let of_id = |prefix: &str| {
            let slices = Slices::parse(section(prefix)?).ok()?;
            slices.native().find(|slice| slice.id == *id)
        };
        if blake3::hash(of_id(symbols::IMAGE_SECTION)?.bytes) != *id {
            return None;
        }
        Self::new(of_id(symbols::DEBUG_SECTION)?.bytes)
    }

    fn new(bytes: &[u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        let text = file.section_by_name(".text")?.index();
        let functions = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.section_index() == Some(text))
            .filter_map(|symbol| {
                Some(Function {
                    at: symbol.address().try_into().ok()?,
                    size: symbol.size().try_into().ok()?,
                    name: symbol.name().ok()?.to_owned(),
                    global: symbol.is_global(),
                })
            })
            .collect();
        Some(Self {
            bytes: bytes.into(),
            functions: Functions::new(functions),
        })
    }

    /// The relocatable file itself.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The functions, by address.
    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The functions alone.
    #[must_use]
    pub fn into_functions(self) -> Functions {
        self.functions
    }
}

impl Functions {
    pub(super) fn new(mut functions: Vec<Function>) -> Self {
        functions.sort_by(|a, b| (a.at, !a.global, &a.name).cmp(&(b.at, !b.global, &b.name)));
        functions.dedup_by_key(|function| function.at);
        Self(functions)
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Function> {
        self.0.iter()
    }

    /// The function that holds an offset of the image.
    pub(super) fn at(&self, offset: u32) -> Option<&Function> {
        let after = self.0.partition_point(|function| function.at <= offset);
        let function = &self.0[after.checked_sub(1)?];
        (offset - function.at < function.size.max(1)).then_some(function)
    }
}

#[cfg(test)]
impl Function {
    pub(super) fn new(at: u32, size: u32, name: &str) -> Self {
        Self {
            at,
            size,
            name: name.to_owned(),
            global: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("ifunc-pipe-{}.so", std::process::id()));
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (send, found) = channel();
        let library = path.clone();
        std::thread::spawn(move || send.send(DebugObject::read(&library, "add", &[0; 32]).is_some()));
        let found = found.recv_timeout(Duration::from_secs(20));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, Ok(false));
    }
}
