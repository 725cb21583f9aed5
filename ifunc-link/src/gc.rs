//! What an entry reaches: the sections (or pieces of mergeable sections) that will be the image, and for each of their
//! relocations what becomes of it. What is not reached does not travel.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use ifunc_abi::symbols;
use object::elf;

use crate::arch::{Arch, Bytes, Plan, Refused, TargetClass};
use crate::inputs::{Definition, Inputs};
use crate::layout::{MAX_ADDRESS, MAX_ALIGN};
use crate::merge::{leaves_piece, piece_at};
use crate::object_file::{Object, Place, Relocation, SectionKind, Symbol};
use crate::reason::{Reasons, Rule};
use crate::refuse::Site;
use crate::{LinkError, Request, help};

/// What ends in the image as one run of bytes.
#[derive(Debug)]
pub(crate) struct InputSection<'a> {
    /// Where it comes from; also the order of the input sections in the image.
    pub(crate) origin: Origin,
    pub(crate) kind: SectionKind,
    /// The bytes before relocation; empty for zeroed data.
    pub(crate) data: &'a [u8],
    pub(crate) size: u64,
    pub(crate) align: u64,
    /// By ascending place; no two rewrite the same byte.
    pub(crate) links: Vec<Link>,
    /// The input section, and the offset in its section, that led here first; the entry has none.
    pub(crate) parent: Option<(usize, u64)>,
}

/// Where a input section comes from.
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
    /// Code that is never run.
    Trap,
}

/// A relocation that was validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// The relocation's number.
    pub(crate) kind: u32,
    pub(crate) plan: Plan,
    pub(crate) target: Target,
    pub(crate) addend: i64,
}

/// What a relocation refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// An offset in a input section.
    InputSection { input_section: usize, offset: u64 },
    /// An import, by its number.
    Import(usize),
}

/// A symbol that the target provides.
#[derive(Debug)]
pub(crate) struct Import<'a> {
    pub(crate) symbol: &'a str,
    /// Nobody needs it to be there.
    pub(crate) weak: bool,
    /// It is an object, as far as the objects say.
    pub(crate) data: bool,
}

/// Everything that the entry reaches.
pub(crate) struct Graph<'w, 'a> {
    pub(crate) inputs: &'w Inputs<'a>,
    pub(crate) arch: &'static dyn Arch,
    pub(crate) sections: Vec<InputSection<'a>>,
    /// By first reference.
    pub(crate) imports: Vec<Import<'a>>,
    /// Where the entry is.
    pub(crate) entry: (usize, u64),
}

/// Follows the relocations from the entry.
pub(crate) fn collect<'w, 'a>(
    inputs: &'w Inputs<'a>,
    request: &'w Request<'_>,
) -> Result<Graph<'w, 'a>, LinkError> {
    let mut walk = Walk {
        inputs,
        request,
        sections: Vec::new(),
        by_origin: BTreeMap::new(),
        by_bytes: HashMap::new(),
        imports: Vec::new(),
        import_numbers: HashMap::new(),
        reasons: Reasons::default(),
        here: None,
        root: format!("{}{}", request.name, symbols::MAIN_SUFFIX),
        members: OnceCell::new(),
    };
    let entry = walk.entry(&walk.root.clone());
    if let Some((arch, _)) = entry {
        let mut next = 0;
        while next < walk.sections.len() {
            walk.follow(next, arch);
            next += 1;
        }
        walk.refuse_duplicates();
        walk.refuse_constructors();
    }
    match entry {
        Some((arch, entry)) => {
            let (sections, imports) = (walk.sections, walk.imports);
            walk.reasons.unless_any(
                request.name,
                Graph {
                    inputs,
                    arch,
                    sections,
                    imports,
                    entry,
                },
            )
        }
        None => Err(walk.reasons.into_error(request.name)),
    }
}

