//! Garbage collection of sections: one walk over the relocations, from the entries. It keeps the input sections that the
//! entries reach, plans each of their relocations, and collects every reason against the image. Everything else is
//! dropped.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use ifunc_abi::symbols;
use object::elf;

use crate::arch::{Arch, Bytes, Classified, External, Internal, Refused, Resolution};
use crate::graph::{
    Graph, Import, InputSection, Method, Origin, PlannedRelocation, SectionOffset, Stub, Target, Use,
};
use crate::inputs::Inputs;
use crate::layout::{MAX_ADDRESS, MAX_ALIGN, got_offset};
use crate::merge::piece_at;
use crate::object_file::{Location, Object, Relocation, SectionKind};
use crate::reason::{Reasons, Rule};
use crate::refuse::Site;
use crate::{Ifunc, LinkError, Request, help};

/// Builds the graph of an image with these entries, or returns every reason why there is none. It also finds the other ifuncs of
/// the request that the entries reach.
pub(crate) fn collect<'w, 'a>(
    inputs: &'w Inputs<'a>,
    request: &'w Request<'_>,
    entries: &[Ifunc<'_>],
) -> Result<Graph<'w, 'a>, LinkError> {
    let graph = collect_for(inputs, request, entries, 0)?;
    let text = graph.text_bound();
    // The size of the text is known after the walk alone, and decides how the code of large images reaches imports.
    match graph.loads_slot && !graph.arch.reaches_slot(text, 0) {
        true => collect_for(inputs, request, entries, text),
        false => Ok(graph),
    }
}

/// Builds the graph of an image with at most `text` bytes of text.
fn collect_for<'w, 'a>(
    inputs: &'w Inputs<'a>,
    request: &'w Request<'_>,
    entries: &[Ifunc<'_>],
    text: u64,
) -> Result<Graph<'w, 'a>, LinkError> {
    let mut collector = Collector {
        inputs,
        request,
        sections: Vec::new(),
        by_origin: BTreeMap::new(),
        by_bytes: HashMap::new(),
        imports: Vec::new(),
        import_numbers: HashMap::new(),
        thunks: BTreeSet::new(),
        stubs: Vec::new(),
        text,
        loads_slot: false,
        got_entries: BTreeSet::new(),
        uses: BTreeMap::new(),
        reasons: Reasons::default(),
        current: None,
        roots: entries.iter().map(|entry| main_of(entry.name)).collect(),
        others: request.others.iter().map(|other| main_of(other.name)).collect(),
        reached: BTreeSet::new(),
        extracted: OnceCell::new(),
    };
    let mut found = Vec::new();
    for root in collector.roots.clone() {
        found.extend(collector.entry(&root));
    }
    let Some(&(arch, _)) = found.first().filter(|_| found.len() == entries.len()) else {
        return Err(collector.reasons.into_error(request.root.name));
    };
    let batches = entries.iter().map(|entry| collector.batch(entry.name)).collect();
    let mains = found.into_iter().map(|(_, main)| main).collect();
    let mut next = 0;
    while next < collector.sections.len() {
        collector.follow(next, arch);
        next += 1;
    }
    collector.refuse_duplicates();
    collector.refuse_constructors();
    collector.refuse_executable_stacks();
    let graph = Graph {
        inputs,
        arch,
        sections: collector.sections,
        imports: collector.imports,
        entries: mains,
        batches,
        reached: collector.reached,
        thunks: collector.thunks,
        stubs: collector.stubs,
        loads_slot: collector.loads_slot,
        got_entries: collector.got_entries,
        uses: collector.uses,
    };
    collector.reasons.unless_any(request.root.name, graph)
}

/// The symbol of an ifunc's entry.
fn main_of(name: &str) -> String {
    format!("{name}{}", symbols::MAIN_SUFFIX)
}

/// The graph while it grows.
pub(crate) struct Collector<'w, 'a> {
    pub(crate) inputs: &'w Inputs<'a>,
    pub(crate) request: &'w Request<'w>,
    pub(crate) sections: Vec<InputSection<'a>>,
    pub(crate) by_origin: BTreeMap<Origin, usize>,
    /// Pieces of mergeable sections by their bytes.
    by_bytes: HashMap<&'a [u8], usize>,
    pub(crate) imports: Vec<Import<'a>>,
    pub(crate) import_numbers: HashMap<&'a str, usize>,
    thunks: BTreeSet<usize>,
    stubs: Vec<Stub>,
    /// Bytes of text, as far as they are known.
    text: u64,
    loads_slot: bool,
    got_entries: BTreeSet<Target>,
    uses: BTreeMap<Use, usize>,
    pub(crate) reasons: Reasons,
    /// The relocation that is planned: its input section, and its offset in the section.
    pub(crate) current: Option<(usize, u64)>,
    /// The symbols of the entries.
    pub(crate) roots: Vec<String>,
    /// The symbols of the other ifuncs that may be entries, in their order.
    others: Vec<String>,
    /// Those to which a kept section refers, by their indices.
    reached: BTreeSet<usize>,
    /// The members of archives that an ordinary linker extracts; computed for the first weak reference to a member.
    pub(crate) extracted: OnceCell<BTreeSet<usize>>,
}

/// A relocation whose target is known.
struct Validated {
    classified: Classified,
    target: Target,
    /// What is left of the relocation's addend.
    addend: i64,
    /// The bytes that are rewritten.
    start: usize,
    end: usize,
}

impl<'w, 'a> Collector<'w, 'a> {
    /// Finds an entry and keeps its input section.
    fn entry(&mut self, root: &str) -> Option<(&'static dyn Arch, SectionOffset)> {
        let mut refuse = |rule, detail, help| {
            self.reasons.add(rule, root, detail, None, help);
            None
        };
        let found = match self.inputs.definition(root) {
            Ok(Some(found)) => found,
            Ok(None) => return refuse(Rule::NoEntry, "", help::NO_ENTRY),
            Err((object, unreadable)) => {
                self.reasons
                    .add(Rule::Malformed, object, &unreadable.reason, None, unreadable.help);
                return None;
            }
        };
        let object = self.inputs.object(found.object).ok()?;
        let symbol = &object.symbols[found.symbol];
        let Location::Section { index, value } = symbol.place else {
            return refuse(Rule::NoEntry, "it is not a function", help::NO_ENTRY);
        };
        if symbol.kind == elf::STT_GNU_IFUNC {
            return refuse(Rule::GnuIfunc, "", help::GNU_IFUNC);
        }
        if object.sections[index].kind != SectionKind::Text || value >= object.sections[index].size {
            return refuse(Rule::NoEntry, "it is not a function", help::NO_ENTRY);
        }
        let section = self.keep(found.object, object, index, 0);
        Some((
            object.arch,
            SectionOffset {
                section,
                offset: value,
            },
        ))
    }

    /// Finds the function that runs a run of entries, and keeps its input section. An image without one runs them one by one.
    fn batch(&mut self, name: &str) -> Option<SectionOffset> {
        let batch = format!("{}{name}", symbols::BATCH_PREFIX);
        let found = self.inputs.definition(&batch).ok()??;
        let object = self.inputs.object(found.object).ok()?;
        let symbol = &object.symbols[found.symbol];
        let Location::Section { index, value } = symbol.place else {
            return None;
        };
        let section = &object.sections[index];
        if section.kind != SectionKind::Text || value >= section.size || symbol.kind == elf::STT_GNU_IFUNC {
            return None;
        }
        let section = self.keep(found.object, object, index, 0);
        Some(SectionOffset {
            section,
            offset: value,
        })
    }

    /// A relocation of a kept section refers to a symbol that this image defines.
    pub(crate) fn reach(&mut self, symbol: &str) {
        self.reached
            .extend(self.others.iter().position(|other| other == symbol));
    }

    /// A readable object. Those that definitions and input sections refer to always are.
    pub(crate) fn object(&self, index: usize) -> Option<&'w Object<'a>> {
        self.inputs.object(index).ok()
    }

    /// The input section of a piece of a section; pieces of the same bytes share one.
    pub(crate) fn keep(
        &mut self,
        object_index: usize,
        object: &'w Object<'a>,
        section: usize,
        piece: usize,
    ) -> usize {
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
        let size = piece.end - piece.start;
        if size >= MAX_ADDRESS || piece.align > MAX_ALIGN {
            self.refuse_extent(object.enclosing(section, piece.start), size, piece.align);
        }
        let data = match from.kind {
            SectionKind::Bss => &[][..],
            _ => &from.data[piece.start as usize..piece.end as usize],
        };
        if from.mergeable {
            if let Some(&known) = self.by_bytes.get(data) {
                let merged = &mut self.sections[known];
                merged.align = merged.align.max(piece.align);
                self.by_origin.insert(origin, known);
                return known;
            }
            self.by_bytes.insert(data, self.sections.len());
        }
        self.push(origin, from.kind, data, size, piece.align)
    }

    /// Adds an input section.
    pub(crate) fn push(
        &mut self,
        origin: Origin,
        kind: SectionKind,
        data: &'a [u8],
        size: u64,
        align: u64,
    ) -> usize {
        self.by_origin.insert(origin.clone(), self.sections.len());
        self.sections.push(InputSection {
            origin,
            kind,
            data,
            size,
            align,
            relocations: Vec::new(),
            parent: self.current,
        });
        self.sections.len() - 1
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

    /// Plans the relocations of an input section.
    fn follow(&mut self, index: usize, arch: &'static dyn Arch) {
        let Some((object_index, section)) = self.sections[index].object_section() else {
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
        let mut planned = Vec::with_capacity(from.relocations.len());
        let mut free = 0;
        for relocation in &from.relocations {
            let site = Site {
                object_index,
                object,
                section,
                relocation,
            };
            self.current = Some((index, relocation.offset));
            let Some(validated) = self.validate(&site, arch) else {
                continue;
            };
            if validated.start < free {
                self.refuse(&site, Refused::Malformed, arch, "two relocations of one place");
                continue;
            }
            free = validated.end;
            let (kind, number) = (relocation.kind, planned.len());
            planned.extend(self.plan(&validated, kind, (index, number), arch));
        }
        self.sections[index].relocations = planned;
    }

    /// Classifies a relocation and finds its target. `None`: it changes nothing, or it was refused.
    fn validate(&mut self, site: &Site<'w, 'a>, arch: &'static dyn Arch) -> Option<Validated> {
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
        let classified = arch.classify(kind, at, addend);
        if symbol == 0 {
            if classified != Ok(None) {
                self.refuse(site, Refused::Malformed, arch, "a relocation without a symbol");
            }
            return None;
        }
        let symbol = &site.object.symbols[symbol];
        if symbol.kind == elf::STT_TLS {
            self.refuse(site, Refused::ThreadLocal, arch, "");
            return None;
        }
        // A relocation that no target could make valid is refused before its symbol is looked up: one reason, not two.
        let classified = match classified {
            Ok(classified) => classified?,
            Err(refused) => {
                self.refuse(site, refused, arch, "");
                return None;
            }
        };
        let part_of_target = symbol.is_section() && arch.addend_is_part_of_target(kind);
        let (target, addend) = self.resolve(site, symbol, addend, part_of_target)?;
        let (start, end) = match (target, classified.external) {
            (Target::Section(_), _) => (classified.internal.start, classified.internal.end),
            (Target::Import(_), Ok(external)) => (external.start, external.end),
            (Target::Import(_), Err(refused)) => {
                self.refuse(site, refused, arch, "");
                return None;
            }
        };
        Some(Validated {
            classified,
            target,
            addend,
            start,
            end,
        })
    }

    /// Makes the plan for a validated relocation, and notes the thunk, stub or GOT entry that it needs.
    fn plan(
        &mut self,
        validated: &Validated,
        kind: u32,
        (section, relocation): (usize, usize),
        arch: &'static dyn Arch,
    ) -> Option<PlannedRelocation> {
        let Validated {
            classified,
            target,
            addend,
            start,
            end,
        } = *validated;
        let (form, method) = match target {
            Target::Section(at) => {
                let Resolution { form, method, .. } = classified.internal;
                let method = match method {
                    Internal::Distance => Method::Distance(at),
                    Internal::GotEntry => Method::GotEntry(target),
                    Internal::InstallRelocation => Method::InstallRelocation(target),
                };
                (form, method)
            }
            Target::Import(import) => {
                let Resolution { form, method, .. } = classified.external.ok()?;
                let (form, method) = match method {
                    External::Thunk => (form, Method::Thunk(import)),
                    External::Stub => (form, Method::Stub(self.stubs.len())),
                    External::Slot { .. } if arch.reaches_slot(self.text, got_offset(import)) => {
                        (form, Method::Slot(import))
                    }
                    External::Slot { far } => (far, Method::GotEntry(target)),
                    External::GotEntry => (form, Method::GotEntry(target)),
                    External::InstallRelocation => (form, Method::InstallRelocation(target)),
                };
                if let Method::Stub(_) = method {
                    self.stubs.push(Stub {
                        import,
                        section,
                        relocation,
                    });
                }
                (form, method)
            }
        };
        match method {
            Method::Thunk(import) => {
                self.thunks.insert(import);
            }
            Method::Slot(_) => self.loads_slot = true,
            Method::GotEntry(target) => {
                self.got_entries.insert(target);
            }
            _ => {}
        }
        let place = match self.sections[section].kind {
            SectionKind::Text => classified.place,
            _ => "data",
        };
        let import = matches!(target, Target::Import(_));
        let resolved = self.name_of(target, method);
        *self.uses.entry((kind, place, import, resolved)).or_default() += 1;
        Some(PlannedRelocation {
            form,
            start,
            end,
            method,
            addend,
        })
    }

    /// How a relocation is resolved, as [`RelocationUse`](crate::RelocationUse) names it.
    fn name_of(&self, target: Target, method: Method) -> &'static str {
        match (target, method) {
            (Target::Section(at), _) if self.sections[at.section].origin == Origin::Trap => "trap",
            (_, Method::Distance(_)) => "distance",
            (_, Method::Thunk(_)) => "thunk",
            (_, Method::Stub(_)) => "stub",
            (_, Method::Slot(_)) => "slot",
            (_, Method::GotEntry(_)) => "GOT entry",
            (_, Method::InstallRelocation(_)) => "install relocation",
        }
    }
}
