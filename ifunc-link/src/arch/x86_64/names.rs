//! What relocations and the instructions around them are called.

use object::elf;

use super::Bytes;

/// A relocation by its name in the psABI.
pub(super) fn relocation(kind: u32) -> String {
    let name = match elf::RelocationType(kind) {
        elf::R_X86_64_64 => "64",
        elf::R_X86_64_PC32 => "PC32",
        elf::R_X86_64_GOT32 => "GOT32",
        elf::R_X86_64_PLT32 => "PLT32",
        elf::R_X86_64_GOTPCREL => "GOTPCREL",
        elf::R_X86_64_32 => "32",
        elf::R_X86_64_32S => "32S",
        elf::R_X86_64_16 => "16",
        elf::R_X86_64_PC16 => "PC16",
        elf::R_X86_64_8 => "8",
        elf::R_X86_64_PC8 => "PC8",
        elf::R_X86_64_DTPMOD64 => "DTPMOD64",
        elf::R_X86_64_DTPOFF64 => "DTPOFF64",
        elf::R_X86_64_TPOFF64 => "TPOFF64",
        elf::R_X86_64_TLSGD => "TLSGD",
        elf::R_X86_64_TLSLD => "TLSLD",
        elf::R_X86_64_DTPOFF32 => "DTPOFF32",
        elf::R_X86_64_GOTTPOFF => "GOTTPOFF",
        elf::R_X86_64_TPOFF32 => "TPOFF32",
        elf::R_X86_64_PC64 => "PC64",
        elf::R_X86_64_GOTOFF64 => "GOTOFF64",
        elf::R_X86_64_GOTPC32 => "GOTPC32",
        elf::R_X86_64_GOT64 => "GOT64",
        elf::R_X86_64_GOTPCREL64 => "GOTPCREL64",
        elf::R_X86_64_GOTPC64 => "GOTPC64",
        elf::R_X86_64_PLTOFF64 => "PLTOFF64",
        elf::R_X86_64_SIZE32 => "SIZE32",
        elf::R_X86_64_SIZE64 => "SIZE64",
        elf::R_X86_64_GOTPC32_TLSDESC => "GOTPC32_TLSDESC",
        elf::R_X86_64_TLSDESC_CALL => "TLSDESC_CALL",
        elf::R_X86_64_TLSDESC => "TLSDESC",
        elf::R_X86_64_IRELATIVE => "IRELATIVE",
        elf::R_X86_64_GOTPCRELX => "GOTPCRELX",
        elf::R_X86_64_REX_GOTPCRELX => "REX_GOTPCRELX",
        elf::R_X86_64_CODE_4_GOTPCRELX => "CODE_4_GOTPCRELX",
        elf::R_X86_64_COPY => "COPY",
        elf::R_X86_64_GLOB_DAT => "GLOB_DAT",
        elf::R_X86_64_JUMP_SLOT => "JUMP_SLOT",
        elf::R_X86_64_RELATIVE => "RELATIVE",
        elf::R_X86_64_GOTPLT64 => "GOTPLT64",
        elf::R_X86_64_CODE_4_GOTTPOFF => "CODE_4_GOTTPOFF",
        elf::R_X86_64_CODE_4_GOTPC32_TLSDESC => "CODE_4_GOTPC32_TLSDESC",
        elf::R_X86_64_CODE_5_GOTPCRELX => "CODE_5_GOTPCRELX",
        elf::R_X86_64_CODE_5_GOTTPOFF => "CODE_5_GOTTPOFF",
        elf::R_X86_64_CODE_5_GOTPC32_TLSDESC => "CODE_5_GOTPC32_TLSDESC",
        elf::R_X86_64_CODE_6_GOTPCRELX => "CODE_6_GOTPCRELX",
        elf::R_X86_64_CODE_6_GOTTPOFF => "CODE_6_GOTTPOFF",
        elf::R_X86_64_CODE_6_GOTPC32_TLSDESC => "CODE_6_GOTPC32_TLSDESC",
        _ => return format!("number {kind}"),
    };
    format!("R_X86_64_{name}")
}

/// The instruction whose `[rip]` operand has its displacement at `at`, by the opcode before the ModRM byte.
pub(super) fn operand(at: Bytes<'_>) -> &'static str {
    let (Some(opcode), Some(modrm)) = (at.before(2), at.before(1)) else {
        return "data";
    };
    if modrm & 0xc7 != 0x05 {
        return "data";
    }
    match (at.before(3), opcode, modrm >> 3 & 7) {
        // With any prefix.
        (_, 0x8d, _) => "lea r64, [rip]",
        (_, 0x8b, _) => "mov r64, [rip]",
        (_, 0xff, 2) => "call *[rip]",
        (_, 0xff, 4) => "jmp *[rip]",
        (_, 0xff, 6) => "push [rip]",
        (
            Some(0x0f),
            0x10 | 0x11 | 0x12 | 0x13 | 0x16 | 0x17 | 0x28 | 0x29 | 0x6e | 0x6f | 0x7e | 0x7f | 0xd6,
            _,
        ) => "mov xmm, [rip]",
        (Some(0x0f), 0x40..=0x4f, _) => "cmovcc r64, [rip]",
        (Some(0x0f), 0xb6 | 0xb7 | 0xbe | 0xbf, _) => "movx r, [rip]",
        (Some(0x0f), ..) => "other [rip]",
        // VEX and EVEX: the byte before the opcode is W, vvvv, L and pp.
        (Some(_), 0x10 | 0x12 | 0x16 | 0x22 | 0x6e | 0x6f | 0x7e, _) if vex(at) => "vector [rip]",
        (_, 0x89 | 0xc7, _) => "mov [rip], r64",
        (_, 0x38..=0x3b, _) => "cmp r64, [rip]",
        (_, 0x80 | 0x81 | 0x83, 7) => "cmp [rip], imm",
        (_, 0x84 | 0x85, _) => "test r64, [rip]",
        (_, 0x00..=0x03, _) => "add r64, [rip]",
        (_, 0x08..=0x0b, _) => "or r64, [rip]",
        (_, 0x20..=0x23, _) => "and r64, [rip]",
        (_, 0x28..=0x2b, _) => "sub r64, [rip]",
        (_, 0x30..=0x33, _) => "xor r64, [rip]",
        _ => "other [rip]",
    }
}

/// Whether a place is the destination of a call or a jump.
pub(super) fn is_branch(place: &str) -> bool {
    ["call", "jmp", "jcc"]
        .iter()
        .any(|branch| place.starts_with(branch))
}

/// Whether the opcode follows a VEX or EVEX prefix, as far as the bytes before it show.
fn vex(at: Bytes<'_>) -> bool {
    at.before(4) == Some(0xc5) || at.before(5) == Some(0xc4) || at.before(6) == Some(0x62)
}

/// The instruction whose distance is at `at`: a branch, or an operand.
pub(super) fn distance(at: Bytes<'_>) -> &'static str {
    match (at.before(2), at.before(1)) {
        (_, Some(0xe8)) => "call rel32",
        (_, Some(0xe9)) => "jmp rel32",
        (Some(0x0f), Some(0x80..=0x8f)) => "jcc rel32",
        _ => operand(at),
    }
}
