//! Where everything lies.
//!
//! Read-execute part: the entry's function, the other functions, thunks and stubs, then constants by falling alignment
//! with the slot and the GOT entries among those of eight bytes. Read-write part, from the next page: data, then zeroed data.

use std::collections::BTreeMap;

use crate::arch::Need;
use crate::gc::{Graph, InputSection, Origin, Target};
use crate::help;
use crate::object_file::SectionKind;
use crate::reason::{Reasons, Rule};

/// Size of the slot, of a GOT entry and of a GOT entry.
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
    /// Of each input section.
    pub(crate) sections: Vec<u64>,
    /// Of each import's thunk.
    pub(crate) thunks: BTreeMap<usize, u64>,
    /// By the input section and the number of the relocation that it serves.
    pub(crate) stubs: BTreeMap<(usize, usize), Stub>,
    /// Of each target's GOT entry.
    pub(crate) got_entries: BTreeMap<Target, u64>,
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
pub(crate) fn lay_out(reached: &Graph<'_, '_>, reasons: &mut Reasons) -> Option<Layout> {
    if reached.imports.len() > usize::from(u16::MAX) {
        let detail = format!("{} imports", reached.imports.len());
        reasons.add(Rule::TooLarge, "imports", &detail, None, help::TOO_LARGE);
        return None;
    }
    let mut layout = Layout {
        sections: vec![0; reached.sections.len()],
        align: 1,
        ..Layout::default()
    };
    let mut cursor = Cursor { at: 0, reasons };

    for input_section in in_order(reached, SectionKind::Text) {
        cursor.place(reached, input_section, &mut layout)?;
    }
    collect_helpers(reached, &mut layout);
    for (&import, at) in &mut layout.thunks {
        *at = cursor.at;
        cursor.at += reached.arch.thunk(0, 0, got_offset(import))?.len() as u64;
    }
    for (&(input_section, link), stub) in &mut layout.stubs {
        stub.at = cursor.at;
        let input_section = &reached.sections[input_section];
        let plan = input_section.links[link].plan;
        let code = &input_section.data[plan.start..plan.end];
        cursor.at += reached
            .arch
            .stub(plan.form, code, 0, 0, 0, got_offset(stub.import))?
            .len() as u64;
    }
    layout.text_len = cursor.at;

    let constants = in_order(reached, SectionKind::ReadOnly);
    let words = constants.partition_point(|&input_section| reached.sections[input_section].align >= WORD);
    for &input_section in &constants[..words] {
        cursor.place(reached, input_section, &mut layout)?;
    }
    if !layout.thunks.is_empty() || !layout.stubs.is_empty() {
        layout.slot = Some(cursor.word(&mut layout.align));
    }
    for at in layout.got_entries.values_mut() {
        *at = cursor.word(&mut layout.align);
    }
    for &input_section in &constants[words..] {
        cursor.place(reached, input_section, &mut layout)?;
    }
    layout.rx_len = cursor.at;

    cursor.at = cursor.at.next_multiple_of(reached.arch.page());
    let rw_at = cursor.at;
    for input_section in in_order(reached, SectionKind::Data) {
        cursor.place(reached, input_section, &mut layout)?;
    }
    layout.rw_len = cursor.at - rw_at;
    for input_section in in_order(reached, SectionKind::Bss) {
        cursor.place(reached, input_section, &mut layout)?;
    }
    layout.rw_mem = cursor.at - rw_at;
    if layout.rw_mem != 0 {
        layout.rw_at = rw_at;
    }
    Some(layout)
}

/// The input sections of a kind, in the order they are laid out: functions with the entry's first, others by falling alignment.
fn in_order(reached: &Graph<'_, '_>, kind: SectionKind) -> Vec<usize> {
    let mut sections: Vec<usize> = (0..reached.sections.len())
        .filter(|&c| reached.sections[c].kind == kind)
        .collect();
    sections.sort_by_key(|&index| {
        let input_section = &reached.sections[index];
        let by_alignment = if kind == SectionKind::Text {
            0
        } else {
            u64::MAX - input_section.align
        };
        (
            kind == SectionKind::Text && index != reached.entry.0,
            by_alignment,
            input_section.origin.clone(),
        )
    });
    sections
}

/// Finds out which thunks, stubs and GOT entries there will be.
fn collect_helpers(reached: &Graph<'_, '_>, layout: &mut Layout) {
    for (input_index, input_section) in reached.sections.iter().enumerate() {
        for (link_index, link) in input_section.links.iter().enumerate() {
            match (link.plan.need, link.target) {
                (Need::Thunk, Target::Import(import)) => {
                    layout.thunks.insert(import, 0);
                }
                (Need::Stub, Target::Import(import)) => {
                    layout
                        .stubs
                        .insert((input_index, link_index), Stub { import, at: 0 });
                }
                (Need::GotEntry, target) => {
                    layout.got_entries.insert(target, 0);
                }
                _ => {}
            }
        }
    }
}

/// What a input section is called in a message.
fn name_of<'c>(reached: &'c Graph<'_, '_>, input_section: &'c InputSection<'_>) -> &'c str {
    match &input_section.origin {
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
    fn place(&mut self, reached: &Graph<'_, '_>, index: usize, layout: &mut Layout) -> Option<()> {
        let input_section = &reached.sections[index];
        // `reach` has refused alignments that the format does not have.
        let at = self.at.next_multiple_of(input_section.align);
        // What has no size has an address of its own all the same, and the image ends behind it.
        let Some(end) = at
            .checked_add(input_section.size.max(1))
            .filter(|&end| end <= MAX_ADDRESS)
        else {
            self.refuse_size(reached);
            return None;
        };
        layout.sections[index] = at;
        layout.align = layout.align.max(input_section.align);
        self.at = end;
        Some(())
    }

    /// Names the largest part of what is too large all together.
    fn refuse_size(&mut self, reached: &Graph<'_, '_>) {
        let all = reached
            .sections
            .iter()
            .fold(0_u64, |sum, input_section| sum.saturating_add(input_section.size));
        let largest = reached
            .sections
            .iter()
            .max_by_key(|input_section| input_section.size);
        let name = largest.map_or("", |input_section| name_of(reached, input_section));
        let size = largest.map_or(0, |input_section| input_section.size);
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
