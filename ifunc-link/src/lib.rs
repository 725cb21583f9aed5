//! The static linker: relocatable objects and archives in, an image out.
//!
//! [`Linker::open`] reads the inputs. [`Linker::link`] makes the image of one ifunc: the code and data that `X_main` reaches,
//! laid out as one position-independent range. Every relocation is resolved, turned into an install relocation, or refused
//! by name. The same inputs give the same bytes.
//!
//! | step | file |
//! |---|---|
//! | objects and archives → sections, symbols, relocations | `inputs`, `object_file` |
//! | mergeable sections → strings and constants | `merge` |
//! | entry → the sections that it reaches, a plan for each relocation | `gc`, `resolve`, `imports` → `graph` |
//! | addresses | `layout` |
//! | bytes | `relocate`, `emit` |
//! | relocations and instructions of an architecture | `arch` (the seam), `arch/x86_64`, `arch/aarch64` |
//! | reasons against an image | `refuse`, `constructors`, `reason`, `help` |
//! | names and lines for messages | `demangle`, `extents`, `lines` |
//! | names, lines and frames for debuggers | `debug` |
//! | counts of resolved relocations | `uses` |
//! | objects and digest of a shared library | `shared_library` |
//!
//! ```
//! use ifunc_abi::image::Image;
//! use ifunc_link::{Imports, Input, Linker, Request, Role};
//! use object::write::{Object, StandardSection, Symbol, SymbolSection};
//! use object::{Architecture, BinaryFormat, Endianness, SymbolFlags, SymbolKind, SymbolScope};
//!
//! // What a compiler leaves of `uint32_t zero_main(..) { return 0; }`.
//! let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
//! let text = object.section_id(StandardSection::Text);
//! let value = object.append_section_data(text, &[0x31, 0xc0, 0xc3], 16);
//! object.add_symbol(Symbol {
//!     name: b"zero_main".to_vec(),
//!     value,
//!     size: 3,
//!     kind: SymbolKind::Text,
//!     scope: SymbolScope::Dynamic,
//!     weak: false,
//!     section: SymbolSection::Section(text),
//!     flags: SymbolFlags::None,
//! });
//! let object = object.write()?;
//!
//! let inputs = [Input { name: "zero.o", data: &object, role: Role::User }];
//! let image = Linker::open(&inputs)?.link(&Request::new("zero", Imports::Any))?;
//! assert_eq!(Image::parse(&image)?.rx(), [0x31, 0xc0, 0xc3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod arch;
mod constructors;
mod debug;
mod demangle;
mod emit;
mod executable_stack;
mod extents;
mod gc;
mod graph;
mod help;
mod imports;
mod inputs;
mod layout;
mod lines;
mod merge;
mod object_file;
mod reason;
mod refuse;
mod relocate;
mod resolve;
mod shared_library;
mod uses;

use std::collections::{BTreeMap, BTreeSet};

use ifunc_abi::Fingerprint;
use ifunc_abi::image::{EntryFlags, MAX_ENTRIES};
use reason::Reasons;

pub use inputs::{Input, InputError, Role};
pub use object_file::intermediate_code;
pub use reason::{LinkError, Reason, Rule};
pub use shared_library::SharedLibrary;
pub use uses::RelocationUse;

/// What an image may leave to its target.
#[derive(Clone, Debug)]
pub enum Imports<'a> {
    /// Only these symbols, each with the fingerprint of its signature, and the four that the SDK makes
    /// ([`RUNTIME_IMPORTS`](ifunc_abi::symbols::RUNTIME_IMPORTS)): Rust, where every import is declared.
    Declared(BTreeMap<&'a str, Fingerprint>),
    /// Every undefined symbol; the target decides: C.
    Any,
}

/// What the builder knows of an ifunc. Its entry is the symbol `NAME_main`.
#[derive(Clone, Copy, Debug)]
pub struct Ifunc<'a> {
    /// Its name.
    pub name: &'a str,
    /// Flags of its entry.
    pub flags: EntryFlags,
    /// Whether its address outlives an invocation: the target never evicts its image.
    pub is_pinned: bool,
    /// Fingerprint of the payload type.
    pub payload: Fingerprint,
    /// Fingerprint of the target type.
    pub target: Fingerprint,
    /// Fingerprint of the answer type.
    pub answer: Fingerprint,
    /// Alignment of the payload in bytes.
    pub payload_align: u32,
}

impl<'a> Ifunc<'a> {
    /// An ifunc without types and alignment.
    #[must_use]
    pub fn new(name: &'a str) -> Self {
        Self {
            name,
            flags: EntryFlags::NONE,
            is_pinned: false,
            payload: 0,
            target: 0,
            answer: 0,
            payload_align: 1,
        }
    }
}

/// The image to make.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The ifunc whose image it is.
    pub root: Ifunc<'a>,
    /// Other ifuncs of the inputs. One whose `X_main` the root refers to, directly or through what it reaches, becomes an entry
    /// of the same image.
    pub others: Vec<Ifunc<'a>>,
    /// The imports that are allowed.
    pub imports: Imports<'a>,
    /// CPU features that the [helpers](Role::Helper) need, if the image holds something of them.
    pub helpers_cpu_features: u64,
    /// Imports that their authors declare as variables. Other [declared](Imports::Declared) ones are functions; of the rest the
    /// code shows which it calls.
    pub variables: BTreeSet<&'a str>,
    /// CPU features that the code was compiled for.
    pub cpu_features: u64,
    /// Sonames of shared libraries that define imports. The image names them if it has an import that not every target
    /// provides.
    pub needed: Vec<&'a str>,
}