/// A walk over the relocations, from the entry.
pub(crate) struct Walk<'w, 'a> {
    pub(crate) inputs: &'w Inputs<'a>,
    pub(crate) request: &'w Request<'w>,
    pub(crate) sections: Vec<InputSection<'a>>,
    by_origin: BTreeMap<Origin, usize>,
    /// Mergeable pieces by their bytes.
    by_bytes: HashMap<&'a [u8], usize>,
    pub(crate) imports: Vec<Import<'a>>,
    pub(crate) import_numbers: HashMap<&'a str, usize>,
    pub(crate) reasons: Reasons,
    /// The relocation that is validated: its input section, and its offset in the section.
    pub(crate) here: Option<(usize, u64)>,
    /// The entry's symbol.
    root: String,
    /// The members of archives that are there, once it matters.
    members: OnceCell<HashSet<usize>>,
}

impl<'w, 'a> Walk<'w, 'a> {
    /// Finds the entry and makes its input section the first.
    fn entry(&mut self, root: &str) -> Option<(&'static dyn Arch, (usize, u64))> {
        let found = match self.inputs.definition(root) {
            Ok(found) => found,
            Err((object, unreadable)) => {
                self.reasons
                    .add(Rule::Malformed, object, &unreadable.reason, None, unreadable.help);
                return None;
            }
        };
        let Some(found) = found else {
            self.reasons.add(Rule::NoEntry, root, "", None, help::NO_ENTRY);
            return None;
        };
        let object = self.object(found.object)?;
        let Place::Section { index, value } = object.symbols[found.symbol].place else {
            self.reasons
                .add(Rule::NoEntry, root, "it is not a function", None, help::NO_ENTRY);
            return None;
        };
        if object.symbols[found.symbol].kind == elf::STT_GNU_IFUNC {
            self.reasons.add(Rule::GnuIfunc, root, "", None, help::GNU_IFUNC);
            return None;
        }
        if object.sections[index].kind != SectionKind::Text || value >= object.sections[index].size {
            self.reasons
                .add(Rule::NoEntry, root, "it is not a function", None, help::NO_ENTRY);
            return None;
        }
        let input_section = self.piece(found.object, object, index, 0);
        Some((object.arch, (input_section, value)))
    }

    /// A readable object. Those that definitions and input sections refer to always are.
    pub(crate) fn object(&self, index: usize) -> Option<&'w Object<'a>> {
        self.inputs.object(index).ok()
    }

    /// The input section of a piece of a section.
    fn piece(&mut self, object_index: usize, object: &'w Object<'a>, section: usize, piece: usize) -> usize {
        let origin = Origin::Piece {
            object: object_index,
            section,
            piece,
        };
        if let Some(&known) = self.by_origin.get(&origin) {
            return known;
        }
        let from = &object.sections[section];
        let piece = from.pieces[piece];
        let extent = (piece.end - piece.start, piece.align);
        if extent.0 >= MAX_ADDRESS || extent.1 > MAX_ALIGN {
            self.refuse_extent(object.enclosing(section, piece.start), extent.0, extent.1);
        }
        let data = match from.kind {
            SectionKind::Bss => &[][..],
            _ => &from.data[piece.start as usize..piece.end as usize],
        };
        if from.mergeable {
            if let Some(&known) = self.by_bytes.get(data) {
                let input_section = &mut self.sections[known];
                input_section.align = input_section.align.max(piece.align);
                self.by_origin.insert(origin, known);
                return known;
            }
            self.by_bytes.insert(data, self.sections.len());
        }
        let size = piece.end - piece.start;
        self.push(InputSection {
            origin,
            kind: from.kind,
            data,
            size,
            align: piece.align,
            links: Vec::new(),
            parent: self.here,
        })
    }

    /// The input section of an offset of a section that was reached.
    pub(crate) fn input_section_at(&self, object: usize, section: usize, offset: u64) -> Option<usize> {
        let pieces = &self.object(object)?.sections[section].pieces;
        let piece = piece_at(pieces, offset);
        let origin = Origin::Piece {
            object,
            section,
            piece,
        };
        self.by_origin.get(&origin).copied()
    }

    fn push(&mut self, input_section: InputSection<'a>) -> usize {
        self.by_origin
            .insert(input_section.origin.clone(), self.sections.len());
        self.sections.push(input_section);
        self.sections.len() - 1
    }

