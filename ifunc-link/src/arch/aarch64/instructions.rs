//! The instructions that relocations patch: which they are, and their immediate operands.

/// What an instruction word is, as far as relocations patch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// `b`.
    Jump,
    /// `bl`.
    Call,
    /// `b.cond`, `bc.cond`.
    ConditionalBranch,
    /// `cbz`, `cbnz`.
    CompareBranch,
    /// `tbz`, `tbnz`.
    TestBranch,
    /// `adrp`.
    PageAddress,
    /// `adr`.
    Address,
    /// `add` of an immediate that is not shifted.
    Add,
    /// A load, store or prefetch with an unsigned offset, which counts units of `1 << scale` bytes.
    LoadStore {
        scale: u8,
        /// `ldr` of an X register.
        loads_x: bool,
    },
    /// A load or prefetch at a distance from the instruction.
    LoadLiteral {
        /// `ldr` of an X register.
        loads_x: bool,
    },
    /// Any other.
    Other,
}

impl Instruction {
    /// The instruction of a word.
    pub(super) fn of(word: u32) -> Self {
        let is = |mask: u32, value: u32| word & mask == value;
        if is(0xfc00_0000, 0x1400_0000) {
            Self::Jump
        } else if is(0xfc00_0000, 0x9400_0000) {
            Self::Call
        } else if is(0xff00_0000, 0x5400_0000) {
            Self::ConditionalBranch
        } else if is(0x7e00_0000, 0x3400_0000) {
            Self::CompareBranch
        } else if is(0x7e00_0000, 0x3600_0000) {
            Self::TestBranch
        } else if is(0x9f00_0000, 0x9000_0000) {
            Self::PageAddress
        } else if is(0x9f00_0000, 0x1000_0000) {
            Self::Address
        } else if is(0x7fc0_0000, 0x1100_0000) {
            Self::Add
        } else if is(0x3b00_0000, 0x3900_0000) {
            let size = (word >> 30) as u8;
            // Of vector registers, the upper bit of `opc` with size 0 is a size of its own: 16 bytes.
            let is_wide = is(0xc480_0000, 0x0480_0000);
            Self::LoadStore {
                scale: if is_wide { 4 } else { size },
                loads_x: is(0xffc0_0000, 0xf940_0000),
            }
        } else if is(0x3b00_0000, 0x1800_0000) {
            Self::LoadLiteral {
                loads_x: is(0xff00_0000, 0x5800_0000),
            }
        } else {
            Self::Other
        }
    }

    /// Its name in messages and in the linker's coverage.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Jump => "b",
            Self::Call => "bl",
            Self::ConditionalBranch => "b.cond",
            Self::CompareBranch => "cbz",
            Self::TestBranch => "tbz",
            Self::PageAddress => "adrp",
            Self::Address => "adr",
            Self::Add => "add",
            Self::LoadStore { .. } => "ldr, str",
            Self::LoadLiteral { .. } => "ldr literal",
            Self::Other => "other",
        }
    }

    /// Whether it goes where its operand says.
    pub(super) fn is_branch(self) -> bool {
        matches!(
            self,
            Self::Jump | Self::Call | Self::ConditionalBranch | Self::CompareBranch | Self::TestBranch
        )
    }
}

/// A signed immediate of `bits` bits at bit `shift` of an instruction. `None`: it does not fit.
pub(super) fn signed(value: i128, bits: u32, shift: u32) -> Option<u32> {
    let limit = 1_i128 << (bits - 1);
    let field = (1_u32 << bits) - 1;
    (-limit..limit)
        .contains(&value)
        .then_some((value as u32 & field) << shift)
}

/// The immediate of `adr` and `adrp`: 21 bits, of which the lowest two stand apart.
pub(super) fn address_immediate(value: i128) -> Option<u32> {
    let field = signed(value, 21, 0)?;
    Some((field & 3) << 29 | (field >> 2) << 5)
}

/// Whether no instruction of `code` writes a register that controls floating-point arithmetic: `FPCR`, `FPMR` (formats of
/// eight bits), `SVCR` (the streaming mode). `false` also for code that is no whole number of instructions.
pub(super) fn keep_float_control(code: &[u8]) -> bool {
    let (words, rest) = code.as_chunks::<4>();
    rest.is_empty()
        && !words
            .iter()
            .any(|word| writes_float_control(u32::from_le_bytes(*word)))
}

