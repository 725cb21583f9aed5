//! What is changed in an object: a field of its structure by something that could stand there, an instruction around a
//! relocation, or any byte.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SectionIndex};

/// A small generator (xorshift64*): the same mutants on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// What a field holds, so what else it may hold.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// An offset, a size, an address, an addend.
    Number,
    /// A number of a section.
    Section,
    /// A number of a symbol.
    Symbol,
    /// A number of a relocation.
    Relocation,
    /// Type of a section.
    SectionType,
    /// Bits.
    Flags,
    /// Powers of two.
    Alignment,
    /// Binding and type, visibility: anything.
    Byte,
    /// Code, or the bytes of a section for debuggers.
    Anything,
}

/// A field: where it is, and how long.
#[derive(Clone, Copy, Debug)]
struct Field {
    at: usize,
    len: usize,
    kind: Kind,
}

/// An object, and where its fields are.
pub(crate) struct Seed {
    /// Name of its ifunc.
    pub(crate) name: String,
    /// Who made it.
    pub(crate) by: &'static str,
    pub(crate) bytes: Vec<u8>,
    /// By what they are part of: header, section headers, symbols, relocations, code around them, what debuggers read.
    groups: Vec<Vec<Field>>,
    sections: usize,
    symbols: usize,
}

impl Seed {
    pub(crate) fn new(name: &str, by: &'static str, bytes: Vec<u8>) -> Self {
        let file = ElfFile64::<LittleEndian>::parse(&*bytes).unwrap();
        let field = |at: usize, len, kind| Field { at, len, kind };
        let header = [
            (16, 2),
            (18, 2),
            (20, 4),
            (32, 8),
            (40, 8),
            (48, 4),
            (52, 2),
            (54, 2),
            (58, 2),
            (60, 2),
            (62, 2),
        ];
        let mut groups = vec![
            header
                .into_iter()
                .map(|(at, len)| field(at, len, Kind::Number))
                .collect::<Vec<_>>(),
        ];
        let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let sections = u16::from_le_bytes(bytes[60..62].try_into().unwrap()) as usize;
        let mut headers = Vec::new();
        for at in (0..sections).map(|index| table + index * 64) {
            headers.extend([
                field(at, 4, Kind::Number),
                field(at + 4, 4, Kind::SectionType),
                field(at + 8, 8, Kind::Flags),
                field(at + 24, 8, Kind::Number),
                field(at + 32, 8, Kind::Number),
                field(at + 40, 4, Kind::Section),
                field(at + 44, 4, Kind::Section),
                field(at + 48, 8, Kind::Alignment),
                field(at + 56, 8, Kind::Number),
            ]);
        }
        groups.push(headers);
        let (mut symbols, mut relocations, mut code, mut debug) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for section in file.sections() {
            let (at, len) = section
                .file_range()
                .map_or((0, 0), |(at, len)| (at as usize, len as usize));
            let name = section.name().unwrap();
            match name {
                ".symtab" => symbols.extend((at..at + len).step_by(24).flat_map(|at| {
                    [
                        field(at, 4, Kind::Number),
                        field(at + 4, 1, Kind::Byte),
                        field(at + 5, 1, Kind::Byte),
                        field(at + 6, 2, Kind::Section),
                        field(at + 8, 8, Kind::Number),
                        field(at + 16, 8, Kind::Number),
                    ]
                })),
                _ if name.starts_with(".debug") || name == ".eh_frame" => {
                    debug.push(field(at, len, Kind::Anything))
                }
                _ => {}
            }
            let header = table + section.index().0 * 64;
            if bytes[header + 4] == 4 {
                // For what is linked ten times as often as for what is read for messages alone.
                let weight = match name.starts_with(".rela.debug") || name.starts_with(".rela.eh") {
                    true => 1,
                    false => 10,
                };
                let entries = (at..at + len).step_by(24).flat_map(|at| {
                    [
                        field(at, 8, Kind::Number),
                        field(at + 8, 4, Kind::Relocation),
                        field(at + 12, 4, Kind::Symbol),
                        field(at + 16, 8, Kind::Number),
                    ]
                });
                let entries: Vec<Field> = entries.collect();
                for _ in 0..weight {
                    relocations.extend(&entries);
                }
                let info = u32::from_le_bytes(bytes[header + 44..header + 48].try_into().unwrap()) as usize;
                let patched = file.section_by_index(SectionIndex(info)).unwrap();
                if let Some((start, _)) = patched.file_range()
                    && weight > 1
                {
                    code.extend((at..at + len).step_by(24).map(|entry| {
                        let offset = u64::from_le_bytes(bytes[entry..entry + 8].try_into().unwrap());
                        field((start + offset).saturating_sub(6) as usize, 12, Kind::Anything)
                    }));
                }
            }
        }
        groups.extend([symbols, relocations, code, debug]);
        groups.retain(|group| !group.is_empty());
        let symbols = file.symbols().map(|s| s.index().0).max().unwrap_or(0) + 1;
        Self {
            name: name.into(),
            by,
            groups,
            sections,
            symbols,
            bytes,
        }
    }

