//! From addresses to bytes.

use ifunc_abi::image::{ImageParts, ImportFlags, ImportPart, Relocation};

use crate::arch::{Need, Patch};
use crate::gc::{Graph, Link, Target};
use crate::layout::{Layout, got_offset};
use crate::object_file::SectionKind;
use crate::reason::{Reasons, Rule};
use crate::{Imports, Request, help};

/// Writes the image's parts.
pub(crate) fn emit(
    reached: &Graph<'_, '_>,
    layout: &Layout,
    request: &Request<'_>,
    reasons: &mut Reasons,
) -> Option<ImageParts> {
    let mut out = Out {
        reached,
        layout,
        rx: vec![0; layout.rx_len as usize],
        rw: vec![0; layout.rw_len as usize],
        relocations: Vec::new(),
    };
    out.rx[..layout.text_len as usize].fill(reached.arch.text_fill());
    let written = out.write();
    if written.is_none() {
        let detail = "a distance or an address beyond 32 bits";
        reasons.add(Rule::TooLarge, request.name, detail, None, help::TOO_LARGE);
        return None;
    }
    let fingerprint = |symbol: &str| match &request.imports {
        Imports::Declared(declared) => declared.get(symbol).copied().unwrap_or(0),
        Imports::Any => 0,
    };
    let imports = reached
        .imports
        .iter()
        .map(|import| ImportPart {
            symbol: import.symbol.into(),
            flags: ImportFlags::NONE
                .union_if(import.weak, ImportFlags::WEAK)
                .union_if(import.data, ImportFlags::DATA),
            fingerprint: fingerprint(import.symbol),
        })
        .collect();
    let (entry, offset) = reached.entry;
    Some(ImageParts {
        name: request.name.into(),
        arch: reached.arch.machine(),
        flags: request.flags,
        cpu_features: request.cpu_features,
        payload: request.payload,
        target: request.target,
        answer: request.answer,
        payload_align_log2: request.payload_align.max(1).next_power_of_two().trailing_zeros() as u8,
        entry: (layout.sections[entry] + offset) as u32,
        slot: layout.slot.map(|slot| slot as u32),
        rx_align_log2: layout.align.trailing_zeros() as u8,
        rx: out.rx,
        rw_at: layout.rw_at as u32,
        rw: out.rw,
        rw_mem: layout.rw_mem as u32,
        imports,
        relocations: out.relocations,
        needed: request.needed.iter().map(|&soname| soname.into()).collect(),
    })
}

struct Out<'r, 'a> {
    reached: &'r Graph<'r, 'a>,
    layout: &'r Layout,
    rx: Vec<u8>,
    rw: Vec<u8>,
    relocations: Vec<Relocation>,
}

impl Out<'_, '_> {
    fn write(&mut self) -> Option<()> {
        let (reached, layout) = (self.reached, self.layout);
        let arch = reached.arch;
        for (index, input_section) in reached.sections.iter().enumerate() {
            if input_section.kind == SectionKind::Bss {
                continue;
            }
            let base = layout.sections[index];
            self.bytes(base, input_section.data.len())?
                .copy_from_slice(input_section.data);
            for (number, link) in input_section.links.iter().enumerate() {
                self.link(base, (index, number), link)?;
            }
        }
        let slot = layout.slot.unwrap_or(0);
        for (&import, &at) in &layout.thunks {
            let code = arch.thunk(at, slot, got_offset(import))?;
            self.bytes(at, code.len())?.copy_from_slice(&code);
        }
        for (&(input_section, link), stub) in &layout.stubs {
            let place = layout.sections[input_section];
            let input_section = &reached.sections[input_section];
            let plan = input_section.links[link].plan;
            let place = place + plan.start as u64;
            let original = &input_section.data[plan.start..plan.end];
            let code = arch.stub(plan.form, original, place, stub.at, slot, got_offset(stub.import))?;
            self.bytes(stub.at, code.len())?.copy_from_slice(&code);
        }
        for (&target, &at) in &layout.got_entries {
            self.install(at, target, 0)?;
        }
        Some(())
    }

    /// Patches one place of a input section at `base`.
    fn link(&mut self, base: u64, id: (usize, usize), link: &Link) -> Option<()> {
        let (reached, layout) = (self.reached, self.layout);
        let Link {
            plan, target, addend, ..
        } = *link;
        let place = base + plan.start as u64;
        let address = match (plan.need, target) {
            (
                Need::Nothing,
                Target::InputSection {
                    input_section,
                    offset,
                },
            ) => layout.sections[input_section] + offset,
            (Need::Thunk, Target::Import(import)) => *layout.thunks.get(&import)?,
            (Need::Stub, Target::Import(_)) => layout.stubs.get(&id)?.at,
            (Need::GotEntry, target) => *layout.got_entries.get(&target)?,
            (Need::Address, target) => {
                self.install(place, target, addend)?;
                0
            }
            // An architecture never plans these.
            (Need::Nothing, Target::Import(_)) | (Need::Thunk | Need::Stub, Target::InputSection { .. }) => {
                return None;
            }
        };
        let patch = Patch {
            address: place,
            target: address,
            addend,
        };
        reached
            .arch
            .apply(plan.form, self.bytes(place, plan.end - plan.start)?, &patch)
    }

    /// Adds the install relocation that stores the target's address at `place`.
    fn install(&mut self, place: u64, target: Target, addend: i64) -> Option<()> {
        let offset = u32::try_from(place).ok()?;
        self.relocations.push(match target {
            Target::InputSection {
                input_section,
                offset: inside,
            } => {
                let address =
                    i128::from(self.layout.sections[input_section]) + i128::from(inside) + i128::from(addend);
                Relocation::Relative {
                    offset,
                    addend: i32::try_from(address).ok()?,
                }
            }
            Target::Import(import) => Relocation::Import {
                offset,
                import: import as u32,
                addend,
            },
        });
        Some(())
    }

    /// The bytes at an address.
    fn bytes(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let rw_at = self.layout.rw_at;
        let (part, at) = if rw_at != 0 && at >= rw_at {
            (&mut self.rw, at - rw_at)
        } else {
            (&mut self.rx, at)
        };
        let at = usize::try_from(at).ok()?;
        part.get_mut(at..at.checked_add(len)?)
    }
}
