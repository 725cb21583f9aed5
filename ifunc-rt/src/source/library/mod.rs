//! Ifunc libraries: reads an image from a library, and opens a library for its `payload_init`.

mod functions;
mod installed;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use ifunc::payload::Ifunc;
use ifunc_abi::ImageId;
use ifunc_abi::about::About;
use ifunc_abi::image::{self, EntryFlags, Image, ImportKind};
use ifunc_abi::machine::Machine;
use ifunc_abi::signature::Signature;
use ifunc_abi::slices;

use super::completion::{FUNCTION, VARIABLE};
use super::error::LibraryError;
use super::slices::{Slice, Slices, for_machine};
use crate::fingerprint;
use crate::keys::Signatures;
use crate::travel::companions::Companions;
use ifunc_exec::InstalledEntry;
use ifunc_exec::debug::{self, Functions};
use ifunc_exec::library::{self, LibraryImage};
use ifunc_proto::caller::ImageBytes;

pub(super) use functions::SourceFunctions;

/// Extension of a file of signatures.
const SIGNATURES: &str = "sig";

/// An entry of an image, and the metadata of its library.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    /// Of the entry.
    pub(super) name: String,
    /// The ifunc that the library was built for: another one, if the entry is used through its library.
    library_name: String,
    /// The images for the kinds of machines that it was built for.
    slices: Slices,
    /// The slice that was sent last.
    sent: AtomicUsize,
    /// Index of the entry.
    entry: u8,
    /// Number of the image's entries.
    entries: u8,
    /// The file of signatures beside the library, if it lacks one of an image.
    stale_signatures: Option<PathBuf>,
    about: Vec<u8>,
    flags: EntryFlags,
    /// Its code may send other invocations, or forward itself.
    pub(super) travels: bool,
    pub(super) payload_align: usize,
    /// The installed entry that it was made of.
    installed: Option<Arc<InstalledEntry>>,
    /// What accompanies that, and what identifies both together.
    companions: Option<(Weak<Companions>, ImageId)>,
    /// The functions of the library, if it was opened.
    pub(super) source_functions: Option<SourceFunctions>,
}

impl ifunc_proto::caller::Image for Library {
    #[inline]
    fn id(&self) -> &ImageId {
        match &self.companions {
            None => self.slices.id(),
            Some((_, id)) => id,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.slices.get(0).image
    }

    fn signature(&self) -> Option<&Signature> {
        self.slices.get(0).signature.as_ref()
    }

    fn send_to<R>(
        &self,
        machine: Machine,
        send: impl FnOnce(ImageBytes<'_>, Vec<ImageBytes<'_>>) -> R,
    ) -> Result<R, String> {
        // Nearly always so, and images that travel with every invocation are sent often.
        if let ([only], None) = (self.slices.all(), &self.companions) {
            let index = for_machine(&[&**only], machine)?;
            self.sent.store(index, Ordering::Relaxed);
            return Ok(send(only.as_sent(), Vec::new()));
        }
        let companions = match &self.companions {
            None => None,
            Some((kept, _)) => Some(kept.upgrade().ok_or("what accompanied the image is gone")?),
        };
        let own = self.slices.all().iter().map(|slice| &**slice);
        let kept = companions.iter().flat_map(|kept| kept.iter());
        let all: Vec<&Slice> = own.chain(kept.map(|companion| &companion.slice)).collect();
        let index = for_machine(&all, machine)?;
        self.sent.store(index, Ordering::Relaxed);
        let sent = all[index];
        let others = all.iter().filter(|slice| self.travels && slice.id != sent.id);
        Ok(send(
            sent.as_sent(),
            others.map(|slice| slice.as_sent()).collect(),
        ))
    }

    fn entries(&self) -> u8 {
        self.entries
    }

    fn entry(&self) -> u8 {
        self.entry
    }

    #[inline]
    fn is_idempotent(&self) -> bool {
        self.flags.contains(EntryFlags::IDEMPOTENT)
    }
}

impl Library {
    pub(super) fn read(path: &Path, name: Option<&str>) -> Result<Self, LibraryError> {
        Self::parse(&read_file(path)?, name, path)?.with_signature_beside(path)
    }

    /// Takes the signature of the image from the file beside the library: `NAME.sig` beside `NAME.so`.
    fn with_signature_beside(mut self, path: &Path) -> Result<Self, LibraryError> {
        let path = path.with_extension(SIGNATURES);
        if !path.is_file() {
            return Ok(self);
        }
        let signatures = Signatures::read(&path)?;
        self.sign(&signatures);
        if !self.slices.all().iter().all(|slice| slice.signature.is_some()) {
            self.stale_signatures = Some(path);
        }
        Ok(self)
    }

