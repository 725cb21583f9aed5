//! What the linker did with relocations, case by case: read off the plans that it carried out.

use std::collections::BTreeMap;

use crate::arch::Need;
use crate::gc::{Graph, Link, Origin, Target};
use crate::object_file::SectionKind;

/// What became of relocations of one kind in one image: a line of the linker's coverage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelocationUse {
    /// The kind by its name in the psABI, such as `R_X86_64_REX_GOTPCRELX`.
    pub kind: String,
    /// The place it stands in: an instruction (`call *[rip]`, `mov r64, [rip]`) or `data`.
    pub place: &'static str,
    /// Whether it refers to an import, or to something in the image.
    pub import: bool,
    /// How it is resolved: by a `distance`, a `thunk`, a `stub`, a `GOT entry`, an `install relocation`, or by a `trap` where
    /// the code behind it is never run.
    pub resolved: &'static str,
    /// How often in this image.
    pub count: usize,
}

/// The relocations of what was reached, counted.
pub(crate) fn of(reached: &Graph<'_, '_>) -> Vec<RelocationUse> {
    let mut counts: BTreeMap<(u32, &'static str, bool, &'static str), usize> = BTreeMap::new();
    for input_section in &reached.sections {
        for link in &input_section.links {
            let place = match input_section.kind {
                SectionKind::Text => link.plan.place,
                _ => "data",
            };
            let import = matches!(link.target, Target::Import(_));
            *counts
                .entry((link.kind, place, import, resolved(reached, link)))
                .or_default() += 1;
        }
    }
    let mut uses: Vec<_> = counts
        .into_iter()
        .map(|((kind, place, import, resolved), count)| RelocationUse {
            kind: reached.arch.relocation_name(kind),
            place,
            import,
            resolved,
            count,
        })
        .collect();
    uses.sort();
    uses
}

fn resolved(reached: &Graph<'_, '_>, link: &Link) -> &'static str {
    match (link.plan.need, link.target) {
        (_, Target::InputSection { input_section, .. })
            if reached.sections[input_section].origin == Origin::Trap =>
        {
            "trap"
        }
        (Need::Nothing, _) => "distance",
        (Need::Thunk, _) => "thunk",
        (Need::Stub, _) => "stub",
        (Need::GotEntry, _) => "GOT entry",
        (Need::Address, _) => "install relocation",
    }
}
