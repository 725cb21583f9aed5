//! The reference graph of one image: the input sections that its entries reach, the imports that they refer to, and the
//! plan for each relocation. [`gc`](crate::gc) builds it in one walk; layout, relocation, messages and the debug object
//! read it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Role;
use crate::arch::{Arch, Form};
use crate::inputs::Inputs;
use crate::layout::got_offset;
use crate::object_file::SectionKind;

/// Bytes that are laid out as one: a section, a piece of a mergeable section, or what the linker adds.
#[derive(Debug)]
pub(crate) struct InputSection<'a> {
    /// Also the order of the input sections in the image.
    pub(crate) origin: Origin,
    pub(crate) kind: SectionKind,
    /// The bytes before relocation; empty for zeroed data.
    pub(crate) data: &'a [u8],
    pub(crate) size: u64,
    pub(crate) align: u64,
    /// By ascending place; no two rewrite the same byte.
    pub(crate) relocations: Vec<PlannedRelocation>,
    /// The input section, and the offset in its section, of the reference that was found first; `None` for entries.
    pub(crate) parent: Option<(usize, u64)>,
}

impl InputSection<'_> {
    /// The object and its section that the bytes come from.
    pub(crate) fn object_section(&self) -> Option<(usize, usize)> {
        match self.origin {
            Origin::Piece { object, section, .. } => Some((object, section)),
            Origin::Common(_) | Origin::Trap => None,
        }
    }

    /// The bytes that a relocation rewrites.
    pub(crate) fn code_at(&self, relocation: &PlannedRelocation) -> &[u8] {
        &self.data[relocation.start..relocation.end]
    }
}

/// Where an input section comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// A piece of a section.
    Piece {
        object: usize,
        section: usize,
        piece: usize,
    },
    /// A common symbol.
    Common(String),
    /// Code that never runs.
    Trap,
}

/// What a relocation refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// An offset in an input section.
    Section(SectionOffset),
    /// An import, by its number.
    Import(usize),
}

/// An offset in an input section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SectionOffset {
    /// Index in [`Graph::sections`].
    pub(crate) section: usize,
    pub(crate) offset: u64,
}

/// The one plan for a relocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedRelocation {
    pub(crate) form: Form,
    /// First byte of the input section that is rewritten.
    pub(crate) start: usize,
    /// One past the last byte that is rewritten.
    pub(crate) end: usize,
    pub(crate) method: Method,
    /// What is left of the relocation's addend.
    pub(crate) addend: i64,
}

impl PlannedRelocation {
    /// The input section that the relocation refers to.
    pub(crate) fn section(&self) -> Option<SectionOffset> {
        match self.method {
            Method::Distance(at)
            | Method::GotEntry(Target::Section(at))
            | Method::InstallRelocation(Target::Section(at)) => Some(at),
            _ => None,
        }
    }
}

/// How the rewritten bytes reach the target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Method {
    /// By the distance to it.
    Distance(SectionOffset),
    /// By the distance to the thunk of an import.
    Thunk(usize),
    /// By the distance to a stub, by its index in [`Graph::stubs`].
    Stub(usize),
    /// By the slot: a half of a load of an import's address.
    Slot(usize),
    /// By the distance to the target's entry in the image's own GOT.
    GotEntry(Target),
    /// By an address that an install relocation stores.
    InstallRelocation(Target),
}

/// A stub: code that loads the address of an import for one relocation and jumps back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stub {
    pub(crate) import: usize,
    /// The input section of the relocation.
    pub(crate) section: usize,
    /// Index of the relocation in [`InputSection::relocations`].
    pub(crate) relocation: usize,
}

/// A symbol that the target provides.
#[derive(Debug)]
pub(crate) struct Import<'a> {
    pub(crate) symbol: &'a str,
    /// Every reference to it is weak.
    pub(crate) weak: bool,
    /// An object declares it as a variable.
    pub(crate) is_variable: bool,
    /// An object declares it as a function, or code calls it.
    pub(crate) is_function: bool,
}

/// One kind of case: relocation number, place, whether the target is an import, and how it is resolved.
pub(crate) type Use = (u32, &'static str, bool, &'static str);

/// Everything that the entries reach.
pub(crate) struct Graph<'w, 'a> {
    pub(crate) inputs: &'w Inputs<'a>,
    pub(crate) arch: &'static dyn Arch,
    pub(crate) sections: Vec<InputSection<'a>>,
    /// By first reference.
    pub(crate) imports: Vec<Import<'a>>,
    /// Where the entries are, in the order in which they were given.
    pub(crate) entries: Vec<SectionOffset>,
    /// Where the function is that runs a run of entries of a batch, for each entry.
    pub(crate) batches: Vec<Option<SectionOffset>>,
    /// The other ifuncs of the request that the entries reach, by their indices.
    pub(crate) reached: BTreeSet<usize>,
    /// The imports that have a thunk.
    pub(crate) thunks: BTreeSet<usize>,
    /// In the order of their relocations.
    pub(crate) stubs: Vec<Stub>,
    /// A relocation loads the slot by itself.
    pub(crate) loads_slot: bool,
    /// What has an entry in the image's own GOT.
    pub(crate) got_entries: BTreeSet<Target>,
    /// How often each kind of case was planned.
    pub(crate) uses: BTreeMap<Use, usize>,
}

impl<'a> Graph<'_, 'a> {
    /// Whether the code reaches an import through the slot.
    pub(crate) fn uses_slot(&self) -> bool {
        self.loads_slot || !self.thunks.is_empty() || !self.stubs.is_empty()
    }

    /// Upper bound of the bytes of text, gaps and thunks included.
    pub(crate) fn text_bound(&self) -> u64 {
        let text = self
            .sections
            .iter()
            .filter(|section| section.kind == SectionKind::Text);
        let sizes = text.map(|section| section.size.saturating_add(section.align));
        let thunks = self
            .thunks
            .iter()
            .map(|&import| self.arch.thunk_len(got_offset(import)));
        sizes.chain(thunks).fold(0, u64::saturating_add)
    }

    /// Whether something of an object of this role is in the image.
    pub(crate) fn holds(&self, role: Role) -> bool {
        let mut objects = self.sections.iter().filter_map(InputSection::object_section);
        objects.any(|(object, _)| self.inputs.role(object) == role)
    }

    /// The input section and the relocation that a stub serves.
    pub(crate) fn site_of(&self, stub: Stub) -> (&InputSection<'a>, &PlannedRelocation) {
        let section = &self.sections[stub.section];
        (section, &section.relocations[stub.relocation])
    }
}
