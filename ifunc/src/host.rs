//! The host's part of the SDK: what `#[ifunc::export]` registers, and the call gate. Images do not contain it.

mod gate;

use core::any::TypeId;
use std::borrow::ToOwned;
use std::string::String;
use std::vec::Vec;

use ifunc_abi::text::Text;

pub use self::gate::{
    CallBack, CallGate, GateState, GateToken, HeldObject, Side, call_back, hold, set_call_gate, take_held,
    through_gate,
};
pub use crate::opaque::NamedType;
use crate::payload::TargetArgs;

/// What an [`Export`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportKind {
    /// A function.
    Function,
    /// A variable.
    Data,
}

/// A type of the host.
#[derive(Clone, Copy, Debug)]
pub struct HostType {
    id: fn() -> TypeId,
    name: fn() -> &'static str,
}

impl HostType {
    /// The type `H`.
    #[must_use]
    pub const fn of<H: 'static>() -> Self {
        Self {
            id: TypeId::of::<H>,
            name: core::any::type_name::<H>,
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> TypeId {
        (self.id)()
    }

    /// Its name, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        (self.name)()
    }
}

impl PartialEq for HostType {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for HostType {}

/// A function or a variable of the host that ifuncs may import.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    name: &'static str,
    signature: &'static str,
    prototype: &'static str,
    address: *const (),
    kind: ExportKind,
    method_of: Option<HostType>,
    types: &'static [fn() -> Option<NamedType>],
    earlier: fn() -> Vec<String>,
}

impl Export {
    /// Describes a host function. `#[ifunc::export]` calls it.
    ///
    /// # Safety
    /// `address` is the address of a function with this `prototype`, which is the C form of `signature`. If the signature
    /// names opaque types, [`with_types`](Self::with_types) is called with all of them.
    #[must_use]
    pub const unsafe fn function(
        name: &'static str,
        signature: &'static str,
        prototype: &'static str,
        address: *const (),
    ) -> Self {
        Self {
            name,
            signature,
            prototype,
            address,
            kind: ExportKind::Function,
            method_of: None,
            types: &[],
            earlier: no_earlier,
        }
    }

    /// Describes a method of an interface, whose first argument is a pointer to a `host`. `#[ifunc::interface]` calls it.
    ///
    /// # Safety
    /// As [`function`](Self::function), with a pointer to a `host` for `self`.
    #[must_use]
    pub const unsafe fn method(
        name: &'static str,
        signature: &'static str,
        prototype: &'static str,
        address: *const (),
        host: HostType,
    ) -> Self {
        Self {
            method_of: Some(host),
            // SAFETY: the caller's promise.
            ..unsafe { Self::function(name, signature, prototype, address) }
        }
    }

    /// Describes a host variable. `#[ifunc::export]` calls it.
    ///
    /// # Safety
    /// `address` is the address of a variable with this `declaration`, which is the C form of `signature`. Every
    /// access that `signature` permits to safe code is sound. If its type is opaque, [`with_types`](Self::with_types) is called
    /// with it.
    #[must_use]
    pub const unsafe fn data(
        name: &'static str,
        signature: &'static str,
        declaration: &'static str,
        address: *const (),
    ) -> Self {
        Self {
            name,
            signature,
            prototype: declaration,
            address,
            kind: ExportKind::Data,
            method_of: None,
            types: &[],
            earlier: no_earlier,
        }
    }

    /// States which types of this process the names in the signature stand for. `#[ifunc::export]` calls it.
    #[must_use]
    pub const fn with_types(self, types: &'static [fn() -> Option<NamedType>]) -> Self {
        Self { types, ..self }
    }

    /// States the signatures that it had in earlier builds, as which images may still import it. `#[ifunc::export]` calls it.
    ///
    /// # Safety
    /// `address` is the address of what each of them describes, too.
    #[must_use]
    pub const unsafe fn with_earlier(self, earlier: fn() -> Vec<String>) -> Self {
        Self { earlier, ..self }
    }

    /// The symbol that images import.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Canonical text of its signature.
    #[must_use]
    pub const fn signature(&self) -> &'static str {
        self.signature
    }

    /// Canonical texts of its signature in earlier builds: what it lends had fewer fields then
    /// ([`#[layout(grows)]`](macro@crate::Layout)).
    #[must_use]
    pub fn earlier_signatures(&self) -> Vec<String> {
        (self.earlier)()
    }

    /// The C prototype of the shim or the C declaration of the variable, for display.
    #[must_use]
    pub const fn prototype(&self) -> &'static str {
        self.prototype
    }

    /// Address of the generated C shim, or of the variable.
    #[must_use]
    pub const fn address(&self) -> *const () {
        self.address
    }

    /// The types of this process that its signature names: its opaque types.
    pub fn types(&self) -> impl Iterator<Item = NamedType> {
        self.types.iter().filter_map(|named| named())
    }

    /// Function or variable.
    #[must_use]
    pub const fn kind(&self) -> ExportKind {
        self.kind
    }

    /// The host type whose method it is: its first argument is a pointer to one. `None`: it is no method of an interface.
    #[must_use]
    pub const fn method_of(&self) -> Option<HostType> {
        self.method_of
    }
}

