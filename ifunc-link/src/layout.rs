//! Where everything lies.
//!
//! Read-execute part: the entry's function, the other functions, thunks and stubs, then constants by falling alignment
//! with the slot and the cells among those of eight bytes. Read-write part, from the next page: data, then zeroed data.

use std::collections::BTreeMap;

use crate::arch::Need;
use crate::help;
use crate::object_file::SectionKind;
use crate::reach::{Chunk, Origin, Reached, Target};
use crate::reason::{Reasons, Rule};

/// Size of the slot, of a cell and of a GOT entry.
pub(crate) const WORD: u64 = 8;
/// Bound of the image's address space.
pub(crate) const MAX_ADDRESS: u64 = i32::MAX as u64;
/// Largest alignment that the format has.
pub(crate) const MAX_ALIGN: u64 = 1 << ifunc_abi::image::MAX_RX_ALIGN_LOG2;

/// A stub: what it loads, and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stub {
    pub(crate) import: usize,
    pub(crate) at: u64,
}

/// Addresses in the image's address space.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Of each chunk.
    pub(crate) chunks: Vec<u64>,
    /// Of each import's thunk.
    pub(crate) thunks: BTreeMap<usize, u64>,
    /// By the chunk and the number of the relocation that it serves.
    pub(crate) stubs: BTreeMap<(usize, usize), Stub>,
    /// Of each target's cell.
    pub(crate) cells: BTreeMap<Target, u64>,
    pub(crate) slot: Option<u64>,
    /// Where text ends: gaps before it are filled with what the architecture wants there.
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

/// Offset of an import's entry in the GOT.
pub(crate) fn got_offset(import: usize) -> u32 {
    // `lay_out` refuses more imports than 16 bits count.
    import as u32 * WORD as u32
}

/// Lays out what was reached.
pub(crate) fn lay_out(reached: &Reached<'_, '_>, reasons: &mut Reasons) -> Option<Layout> {
    if reached.imports.len() > usize::from(u16::MAX) {
        let detail = format!("{} imports", reached.imports.len());
        reasons.add(Rule::TooLarge, "imports", &detail, None, help::TOO_LARGE);
        return None;
    }
    let mut layout = Layout {
        chunks: vec![0; reached.chunks.len()],
        align: 1,
        ..Layout::default()
    };
    let mut cursor = Cursor { at: 0, reasons };

    for chunk in in_order(reached, SectionKind::Text) {
        cursor.place(reached, chunk, &mut layout)?;
    }
    collect_helpers(reached, &mut layout);
    for (&import, at) in &mut layout.thunks {
        *at = cursor.at;
        cursor.at += reached.arch.thunk(0, 0, got_offset(import))?.len() as u64;
    }
    for (&(chunk, link), stub) in &mut layout.stubs {
        stub.at = cursor.at;
        let chunk = &reached.chunks[chunk];
        let plan = chunk.links[link].plan;
        let code = &chunk.data[plan.start..plan.end];
        cursor.at += reached
            .arch
            .stub(plan.form, code, 0, 0, 0, got_offset(stub.import))?
            .len() as u64;
    }
    layout.text_len = cursor.at;

    let constants = in_order(reached, SectionKind::ReadOnly);
    let words = constants.partition_point(|&chunk| reached.chunks[chunk].align >= WORD);
    for &chunk in &constants[..words] {
        cursor.place(reached, chunk, &mut layout)?;
    }
    if !layout.thunks.is_empty() || !layout.stubs.is_empty() {
        layout.slot = Some(cursor.word(&mut layout.align));
    }
    for at in layout.cells.values_mut() {
        *at = cursor.word(&mut layout.align);
    }
    for &chunk in &constants[words..] {
        cursor.place(reached, chunk, &mut layout)?;
    }
    layout.rx_len = cursor.at;

    cursor.at = cursor.at.next_multiple_of(reached.arch.page());
    let rw_at = cursor.at;
    for chunk in in_order(reached, SectionKind::Data) {
        cursor.place(reached, chunk, &mut layout)?;
    }
    layout.rw_len = cursor.at - rw_at;
    for chunk in in_order(reached, SectionKind::Bss) {
        cursor.place(reached, chunk, &mut layout)?;
    }
    layout.rw_mem = cursor.at - rw_at;
    if layout.rw_mem != 0 {
        layout.rw_at = rw_at;
    }
    Some(layout)
}

