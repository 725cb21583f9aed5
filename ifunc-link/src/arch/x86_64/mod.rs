//! x86-64: the relocations, the instructions around them, and how each is resolved.
//!
//! | relocation | place | inside the image | import |
//! |---|---|---|---|
//! | `GOTPCREL`, `GOTPCRELX`, `REX_GOTPCRELX` | `call *[rip]` | `addr32 call rel32` | the same, to a thunk |
//! | " | `jmp *[rip]` | `jmp rel32; nop` | the same, to a thunk |
//! | " | `mov r64, [rip]` | `lea r64, [rip]` | `jmp stub; nop; nop` |
//! | " | any other operand, or data | a GOT entry of the image | the same |
//! | `PLT32` | `call`, `jmp`, `jcc` | `rel32` | `rel32` to a thunk |
//! | `PC32` | anything | `S + A - P` | refused |
//! | `64` | data | install relocation | install relocation |
//!
//! A thunk may use `r11`, which no call preserves and no argument is passed in. A stub stands in the middle of a function,
//! where every register may be in use: it writes only the register that the replaced load writes.

mod immediate;
mod instructions;
mod names;

use object::elf;

use super::{
    Arch, Bytes, Classified, DataRelocation, External, Form, Internal, Patch, Refused, Resolution, Unfit,
};
use crate::help;

/// The architecture.
pub(super) struct X86_64;

/// `rel32` is written: `S + A - P`.
const RELATIVE_32: Form = Form(0);
/// `call *[rip]` becomes `addr32 call rel32`.
const CALL: Form = Form(1);
/// `jmp *[rip]` becomes `jmp rel32; nop`.
const JUMP: Form = Form(2);
/// `mov r64, [rip]` becomes `lea r64, [rip]`.
const LOAD_ADDRESS: Form = Form(3);
/// `mov r64, [rip]` becomes `jmp stub; nop; nop`.
const LOAD_STUB: Form = Form(4);
/// Eight bytes that an install relocation fills.
const ADDRESS_64: Form = Form(5);

const TOO_FAR: Unfit = Unfit::TooFar("a distance or an address beyond 32 bits");
const SIZE_32: &str = "a 32-bit absolute address";

impl X86_64 {
    /// The distance to an entry of the GOT. The three instructions that compilers write most need no entry; any other
    /// operand, and data, gets one in the image.
    fn classify_got(kind: u32, at: Bytes<'_>, addend: i64) -> Result<Classified, Refused> {
        if !at.holds(4) {
            return Err(Refused::Malformed);
        }
        let place = names::operand(at);
        let both = |internal, external| Classified {
            place,
            is_branch: names::is_branch(place),
            internal,
            external: Ok(external),
        };
        let entry = both(
            field(RELATIVE_32, Internal::GotEntry, at, 0),
            field(RELATIVE_32, External::GotEntry, at, 0),
        );
        // The second byte of a REX2 prefix looks like a REX prefix. The other kinds say that there is none.
        if kind == elf::R_X86_64_GOTPCREL.0 && at.before(4) == Some(0xd5) {
            return Ok(entry);
        }
        let rex_w = at.before(3).is_some_and(|rex| rex & 0xfb == 0x48);
        Ok(match (at.before(2), at.before(1)) {
            (Some(0xff), Some(0x15)) if addend == -4 => both(
                field(CALL, Internal::Distance, at, 2),
                field(CALL, External::Thunk, at, 2),
            ),
            (Some(0xff), Some(0x25)) if addend == -4 => both(
                field(JUMP, Internal::Distance, at, 2),
                field(JUMP, External::Thunk, at, 2),
            ),
            (Some(0x8b), Some(modrm)) if addend == -4 && rex_w && modrm & 0xc7 == 5 => both(
                field(LOAD_ADDRESS, Internal::Distance, at, 3),
                field(LOAD_STUB, External::Stub, at, 3),
            ),
            _ => entry,
        })
    }

    /// A branch: `call`, `jmp` or `jcc` with `rel32`.
    fn classify_branch(at: Bytes<'_>, addend: i64) -> Result<Classified, Refused> {
        if !at.holds(4) {
            return Err(Refused::Malformed);
        }
        let branches = match (at.before(2), at.before(1)) {
            (_, Some(0xe8 | 0xe9)) => true,
            (Some(0x0f), Some(opcode)) => opcode & 0xf0 == 0x80,
            _ => false,
        };
        let place = names::distance(at);
        Ok(Classified {
            place,
            is_branch: names::is_branch(place),
            internal: field(RELATIVE_32, Internal::Distance, at, 0),
            external: match branches && addend == -4 {
                true => Ok(field(RELATIVE_32, External::Thunk, at, 0)),
                false => Err(Refused::DirectExternal(
                    "the address of an external function taken without the GOT",
                )),
            },
        })
    }
}