// SAFETY: an `Export` is immutable, and nothing is accessed through its address but by images, which `unsafe` code
// accepted.
unsafe impl Sync for Export {}
// SAFETY: as above.
unsafe impl Send for Export {}

/// [`Export::earlier_signatures`] of an export that lends nothing.
#[doc(hidden)]
#[must_use]
pub fn no_earlier() -> Vec<String> {
    Vec::new()
}

/// Signatures with the text of an earlier version of a type in place of the part `at`.
#[doc(hidden)]
#[must_use]
pub fn earlier_texts(parts: &[&str], at: usize, versions: &[&str]) -> Vec<String> {
    let versions = versions.iter().filter(|text| !text.is_empty());
    let signature = |text: &&str| {
        let parts = parts.iter().enumerate();
        parts
            .map(|(i, part)| if i == at { *text } else { *part })
            .collect()
    };
    versions.map(signature).collect()
}

/// Every `#[ifunc::export]` function and variable linked into this process: the default set of a target.
#[linkme::distributed_slice]
#[linkme(crate = linkme)]
pub static EXPORTS: [Export];

/// The interface `Self`, which is a `dyn Trait` of `#[ifunc::interface]`, exported by the host type `H`. The attribute
/// implements it for every `H` that implements the trait.
///
/// # Safety
/// [`METHODS`](Self::METHODS) are the methods of the interface for `H`: each takes a pointer to an `H` as its first
/// argument.
#[diagnostic::on_unimplemented(
    message = "`{H}` does not export the interface `{Self}`",
    label = "no implementation of this interface",
    note = "help: put `#[ifunc::interface]` on the trait, implement it for `{H}`, and name it with `dyn`: `dyn Kv`"
)]
pub unsafe trait Interface<H: 'static>: TargetArgs {
    /// The methods in the order of the trait.
    const METHODS: &'static [Export];
}

/// An interface as one host type exports it.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceExport {
    interface: &'static Text,
    host: HostType,
    methods: &'static [Export],
}

impl InterfaceExport {
    /// The interface `I` of the host type `H`.
    #[must_use]
    pub const fn of<I: Interface<H> + ?Sized, H: 'static>() -> Self {
        Self {
            interface: const { &<I as TargetArgs>::TEXT },
            host: HostType::of::<H>(),
            methods: I::METHODS,
        }
    }

    /// The canonical text that names the interface: the target text of the ifuncs that take it.
    #[must_use]
    pub const fn interface(&self) -> &'static str {
        self.interface.as_str()
    }

    /// The host type. The methods take pointers to values of this type, and of no other.
    #[must_use]
    pub const fn host(&self) -> HostType {
        self.host
    }

    /// One export per method.
    #[must_use]
    pub const fn methods(&self) -> &'static [Export] {
        self.methods
    }
}

/// Every `#[ifunc::export] impl` linked into this process. A target exports those interfaces that one type only exports
/// in this process; its builder chooses among several, and adds those of generic types.
#[linkme::distributed_slice]
#[linkme(crate = linkme)]
pub static INTERFACES: [InterfaceExport];

/// Which type of this process each name stands for. A name stands for one type, for as long as this lives.
#[derive(Clone, Debug, Default)]
pub struct NamedTypes {
    known: Vec<(NamedType, String)>,
}

/// Two types of this process have one name, by which ifuncs know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameConflict {
    text: &'static str,
    types: [&'static str; 2],
    users: [String; 2],
}

impl NamedTypes {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { known: Vec::new() }
    }

    /// Notes that `user`, for messages, uses the type by its name.
    ///
    /// # Errors
    /// The name stands for another type.
    pub fn add(&mut self, named: NamedType, user: &str) -> Result<(), NameConflict> {
        let Some((known, known_user)) = self.known.iter().find(|(known, _)| known.text() == named.text())
        else {
            self.known.push((named, user.to_owned()));
            return Ok(());
        };
        if known.id() == named.id() {
            return Ok(());
        }
        Err(NameConflict {
            text: named.text(),
            types: [known.type_name(), named.type_name()],
            users: [known_user.clone(), user.to_owned()],
        })
    }
}

impl core::fmt::Display for NameConflict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            text,
            types: [known, other],
            users: [known_user, user],
        } = self;
        let name = text.strip_prefix("opaque ").unwrap_or(text);
        write!(
            f,
            "the opaque name `{name}` stands for two types\n  `{known}`: {known_user}\n  `{other}`: {user}\nhelp: let all of them use \
             one type, or give each type its own name in `#[opaque(\"..\")]`; what a target exports of its process, \
             `TargetBuilder::exports` chooses"
        )
    }
}

impl core::error::Error for NameConflict {}