/// The chunks of a kind, in the order they are laid out: functions with the entry's first, others by falling alignment.
fn in_order(reached: &Reached<'_, '_>, kind: SectionKind) -> Vec<usize> {
    let mut chunks: Vec<usize> = (0..reached.chunks.len())
        .filter(|&c| reached.chunks[c].kind == kind)
        .collect();
    chunks.sort_by_key(|&index| {
        let chunk = &reached.chunks[index];
        let by_alignment = if kind == SectionKind::Text {
            0
        } else {
            u64::MAX - chunk.align
        };
        (
            kind == SectionKind::Text && index != reached.entry.0,
            by_alignment,
            chunk.origin.clone(),
        )
    });
    chunks
}

/// Finds out which thunks, stubs and cells there will be.
fn collect_helpers(reached: &Reached<'_, '_>, layout: &mut Layout) {
    for (chunk_index, chunk) in reached.chunks.iter().enumerate() {
        for (link_index, link) in chunk.links.iter().enumerate() {
            match (link.plan.need, link.target) {
                (Need::Thunk, Target::Import(import)) => {
                    layout.thunks.insert(import, 0);
                }
                (Need::Stub, Target::Import(import)) => {
                    layout
                        .stubs
                        .insert((chunk_index, link_index), Stub { import, at: 0 });
                }
                (Need::Cell, target) => {
                    layout.cells.insert(target, 0);
                }
                _ => {}
            }
        }
    }
}

/// What a chunk is called in a message.
fn name_of<'c>(reached: &'c Reached<'_, '_>, chunk: &'c Chunk<'_>) -> &'c str {
    match &chunk.origin {
        Origin::Common(name) => name,
        Origin::Trap => "trap",
        Origin::Piece {
            object,
            section,
            piece,
        } => reached.inputs.object(*object).map_or("", |object| {
            object.enclosing(*section, object.sections[*section].pieces[*piece].start)
        }),
    }
}

struct Cursor<'r> {
    at: u64,
    reasons: &'r mut Reasons,
}

impl Cursor<'_> {
    fn place(&mut self, reached: &Reached<'_, '_>, index: usize, layout: &mut Layout) -> Option<()> {
        let chunk = &reached.chunks[index];
        // `reach` has refused alignments that the format does not have.
        let at = self.at.next_multiple_of(chunk.align);
        // What has no size has an address of its own all the same, and the image ends behind it.
        let Some(end) = at
            .checked_add(chunk.size.max(1))
            .filter(|&end| end <= MAX_ADDRESS)
        else {
            self.refuse_size(reached);
            return None;
        };
        layout.chunks[index] = at;
        layout.align = layout.align.max(chunk.align);
        self.at = end;
        Some(())
    }

    /// Names the largest part of what is too large all together.
    fn refuse_size(&mut self, reached: &Reached<'_, '_>) {
        let all = reached
            .chunks
            .iter()
            .fold(0_u64, |sum, chunk| sum.saturating_add(chunk.size));
        let largest = reached.chunks.iter().max_by_key(|chunk| chunk.size);
        let name = largest.map_or("", |chunk| name_of(reached, chunk));
        let size = largest.map_or(0, |chunk| chunk.size);
        let detail = format!("{size} bytes of {all}, and an image has less than 2 GiB");
        self.reasons
            .add(Rule::TooLarge, name, &detail, None, help::TOO_LARGE);
    }

    fn word(&mut self, align: &mut u64) -> u64 {
        let at = self.at.next_multiple_of(WORD);
        *align = (*align).max(WORD);
        self.at = at + WORD;
        at
    }
}