    /// Takes the signatures of its images that have none.
    pub(super) fn sign(&mut self, signatures: &Signatures) {
        self.slices
            .sign(|id| signatures.of(id).map(|signature| signature.raw()));
    }

    /// The image that was sent last, or would be sent first.
    pub(super) fn sent(&self) -> &Slice {
        self.slices.get(self.sent.load(Ordering::Relaxed))
    }

    /// What to do if a target refuses the image for its signature; empty: the target has said all.
    pub(super) fn explain_signature(&self) -> String {
        match &self.stale_signatures {
            Some(path) => format!(
                "; `{}` lacks a signature of an image of the library: it was built again since; help: `cargo ifunc sign` it again",
                path.display()
            ),
            _ => String::new(),
        }
    }

    /// Parses a library or an image, for the entry of this name. Without a name it is the entry that the library is named after: it
    /// must hold exactly one image. An image by itself must have exactly one entry then.
    pub(super) fn parse(bytes: &[u8], name: Option<&str>, path: &Path) -> Result<Self, LibraryError> {
        let not = |why: String| LibraryError::NotALibrary {
            path: path.to_owned(),
            why,
        };
        let mut library_name = None;
        let (slices, about) = if bytes.starts_with(&image::MAGIC) {
            let machine = Image::parse(bytes).map(|image| image.machine());
            let id = *blake3::hash(bytes).as_bytes();
            let slice = Slice::new(machine.unwrap_or_default(), id, bytes.to_vec(), None);
            (vec![Arc::new(slice)], Vec::new())
        } else if bytes.starts_with(&slices::MAGIC) {
            let native = library::native_slices(bytes).map_err(not)?;
            (native.iter().map(own).collect(), Vec::new())
        } else {
            let images = library::images(bytes).map_err(not)?;
            let has_entry = |found: &LibraryImage<'_>, name: &str| {
                let mut parsed = found.slices.iter().map(|slice| Image::parse(slice.bytes));
                parsed.any(|image| image.is_ok_and(|image| image.entry(name).is_some()))
            };
            let found = match (name, &*images) {
                (Some(name), images) => images
                    .iter()
                    .find(|found| found.name == name)
                    // Or another entry of an image.
                    .or_else(|| images.iter().find(|found| has_entry(found, name)))
                    .ok_or_else(|| format!("it holds no image of `{name}`")),
                (None, [one]) => Ok(one),
                (None, []) => Err("it holds no image".into()),
                (None, several) => {
                    let names: Vec<_> = several.iter().map(|found| found.name).collect();
                    Err(format!("it holds several images: {}", names.join(", ")))
                }
            };
            let found = found.map_err(not)?;
            library_name = Some(found.name.to_owned());
            (found.slices.iter().map(own).collect(), found.about.to_vec())
        };
        Self::of_slices(slices, about, library_name, name, path)
    }

    /// The entry of this name in images, as [`parse`](Self::parse) finds it.
    fn of_slices(
        slices: Vec<Arc<Slice>>,
        about: Vec<u8>,
        library_name: Option<String>,
        name: Option<&str>,
        path: &Path,
    ) -> Result<Self, LibraryError> {
        let not = |why: String| LibraryError::NotALibrary {
            path: path.to_owned(),
            why,
        };
        let slices = Slices::new(slices, path)?;
        let images = slices.all().iter().map(|slice| Image::parse(&slice.image));
        let travels = images.flatten().any(|image| image.travels());
        let parsed = Image::parse(&slices.get(0).image).map_err(|error| LibraryError::Image {
            path: path.to_owned(),
            error,
        })?;
        let names = || {
            let names: Vec<_> = parsed.entries().map(|entry| entry.name).collect();
            names.join("`, `")
        };
        let only = || parsed.entries().next().filter(|_| parsed.entries().len() == 1);
        let found = match name.or(library_name.as_deref()) {
            Some(name) => parsed
                .entry(name)
                .ok_or_else(|| format!("its image is of `{}`, not of `{name}`", names())),
            None => only().map(|entry| (0, entry)).ok_or_else(|| {
                let names = names();
                format!("its image has several entries: `{names}`; help: name one, with `Source::load_entry`")
            }),
        };
        let (index, entry) = found.map_err(not)?;
        let name = entry.name.to_owned();
        let (flags, payload_align, entries) = (entry.flags, entry.payload_align, parsed.entries().len());
        Ok(Self {
            path: path.to_owned(),
            library_name: library_name.unwrap_or_else(|| name.clone()),
            name,
            sent: AtomicUsize::new(0),
            entry: index as u8,
            entries: entries as u8,
            flags,
            payload_align,
            travels,
            installed: None,
            companions: None,
            stale_signatures: None,
            about,
            slices,
            source_functions: None,
        })
    }

