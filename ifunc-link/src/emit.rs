//! The parts of an image, from the graph, its layout and its bytes.

use ifunc_abi::image::{EntryPart, ImageFlags, ImageParts, ImportFlags, ImportPart};
use ifunc_abi::symbols::{COMPILER_IMPORTS, RUNTIME_IMPORTS};

use crate::graph::{Graph, Import};
use crate::layout::Layout;
use crate::relocate::Relocated;
use crate::{Imports, Request};

/// Puts an image together.
pub(crate) fn emit(
    graph: &Graph<'_, '_>,
    layout: &Layout,
    relocated: Relocated,
    request: &Request<'_>,
) -> ImageParts {
    let fingerprint = |symbol: &str| match &request.imports {
        Imports::Declared(declared) => declared.get(symbol).copied().unwrap_or(0),
        Imports::Any => 0,
    };
    let imports = graph.imports.iter().map(|import| ImportPart {
        symbol: import.symbol.into(),
        flags: ImportFlags::NONE
            .union_if(import.weak, ImportFlags::WEAK)
            .union_if(import.data, ImportFlags::DATA),
        fingerprint: fingerprint(import.symbol),
    });
    // Without an import that a library could define, the image also runs where the libraries are not allowed.
    let needed = match graph.imports.iter().all(is_always_provided) {
        true => &[][..],
        false => &request.needed,
    };
    let root = &request.root;
    ImageParts {
        arch: graph.arch.machine(),
        flags: ImageFlags::NONE.union_if(root.is_pinned, ImageFlags::PINNED),
        cpu_features: request.cpu_features,
        entries: vec![EntryPart {
            name: root.name.into(),
            flags: root.flags,
            main: layout.address(graph.entry) as u32,
            batch: graph.batch.map(|batch| layout.address(batch) as u32),
            payload: root.payload,
            target: root.target,
            answer: root.answer,
            payload_align_log2: root.payload_align.max(1).next_power_of_two().trailing_zeros() as u8,
        }],
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