/// Rewrites a field of four bytes and the `before` bytes of code that precede it.
fn field<M>(form: Form, method: M, at: Bytes<'_>, before: usize) -> Resolution<M> {
    Resolution {
        method,
        form,
        start: at.offset - before,
        end: at.offset + 4,
    }
}

impl Arch for X86_64 {
    fn machine(&self) -> u16 {
        elf::EM_X86_64.0
    }

    fn page(&self) -> u64 {
        4096
    }

    fn text_fill(&self) -> u8 {
        0xcc // int3
    }

    fn code_align(&self) -> u64 {
        1
    }

    fn base_align(&self, _extent: u64) -> u64 {
        1
    }

    fn slot_follows_text(&self) -> bool {
        false
    }

    // No place loads the slot itself.
    fn reaches_slot(&self, _text: u64, _got_offset: u32) -> bool {
        false
    }

    fn trap(&self) -> &'static [u8] {
        &[0x0f, 0x0b] // ud2
    }

    fn keeps_float_control(&self, code: &[u8]) -> bool {
        instructions::keep_float_control(code)
    }

    fn relocation_name(&self, kind: u32) -> String {
        names::relocation(kind)
    }

    fn data_relocation(&self, kind: u32) -> Option<DataRelocation> {
        Some(match elf::RelocationType(kind) {
            elf::R_X86_64_NONE | elf::R_X86_64_DTPOFF64 | elf::R_X86_64_DTPOFF32 => DataRelocation::Nothing,
            elf::R_X86_64_64 => DataRelocation::Address64,
            elf::R_X86_64_32 => DataRelocation::Address32,
            elf::R_X86_64_PC32 => DataRelocation::Distance32,
            _ => return None,
        })
    }

    fn is_second_half(&self, _kind: u32) -> bool {
        false
    }

    fn help(&self, refused: Refused) -> &'static str {
        match refused {
            Refused::ThreadLocal => help::THREAD_LOCAL,
            Refused::TextRelocation(_) => help::PIC,
            Refused::DirectExternal(_) => help::DIRECT_EXTERNAL,
            Refused::GotRelative(_) => help::GOT_RELATIVE,
            Refused::Unsupported(_) | Refused::UnknownKind(_) => help::UNSUPPORTED,
            Refused::Malformed => help::MALFORMED,
        }
    }

    fn addend_is_part_of_target(&self, kind: u32) -> bool {
        matches!(
            elf::RelocationType(kind),
            elf::R_X86_64_64 | elf::R_X86_64_32 | elf::R_X86_64_32S | elf::R_X86_64_GOTOFF64
        )
    }

    fn offsets_from_symbol(&self, kind: u32, at: Bytes<'_>, addend: i64) -> Vec<i64> {
        let from = |after: i64| addend.saturating_add(after);
        match elf::RelocationType(kind) {
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 if at.text => {
                let after = immediate::lengths(at).iter().map(|&immediate| 4 + immediate);
                after.map(from).collect()
            }
            // The distance from the field itself, or from the start of its table: the addend then is the field's offset.
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => vec![0, addend],
            // The addend counts from the entry of the GOT, and the entry is the symbol's.
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => vec![0],
            _ => vec![addend],
        }
    }

    fn classify(&self, kind: u32, at: Bytes<'_>, addend: i64) -> Result<Option<Classified>, Refused> {
        let offset = at.offset;
        let classified = match elf::RelocationType(kind) {
            elf::R_X86_64_NONE => return Ok(None),
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => {
                Self::classify_got(kind, at, addend)?
            }
            elf::R_X86_64_PLT32 => Self::classify_branch(at, addend)?,
            elf::R_X86_64_PC32 if at.holds(4) => Classified {
                place: names::distance(at),
                is_branch: names::is_branch(names::distance(at)),
                internal: field(RELATIVE_32, Internal::Distance, at, 0),
                external: Err(Refused::DirectExternal(
                    "a PC-relative reference to an external symbol",
                )),
            },
            elf::R_X86_64_64 if at.holds(8) => {
                let (start, end) = (offset, offset + 8);
                Classified {
                    place: "address",
                    is_branch: false,
                    internal: Resolution {
                        method: Internal::InstallRelocation,
                        form: ADDRESS_64,
                        start,
                        end,
                    },
                    external: Ok(Resolution {
                        method: External::InstallRelocation,
                        form: ADDRESS_64,
                        start,
                        end,
                    }),
                }
            }
            elf::R_X86_64_PC32 | elf::R_X86_64_64 => return Err(Refused::Malformed),
            elf::R_X86_64_TLSGD
            | elf::R_X86_64_TLSLD
            | elf::R_X86_64_DTPOFF32
            | elf::R_X86_64_DTPOFF64
            | elf::R_X86_64_DTPMOD64
            | elf::R_X86_64_GOTTPOFF
            | elf::R_X86_64_TPOFF32
            | elf::R_X86_64_TPOFF64
            | elf::R_X86_64_GOTPC32_TLSDESC
            | elf::R_X86_64_TLSDESC_CALL
            | elf::R_X86_64_TLSDESC
            | elf::R_X86_64_CODE_4_GOTTPOFF
            | elf::R_X86_64_CODE_4_GOTPC32_TLSDESC
            | elf::R_X86_64_CODE_5_GOTTPOFF
            | elf::R_X86_64_CODE_5_GOTPC32_TLSDESC
            | elf::R_X86_64_CODE_6_GOTTPOFF
            | elf::R_X86_64_CODE_6_GOTPC32_TLSDESC => return Err(Refused::ThreadLocal),
            elf::R_X86_64_32 | elf::R_X86_64_32S => return Err(Refused::TextRelocation(SIZE_32)),
            elf::R_X86_64_16 | elf::R_X86_64_8 => {
                return Err(Refused::TextRelocation("an absolute address of 16 bits or less"));
            }
            elf::R_X86_64_GOT32
            | elf::R_X86_64_GOTOFF64
            | elf::R_X86_64_GOTPC32
            | elf::R_X86_64_GOT64
            | elf::R_X86_64_GOTPCREL64
            | elf::R_X86_64_GOTPC64
            | elf::R_X86_64_GOTPLT64
            | elf::R_X86_64_PLTOFF64 => {
                return Err(Refused::GotRelative(
                    "an offset from the GOT (`-mcmodel=medium` or `large`)",
                ));
            }
            elf::R_X86_64_PC64 | elf::R_X86_64_PC16 | elf::R_X86_64_PC8 => {
                return Err(Refused::Unsupported(
                    "a PC-relative distance that is not of 32 bits",
                ));
            }
            elf::R_X86_64_CODE_4_GOTPCRELX
            | elf::R_X86_64_CODE_5_GOTPCRELX
            | elf::R_X86_64_CODE_6_GOTPCRELX => {
                return Err(Refused::Unsupported("an APX instruction (`-mapxf`)"));
            }
            _ => return Err(Refused::UnknownKind(kind)),
        };
        Ok(Some(classified))
    }

    fn apply(&self, form: Form, code: &mut [u8], patch: &Patch) -> Result<(), Unfit> {
        let Patch {
            address,
            target,
            addend,
            ..
        } = *patch;
        let rel32 = |target, addend, place| rel32(target, addend, place).ok_or(TOO_FAR);
        match (form, code) {
            (RELATIVE_32, [d0, d1, d2, d3]) => {
                [*d0, *d1, *d2, *d3] = rel32(target, addend, address)?;
            }
            (CALL, [op, modrm, d0, d1, d2, d3]) => {
                [*op, *modrm] = [0x67, 0xe8];
                [*d0, *d1, *d2, *d3] = rel32(target, -4, address + 2)?;
            }
            (JUMP, [op, d0, d1, d2, d3, nop]) => {
                [*op, *nop] = [0xe9, 0x90];
                [*d0, *d1, *d2, *d3] = rel32(target, -4, address + 1)?;
            }
            (LOAD_ADDRESS, [_rex, op, _modrm, d0, d1, d2, d3]) => {
                *op = 0x8d;
                [*d0, *d1, *d2, *d3] = rel32(target, -4, address + 3)?;
            }
            (LOAD_STUB, [op, d0, d1, d2, d3, nop0, nop1]) => {
                [*op, *nop0, *nop1] = [0xe9, 0x90, 0x90];
                [*d0, *d1, *d2, *d3] = rel32(target, -4, address + 1)?;
            }
            // The install relocation carries the addend.
            (ADDRESS_64, place) => place.fill(0),
            _ => return Err(Unfit::Form),
        }
        Ok(())
    }

    fn thunk_len(&self, got_offset: u32) -> u64 {
        (7 + 2 + memory_operand(4, 3, got_offset).len()) as u64
    }

    fn thunk(&self, at: u64, slot: u64, got_offset: u32) -> Option<Vec<u8>> {
        let mut code = vec![0x4c, 0x8b, 0x1d]; // mov r11, [rip + slot]
        code.extend(rel32(slot, -4, at + 3)?);
        code.extend([0x41, 0xff]); // jmp [r11 + got_offset]
        code.extend(memory_operand(4, 3, got_offset));
        Some(code)
    }

    fn stub_len(&self, code: &[u8], got_offset: u32) -> u64 {
        let register = code.get(2).map_or(0, |modrm| modrm >> 3 & 7);
        (7 + 2 + memory_operand(register, register, got_offset).len() + 5) as u64
    }

    fn stub(&self, code: &[u8], place: u64, at: u64, slot: u64, got_offset: u32) -> Option<Vec<u8>> {
        let &[rex, _, modrm, ..] = code else { return None };
        let register = modrm >> 3 & 7;
        let high = rex & 0x04; // REX.R: r8 to r15
        let mut stub = vec![0x48 | high, 0x8b, register << 3 | 5]; // mov r, [rip + slot]
        stub.extend(rel32(slot, -4, at + 3)?);
        stub.extend([0x48 | high | high >> 2, 0x8b]); // mov r, [r + got_offset]
        stub.extend(memory_operand(register, register, got_offset));
        stub.push(0xe9); // jmp to the instruction after the replaced load
        let end = at + stub.len() as u64;
        stub.extend(rel32(place + 7, -4, end)?);
        Some(stub)
    }
}