    /// Combines an image with the metadata of its library.
    pub(super) fn embedded(image: &[u8], about: &[u8], name: &str) -> Result<Self, LibraryError> {
        let path = PathBuf::from(format!("{name}, embedded in this program"));
        Ok(Self {
            about: about.to_vec(),
            ..Self::parse(image, Some(name), &path)?
        })
    }

    /// Reads a library and opens it.
    ///
    /// # Safety
    /// As for [`SourceFunctions::open`].
    pub(super) unsafe fn open(path: &Path, name: Option<&str>) -> Result<Self, LibraryError> {
        let bytes = read_file(path)?;
        let library = Self::parse(&bytes, name, path)?.with_signature_beside(path)?;
        // SAFETY: the caller's promise.
        let functions = unsafe { SourceFunctions::open(&bytes, &library)? };
        Ok(Self {
            source_functions: Some(functions),
            ..library
        })
    }

    pub(super) fn about(&self) -> About<'_> {
        About::new(&self.about).unwrap_or_default()
    }

    /// Whether the image takes an import for a function or a variable, if it states that.
    pub(super) fn kind_of_import(&self, symbol: &str) -> Option<&'static str> {
        let image = Image::parse(&self.sent().image).ok()?;
        let mut imports = image.imports();
        match imports.find(|import| import.symbol == symbol)?.kind() {
            ImportKind::Variable => Some(VARIABLE),
            ImportKind::Function => Some(FUNCTION),
            ImportKind::Unknown => None,
        }
    }

    /// Describes the function of the image that a backtrace led to. It reads the library again for its symbols, once:
    /// they are large and panics are rare, but an ifunc that panics every time must not cause a read every time.
    pub(super) fn describe(&self, calls: &[u32]) -> String {
        let Ok(image) = Image::parse(&self.sent().image) else {
            return String::new();
        };
        debug::describe(&self.name, image.rx(), calls, self.functions())
    }

    /// As [`describe`](Self::describe), of a fault.
    pub(super) fn describe_fault(&self, calls: &[u32], is_placed: bool) -> String {
        let Ok(image) = Image::parse(&self.sent().image) else {
            return String::new();
        };
        debug::describe_fault(&self.name, image.rx(), calls, self.functions(), is_placed)
    }

    /// The functions of the image that was sent, if its library has their names.
    fn functions(&self) -> Option<&Functions> {
        self.sent().functions(&self.path, &self.library_name)
    }

    /// Compares the image's types with those that this program was compiled with.
    pub(super) fn check_types<F: Ifunc>(&self) -> Result<(), LibraryError> {
        // The constructor has parsed it.
        let image = Image::parse(&self.sent().image).ok();
        let Some((_, entry)) = image.and_then(|image| image.entry(&self.name)) else {
            return Ok(());
        };
        let about = self.about().entry(&self.name);
        let types = [
            ("payload", F::PAYLOAD, entry.payload, about.payload()),
            ("target", F::TARGET, entry.target, about.target()),
            ("answer", F::ANSWER, entry.answer, about.answer()),
        ];
        for (what, ours, fingerprint, theirs) in types {
            if fingerprint != fingerprint::of(ours.as_str()) {
                return Err(LibraryError::Type {
                    path: self.path.clone(),
                    what,
                    ours: ours.as_str().to_owned(),
                    theirs: theirs
                        .unwrap_or("(not stated: a C ifunc, or an image without its library)")
                        .to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// A copy of a slice.
fn own(slice: &slices::Slice<'_>) -> Arc<Slice> {
    Arc::new(Slice::new(slice.machine, slice.id, slice.bytes.to_vec(), None))
}

/// The bytes of a file.
fn read_file(path: &Path) -> Result<Vec<u8>, LibraryError> {
    std::fs::read(path).map_err(|error| LibraryError::Read {
        path: path.to_owned(),
        error,
    })
}
