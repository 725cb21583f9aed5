//! The address of everything in the image.
//!
//! Read-execute part: the entry's function, the other functions, thunks and stubs, then constants by falling alignment
//! with the slot and the GOT entries among those of eight bytes; on some architectures the slot follows the text. Read-write part, from the next page: data, then zeroed
//! data.

use std::collections::BTreeMap;

use crate::graph::{Graph, InputSection, Origin, SectionOffset, Target};
use crate::help;
use crate::object_file::SectionKind;
use crate::reason::{Reasons, Rule};

/// Size of the slot and of a GOT entry.
pub(crate) const WORD: u64 = 8;
/// Bound of the image's address space.
pub(crate) const MAX_ADDRESS: u64 = i32::MAX as u64;
/// Largest alignment that the format has.
pub(crate) const MAX_ALIGN: u64 = 1 << ifunc_abi::image::MAX_RX_ALIGN_LOG2;

/// Code that the linker adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// Addresses in the image's address space.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Of each input section.
    pub(crate) sections: Vec<u64>,
    /// Of each import's thunk.
    pub(crate) thunks: BTreeMap<usize, Code>,
    /// Of each stub of the graph.
    pub(crate) stubs: Vec<Code>,
    /// Of each target's entry in the image's own GOT.
    pub(crate) got_entries: BTreeMap<Target, u64>,
    pub(crate) slot: Option<u64>,
    /// End of the text. The architecture's filler is in the gaps before it.
    pub(crate) text_len: u64,
    pub(crate) rx_len: u64,
    /// 0 if there is no read-write part.
    pub(crate) rw_at: u64,
    /// Bytes that travel.
    pub(crate) rw_len: u64,
    /// Bytes in memory.
    pub(crate) rw_mem: u64,
    /// Of the image's base.
    pub(crate) align: u64,
}

impl Layout {
    /// Address of an offset in an input section.
    pub(crate) fn address(&self, at: SectionOffset) -> u64 {
        self.sections[at.section] + at.offset
    }
}

/// Offset of an import's entry in the GOT that the target makes.
pub(crate) fn got_offset(import: usize) -> u32 {
    // `lay_out` refuses more imports than 16 bits count.
    import as u32 * WORD as u32
}

/// Lays out the graph.
pub(crate) fn lay_out(graph: &Graph<'_, '_>) -> Result<Layout, Reasons> {
    if graph.imports.len() > usize::from(u16::MAX) {
        let detail = format!("{} imports", graph.imports.len());
        return Err(too_large("imports", &detail));
    }
    let mut layout = Layout {
        sections: vec![0; graph.sections.len()],
        align: 1,
        ..Layout::default()
    };
    let mut cursor = Cursor { at: 0 };

    for section in in_order(graph, SectionKind::Text) {
        cursor.place(graph, section, &mut layout)?;
    }
    for &import in &graph.thunks {
        let len = graph.arch.thunk_len(got_offset(import));
        layout
            .thunks
            .insert(import, cursor.code(len, graph.arch.code_align()));
    }
    for &stub in &graph.stubs {
        let (section, relocation) = graph.site_of(stub);
        let len = graph
            .arch
            .stub_len(section.code_at(relocation), got_offset(stub.import));
        layout.stubs.push(cursor.code(len, graph.arch.code_align()));
    }
    layout.text_len = cursor.at;

    let slot_follows_text = graph.arch.slot_follows_text();
    if graph.uses_slot() && slot_follows_text {
        layout.slot = Some(cursor.word(&mut layout.align));
    }
    let constants = in_order(graph, SectionKind::ReadOnly);
    let words = constants.partition_point(|&section| graph.sections[section].align >= WORD);
    for &section in &constants[..words] {
        cursor.place(graph, section, &mut layout)?;
    }
    if graph.uses_slot() && !slot_follows_text {
        layout.slot = Some(cursor.word(&mut layout.align));
    }
    for &target in &graph.got_entries {
        let at = cursor.word(&mut layout.align);
        layout.got_entries.insert(target, at);
    }
    for &section in &constants[words..] {
        cursor.place(graph, section, &mut layout)?;
    }
    layout.rx_len = cursor.at;

    cursor.at = cursor.at.next_multiple_of(graph.arch.page());
    let rw_at = cursor.at;
    for section in in_order(graph, SectionKind::Data) {
        cursor.place(graph, section, &mut layout)?;
    }
    layout.rw_len = cursor.at - rw_at;
    for section in in_order(graph, SectionKind::Bss) {
        cursor.place(graph, section, &mut layout)?;
    }
    layout.rw_mem = cursor.at - rw_at;
    layout.align = layout.align.max(graph.arch.base_align(cursor.at));
    if layout.rw_mem != 0 {
        layout.rw_at = rw_at;
    }
    Ok(layout)
}

