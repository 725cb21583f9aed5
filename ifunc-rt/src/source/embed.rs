//! Images embedded in a program.

use std::fmt;
use std::marker::PhantomData;

use ifunc::payload::Ifunc;

use super::Source;
use super::error::LibraryError;
use super::handle::Handle;
use super::library::Library;
use crate::keys::Signatures;

/// The image of an ifunc in the program's own read-only data. [`include_image!`](crate::include_image) makes it, and
/// [`Source::register_image`] takes it.
pub struct EmbeddedImage<F: Ifunc> {
    image: &'static [u8],
    /// The texts of its types, for error messages.
    about: &'static [u8],
    ifunc: PhantomData<fn() -> F>,
}

impl<F: Ifunc> EmbeddedImage<F> {
    /// The bytes of the image.
    #[must_use]
    pub const fn bytes(&self) -> &'static [u8] {
        self.image
    }
}

impl<F: Ifunc> Clone for EmbeddedImage<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Ifunc> Copy for EmbeddedImage<F> {}

impl<F: Ifunc> fmt::Debug for EmbeddedImage<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedImage")
            .field("name", &F::NAME)
            .field("len", &self.image.len())
            .finish()
    }
}

impl Source {
    /// Sends these signatures with the images that are registered from now on, however they are loaded: for images that are
    /// embedded in a program or loaded from bytes. An image that is read from `NAME.so` has its signature in `NAME.sig` beside it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let source = ifunc_rt::Source::connect("ucx://10.0.0.7:7000")?;
    /// # const SIGNATURES: &str = "";
    /// // Of `include_str!("../signatures")`, which `cargo ifunc sign --output signatures` wrote.
    /// source.add_signatures(&SIGNATURES.parse()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_signatures(&self, signatures: &Signatures) {
        let known = &mut self.shared().lock().connection.signatures;
        signatures.iter().for_each(|signature| known.add(*signature));
    }

    /// As [`register`](Self::register), from an image embedded in this program, without a search for a file.
    ///
    /// # Errors
    /// The image was built with other types than this program: the build script enabled other features of the ifunc's
    /// package than the manifest.
    pub fn register_image<F: Ifunc>(&self, image: EmbeddedImage<F>) -> Result<Handle<F>, LibraryError> {
        self.typed(Library::embedded(image.image, image.about, F::NAME)?)
    }
}

/// The image of an ifunc that the package's build script built, at compile time.
///
/// `include_image!(hello_ifuncs::add)` is the [`EmbeddedImage`] of the typed handle `add`, for
/// [`Source::register_image`]. `include_image!("multiply")` is the bytes of the image of that name (`&'static [u8]`),
/// for [`Source::load_bytes`]. The second form is for ifuncs in C, whose payload the program writes itself.
///
/// The build script is `ifunc_build::script::Images::new().build()`; an image that it did not build is a compile error.
///
/// ```ignore
/// let source = ifunc_rt::Source::connect("shm:counter")?;
/// let add = source.register_image(ifunc_rt::include_image!(hello_ifuncs::add))?;
/// let now = add.call(&5)?.wait()?;
/// ```
#[macro_export]
macro_rules! include_image {
    ($name:literal) => {
        const { $crate::__include::bytes($crate::__include_images!(), $name) }
    };
    ($ifunc:ty) => {
        const { $crate::__include::typed::<$ifunc>($crate::__include_images!()) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __include_images {
    () => {
        ::core::include!(::core::env!(
            "IFUNC_IMAGES",
            "this package's build script builds no images; help: in build.rs: `fn main() { ifunc_build::script::Images::new().build(); }`, and in Cargo.toml: `ifunc-build` under `[build-dependencies]`"
        ))
    };
}

/// What [`include_image!`](crate::include_image) calls.
#[doc(hidden)]
pub mod include {
    use std::marker::PhantomData;

    use ifunc::payload::Ifunc;
    use ifunc_abi::text::Text;

    use super::EmbeddedImage;

    /// Name and image, with the types from its library.
    pub type Entry = (&'static str, &'static [u8], &'static [u8]);

    /// The image of the handle.
    #[must_use]
    pub const fn typed<F: Ifunc>(images: &'static [Entry]) -> EmbeddedImage<F> {
        let (_, image, about) = find(images, F::NAME);
        EmbeddedImage {
            image,
            about,
            ifunc: PhantomData,
        }
    }

    /// The image of that name.
    #[must_use]
    pub const fn bytes(images: &'static [Entry], name: &str) -> &'static [u8] {
        find(images, name).1
    }

    const fn find(images: &'static [Entry], name: &str) -> Entry {
        let mut i = 0;
        while i < images.len() {
            if same(images[i].0.as_bytes(), name.as_bytes()) {
                return images[i];
            }
            i += 1;
        }
        let mut text = Text::new()
            .str("no image of `")
            .str(name)
            .str("`; the build script built");
        let mut i = 0;
        while i < images.len() {
            text = text.str(" `").str(images[i].0).str("`");
            i += 1;
        }
        panic!(
            "{}",
            text.str("; help: name the ifunc's package in build.rs, as `[dependencies]` names it")
                .as_str()
        )
    }

    const fn same(a: &[u8], b: &[u8]) -> bool {
        if a.len() != b.len() {
            return false;
        }
        let mut i = 0;
        while i < a.len() {
            if a[i] != b[i] {
                return false;
            }
            i += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::include::{Entry, bytes};

    const IMAGES: &[Entry] = &[("add", b"one", b""), ("add_2", b"two", b"")];

    #[test]
    fn the_whole_name_counts() {
        assert_eq!(bytes(IMAGES, "add"), b"one");
        assert_eq!(bytes(IMAGES, "add_2"), b"two");
    }

    #[test]
    #[should_panic(expected = "no image of `ad`; the build script built `add` `add_2`; help: ")]
    fn what_is_missing_is_named_beside_what_is_there() {
        let _ = bytes(IMAGES, "ad");
    }
}