/// ModRM, SIB and displacement of `[base + displacement]`, in the shortest form.
fn memory_operand(register: u8, base: u8, displacement: u32) -> Vec<u8> {
    let short = i8::try_from(displacement);
    let mut bytes = vec![if short.is_ok() { 0x40 } else { 0x80 } | register << 3 | base];
    if base == 4 {
        bytes.push(0x24); // rsp and r12 need a SIB byte
    }
    match short {
        Ok(displacement) => bytes.extend(displacement.to_le_bytes()),
        Err(_) => bytes.extend(displacement.to_le_bytes()),
    }
    bytes
}

/// `target + addend - place`, if it fits.
fn rel32(target: u64, addend: i64, place: u64) -> Option<[u8; 4]> {
    let distance = i128::from(target) + i128::from(addend) - i128::from(place);
    i32::try_from(distance).ok().map(i32::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(
        kind: elf::RelocationType,
        bytes: &[u8],
        offset: usize,
        text: bool,
    ) -> Result<Classified, Refused> {
        let at = Bytes { bytes, offset, text };
        X86_64.classify(kind.0, at, -4).map(Option::unwrap)
    }

    fn import(kind: elf::RelocationType, code: &[u8], offset: usize) -> Result<(Form, External), Refused> {
        let resolution = classify(kind, code, offset, true)?.external?;
        Ok((resolution.form, resolution.method))
    }

    fn inside(kind: elf::RelocationType, code: &[u8], offset: usize) -> Result<(Form, Internal), Refused> {
        let resolution = classify(kind, code, offset, true)?.internal;
        Ok((resolution.form, resolution.method))
    }

    #[test]
    fn the_opcode_decides_and_not_the_relocation() {
        let got = elf::R_X86_64_GOTPCREL;
        assert_eq!(
            import(got, &[0xff, 0x15, 0, 0, 0, 0], 2),
            Ok((CALL, External::Thunk))
        );
        assert_eq!(
            inside(got, &[0xff, 0x25, 0, 0, 0, 0], 2),
            Ok((JUMP, Internal::Distance))
        );
        assert_eq!(
            import(got, &[0x4c, 0x8b, 0x25, 0, 0, 0, 0], 3),
            Ok((LOAD_STUB, External::Stub))
        );
        assert_eq!(
            inside(got, &[0x48, 0x8b, 0x05, 0, 0, 0, 0], 3),
            Ok((LOAD_ADDRESS, Internal::Distance))
        );
        let entry = Ok((RELATIVE_32, External::GotEntry));
        assert_eq!(import(got, &[0xff, 0x35, 0, 0, 0, 0], 2), entry, "push");
        assert_eq!(import(got, &[0x8b, 0x05, 0, 0, 0, 0], 2), entry, "no REX");
        assert_eq!(
            import(got, &[0x48, 0x8b, 0x45, 0, 0, 0, 0], 3),
            entry,
            "not [rip]"
        );
        assert_eq!(
            import(got, &[0x48, 0x8b, 0x05, 0, 0, 0], 3),
            Err(Refused::Malformed),
            "cut off"
        );
        assert_eq!(import(got, &[0x15, 0, 0, 0, 0], 1), entry, "no opcode");
        let rex2 = [0xd5, 0x48, 0x8b, 0x05, 0, 0, 0, 0];
        assert_eq!(import(got, &rex2, 4), entry, "REX2 and no REX");
        let (after_rbp, _) = import(elf::R_X86_64_REX_GOTPCRELX, &rex2, 4).unwrap();
        assert_eq!(after_rbp, LOAD_STUB, "the end of another instruction");
        let data = classify(got, &[0xff, 0x15, 0, 0, 0, 0], 2, false).unwrap();
        let external = data.external.unwrap();
        assert_eq!(
            (external.form, external.start),
            (RELATIVE_32, 2),
            "data is not rewritten"
        );
    }

    #[test]
    fn externals_are_never_reached_directly() {
        let plt = |code: &[u8], offset| import(elf::R_X86_64_PLT32, code, offset);
        assert_eq!(plt(&[0xe8, 0, 0, 0, 0], 1).unwrap().1, External::Thunk);
        assert_eq!(plt(&[0x0f, 0x84, 0, 0, 0, 0], 2).unwrap().1, External::Thunk);
        assert!(matches!(
            plt(&[0x48, 0x8d, 0x05, 0, 0, 0, 0], 3),
            Err(Refused::DirectExternal(_))
        ));
        assert!(matches!(
            import(elf::R_X86_64_PC32, &[0xe8, 0, 0, 0, 0], 1),
            Err(Refused::DirectExternal(_))
        ));
    }

    #[test]
    fn distances_beyond_two_gigabytes_are_refused() {
        assert_eq!(rel32(0x8000_0003, -4, 0), Some(i32::MAX.to_le_bytes()));
        assert_eq!(rel32(0x8000_0004, -4, 0), None);
        assert_eq!(rel32(0, 0, 0x8000_0000), Some(i32::MIN.to_le_bytes()));
        assert_eq!(rel32(0, 0, 0x8000_0001), None);
    }

    #[test]
    fn stubs_load_into_the_register_of_the_site() {
        // mov r12, [rip]: r12 as a base needs a SIB byte.
        let stub = X86_64
            .stub(&[0x4c, 0x8b, 0x25, 0, 0, 0, 0], 0x10, 0x100, 0x40, 8)
            .unwrap();
        assert_eq!(stub[..3], [0x4c, 0x8b, 0x25]);
        assert_eq!(stub[7..12], [0x4d, 0x8b, 0x64, 0x24, 8]);
        assert_eq!(stub[12], 0xe9);
        let back = i32::from_le_bytes(stub[13..17].try_into().unwrap());
        assert_eq!(0x100 + 17 + i64::from(back), 0x17);
        // mov rax, [rip], far entry: 32-bit displacement.
        let stub = X86_64
            .stub(&[0x48, 0x8b, 0x05, 0, 0, 0, 0], 0, 0x100, 0x40, 128)
            .unwrap();
        assert_eq!(stub[7..14], [0x48, 0x8b, 0x80, 128, 0, 0, 0]);
    }

    #[test]
    fn lengths_are_known_before_addresses() {
        for got_offset in [0, 8, 120, 128, 0x7_fff8] {
            let thunk = X86_64.thunk(0, 0, got_offset).unwrap();
            assert_eq!(X86_64.thunk_len(got_offset), thunk.len() as u64, "{got_offset}");
            for register in 0..16 {
                let code = [
                    0x48 | register >> 3 << 2,
                    0x8b,
                    (register & 7) << 3 | 5,
                    0,
                    0,
                    0,
                    0,
                ];
                let stub = X86_64.stub(&code, 0, 0, 0, got_offset).unwrap();
                assert_eq!(
                    X86_64.stub_len(&code, got_offset),
                    stub.len() as u64,
                    "{register} {got_offset}"
                );
            }
        }
    }
}
