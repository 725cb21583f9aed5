//! From plans and addresses to bytes: applies every relocation, and writes thunks, stubs and GOT entries.

use ifunc_abi::image::Relocation as InstallRelocation;

use crate::arch::{Patch, Unfit};
use crate::graph::{Graph, Method, PlannedRelocation, Target};
use crate::layout::{Layout, got_offset};
use crate::object_file::SectionKind;

/// The parts of an image, before an install.
pub(crate) struct Relocated {
    pub(crate) rx: Vec<u8>,
    pub(crate) rw: Vec<u8>,
    pub(crate) install: Vec<InstallRelocation>,
}

/// A place that cannot be patched: its input section, and why.
#[derive(Debug)]
pub(crate) struct Unpatched {
    pub(crate) section: Option<usize>,
    pub(crate) why: Unfit,
}

/// What does not fit the fields of an image.
const TOO_FAR: Unfit = Unfit::TooFar("a distance or an address beyond 32 bits");

impl From<Unfit> for Unpatched {
    fn from(why: Unfit) -> Self {
        Self { section: None, why }
    }
}

/// Relocates the graph.
pub(crate) fn relocate(graph: &Graph<'_, '_>, layout: &Layout) -> Result<Relocated, Unpatched> {
    let mut out = Writer {
        layout,
        parts: Relocated {
            rx: vec![0; layout.rx_len as usize],
            rw: vec![0; layout.rw_len as usize],
            install: Vec::new(),
        },
    };
    let arch = graph.arch;
    out.parts.rx[..layout.text_len as usize].fill(arch.text_fill());
    for (number, (section, &base)) in graph.sections.iter().zip(&layout.sections).enumerate() {
        if section.kind == SectionKind::Bss {
            continue;
        }
        out.bytes(base, section.data.len())?.copy_from_slice(section.data);
        for relocation in &section.relocations {
            out.apply(graph, base, relocation).map_err(|why| Unpatched {
                section: Some(number),
                why,
            })?;
        }
    }
    let slot = layout.slot.unwrap_or(0);
    for (&import, thunk) in &layout.thunks {
        let code = arch.thunk(thunk.at, slot, got_offset(import)).ok_or(TOO_FAR)?;
        out.bytes(thunk.at, thunk.len as usize)?.copy_from_slice(&code);
    }
    for (&stub, to) in graph.stubs.iter().zip(&layout.stubs) {
        let (section, relocation) = graph.site_of(stub);
        let place = layout.sections[stub.section] + relocation.start as u64;
        let code = section.code_at(relocation);
        let code = arch.stub(code, place, to.at, slot, got_offset(stub.import));
        let code = code.ok_or(TOO_FAR)?;
        out.bytes(to.at, to.len as usize)?.copy_from_slice(&code);
    }
    for (&target, &at) in &layout.got_entries {
        out.install(at, target, 0)?;
    }
    Ok(out.parts)
}

struct Writer<'l> {
    layout: &'l Layout,
    parts: Relocated,
}

impl Writer<'_> {
    /// Patches one place of an input section at `base`.
    fn apply(
        &mut self,
        graph: &Graph<'_, '_>,
        base: u64,
        relocation: &PlannedRelocation,
    ) -> Result<(), Unfit> {
        let layout = self.layout;
        let place = base + relocation.start as u64;
        let mut through_slot = 0;
        let target = match relocation.method {
            Method::Distance(at) => layout.address(at),
            Method::Thunk(import) => layout.thunks.get(&import).ok_or(Unfit::Form)?.at,
            Method::Stub(stub) => layout.stubs[stub].at,
            Method::Slot(import) => {
                through_slot = got_offset(import);
                layout.slot.ok_or(Unfit::Form)?
            }
            Method::GotEntry(target) => *layout.got_entries.get(&target).ok_or(Unfit::Form)?,
            Method::InstallRelocation(target) => {
                self.install(place, target, relocation.addend)?;
                0
            }
        };
        let patch = Patch {
            address: place,
            target,
            addend: relocation.addend,
            got_offset: through_slot,
            base_align: layout.align,
        };
        let code = self.bytes(place, relocation.end - relocation.start)?;
        graph.arch.apply(relocation.form, code, &patch)
    }

    /// Adds the install relocation that stores the target's address at `place`.
    fn install(&mut self, place: u64, target: Target, addend: i64) -> Result<(), Unfit> {
        let offset = u32::try_from(place).map_err(|_| TOO_FAR)?;
        self.parts.install.push(match target {
            Target::Section(at) => {
                let base = i128::from(self.layout.sections[at.section]);
                let address = base + i128::from(at.offset) + i128::from(addend);
                InstallRelocation::Relative {
                    offset,
                    addend: i32::try_from(address).map_err(|_| TOO_FAR)?,
                }
            }
            Target::Import(import) => InstallRelocation::Import {
                offset,
                import: import as u32,
                addend,
            },
        });
        Ok(())
    }

    /// The bytes at an address.
    fn bytes(&mut self, at: u64, len: usize) -> Result<&mut [u8], Unfit> {
        let rw_at = self.layout.rw_at;
        let (part, at) = if rw_at != 0 && at >= rw_at {
            (&mut self.parts.rw, at - rw_at)
        } else {
            (&mut self.parts.rx, at)
        };
        let at = usize::try_from(at).map_err(|_| TOO_FAR)?;
        let end = at.checked_add(len).ok_or(TOO_FAR)?;
        part.get_mut(at..end).ok_or(TOO_FAR)
    }
}