    /// Validates the relocations of a input section.
    fn follow(&mut self, index: usize, arch: &'static dyn Arch) {
        let Origin::Piece {
            object: object_index,
            section,
            ..
        } = self.sections[index].origin
        else {
            return;
        };
        let Some(object) = self.object(object_index) else {
            return;
        };
        if object.arch.machine() != arch.machine() {
            let detail = "an object for another architecture than the entry's";
            self.reasons
                .add(Rule::Malformed, &object.name, detail, None, help::MALFORMED);
            return;
        }
        let from = &object.sections[section];
        if from.kind == SectionKind::Bss && !from.relocations.is_empty() {
            self.reasons.add(
                Rule::Malformed,
                &object.name,
                "relocations in zeroed data",
                None,
                help::MALFORMED,
            );
            return;
        }
        // A section with relocations is one piece: a relocation's offset in the section is its offset in the input section.
        let mut links = Vec::with_capacity(from.relocations.len());
        let mut free = 0;
        for relocation in &from.relocations {
            let place = Site {
                object_index,
                object,
                section,
                relocation,
            };
            self.here = Some((index, relocation.offset));
            let Some(link) = self.validate(&place, arch) else {
                continue;
            };
            if link.plan.start < free {
                self.refuse(&place, Refused::Malformed, arch, "two relocations of one place");
                continue;
            }
            free = link.plan.end;
            links.push(link);
        }
        self.sections[index].links = links;
    }

    fn validate(&mut self, site: &Site<'w, 'a>, arch: &'static dyn Arch) -> Option<Link> {
        let Relocation {
            offset,
            kind,
            symbol,
            addend,
        } = *site.relocation;
        let section = &site.object.sections[site.section];
        let at = Bytes {
            bytes: section.data,
            offset: offset as usize,
            text: section.kind == SectionKind::Text,
        };
        let plan = |addend, class| arch.plan(kind, at, addend, class);
        if symbol == 0 {
            if plan(addend, TargetClass::Internal) != Ok(None) {
                self.refuse(site, Refused::Malformed, arch, "a relocation without a symbol");
            }
            return None;
        }
        let target = &site.object.symbols[symbol];
        if target.kind == elf::STT_TLS {
            self.refuse(site, Refused::ThreadLocal, arch, "");
            return None;
        }
        // What a relocation asks for is validated before the symbol is looked up: a reason is told once.
        match plan(addend, TargetClass::Internal) {
            Ok(Some(_)) => {}
            // Nobody needs what is not even read.
            Ok(None) => return None,
            Err(refused) => {
                self.refuse(site, refused, arch, "");
                return None;
            }
        }
        let part_of_target = target.is_section() && arch.addend_is_part_of_target(kind);
        let (target, addend) = self.resolve(site, target, addend, part_of_target)?;
        let class = match target {
            Target::InputSection { .. } => TargetClass::Internal,
            Target::Import(_) => TargetClass::Import,
        };
        match plan(site.relocation.addend, class) {
            Ok(plan) => plan.map(|plan| Link {
                kind,
                plan,
                target,
                addend,
            }),
            Err(refused) => {
                self.refuse(site, refused, arch, "");
                None
            }
        }
    }

    /// What a relocation refers to, and what is left of its addend.
    fn resolve(
        &mut self,
        site: &Site<'w, 'a>,
        symbol: &'w Symbol<'a>,
        addend: i64,
        part_of_target: bool,
    ) -> Option<(Target, i64)> {
        if symbol.local {
            if symbol.place == Place::Undefined {
                self.malformed(site, "a local symbol without a place");
                return None;
            }
            return self.place(
                site,
                site.object_index,
                site.object,
                symbol,
                addend,
                part_of_target,
            );
        }
        match self.inputs.definition(symbol.name) {
            Ok(Some(found)) if self.is_unextracted(symbol, found) => {
                self.import(site, symbol).map(|target| (target, addend))
            }
            Ok(Some(found)) => {
                self.refuse_interposed(site, symbol, found);
                let object = self.object(found.object)?;
                self.place(
                    site,
                    found.object,
                    object,
                    &object.symbols[found.symbol],
                    addend,
                    false,
                )
            }
            Ok(None) if symbol.place == Place::Undefined => self.import(site, symbol).map(|t| (t, addend)),
            // A member whose archive does not list it.
            Ok(None) => self.place(
                site,
                site.object_index,
                site.object,
                symbol,
                addend,
                part_of_target,
            ),
            Err((object, unreadable)) => {
                self.note(site, Rule::Malformed, object, &unreadable.reason, unreadable.help);
                None
            }
        }
    }

