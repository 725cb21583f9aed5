//! String merging: a mergeable section is split into its strings and constants. Unreferenced pieces do not travel, and equal
//! pieces travel once.

use crate::arch::{Arch, Bytes};
use crate::object_file::{Location, Relocation, Section, SectionKind, Symbol};

/// A part of a section that is kept or dropped as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Alignment that the piece had in its section.
    pub(crate) align: u64,
}

/// Splits a mergeable section. `None`: its bytes contradict its flags, and it stays whole.
pub(crate) fn split(data: &[u8], entry_size: u64, strings: bool, align: u64) -> Option<Vec<Piece>> {
    let entry = usize::try_from(entry_size).ok().filter(|&e| e != 0)?;
    if data.is_empty() || !data.len().is_multiple_of(entry) {
        return None;
    }
    let mut pieces = Vec::new();
    let mut start = 0usize;
    for (index, unit) in data.chunks_exact(entry).enumerate() {
        if strings && unit.iter().any(|&byte| byte != 0) {
            continue;
        }
        let end = (index + 1) * entry;
        let offset_align = if start == 0 {
            align
        } else {
            1 << start.trailing_zeros()
        };
        pieces.push(Piece {
            start: start as u64,
            end: end as u64,
            align: align.min(offset_align),
        });
        start = end;
    }
    (start == data.len()).then_some(pieces)
}

/// Which mergeable sections must stay whole, because a symbol or a reference spans pieces:
///
/// * A symbol extends past the piece that it begins in, such as a table among constants.
/// * A reference by a symbol points out of the symbol's piece, or may: the opcode does not always show how far after the
///   field its instruction ends.
/// * A PC-relative reference by the section's own symbol does not identify a piece, because its addend also counts the bytes
///   from the field to the end of the instruction.
pub(crate) fn unsplittable(arch: &dyn Arch, sections: &[Section<'_>], symbols: &[Symbol<'_>]) -> Vec<bool> {
    let mut whole: Vec<bool> = sections.iter().map(|section| !section.mergeable).collect();
    for symbol in symbols {
        if let Location::Section { index, value } = symbol.place
            && !whole[index]
            && !symbol.is_section()
        {
            let piece = sections[index].pieces[piece_at(&sections[index].pieces, value)];
            whole[index] = value.saturating_add(symbol.size) > piece.end;
        }
    }
    for section in sections {
        for relocation in &section.relocations {
            let symbol = &symbols[relocation.symbol];
            let Location::Section { index, value } = symbol.place else {
                continue;
            };
            if whole[index] {
                continue;
            }
            whole[index] = match symbol.is_section() {
                true => !arch.addend_is_part_of_target(relocation.kind),
                false => leaves_piece(arch, section, relocation, &sections[index], value),
            };
        }
    }
    whole
}

/// Whether a relocation of `from` by a symbol at `value` of `to` points out of the symbol's piece, or may.
pub(crate) fn leaves_piece(
    arch: &dyn Arch,
    from: &Section<'_>,
    relocation: &Relocation,
    to: &Section<'_>,
    value: u64,
) -> bool {
    let piece = to.pieces[piece_at(&to.pieces, value)];
    let at = Bytes {
        bytes: from.data,
        offset: relocation.offset as usize,
        text: from.kind == SectionKind::Text,
    };
    let reached = arch.offsets_from_symbol(relocation.kind, at, relocation.addend);
    reached.iter().any(|&offset| {
        value
            .checked_add_signed(offset)
            .is_none_or(|place| !(piece.start..piece.end).contains(&place))
    })
}

/// Index of the piece around `offset`. The end of the section belongs to the last piece.
pub(crate) fn piece_at(pieces: &[Piece], offset: u64) -> usize {
    pieces
        .partition_point(|piece| piece.start <= offset)
        .saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_split_after_their_nul() {
        let pieces = split(b"ab\0\0cde\0", 1, true, 1).unwrap();
        let ranges: Vec<_> = pieces.iter().map(|p| (p.start, p.end)).collect();
        assert_eq!(ranges, [(0, 3), (3, 4), (4, 8)]);
        assert_eq!(
            [0, 2, 3, 4, 7, 8].map(|offset| piece_at(&pieces, offset)),
            [0, 0, 1, 2, 2, 2]
        );
        assert_eq!(split(b"ab", 1, true, 1), None, "the last string does not end");
    }

    #[test]
    fn wide_strings_end_at_a_wide_nul() {
        let pieces = split(b"a\0\0\0\0\0\0\0b\0\0\0\0\0\0\0", 4, true, 4).unwrap();
        assert_eq!(pieces.len(), 2);
        assert_eq!((pieces[1].start, pieces[1].align), (8, 4));
    }

    #[test]
    fn constants_are_split_by_their_size() {
        let pieces = split(&[0; 64], 16, false, 32).unwrap();
        assert_eq!(
            pieces.iter().map(|p| p.align).collect::<Vec<_>>(),
            [32, 16, 32, 16]
        );
        assert_eq!(split(&[0; 20], 16, false, 16), None);
        assert_eq!(split(&[0; 20], 0, false, 16), None);
    }
}