impl<'a> Request<'a> {
    /// The image of an ifunc without types and alignment.
    #[must_use]
    pub fn new(name: &'a str, imports: Imports<'a>) -> Self {
        Self::of(Ifunc::new(name), imports)
    }

    /// The image of an ifunc.
    #[must_use]
    pub fn of(root: Ifunc<'a>, imports: Imports<'a>) -> Self {
        Self {
            root,
            others: Vec::new(),
            imports,
            variables: BTreeSet::new(),
            cpu_features: 0,
            helpers_cpu_features: 0,
            needed: Vec::new(),
        }
    }
}

/// An image, and how it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The image.
    pub image: Vec<u8>,
    /// How its relocations were resolved, each kind of case once, in order.
    pub relocations: Vec<RelocationUse>,
    /// Its symbols, lines and call frames, for debuggers: a relocatable ELF file whose `.text` represents the read-execute
    /// part and whose `.data` represents the read-write part.
    pub debug: Vec<u8>,
}

/// The inputs of links.
pub struct Linker<'a> {
    inputs: inputs::Inputs<'a>,
}

impl std::fmt::Debug for Linker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Linker").finish_non_exhaustive()
    }
}

impl<'a> Linker<'a> {
    /// Reads objects, and the symbol tables of archives. Objects come before archives in the search for a definition;
    /// archives are searched in order, and a member is read only when a symbol that it defines is looked up.
    ///
    /// # Errors
    /// An input that is neither a relocatable ELF object of a supported architecture nor an archive.
    pub fn open(inputs: &[Input<'a>]) -> Result<Self, InputError> {
        Ok(Self {
            inputs: inputs::Inputs::open(inputs)?,
        })
    }

    /// The graph of an image, and its entries by name. It depends on the set of entries alone, so ifuncs that refer to each other
    /// have one image, whichever of them is the root.
    fn collect<'r>(
        &'r self,
        request: &'r Request<'r>,
    ) -> Result<(graph::Graph<'r, 'a>, Vec<Ifunc<'r>>), LinkError> {
        let alone = [request.root];
        let graph = gc::collect(&self.inputs, request, &alone)?;
        // What the entries reach the root reaches, too.
        let reached = graph.reached.iter().map(|&index| request.others[index]);
        let reached = reached.filter(|other| other.name != request.root.name);
        let mut entries: Vec<Ifunc<'r>> = reached.chain(alone).collect();
        entries.sort_by_key(|entry| entry.name);
        entries.dedup_by_key(|entry| entry.name);
        if entries.len() == 1 {
            return Ok((graph, entries));
        }
        Ok((gc::collect(&self.inputs, request, &entries)?, entries))
    }

    /// Makes the image of one ifunc. The result does not depend on earlier links of this linker.
    ///
    /// # Errors
    /// Every reason against the image.
    pub fn link(&self, request: &Request<'_>) -> Result<Vec<u8>, LinkError> {
        self.link_explained(request).map(|linked| linked.image)
    }

    /// As [`link`](Self::link), with the debug object and the uses of relocations.
    ///
    /// # Errors
    /// Every reason against the image.
    pub fn link_explained(&self, request: &Request<'_>) -> Result<Linked, LinkError> {
        let (graph, entries) = self.collect(request)?;
        let layout = layout::lay_out(&graph).map_err(|reasons| reasons.into_error(request.root.name))?;
        let refuse = |rule, detail: &str, help| {
            let mut reasons = Reasons::default();
            reasons.add(rule, request.root.name, detail, None, help);
            reasons.into_error(request.root.name)
        };
        if let Some((first, second)) = same(&graph.entries) {
            let [first, second] = [first, second].map(|index| entries[index].name);
            let detail = format!("`{first}_main` and `{second}_main`");
            return Err(refuse(Rule::SameEntry, &detail, help::SAME_ENTRY));
        }
        if entries.len() > MAX_ENTRIES {
            let detail = format!("{}, an image has at most {MAX_ENTRIES}", entries.len());
            return Err(refuse(Rule::TooManyEntries, &detail, help::TOO_MANY_ENTRIES));
        }
        let relocated = relocate::relocate(&graph, &layout)
            .map_err(|unpatched| refuse::unpatched(&graph, &unpatched, request.root.name))?;
        let image = emit::emit(&graph, &layout, relocated, request, &entries)
            .encode()
            .map_err(|e| refuse(Rule::Malformed, &e.to_string(), help::MALFORMED))?;
        Ok(Linked {
            image,
            relocations: uses::of(&graph),
            debug: debug::debug_object(&self.inputs, &graph, &layout).unwrap_or_default(),
        })
    }
}

/// Two that are equal, by their indices.
fn same<T: PartialEq>(all: &[T]) -> Option<(usize, usize)> {
    let earlier = |second: usize| all[..second].iter().position(|first| *first == all[second]);
    (0..all.len()).find_map(|second| Some((earlier(second)?, second)))
}