    /// A mutant with one to four changes.
    pub(crate) fn mutate(&self, random: &mut Random) -> Vec<u8> {
        let mut mutant = self.bytes.clone();
        for _ in 0..1 + random.below(4) {
            match random.below(8) {
                0 => blind(&mut mutant, random),
                _ => {
                    let group = &self.groups[random.below(self.groups.len())];
                    self.change(&mut mutant, group[random.below(group.len())], random);
                }
            }
        }
        if random.below(40) == 0 {
            mutant.truncate(random.below(mutant.len()));
        }
        mutant
    }

    fn change(&self, mutant: &mut [u8], field: Field, random: &mut Random) {
        let end = (field.at + field.len).min(mutant.len());
        let Some(place) = mutant.get_mut(field.at..end).filter(|place| !place.is_empty()) else {
            return;
        };
        if let Kind::Anything = field.kind {
            let at = random.below(place.len());
            blind(&mut place[at..], random);
            return;
        }
        let mut bytes = [0; 8];
        bytes[..place.len()].copy_from_slice(place);
        let old = u64::from_le_bytes(bytes);
        let new = match field.kind {
            Kind::Number => match random.below(3) {
                0 => random.one_of(&[
                    0,
                    1,
                    u64::MAX,
                    1 << 63,
                    u64::from(u32::MAX),
                    i32::MAX as u64,
                    1 << 31,
                ]),
                1 => random.next() >> random.below(64),
                _ => old.wrapping_add_signed(random.one_of(&[1, -1, 4, -4, 8, -8, 16, 64, -64, 4096])),
            },
            Kind::Section => match random.below(4) {
                0 => random.one_of(&[0, 0xff00, 0xfff1, 0xfff2, 0xffff]),
                _ => random.below(self.sections + 1) as u64,
            },
            Kind::Symbol => random.below(self.symbols + 1) as u64,
            Kind::Relocation => random.below(52) as u64,
            Kind::SectionType => random.one_of(&[
                0,
                1,
                2,
                3,
                4,
                7,
                8,
                9,
                14,
                15,
                16,
                17,
                18,
                19,
                0x4000_0014,
                0x7000_0001,
            ]),
            Kind::Flags => old ^ 1 << random.one_of(&[0, 1, 2, 4, 5, 6, 7, 9, 10, 11, 21, 31]),
            Kind::Alignment => match random.below(3) {
                0 => random.next() >> random.below(64),
                _ => 1 << random.below(64),
            },
            Kind::Byte => random.next(),
            Kind::Anything => old,
        };
        let len = place.len();
        place.copy_from_slice(&new.to_le_bytes()[..len]);
    }
}

/// Changes a byte, or a few, wherever it is.
pub(crate) fn blind(mutant: &mut [u8], random: &mut Random) {
    if mutant.is_empty() {
        return;
    }
    let at = random.below(mutant.len());
    match random.below(4) {
        0 => mutant[at] ^= 1 << random.below(8),
        1 => mutant[at] = random.next() as u8,
        2 => mutant[at] = random.one_of(&[0, 0xff, 0x7f, 0x80]),
        _ => {
            let end = (at + 8).min(mutant.len());
            let value = random.one_of(&[0, u64::MAX, 1 << 63, i32::MAX as u64]);
            mutant[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
    }
}
