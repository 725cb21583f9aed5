//! Why exports cannot be changed.

use std::time::Duration;

use ifunc::host::NameConflict;
use ifunc_abi::status::Rejection;

use crate::InvalidSoname;

/// Why exports were not changed. If several changes were to be made together, none was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// An export has the name.
    #[error("`{name}` is exported already; help: `replace` it, or choose another name")]
    Exists {
        /// The name.
        name: String,
    },
    /// No export has the name.
    #[error("`{name}` is not exported; help: `add` it")]
    NotExported {
        /// The name.
        name: String,
    },
    /// The runtime provides the symbol to every image.
    #[error("`{name}` belongs to the runtime; help: choose another name")]
    OfRuntime {
        /// The name.
        name: String,
    },
    /// The new version is of another type.
    #[error(
        "`{name}` has another type\n  exported: {exported}\n  replaced by: {replacement}\nhelp: images were built against the type; export the new one by another name, or `remove` and `add` it in one update, which ends the images that use it"
    )]
    Signature {
        /// The name.
        name: String,
        /// The type that is exported.
        exported: String,
        /// The type that was to replace it.
        replacement: String,
    },
    /// A method of an interface is for another host type than the interface.
    #[error(
        "`{name}` is a method for `{host}`, and this target exports it for {}; help: the builder chooses the type of an interface: `Target::builder().export_interface`", .exported.map_or("no type".to_owned(), |exported| format!("`{exported}`"))
    )]
    HostType {
        /// The name.
        name: String,
        /// The type that the method takes.
        host: &'static str,
        /// The type that the target exports it for; `None`: it does not.
        exported: Option<&'static str>,
    },
    /// An opaque name in its signature stands for another type on this target.
    #[error(transparent)]
    Names(#[from] NameConflict),
    /// Static data of installed images holds the symbol's address, where the runtime does not change it.
    #[error(
        "the static data of `{}` holds the address of `{name}`; help: let its code name the symbol instead of a table, or unbind it first", .images.join("`, `")
    )]
    AddressInData {
        /// The symbol.
        name: String,
        /// The images.
        images: Vec<String>,
    },
    /// An installed image could not use the new version.
    #[error("the installed image `{image}` could not use it: {reason}: {detail}")]
    Image {
        /// The image.
        image: String,
        /// What an installation would be refused for.
        reason: Rejection,
        /// Details.
        detail: String,
    },
    /// The name is no soname.
    #[error(transparent)]
    Soname(#[from] InvalidSoname),
    /// The library cannot be opened.
    #[error("cannot open the library `{soname}`: {why}")]
    Library {
        /// Its soname.
        soname: String,
        /// The loader's reason.
        why: String,
    },
    /// Invocations went on for too long.
    #[error(
        "invocations that may use what was to be changed still ran after {0:?}; help: try again, or wait longer: `Exports::with_timeout`"
    )]
    Timeout(Duration),
    /// The kernel has no barrier for the threads of a process.
    #[error(
        "this kernel refuses `membarrier`, so several symbols cannot change together; help: Linux 4.14 or newer, and a seccomp filter that allows it"
    )]
    NoBarrier,
    /// There is no target any more.
    #[error("the target is gone")]
    TargetGone,
}
