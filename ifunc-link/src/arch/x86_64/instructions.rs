//! Lengths of instructions, to find those that write what controls floating-point arithmetic: MXCSR and the control word of the
//! x87.
//!
//! Compilers put no data between instructions, so code is decoded from the beginning of its section. What is not known, because it
//! is data or newer than this file, ends the search: such code may write anything.

/// Whether no instruction of the code writes MXCSR or the control word of the x87.
pub(super) fn keep_float_control(mut code: &[u8]) -> bool {
    while !code.is_empty() {
        match decode(code) {
            Some(Instruction {
                len,
                sets_float_control: false,
            }) => code = &code[len..],
            _ => return false,
        }
    }
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    len: usize,
    sets_float_control: bool,
}

/// The operands that follow an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operands {
    /// So many bytes of immediate.
    Immediate(usize),
    /// A ModR/M byte and what it asks for, then so many bytes of immediate.
    ModRm(usize),
}

/// A table of opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Map {
    /// Of one byte.
    One,
    /// After `0f`.
    Two,
    /// After `0f 38`, and two maps of EVEX that are like it.
    ThreeWithout,
    /// After `0f 3a`.
    ThreeWithByte,
}

/// The prefixes that change the length of what follows, and where the opcode is.
#[derive(Clone, Copy, Debug)]
struct Opcode {
    map: Map,
    opcode: u8,
    /// Where the operands are.
    at: usize,
    /// Prefix `66`.
    is_short: bool,
    /// Prefix `67`.
    has_short_addresses: bool,
    /// REX.W.
    is_wide: bool,
    /// Prefix VEX or EVEX.
    is_vector: bool,
}

/// The first instruction. `None`: it is cut off, or not known.
fn decode(code: &[u8]) -> Option<Instruction> {
    let opcode = opcode(code)?;
    let (len, modrm) = match operands(opcode, code)? {
        Operands::Immediate(len) => (len, None),
        Operands::ModRm(immediate) => {
            let operand = code.get(opcode.at..)?;
            (address_len(operand)? + immediate, operand.first().copied())
        }
    };
    let len = opcode.at + len;
    (len <= code.len()).then(|| Instruction {
        len,
        sets_float_control: modrm.is_some_and(|modrm| sets_float_control(opcode, modrm)),
    })
}

/// Reads the prefixes and the opcode.
fn opcode(code: &[u8]) -> Option<Opcode> {
    let mut at = 0;
    let (mut is_short, mut has_short_addresses, mut is_wide) = (false, false, false);
    let mut next = || {
        let byte = code.get(at).copied();
        at += 1;
        byte
    };
    let first = loop {
        match next()? {
            0x66 => is_short = true,
            0x67 => has_short_addresses = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 | 0xf2 | 0xf3 => {}
            first => break first,
        }
    };
    let map_of = |number: u8| {
        Some(match number {
            1 => Map::Two,
            2 | 5 | 6 => Map::ThreeWithout,
            3 => Map::ThreeWithByte,
            _ => return None,
        })
    };
    // In 64-bit code these bytes are nothing else.
    let is_vector = matches!(first, 0xc4 | 0xc5 | 0x62);
    let (map, opcode) = match first {
        0xc5 => {
            next()?;
            (Map::Two, next()?)
        }
        0xc4 => {
            let map = next()? & 0x1f;
            next()?;
            (map_of(map).filter(|_| map <= 3)?, next()?)
        }
        0x62 => {
            let map = next()? & 0x07;
            next()?;
            next()?;
            (map_of(map)?, next()?)
        }
        first => {
            let mut opcode = first;
            if first & 0xf0 == 0x40 {
                is_wide = first & 0x08 != 0;
                opcode = next()?;
            }
            match opcode {
                0x0f => match next()? {
                    0x38 => (Map::ThreeWithout, next()?),
                    0x3a => (Map::ThreeWithByte, next()?),
                    opcode => (Map::Two, opcode),
                },
                opcode => (Map::One, opcode),
            }
        }
    };
    Some(Opcode {
        map,
        opcode,
        at,
        is_short,
        has_short_addresses,
        is_wide,
        is_vector,
    })
}