    /// A weak reference asks for no member of an archive: it is bound to one that is there for other reasons.
    fn is_unextracted(&self, symbol: &Symbol<'a>, found: Definition) -> bool {
        symbol.weak
            && symbol.place == Place::Undefined
            && self.inputs.archived(found.object)
            && !self
                .members
                .get_or_init(|| self.inputs.extracted_members(&self.root))
                .contains(&found.object)
    }

    fn place(
        &mut self,
        site: &Site<'w, 'a>,
        object_index: usize,
        object: &'w Object<'a>,
        symbol: &Symbol<'a>,
        addend: i64,
        part_of_target: bool,
    ) -> Option<(Target, i64)> {
        if symbol.kind == elf::STT_GNU_IFUNC {
            self.note(site, Rule::GnuIfunc, symbol.name, "", help::GNU_IFUNC);
            return None;
        }
        let (index, value) = match symbol.place {
            Place::Section { index, value } => (index, value),
            Place::Common { .. } => {
                let input_section = self.common(symbol.name);
                return Some((
                    Target::InputSection {
                        input_section,
                        offset: 0,
                    },
                    addend,
                ));
            }
            Place::Absolute { .. } => {
                self.note(site, Rule::AbsoluteSymbol, symbol.name, "", help::ABSOLUTE);
                return None;
            }
            Place::Undefined => {
                self.malformed(site, "a definition without a place");
                return None;
            }
        };
        let section = &object.sections[index];
        let shown = if symbol.name.is_empty() {
            section.name
        } else {
            symbol.name
        };
        match section.kind {
            SectionKind::Text | SectionKind::ReadOnly | SectionKind::Data | SectionKind::Bss => {}
            SectionKind::Tls => {
                self.note(site, Rule::ThreadLocal, shown, "", help::THREAD_LOCAL);
                return None;
            }
            SectionKind::Constructors | SectionKind::Other => {
                let detail = format!("section `{}`", section.name);
                self.note(site, Rule::Section, shown, &detail, help::SECTION);
                return None;
            }
        }
        let (value, addend) = match u64::try_from(addend) {
            Ok(offset) if part_of_target && offset <= section.size - value => (value + offset, 0),
            _ if part_of_target && section.pieces.len() > 1 => {
                self.malformed(site, "a reference beyond a mergeable section");
                return None;
            }
            _ => (value, addend),
        };
        // What an object does inside of itself was looked at when it was read.
        if section.pieces.len() > 1 && object_index != site.object_index {
            let from = &site.object.sections[site.section];
            if leaves_piece(site.object.arch, from, site.relocation, section, value) {
                let detail = format!(
                    "`{shown}` is a constant of the mergeable section `{}` of {}, and this refers to what lies beside it",
                    section.name, object.name
                );
                self.malformed(site, &detail);
                return None;
            }
        }
        let piece = piece_at(&section.pieces, value);
        let offset = value - section.pieces[piece].start;
        let input_section = self.piece(object_index, object, index, piece);
        Some((
            Target::InputSection {
                input_section,
                offset,
            },
            addend,
        ))
    }

    fn common(&mut self, name: &str) -> usize {
        let origin = Origin::Common(name.into());
        if let Some(&known) = self.by_origin.get(&origin) {
            return known;
        }
        let (size, align) = self.inputs.common_extent(name);
        self.refuse_extent(name, size, align);
        self.push(InputSection {
            origin,
            kind: SectionKind::Bss,
            data: &[],
            size,
            align,
            links: Vec::new(),
            parent: self.here,
        })
    }

    pub(crate) fn trap(&mut self, arch: &'static dyn Arch) -> usize {
        if let Some(&known) = self.by_origin.get(&Origin::Trap) {
            return known;
        }
        let data = arch.trap();
        self.push(InputSection {
            origin: Origin::Trap,
            kind: SectionKind::Text,
            data,
            size: data.len() as u64,
            align: 1,
            links: Vec::new(),
            parent: self.here,
        })
    }
}
