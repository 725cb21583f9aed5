//! x86-64: which relocations there are, what instructions they stand in, and how each is resolved.
//!
//! | relocation | place | inside the image | import |
//! |---|---|---|---|
//! | `GOTPCREL`, `GOTPCRELX`, `REX_GOTPCRELX` | `call *[rip]` | `addr32 call rel32` | the same, to a thunk |
//! | " | `jmp *[rip]` | `jmp rel32; nop` | the same, to a thunk |
//! | " | `mov r64, [rip]` | `lea r64, [rip]` | `jmp stub; nop; nop` |
//! | " | any other operand, or data | a GOT entry | a GOT entry |
//! | `PLT32` | `call`, `jmp`, `jcc` | `rel32` | `rel32` to a thunk |
//! | `PC32` | anything | `S + A - P` | refused |
//! | `64` | data | install relocation | install relocation |
//!
//! A thunk may use `r11`: at a call it is nobody's. A stub stands in the middle of a function, where every register is
//! somebody's: it uses only the register that the replaced load writes.

mod immediate;
mod names;

use object::elf;

use super::{Arch, Bytes, Form, Need, Patch, Plan, Refused, TargetClass};

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

const SIZE_32: &str = "a 32-bit absolute address";

impl X86_64 {
    /// The distance to an entry of the GOT. The three instructions that compilers use nearly always do without the entry;
    /// whatever else there is, operand or data, gets one.
    fn plan_got(kind: u32, at: Bytes<'_>, addend: i64, target: TargetClass) -> Result<Plan, Refused> {
        let offset = at.offset;
        if !at.holds(4) {
            return Err(Refused::Malformed);
        }
        let external = target == TargetClass::Import;
        let branch_need = if external { Need::Thunk } else { Need::Nothing };
        let plan = |form, need, length| Plan {
            form,
            need,
            place: names::operand(at),
            start: offset - length,
            end: offset + 4,
        };
        // The second byte of a REX2 prefix looks like a REX prefix. The other kinds say that there is none.
        if kind == elf::R_X86_64_GOTPCREL.0 && at.before(4) == Some(0xd5) {
            return Ok(plan(RELATIVE_32, Need::GotEntry, 0));
        }
        let rex_w = at.before(3).is_some_and(|rex| rex & 0xfb == 0x48);
        Ok(match (at.before(2), at.before(1)) {
            (Some(0xff), Some(0x15)) if addend == -4 => plan(CALL, branch_need, 2),
            (Some(0xff), Some(0x25)) if addend == -4 => plan(JUMP, branch_need, 2),
            (Some(0x8b), Some(modrm)) if addend == -4 && rex_w && modrm & 0xc7 == 5 => match external {
                true => plan(LOAD_STUB, Need::Stub, 3),
                false => plan(LOAD_ADDRESS, Need::Nothing, 3),
            },
            _ => plan(RELATIVE_32, Need::GotEntry, 0),
        })
    }

    /// A branch: `call`, `jmp` or `jcc` with `rel32`.
    fn plan_branch(at: Bytes<'_>, addend: i64, target: TargetClass) -> Result<Plan, Refused> {
        if !at.holds(4) {
            return Err(Refused::Malformed);
        }
        let branches = match (at.before(2), at.before(1)) {
            (_, Some(0xe8 | 0xe9)) => true,
            (Some(0x0f), Some(opcode)) => opcode & 0xf0 == 0x80,
            _ => false,
        };
        let need = match target {
            TargetClass::Internal => Need::Nothing,
            TargetClass::Import if branches && addend == -4 => Need::Thunk,
            TargetClass::Import => {
                return Err(Refused::DirectExternal(
                    "the address of an external function taken without the GOT",
                ));
            }
        };
        Ok(Plan {
            form: RELATIVE_32,
            need,
            place: names::distance(at),
            start: at.offset,
            end: at.offset + 4,
        })
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

    fn trap(&self) -> &'static [u8] {
        &[0x0f, 0x0b] // ud2
    }

    fn relocation_name(&self, kind: u32) -> String {
        names::relocation(kind)
    }