/// The operands of an opcode. `None`: it is not known, or privileged.
fn operands(of: Opcode, code: &[u8]) -> Option<Operands> {
    use Operands::{Immediate, ModRm};
    // Where the size of operands is 16 bits, so are immediates.
    let word = if of.is_short && !of.is_wide { 2 } else { 4 };
    let opcode = of.opcode;
    Some(match of.map {
        Map::ThreeWithout => ModRm(0),
        Map::ThreeWithByte => ModRm(1),
        Map::Two if of.is_vector => match opcode {
            0x77 => Immediate(0),
            0x70..=0x73 | 0xc2 | 0xc4..=0xc6 => ModRm(1),
            _ => ModRm(0),
        },
        Map::Two => match opcode {
            0x05 | 0x0b | 0x31 | 0x77 | 0xa2 | 0xc8..=0xcf => Immediate(0),
            0x80..=0x8f => Immediate(4),
            0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => ModRm(1),
            0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x40..=0x6f | 0x74..=0x76 | 0x7c..=0x7f | 0x90..=0x9f => {
                ModRm(0)
            }
            0x01 | 0xa3 | 0xa5 | 0xab | 0xad..=0xb9 | 0xbb..=0xc1 | 0xc3 | 0xc7 | 0xd0..=0xff => ModRm(0),
            _ => return None,
        },
        Map::One => match opcode {
            0x00..=0x3f => match opcode & 7 {
                0..=3 => ModRm(0),
                4 => Immediate(1),
                5 => Immediate(word),
                _ => return None,
            },
            0x50..=0x5f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => Immediate(0),
            0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => ModRm(0),
            // With other bits it is a prefix of instructions that no compiler makes any more.
            0x8f if code.get(of.at)? & 0x38 == 0 => ModRm(0),
            0x68 | 0xa9 => Immediate(word),
            0x69 | 0x81 | 0xc7 => ModRm(word),
            0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe3 | 0xeb => Immediate(1),
            0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => ModRm(1),
            0xa0..=0xa3 => Immediate(if of.has_short_addresses { 4 } else { 8 }),
            0xb8..=0xbf if of.is_wide => Immediate(8),
            0xb8..=0xbf => Immediate(word),
            0xc2 | 0xca => Immediate(2),
            0xc8 => Immediate(3),
            0xc3 | 0xc9 | 0xcb | 0xcc | 0xd7 | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => Immediate(0),
            0xe8 | 0xe9 => Immediate(4),
            0xf6 | 0xf7 => {
                let tests = code.get(of.at)? >> 3 & 7 <= 1; // the other instructions of this group have no immediate
                ModRm(match (tests, opcode) {
                    (false, _) => 0,
                    (true, 0xf6) => 1,
                    (true, _) => word,
                })
            }
            _ => return None,
        },
    })
}

/// Length of a ModR/M byte with its SIB byte and its displacement.
fn address_len(operand: &[u8]) -> Option<usize> {
    let modrm = *operand.first()?;
    let (mode, base) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(1);
    }
    let (len, base) = match base {
        4 => (2, operand.get(1)? & 7),
        base => (1, base),
    };
    Some(
        len + match mode {
            0 if base == 5 => 4,
            0 => 0,
            1 => 1,
            _ => 4,
        },
    )
}

