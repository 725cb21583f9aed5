//! The parts of an image, from the graph, its layout and its bytes.

use ifunc_abi::image::{EntryPart, ImageFlags, ImageParts, ImportFlags, ImportPart};
use ifunc_abi::symbols::{COMPILER_IMPORTS, RUNTIME_IMPORTS, STACK_GUARD};

use crate::graph::{Graph, Import, SectionOffset};
use crate::layout::Layout;
use crate::object_file::SectionKind;
use crate::relocate::Relocated;
use crate::{Ifunc, Imports, Request, Role};

/// Puts an image together.
pub(crate) fn emit(
    graph: &Graph<'_, '_>,
    layout: &Layout,
    relocated: Relocated,
    request: &Request<'_>,
    entries: &[Ifunc<'_>],
) -> ImageParts {
    let fingerprint = |symbol: &str| match &request.imports {
        Imports::Declared(declared) => declared.get(symbol).copied().unwrap_or(0),
        Imports::Any => 0,
    };
    let kind = |import: &Import<'_>| {
        let is_declared =
            matches!(&request.imports, Imports::Declared(all) if all.contains_key(import.symbol));
        if import.is_variable || request.variables.contains(import.symbol) || import.symbol == STACK_GUARD {
            ImportFlags::DATA
        } else {
            let is_function = import.is_function || is_declared || is_always_provided(import);
            ImportFlags::NONE.union_if(is_function, ImportFlags::FUNCTION)
        }
    };
    let imports = graph.imports.iter().map(|import| ImportPart {
        symbol: import.symbol.into(),
        flags: kind(import).union_if(import.weak, ImportFlags::WEAK),
        fingerprint: fingerprint(import.symbol),
    });
    // Without an import that a library could define, the image also runs where the libraries are not allowed.
    let needed = match graph.imports.iter().all(is_always_provided) {
        true => &[][..],
        false => &request.needed,
    };
    let entry = |(ifunc, (main, batch)): (&Ifunc<'_>, (SectionOffset, Option<SectionOffset>))| EntryPart {
        name: ifunc.name.into(),
        flags: ifunc.flags,
        main: layout.address(main) as u32,
        batch: batch.map(|batch| layout.address(batch) as u32),
        payload: ifunc.payload,
        target: ifunc.target,
        answer: ifunc.answer,
        payload_align_log2: ifunc.payload_align.max(1).next_power_of_two().trailing_zeros() as u8,
    };
    let is_pinned = entries.iter().any(|entry| entry.is_pinned);
    let mut text = graph
        .sections
        .iter()
        .filter(|section| section.kind == SectionKind::Text);
    // Relocation changes operands, not which instructions there are; what the linker adds are jumps and loads.
    let keeps_float_control = text.all(|section| graph.arch.keeps_float_control(section.data));
    ImageParts {
        arch: graph.arch.machine(),
        flags: ImageFlags::NONE
            .union_if(is_pinned, ImageFlags::PINNED)
            .union_if(keeps_float_control, ImageFlags::KEEPS_FLOAT_CONTROL),
        cpu_features: match graph.holds(Role::Helper) {
            true => request.cpu_features | request.helpers_cpu_features,
            false => request.cpu_features,
        },
        entries: entries
            .iter()
            .zip(
                graph
                    .entries
                    .iter()
                    .zip(&graph.batches)
                    .map(|(&main, &batch)| (main, batch)),
            )
            .map(entry)
            .collect(),
        slot: layout.slot.map(|slot| slot as u32),
        rx_align_log2: layout.align.trailing_zeros() as u8,
        rx: relocated.rx,
        rw_at: layout.rw_at as u32,
        rw: relocated.rw,
        rw_mem: layout.rw_mem as u32,
        imports: imports.collect(),
        relocations: relocated.install,
        needed: needed.iter().map(|&soname| soname.into()).collect(),
    }
}

/// Whether every target provides the import.
fn is_always_provided(import: &Import<'_>) -> bool {
    COMPILER_IMPORTS.contains(&import.symbol) || RUNTIME_IMPORTS.contains(&import.symbol)
}