    fn addend_is_part_of_target(&self, kind: u32) -> bool {
        matches!(
            elf::RelocationType(kind),
            elf::R_X86_64_64 | elf::R_X86_64_32 | elf::R_X86_64_32S | elf::R_X86_64_GOTOFF64
        )
    }

    fn offsets_from_symbol(&self, kind: u32, at: Bytes<'_>, addend: i64) -> Vec<i64> {
        let from = |behind: i64| addend.saturating_add(behind);
        match elf::RelocationType(kind) {
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 if at.text => {
                let behind = immediate::lengths(at).iter().map(|&immediate| 4 + immediate);
                behind.map(from).collect()
            }
            // The field's own distance, or that of its table, whose place in the table the addend then counts.
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => vec![0, addend],
            // The addend counts from the entry of the GOT, and the entry is the symbol's.
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => vec![0],
            _ => vec![addend],
        }
    }

    fn plan(
        &self,
        kind: u32,
        at: Bytes<'_>,
        addend: i64,
        target: TargetClass,
    ) -> Result<Option<Plan>, Refused> {
        let offset = at.offset;
        let plan = match elf::RelocationType(kind) {
            elf::R_X86_64_NONE => return Ok(None),
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => {
                Self::plan_got(kind, at, addend, target)?
            }
            elf::R_X86_64_PLT32 => Self::plan_branch(at, addend, target)?,
            elf::R_X86_64_PC32 if target == TargetClass::Import => {
                return Err(Refused::DirectExternal(
                    "a PC-relative reference to an external symbol",
                ));
            }
            elf::R_X86_64_PC32 if at.holds(4) => Plan {
                form: RELATIVE_32,
                need: Need::Nothing,
                place: names::distance(at),
                start: offset,
                end: offset + 4,
            },
            elf::R_X86_64_64 if at.holds(8) => Plan {
                form: ADDRESS_64,
                need: Need::Address,
                place: "address",
                start: offset,
                end: offset + 8,
            },
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
        Ok(Some(plan))
    }

    fn apply(&self, form: Form, code: &mut [u8], patch: &Patch) -> Option<()> {
        let Patch {
            address,
            target,
            addend,
        } = *patch;
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
            _ => return None,
        }
        Some(())
    }

    fn thunk(&self, at: u64, slot: u64, got_offset: u32) -> Option<Vec<u8>> {
        let mut code = vec![0x4c, 0x8b, 0x1d]; // mov r11, [rip + slot]
        code.extend(rel32(slot, -4, at + 3)?);
        code.extend([0x41, 0xff]); // jmp [r11 + got_offset]
        code.extend(memory_operand(4, 3, got_offset));
        Some(code)
    }

