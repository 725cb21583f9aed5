//! Reads the images out of ifunc libraries.

use std::path::{Path, PathBuf};

use ifunc_abi::about::About;
use ifunc_abi::slices::{Slices, SlicesError};
use ifunc_abi::symbols::{ABOUT_SECTION, DEBUG_SECTION, IMAGE_SECTION};
use object::{Object, ObjectSection};

/// The contents of an ifunc library.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// The images, by name.
    pub images: Vec<LibraryImage>,
    /// Sonames of the shared libraries that the loader opens with it (`DT_NEEDED`), on the source.
    pub sonames: Vec<String>,
}

/// One image of a library. The slices of an ifunc have the same name and the same text, and follow each other as in its table.
#[derive(Clone, Debug)]
pub struct LibraryImage {
    /// Name of the ifunc, from the section's name.
    pub name: String,
    /// The image. [`ifunc_abi::image::Image::parse`] validates it.
    pub image: Vec<u8>,
    /// The text beside it; empty if there is none.
    pub about: String,
    /// The image's symbols, lines and call frames, for debuggers; empty if there are none. See
    /// [`Linked::debug`](ifunc_link::Linked::debug).
    pub debug: Vec<u8>,
}

impl LibraryImage {
    /// BLAKE3 of the image.
    #[must_use]
    pub fn id(&self) -> ifunc_abi::ImageId {
        *blake3::hash(&self.image).as_bytes()
    }

    /// View of the text.
    #[must_use]
    pub fn about(&self) -> About<'_> {
        About::new(self.about.as_bytes()).unwrap_or_default()
    }
}

/// Why a file is not an ifunc library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// It cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not an ELF file.
    #[error(
        "`{}` is not an ELF file: {reason}\nhelp: `cargo ifunc build` makes libraries: target/ifunc/release/NAME.so",
        path.display()
    )]
    NotElf {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Its images are not in the form of this version.
    #[error("`{}` cannot be read: {error}\nhelp: `cargo ifunc build` makes it anew", path.display())]
    Slices {
        /// The file.
        path: PathBuf,
        /// Why.
        error: SlicesError,
    },
    /// No image is in it.
    #[error(
        "`{}` holds no image (no section `{IMAGE_SECTION}NAME`)\nhelp: a library that `cargo ifunc build` made has one; was this made by something else?",
        path.display()
    )]
    NoImage {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the images and texts of an ifunc library.
///
/// # Errors
/// The file cannot be read, is not an ELF file, or holds no image.
pub fn read_library(path: impl AsRef<Path>) -> Result<Library, LibraryError> {
    let path = path.as_ref();
    let data = std::fs::read(path).map_err(|source| LibraryError::Io {
        path: path.into(),
        source,
    })?;
    let not_elf = |e: object::Error| LibraryError::NotElf {
        path: path.into(),
        reason: e.to_string(),
    };
    let file = object::File::parse(&*data).map_err(not_elf)?;
    let slices = |error: SlicesError| LibraryError::Slices {
        path: path.into(),
        error,
    };
    let mut images = Vec::new();
    let mut texts = Vec::new();
    let mut debug_objects = Vec::new();
    for section in file.sections() {
        let Ok(section_name) = section.name() else {
            continue;
        };
        if let Some(name) = section_name.strip_prefix(IMAGE_SECTION) {
            let table = Slices::parse(section.data().map_err(not_elf)?);
            for slice in table.map_err(slices)?.native() {
                images.push(LibraryImage {
                    name: name.into(),
                    image: slice.bytes.to_vec(),
                    about: String::new(),
                    debug: Vec::new(),
                });
            }
        } else if let Some(name) = section_name.strip_prefix(ABOUT_SECTION) {
            let text = String::from_utf8_lossy(section.data().map_err(not_elf)?).into_owned();
            texts.push((name.to_owned(), text));
        } else if section_name.starts_with(DEBUG_SECTION) {
            let table = Slices::parse(section.data().map_err(not_elf)?);
            let native = table.map_err(slices)?.native();
            debug_objects.extend(native.map(|slice| (slice.id, slice.bytes.to_vec())));
        }
    }
    if images.is_empty() {
        return Err(LibraryError::NoImage { path: path.into() });
    }
    for (name, text) in texts {
        for image in images.iter_mut().filter(|image| image.name == name) {
            image.about.clone_from(&text);
        }
    }
    for image in &mut images {
        let id = image.id();
        let debug = debug_objects.iter().find(|(of, _)| *of == id);
        image.debug = debug.map(|(_, debug)| debug.clone()).unwrap_or_default();
    }
    images.sort_by(|a, b| a.name.cmp(&b.name));
    let sonames = file.import_libraries().map_err(not_elf)?;
    let sonames = sonames.map(|library| Ok(String::from_utf8_lossy(library?.name()).into_owned()));
    let sonames = sonames.collect::<Result<_, _>>().map_err(not_elf)?;
    Ok(Library { images, sonames })
}