/// The input sections of a kind in the order of their addresses: functions with the entries' first, others by falling
/// alignment.
fn in_order(graph: &Graph<'_, '_>, kind: SectionKind) -> Vec<usize> {
    let mut sections: Vec<usize> = (0..graph.sections.len())
        .filter(|&section| graph.sections[section].kind == kind)
        .collect();
    sections.sort_by_key(|&index| {
        let section = &graph.sections[index];
        let by_alignment = if kind == SectionKind::Text {
            0
        } else {
            u64::MAX - section.align
        };
        let entries = &graph.entries;
        let entry = match kind {
            SectionKind::Text => entries.iter().position(|entry| entry.section == index),
            _ => None,
        };
        let place = match section.origin {
            Origin::Piece { object, .. } => graph.inputs.place(object),
            Origin::Common(_) | Origin::Trap => (usize::MAX, usize::MAX),
        };
        (
            entry.unwrap_or(entries.len()),
            by_alignment,
            place,
            section.origin.clone(),
        )
    });
    sections
}

/// Name of an input section, for a message.
pub(crate) fn name_of<'c>(graph: &'c Graph<'_, '_>, section: &'c InputSection<'_>) -> &'c str {
    match &section.origin {
        Origin::Common(name) => name,
        Origin::Trap => "trap",
        Origin::Piece {
            object,
            section,
            piece,
        } => graph.inputs.object(*object).map_or("", |object| {
            object.enclosing(*section, object.sections[*section].pieces[*piece].start)
        }),
    }
}

fn too_large(name: &str, detail: &str) -> Reasons {
    let mut reasons = Reasons::default();
    reasons.add(Rule::TooLarge, name, detail, None, help::TOO_LARGE);
    reasons
}

/// Names the largest of the input sections that are together too large.
fn too_large_together(graph: &Graph<'_, '_>) -> Reasons {
    let sizes = graph.sections.iter().map(|section| section.size);
    let all = sizes.fold(0_u64, u64::saturating_add);
    let largest = graph.sections.iter().max_by_key(|section| section.size);
    let name = largest.map_or("", |section| name_of(graph, section));
    let size = largest.map_or(0, |section| section.size);
    let detail = format!("{size} bytes of {all}, and an image has less than 2 GiB");
    too_large(name, &detail)
}

/// The next address.
struct Cursor {
    at: u64,
}

impl Cursor {
    fn place(&mut self, graph: &Graph<'_, '_>, index: usize, layout: &mut Layout) -> Result<(), Reasons> {
        let section = &graph.sections[index];
        // `gc` has refused alignments that the format does not have.
        let at = self.at.next_multiple_of(section.align);
        // An input section without a size has an address of its own, and the image ends after that address.
        let end = at.checked_add(section.size.max(1));
        let end = end
            .filter(|&end| end <= MAX_ADDRESS)
            .ok_or_else(|| too_large_together(graph))?;
        layout.sections[index] = at;
        layout.align = layout.align.max(section.align);
        self.at = end;
        Ok(())
    }

    fn code(&mut self, len: u64, align: u64) -> Code {
        let at = self.at.next_multiple_of(align);
        self.at = at + len;
        Code { at, len }
    }

    fn word(&mut self, align: &mut u64) -> u64 {
        let at = self.at.next_multiple_of(WORD);
        *align = (*align).max(WORD);
        self.at = at + WORD;
        at
    }
}