    fn stub(&self, _: Form, code: &[u8], place: u64, at: u64, slot: u64, got_offset: u32) -> Option<Vec<u8>> {
        let &[rex, _, modrm, ..] = code else { return None };
        let register = modrm >> 3 & 7;
        let high = rex & 0x04; // REX.R: r8 to r15
        let mut stub = vec![0x48 | high, 0x8b, register << 3 | 5]; // mov r, [rip + slot]
        stub.extend(rel32(slot, -4, at + 3)?);
        stub.extend([0x48 | high | high >> 2, 0x8b]); // mov r, [r + got_offset]
        stub.extend(memory_operand(register, register, got_offset));
        stub.push(0xe9); // jmp behind the replaced load
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

    fn plan(
        kind: elf::RelocationType,
        code: &[u8],
        offset: usize,
        addend: i64,
        target: TargetClass,
    ) -> Result<Plan, Refused> {
        X86_64
            .plan(
                kind.0,
                Bytes {
                    bytes: code,
                    offset,
                    text: true,
                },
                addend,
                target,
            )
            .map(Option::unwrap)
    }

    #[test]
    fn the_opcode_decides_and_not_the_relocation() {
        use TargetClass::{Import, Internal};
        let got = elf::R_X86_64_GOTPCREL;
        let form =
            |code: &[u8], offset, target| plan(got, code, offset, -4, target).map(|p| (p.form, p.need));
        assert_eq!(
            form(&[0xff, 0x15, 0, 0, 0, 0], 2, Import),
            Ok((CALL, Need::Thunk))
        );
        assert_eq!(
            form(&[0xff, 0x25, 0, 0, 0, 0], 2, Internal),
            Ok((JUMP, Need::Nothing))
        );
        assert_eq!(
            form(&[0x4c, 0x8b, 0x25, 0, 0, 0, 0], 3, Import),
            Ok((LOAD_STUB, Need::Stub))
        );
        assert_eq!(
            form(&[0x48, 0x8b, 0x05, 0, 0, 0, 0], 3, Internal),
            Ok((LOAD_ADDRESS, Need::Nothing))
        );
        assert_eq!(
            form(&[0xff, 0x35, 0, 0, 0, 0], 2, Import),
            Ok((RELATIVE_32, Need::GotEntry)),
            "push"
        );
        assert_eq!(
            form(&[0x8b, 0x05, 0, 0, 0, 0], 2, Import),
            Ok((RELATIVE_32, Need::GotEntry)),
            "no REX"
        );
        assert_eq!(
            form(&[0x48, 0x8b, 0x45, 0, 0, 0, 0], 3, Import),
            Ok((RELATIVE_32, Need::GotEntry)),
            "not [rip]"
        );
        assert_eq!(
            form(&[0x48, 0x8b, 0x05, 0, 0, 0], 3, Import),
            Err(Refused::Malformed),
            "cut off"
        );
        assert_eq!(
            form(&[0x15, 0, 0, 0, 0], 1, Import),
            Ok((RELATIVE_32, Need::GotEntry)),
            "no opcode"
        );
        let rex2 = [0xd5, 0x48, 0x8b, 0x05, 0, 0, 0, 0];
        assert_eq!(
            form(&rex2, 4, Import),
            Ok((RELATIVE_32, Need::GotEntry)),
            "REX2 and no REX"
        );
        let after_rbp = plan(elf::R_X86_64_REX_GOTPCRELX, &rex2, 4, -4, Import).unwrap();
        assert_eq!(after_rbp.form, LOAD_STUB, "the end of another instruction");
        let data = Bytes {
            bytes: &[0xff, 0x15, 0, 0, 0, 0],
            offset: 2,
            text: false,
        };
        let plan = X86_64.plan(got.0, data, -4, Import).unwrap().unwrap();
        assert_eq!((plan.form, plan.start), (RELATIVE_32, 2), "data is not rewritten");
    }

    #[test]
    fn externals_are_never_reached_directly() {
        let plt = |code: &[u8], offset| plan(elf::R_X86_64_PLT32, code, offset, -4, TargetClass::Import);
        assert_eq!(plt(&[0xe8, 0, 0, 0, 0], 1).unwrap().need, Need::Thunk);
        assert_eq!(plt(&[0x0f, 0x84, 0, 0, 0, 0], 2).unwrap().need, Need::Thunk);
        assert!(matches!(
            plt(&[0x48, 0x8d, 0x05, 0, 0, 0, 0], 3),
            Err(Refused::DirectExternal(_))
        ));
        let pc = plan(
            elf::R_X86_64_PC32,
            &[0xe8, 0, 0, 0, 0],
            1,
            -4,
            TargetClass::Import,
        );
        assert!(matches!(pc, Err(Refused::DirectExternal(_))));
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
            .stub(LOAD_STUB, &[0x4c, 0x8b, 0x25, 0, 0, 0, 0], 0x10, 0x100, 0x40, 8)
            .unwrap();
        assert_eq!(stub[..3], [0x4c, 0x8b, 0x25]);
        assert_eq!(stub[7..12], [0x4d, 0x8b, 0x64, 0x24, 8]);
        assert_eq!(stub[12], 0xe9);
        let back = i32::from_le_bytes(stub[13..17].try_into().unwrap());
        assert_eq!(0x100 + 17 + i64::from(back), 0x17);
        // mov rax, [rip], far entry: 32-bit displacement.
        let stub = X86_64
            .stub(LOAD_STUB, &[0x48, 0x8b, 0x05, 0, 0, 0, 0], 0, 0x100, 0x40, 128)
            .unwrap();
        assert_eq!(stub[7..14], [0x48, 0x8b, 0x80, 128, 0, 0, 0]);
    }
}