fn writes_float_control(word: u32) -> bool {
    // `msr REGISTER, xT`, without the number of xT.
    const FPCR: u32 = 0xd51b_4400;
    const FPMR: u32 = 0xd51b_4440;
    const SVCR: u32 = 0xd51b_4240;
    // `msr SVCR.., #imm`: `smstart` and `smstop`, without the immediate and which of the two modes.
    const STREAMING: u32 = 0xd503_407f;
    matches!(word & !0x1f, FPCR | FPMR | SVCR) || word & 0xffff_f0ff == STREAMING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_by_their_bits() {
        let load = |scale, loads_x| Instruction::LoadStore { scale, loads_x };
        for (word, instruction) in [
            (0x1400_0000, Instruction::Jump),
            (0x97ff_ffff, Instruction::Call),
            (0x5400_0000, Instruction::ConditionalBranch), // b.eq
            (0x5400_0010, Instruction::ConditionalBranch), // bc.eq
            (0xb400_0001, Instruction::CompareBranch),     // cbz x1
            (0x3500_0001, Instruction::CompareBranch),     // cbnz w1
            (0x3600_0000, Instruction::TestBranch),        // tbz w0, #0
            (0xb7f8_0000, Instruction::TestBranch),        // tbnz x0, #63
            (0x9000_0000, Instruction::PageAddress),
            (0xf000_001f, Instruction::PageAddress),
            (0x1000_0000, Instruction::Address),
            (0x9100_0000, Instruction::Add),   // add x0, x0, #0
            (0x1100_0000, Instruction::Add),   // add w0, w0, #0
            (0x9140_0000, Instruction::Other), // add x0, x0, #0, lsl #12
            (0xd100_0000, Instruction::Other), // sub x0, x0, #0
            (0xf940_0000, load(3, true)),      // ldr x0, [x0]
            (0xf900_0000, load(3, false)),     // str x0, [x0]
            (0xf980_0000, load(3, false)),     // prfm
            (0xb980_0000, load(2, false)),     // ldrsw x0, [x0]
            (0x3940_0000, load(0, false)),     // ldrb w0, [x0]
            (0x39c0_0000, load(0, false)),     // ldrsb w0, [x0]
            (0x7940_0000, load(1, false)),     // ldrh w0, [x0]
            (0x3d40_0000, load(0, false)),     // ldr b0, [x0]
            (0xfd40_0000, load(3, false)),     // ldr d0, [x0]
            (0x3dc0_0000, load(4, false)),     // ldr q0, [x0]
            (0x3d80_0000, load(4, false)),     // str q0, [x0]
            (0xf840_0000, Instruction::Other), // ldur x0, [x0]
            (0x5800_0000, Instruction::LoadLiteral { loads_x: true }),
            (0x1800_0000, Instruction::LoadLiteral { loads_x: false }), // ldr w0
            (0x9c00_0000, Instruction::LoadLiteral { loads_x: false }), // ldr q0
            (0xd503_201f, Instruction::Other),                          // nop
        ] {
            assert_eq!(Instruction::of(word), instruction, "{word:#010x}");
        }
    }

    #[test]
    fn immediates_end_at_their_widths() {
        assert_eq!(signed((1 << 25) - 1, 26, 0), Some(0x1ff_ffff));
        assert_eq!(signed(-(1 << 25), 26, 0), Some(0x200_0000));
        assert_eq!(signed(1 << 25, 26, 0), None);
        assert_eq!(signed(-(1 << 25) - 1, 26, 0), None);
        assert_eq!(signed(-1, 19, 5), Some(0xff_ffe0));
        assert_eq!(address_immediate(1), Some(1 << 29));
        assert_eq!(address_immediate(4), Some(1 << 5));
        assert_eq!(address_immediate(-1), Some(0x60ff_ffe0));
        assert_eq!(address_immediate(1 << 20), None);
        assert_eq!(address_immediate(-(1 << 20)), Some(0x0080_0000));
    }

    #[test]
    fn writes_of_float_control_are_found() {
        let keeps = |words: &[u32]| {
            let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            keep_float_control(&code)
        };
        assert!(keeps(&[]));
        assert!(keeps(&[0xd503_201f, 0xd65f_03c0]), "nop; ret");
        assert!(keeps(&[0xd53b_4400]), "mrs x0, fpcr");
        assert!(keeps(&[0xd51b_4420]), "msr fpsr, x0: flags alone");
        assert!(keeps(&[0xd51b_d040]), "msr tpidr_el0, x0");
        assert!(!keeps(&[0xd503_201f, 0xd51b_4400]), "msr fpcr, x0");
        assert!(!keeps(&[0xd51b_441f]), "msr fpcr, xzr");
        assert!(!keeps(&[0xd51b_4443]), "msr fpmr, x3");
        assert!(!keeps(&[0xd51b_4241]), "msr svcr, x1");
        assert!(!keeps(&[0xd503_477f]), "smstart");
        assert!(!keeps(&[0xd503_427f]), "smstop sm");
        assert!(!keeps(&[0xd503_457f]), "smstart za");
        assert!(keeps(&[0xd503_41df]), "msr daifset, #1");
        assert!(!keep_float_control(&[0x1f, 0x20, 0x03]), "half an instruction");
    }
}