/// Whether an instruction writes MXCSR or the control word of the x87.
fn sets_float_control(of: Opcode, modrm: u8) -> bool {
    let (is_memory, extension) = (modrm >> 6 != 3, modrm >> 3 & 7);
    match (of.map, of.opcode) {
        // fxrstor, ldmxcsr, xrstor
        (Map::Two, 0xae) => is_memory && matches!(extension, 1 | 2 | 5),
        // xrstors
        (Map::Two, 0xc7) => is_memory && extension == 3,
        // fldenv, fldcw; fnstenv, which masks exceptions
        (Map::One, 0xd9) => is_memory && matches!(extension, 4..=6),
        // fninit
        (Map::One, 0xdb) => modrm == 0xe3,
        // frstor; fnsave, which resets
        (Map::One, 0xdd) => is_memory && matches!(extension, 4 | 6),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_as_long_as_its_operands() {
        for code in [
            &[0x90][..],                                          // nop
            &[0xf3, 0x0f, 0x1e, 0xfa],                            // endbr64
            &[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], // nop
            &[0x48, 0x8b, 0x05, 1, 2, 3, 4],                      // mov rax, [rip + ..]
            &[0x48, 0x8b, 0x04, 0x24],                            // mov rax, [rsp]
            &[0x8b, 0x04, 0x8d, 1, 2, 3, 4],                      // mov eax, [4 * rcx + ..]
            &[0x8b, 0x44, 0x24, 8],                               // mov eax, [rsp + 8]
            &[0x8b, 0x84, 0x24, 8, 0, 0, 0],                      // mov eax, [rsp + ..]
            &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],                // movabs rax, ..
            &[0xb8, 1, 2, 3, 4],                                  // mov eax, ..
            &[0x66, 0xb8, 1, 2],                                  // mov ax, ..
            &[0x48, 0xc7, 0xc0, 1, 2, 3, 4],                      // mov rax, ..
            &[0x66, 0xc7, 0x00, 1, 2],                            // mov word [rax], ..
            &[0xf6, 0xc3, 1],                                     // test bl, 1
            &[0xf7, 0xc3, 1, 0, 0, 0],                            // test ebx, 1
            &[0xf7, 0xd8],                                        // neg eax
            &[0x48, 0x69, 0xc0, 1, 2, 3, 4],                      // imul rax, rax, ..
            &[0x0f, 0x84, 1, 2, 3, 4],                            // je ..
            &[0x74, 1],                                           // je ..
            &[0xe8, 1, 2, 3, 4],                                  // call ..
            &[0xff, 0x25, 1, 2, 3, 4],                            // jmp [rip + ..]
            &[0xf0, 0x48, 0x0f, 0xb1, 0x0f],                      // lock cmpxchg [rdi], rcx
            &[0x0f, 0xba, 0xe0, 5],                               // bt eax, 5
            &[0x66, 0x0f, 0x70, 0xc0, 0xee],                      // pshufd xmm0, xmm0, 0xee
            &[0x66, 0x0f, 0x38, 0x00, 0xc1],                      // pshufb xmm0, xmm1
            &[0x66, 0x0f, 0x3a, 0x0f, 0xc1, 8],                   // palignr xmm0, xmm1, 8
            &[0xc5, 0xf8, 0x77],                                  // vzeroupper
            &[0xc5, 0xfd, 0x6f, 0x07],                            // vmovdqa ymm0, [rdi]
            &[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1],                   // vextracti128 xmm1, ymm0, 1
            &[0xc4, 0xe2, 0x7d, 0x58, 0x05, 1, 2, 3, 4],          // vpbroadcastd ymm0, [rip + ..]
            &[0x62, 0xf1, 0xfd, 0x48, 0x6f, 0x47, 1],             // vmovdqa64 zmm0, [rdi + 64]
            &[0x62, 0xf3, 0xfd, 0x48, 0x3b, 0xc1, 1],             // vextracti64x4 ymm1, zmm0, 1
            &[0xd9, 0xee],                                        // fldz
            &[0xd9, 0x7c, 0x24, 6],                               // fnstcw [rsp + 6]
            &[0x0f, 0xae, 0x5c, 0x24, 4],                         // stmxcsr [rsp + 4]
            &[0x0f, 0xae, 0xf0],                                  // mfence
            &[0x0f, 0xae, 0xe8],                                  // lfence
            &[0xdb, 0xe2],                                        // fnclex
            &[0x0f, 0x0b],                                        // ud2
            &[0xcc],                                              // int3
        ] {
            let keeps = Instruction {
                len: code.len(),
                sets_float_control: false,
            };
            assert_eq!(decode(code), Some(keeps), "{code:x?}");
            // What is cut off is no instruction, and what follows is not looked at.
            assert_eq!(decode(&code[..code.len() - 1]), None, "{code:x?}");
            assert_eq!(decode(&[code, &[0xd9]].concat()), Some(keeps), "{code:x?}");
            assert!(keep_float_control(&[code, code].concat()));
        }
    }

    /// Beside another decoder, of whose valid instructions this one knows most.
    #[test]
    fn any_bytes_are_decoded_as_another_decoder_does() {
        use iced_x86::{Decoder, DecoderOptions, Mnemonic};
        // What instructions of interest begin with, and of which few would be drawn.
        const BEGINS: [&[u8]; 12] = [
            &[],
            &[],
            &[0x66],
            &[0x48],
            &[0x66, 0x41],
            &[0x0f],
            &[0x0f, 0xae],
            &[0xd9],
            &[0xdb],
            &[0xc5],
            &[0xc4],
            &[0x62, 0xf1],
        ];
        let mut state = 1_u64;
        let mut random = || {
            // An LCG; its upper bits are good.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize
        };
        let (mut valid, mut known, mut setting) = (0, 0, 0);
        for _ in 0..100_000 {
            let mut bytes = BEGINS[random() % BEGINS.len()].to_vec();
            bytes.resize_with(16, || random() as u8);
            let other = Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE).decode();
            if other.is_invalid() {
                continue;
            }
            valid += 1;
            let Some(instruction) = decode(&bytes) else {
                continue;
            };
            known += 1;
            use Mnemonic::*;
            let sets_float_control = matches!(
                other.mnemonic(),
                Ldmxcsr
                    | Vldmxcsr
                    | Fxrstor
                    | Fxrstor64
                    | Xrstor
                    | Xrstor64
                    | Xrstors
                    | Xrstors64
                    | Fldcw
                    | Fldenv
                    | Fnstenv
                    | Fninit
                    | Frstor
                    | Fnsave
            );
            setting += usize::from(sets_float_control);
            let expected = Instruction {
                len: other.len(),
                sets_float_control,
            };
            assert_eq!(instruction, expected, "{bytes:x?}: {other:?}");
        }
        assert!(
            valid > 50_000 && known * 100 > valid * 90 && setting > 1_000,
            "{valid} {known} {setting}"
        );
    }

    #[test]
    fn what_sets_the_control_of_floats_is_found_and_what_is_not_known_counts_as_such() {
        let ret = [0xc3];
        assert!(keep_float_control(&[]) && keep_float_control(&ret));
        for code in [
            &[0x0f, 0xae, 0x54, 0x24, 4][..],   // ldmxcsr [rsp + 4]
            &[0xc5, 0xf8, 0xae, 0x54, 0x24, 4], // vldmxcsr [rsp + 4]
            &[0x0f, 0xae, 0x0f],                // fxrstor [rdi]
            &[0x48, 0x0f, 0xae, 0x2f],          // xrstor64 [rdi]
            &[0x0f, 0xc7, 0x1f],                // xrstors [rdi]
            &[0xd9, 0x6c, 0x24, 6],             // fldcw [rsp + 6]
            &[0xd9, 0x27],                      // fldenv [rdi]
            &[0xd9, 0x37],                      // fnstenv [rdi]
            &[0x9b, 0xd9, 0x37],                // fstenv [rdi]
            &[0xdb, 0xe3],                      // fninit
            &[0xdd, 0x27],                      // frstor [rdi]
            &[0xdd, 0x37],                      // fnsave [rdi]
            &[0x06],                            // none
            &[0x0f, 0x30],                      // wrmsr
            &[0xd5, 0x10, 0x89, 0xc0],          // of an extension that is not known
            &[0x8f, 0xe9, 0x78, 0x81, 0xc0],    // of one that is gone
            &[0xe8, 1, 2],                      // a part of one
        ] {
            assert!(!keep_float_control(code), "{code:x?}");
            assert!(!keep_float_control(&[&ret[..], code].concat()), "{code:x?}");
        }
        // As a part of another instruction, they are none: mov eax, 0x276cd9.
        assert!(keep_float_control(&[0xb8, 0xd9, 0x6c, 0x27, 0]));
    }
}
