//! The innermost symbol around an offset of an object: its name in messages.

use crate::object_file::{Location, Symbol};

/// A range where one symbol is the innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    section: usize,
    start: u64,
    end: u64,
    symbol: usize,
}

/// The extents of an object's named symbols, sorted and disjoint.
#[derive(Debug)]
pub(crate) struct Extents(Vec<Extent>);

impl Extents {
    /// Where symbols overlap, the one that begins last counts; of those that begin together, the first of the symbol table.
    pub(crate) fn of(symbols: &[Symbol<'_>]) -> Self {
        let named = symbols
            .iter()
            .enumerate()
            .filter_map(|(symbol, s)| match s.place {
                Location::Section { index, value } if s.size > 0 && !s.name.is_empty() && !s.is_section() => {
                    Some(Extent {
                        section: index,
                        start: value,
                        end: value.saturating_add(s.size),
                        symbol,
                    })
                }
                _ => None,
            });
        let mut named: Vec<Extent> = named.collect();
        named.sort_unstable_by_key(|e| (e.section, e.start, std::cmp::Reverse(e.symbol)));
        let mut sweep = Sweep::default();
        for extent in named {
            if sweep
                .open
                .last()
                .is_some_and(|open| open.section != extent.section)
            {
                sweep.advance(u64::MAX);
                sweep.at = 0;
            }
            sweep.advance(extent.start);
            sweep.open.push(extent);
        }
        sweep.advance(u64::MAX);
        Self(sweep.done)
    }

    /// The symbol around an offset of a section, by its number.
    pub(crate) fn around(&self, section: usize, offset: u64) -> Option<usize> {
        let behind = self
            .0
            .partition_point(|e| (e.section, e.start) <= (section, offset));
        let extent = self.0.get(behind.checked_sub(1)?)?;
        (extent.section == section && offset < extent.end).then_some(extent.symbol)
    }
}

/// A sweep over the symbols of a section by their offsets.
#[derive(Default)]
struct Sweep {
    /// Symbols that have begun and may not have ended, the innermost last.
    open: Vec<Extent>,
    /// The offset up to which `done` is complete.
    at: u64,
    done: Vec<Extent>,
}

impl Sweep {
    /// Completes `done` up to `until`.
    fn advance(&mut self, until: u64) {
        while let Some(&top) = self.open.last() {
            let (start, end) = (top.start.max(self.at), top.end.min(until));
            if start < end {
                self.done.push(Extent { start, end, ..top });
                self.at = end;
            }
            if top.end > until {
                return;
            }
            self.open.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use object::elf;

    use super::*;

    fn symbol(section: usize, value: u64, size: u64) -> Symbol<'static> {
        Symbol {
            name: "symbol",
            place: Location::Section {
                index: section,
                value,
            },
            size,
            local: true,
            weak: false,
            hidden: false,
            visibility: elf::STV_DEFAULT,
            kind: elf::STT_FUNC,
        }
    }

    #[test]
    fn the_innermost_symbol_is_the_one_around_a_place() {
        let symbols = [
            symbol(1, 0, 100),
            symbol(1, 10, 20),
            symbol(1, 10, 5),
            symbol(1, 25, 15),
            symbol(2, 50, u64::MAX),
            symbol(1, 60, 0),
            symbol(0, 0, 4),
            symbol(2, 8, 8),
        ];
        let extents = Extents::of(&symbols);
        let around = |section, offset| extents.around(section, offset);
        for (offset, symbol) in [
            (0, 0),
            (9, 0),
            (10, 1),
            (24, 1),
            (25, 3),
            (39, 3),
            (40, 0),
            (60, 0),
            (99, 0),
        ] {
            assert_eq!(around(1, offset), Some(symbol), "{offset}");
        }
        assert_eq!(around(1, 100), None);
        assert_eq!(around(0, 3), Some(6));
        assert_eq!([4, 5].map(|offset| around(0, offset)), [None; 2]);
        assert_eq!(
            [7, 8, 15, 16, 50, 5000].map(|offset| around(2, offset)),
            [None, Some(7), Some(7), None, Some(4), Some(4)]
        );
        assert_eq!(around(3, 0), None);
    }
}
