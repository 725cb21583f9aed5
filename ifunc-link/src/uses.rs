//! Counts of what the linker did with relocations, kind of case by kind of case.

use crate::graph::Graph;

/// Relocations of one kind in one image that were resolved alike: a line of the linker's coverage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelocationUse {
    /// The kind by its name in the psABI, such as `R_X86_64_REX_GOTPCRELX`.
    pub kind: String,
    /// The place it stands in: an instruction (`call *[rip]`, `mov r64, [rip]`) or `data`.
    pub place: &'static str,
    /// Whether it refers to an import, or to something in the image.
    pub import: bool,
    /// How it is resolved: by a `distance`, a `thunk`, a `stub`, the `slot`, a `GOT entry`, an `install relocation`, or by a `trap`
    /// where the code never runs.
    pub resolved: &'static str,
    /// How often in this image.
    pub count: usize,
}

/// The relocations of an image, counted.
pub(crate) fn of(graph: &Graph<'_, '_>) -> Vec<RelocationUse> {
    let uses = graph.uses.iter();
    let mut uses: Vec<_> = uses
        .map(|(&(kind, place, import, resolved), &count)| RelocationUse {
            kind: graph.arch.relocation_name(kind),
            place,
            import,
            resolved,
            count,
        })
        .collect();
    uses.sort();
    uses
}
