//! AArch64: the relocations, the instructions that they patch, and how each is resolved.
//!
//! | relocation | place | inside the image | import |
//! |---|---|---|---|
//! | `CALL26`, `JUMP26` | `bl`, `b` | distance | distance to a thunk |
//! | `CONDBR19`, `TSTBR14` | `b.cond`, `cbz`, `tbz` | distance | distance to a thunk |
//! | `ADR_GOT_PAGE` | `adrp xN, :got:s` | `adr xN, PAGE` | `ldr xN, SLOT` |
//! | `LD64_GOT_LO12_NC` | `ldr xD, [xN, :got_lo12:s]` | `add xD, xN, LO12` | `ldr xD, [xN, ENTRY]` |
//! | `GOT_LD_PREL19` | `ldr xD, :got:s` | `adr xD, s` | a GOT entry of the image |
//! | `ADR_PREL_PG_HI21` | `adrp xN, s` | `adr xN, PAGE` | refused |
//! | `ADD_ABS_LO12_NC`, `LDST*_ABS_LO12_NC` | `add`, `ldr`, `str` | `LO12` | refused |
//! | `ADR_PREL_LO21`, `LD_PREL_LO19` | `adr`, `ldr literal` | distance | refused |
//! | `PREL32`, `PREL64` | data | `S + A - P` | refused |
//! | `PLT32`, `GOTPCREL32` | data | distance to the target, to a GOT entry | refused, a GOT entry |
//! | `ABS64` | data | install relocation | install relocation |
//!
//! The two halves of an address stand apart, in any order, and one `adrp` may serve several loads: each half depends on the symbol
//! and on the image alone, so that all halves of a symbol agree. A page here is one of the image's address space. `adr` names
//! its first byte exactly, so an image may begin anywhere; only in an image of more than 1 MiB is `adrp` needed, and a base at a
//! multiple of 4 KiB. In a smaller one, only an offset that leads out of the image is beyond `adr`: it is refused. An import with an entry that a load does not reach, or any import in more than 1 MiB of text, is
//! reached by a GOT entry in the image.
//!
//! A thunk may use `x16`, which every call may change on its way.

mod instructions;
mod names;

use object::elf;

use super::{
    Arch, Bytes, Classified, DataRelocation, External, Form, Internal, Patch, Refused, Resolution, Unfit,
};
use crate::help;
use instructions::{Instruction, address_immediate, signed};

/// The architecture.
pub(super) struct AArch64;

/// The distance of a branch, in words: 26 bits at bit 0.
const BRANCH_26: Form = Form(0);
/// The distance of a conditional branch or a literal load, in words: 19 bits at bit 5.
const WORDS_19: Form = Form(1);
/// The distance of a test and branch, in words: 14 bits at bit 5.
const BRANCH_14: Form = Form(2);
/// `adrp`, or `adr` where it reaches: the page of the target.
const PAGE: Form = Form(3);
/// `adr`: the target.
const ADDRESS: Form = Form(4);
/// `ldr xD, :got:s` becomes `adr xD, s`.
const LITERAL_TO_ADDRESS: Form = Form(5);
/// `add`: the lowest 12 bits of the target.
const ADD_LOW: Form = Form(6);
/// `ldr xD, [xN, :got_lo12:s]` becomes `add xD, xN, :lo12:s`.
const LOAD_TO_ADD: Form = Form(7);
/// `adrp xN, :got:s` becomes `ldr xN, SLOT`.
const LOAD_SLOT: Form = Form(8);
/// `ldr xD, [xN, :got_lo12:s]` becomes `ldr xD, [xN, ENTRY]`.
const LOAD_ENTRY: Form = Form(9);
/// Four bytes of data: `S + A - P`.
const DISTANCE_32: Form = Form(10);
/// Eight bytes of data: `S + A - P`.
const DISTANCE_64: Form = Form(11);
/// Eight bytes that an install relocation fills.
const ADDRESS_64: Form = Form(12);
/// A load or store: the lowest 12 bits of the target, in units of `1 << (form - LOW_OF_1)` bytes.
const LOW_OF_1: u8 = 13;

/// The page that `adrp` counts in.
const PAGE_OF_ADRP: u64 = 4096;
/// How far `adr` and a literal load reach.
const MEGABYTE: u64 = 1 << 20;
/// The farthest entry of the GOT that one load reaches.
const MAX_ENTRY: u32 = 4095 * 8;
/// Room in a megabyte of text for gaps that only the layout knows.
const SLACK: u64 = 4096;

impl AArch64 {
    /// What a place is patched to, by the kind of its relocation and its instruction.
    fn classify_code(kind: elf::RelocationType, word: u32) -> Result<Patched, Refused> {
        use Instruction as I;
        let instruction = I::of(word);
        let branch = |form| Patched {
            instruction,
            internal: (form, Internal::Distance),
            external: Ok((form, External::Thunk)),
        };
        let local = |form| Patched {
            instruction,
            internal: (form, Internal::Distance),
            external: Err(Refused::DirectExternal(
                "a PC-relative reference to an external symbol",
            )),
        };
        Ok(match (kind, instruction) {
            (elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26, I::Call | I::Jump) => branch(BRANCH_26),
            (elf::R_AARCH64_CONDBR19, I::ConditionalBranch | I::CompareBranch) => branch(WORDS_19),
            (elf::R_AARCH64_TSTBR14, I::TestBranch) => branch(BRANCH_14),
            (elf::R_AARCH64_ADR_GOT_PAGE, I::PageAddress) => Patched {
                instruction,
                internal: (PAGE, Internal::Distance),
                external: Ok((LOAD_SLOT, External::Slot { far: PAGE })),
            },
            (elf::R_AARCH64_LD64_GOT_LO12_NC, I::LoadStore { loads_x: true, .. }) => Patched {
                instruction,
                internal: (LOAD_TO_ADD, Internal::Distance),
                external: Ok((LOAD_ENTRY, External::Slot { far: low(3) })),
            },
            (elf::R_AARCH64_GOT_LD_PREL19, I::LoadLiteral { loads_x: true }) => Patched {
                instruction,
                internal: (LITERAL_TO_ADDRESS, Internal::Distance),
                external: Ok((WORDS_19, External::GotEntry)),
            },
            (elf::R_AARCH64_ADR_PREL_PG_HI21 | elf::R_AARCH64_ADR_PREL_PG_HI21_NC, I::PageAddress) => {
                local(PAGE)
            }
            (elf::R_AARCH64_ADR_PREL_LO21, I::Address) => local(ADDRESS),
            (elf::R_AARCH64_LD_PREL_LO19, I::LoadLiteral { .. }) => local(WORDS_19),
            (elf::R_AARCH64_ADD_ABS_LO12_NC, I::Add) => local(ADD_LOW),
            (kind, I::LoadStore { scale, .. }) if scale_of(kind) == Some(scale) => local(low(scale)),
            _ => return Err(Refused::Malformed),
        })
    }

    /// The same, for data.
    fn classify_data(kind: elf::RelocationType) -> Option<(usize, Patched)> {
        let data = |form, internal, external| Patched {
            instruction: Instruction::Other,
            internal: (form, internal),
            external,
        };
        let direct = Err(Refused::DirectExternal(
            "a PC-relative reference to an external symbol",
        ));
        Some(match kind {
            elf::R_AARCH64_PREL32 => (4, data(DISTANCE_32, Internal::Distance, direct)),
            elf::R_AARCH64_PREL64 => (8, data(DISTANCE_64, Internal::Distance, direct)),
            elf::R_AARCH64_PLT32 => {
                let external = Err(Refused::DirectExternal(
                    "the address of an external function taken without the GOT",
                ));
                (4, data(DISTANCE_32, Internal::Distance, external))
            }
            elf::R_AARCH64_GOTPCREL32 => {
                let external = Ok((DISTANCE_32, External::GotEntry));
                (4, data(DISTANCE_32, Internal::GotEntry, external))
            }
            elf::R_AARCH64_ABS64 => {
                let external = Ok((ADDRESS_64, External::InstallRelocation));
                (8, data(ADDRESS_64, Internal::InstallRelocation, external))
            }
            _ => return None,
        })
    }
}

/// The resolutions of a place.
struct Patched {
    instruction: Instruction,
    internal: (Form, Internal),
    external: Result<(Form, External), Refused>,
}

impl Patched {
    /// Of `len` bytes at `offset`.
    fn at(self, offset: usize, len: usize) -> Classified {
        let (start, end) = (offset, offset + len);
        let (form, method) = self.internal;
        Classified {
            place: self.instruction.name(),
            is_branch: self.instruction.is_branch(),
            internal: Resolution {
                method,
                form,
                start,
                end,
            },
            external: self.external.map(|(form, method)| Resolution {
                method,
                form,
                start,
                end,
            }),
        }
    }
}

/// The form of a load or store of `1 << scale` bytes.
const fn low(scale: u8) -> Form {
    Form(LOW_OF_1 + scale)
}

/// The unit of the offset that a relocation writes into a load or store.
fn scale_of(kind: elf::RelocationType) -> Option<u8> {
    Some(match kind {
        elf::R_AARCH64_LDST8_ABS_LO12_NC => 0,
        elf::R_AARCH64_LDST16_ABS_LO12_NC => 1,
        elf::R_AARCH64_LDST32_ABS_LO12_NC => 2,
        elf::R_AARCH64_LDST64_ABS_LO12_NC => 3,
        elf::R_AARCH64_LDST128_ABS_LO12_NC => 4,
        _ => return None,
    })
}

/// Whether a relocation patches an instruction, and the linker resolves it.
fn is_of_code(kind: elf::RelocationType) -> bool {
    scale_of(kind).is_some()
        || matches!(
            kind,
            elf::R_AARCH64_CALL26
                | elf::R_AARCH64_JUMP26
                | elf::R_AARCH64_CONDBR19
                | elf::R_AARCH64_TSTBR14
                | elf::R_AARCH64_ADR_GOT_PAGE
                | elf::R_AARCH64_LD64_GOT_LO12_NC
                | elf::R_AARCH64_GOT_LD_PREL19
                | elf::R_AARCH64_ADR_PREL_PG_HI21
                | elf::R_AARCH64_ADR_PREL_PG_HI21_NC
                | elf::R_AARCH64_ADR_PREL_LO21
                | elf::R_AARCH64_LD_PREL_LO19
                | elf::R_AARCH64_ADD_ABS_LO12_NC
        )
}

/// Why no target makes a relocation valid.
fn refused(kind: elf::RelocationType) -> Refused {
    match kind {
        // `TLSGD_ADR_PREL21` to `TLSLD_LDST128_DTPREL_LO12_NC`, and those of a linked file.
        elf::RelocationType(512..=573)
        | elf::R_AARCH64_TLS_DTPMOD
        | elf::R_AARCH64_TLS_DTPREL
        | elf::R_AARCH64_TLS_TPREL
        | elf::R_AARCH64_TLSDESC => Refused::ThreadLocal,
        elf::R_AARCH64_ABS32 => Refused::TextRelocation("a 32-bit absolute address"),
        elf::R_AARCH64_ABS16 => Refused::TextRelocation("an absolute address of 16 bits"),
        elf::R_AARCH64_MOVW_UABS_G0
        | elf::R_AARCH64_MOVW_UABS_G0_NC
        | elf::R_AARCH64_MOVW_UABS_G1
        | elf::R_AARCH64_MOVW_UABS_G1_NC
        | elf::R_AARCH64_MOVW_UABS_G2
        | elf::R_AARCH64_MOVW_UABS_G2_NC
        | elf::R_AARCH64_MOVW_UABS_G3
        | elf::R_AARCH64_MOVW_SABS_G0
        | elf::R_AARCH64_MOVW_SABS_G1
        | elf::R_AARCH64_MOVW_SABS_G2 => Refused::TextRelocation("a part of an absolute address"),
        elf::R_AARCH64_MOVW_GOTOFF_G0
        | elf::R_AARCH64_MOVW_GOTOFF_G0_NC
        | elf::R_AARCH64_MOVW_GOTOFF_G1
        | elf::R_AARCH64_MOVW_GOTOFF_G1_NC
        | elf::R_AARCH64_MOVW_GOTOFF_G2
        | elf::R_AARCH64_MOVW_GOTOFF_G2_NC
        | elf::R_AARCH64_MOVW_GOTOFF_G3
        | elf::R_AARCH64_GOTREL64
        | elf::R_AARCH64_GOTREL32
        | elf::R_AARCH64_LD64_GOTOFF_LO15
        | elf::R_AARCH64_LD64_GOTPAGE_LO15 => Refused::GotRelative("an offset from the GOT (`-fpic`)"),
        elf::R_AARCH64_PREL16
        | elf::R_AARCH64_MOVW_PREL_G0
        | elf::R_AARCH64_MOVW_PREL_G0_NC
        | elf::R_AARCH64_MOVW_PREL_G1
        | elf::R_AARCH64_MOVW_PREL_G1_NC
        | elf::R_AARCH64_MOVW_PREL_G2
        | elf::R_AARCH64_MOVW_PREL_G2_NC
        | elf::R_AARCH64_MOVW_PREL_G3 => {
            Refused::Unsupported("a part of a PC-relative distance, or one of 16 bits")
        }
        elf::RelocationType(kind) => Refused::UnknownKind(kind),
    }
}

impl Arch for AArch64 {
    fn machine(&self) -> u16 {
        elf::EM_AARCH64.0
    }

    fn page(&self) -> u64 {
        64 * 1024
    }

    fn text_fill(&self) -> u8 {
        0 // udf #0
    }

    fn code_align(&self) -> u64 {
        4
    }

    fn base_align(&self, extent: u64) -> u64 {
        match extent < MEGABYTE {
            true => self.code_align(),
            false => PAGE_OF_ADRP,
        }
    }

    fn slot_follows_text(&self) -> bool {
        true
    }

    fn reaches_slot(&self, text: u64, got_offset: u32) -> bool {
        text <= MEGABYTE - SLACK && got_offset <= MAX_ENTRY
    }

    fn trap(&self) -> &'static [u8] {
        &[0, 0, 0, 0] // udf #0
    }

    fn keeps_float_control(&self, code: &[u8]) -> bool {
        instructions::keep_float_control(code)
    }

    fn relocation_name(&self, kind: u32) -> String {
        names::relocation(kind)
    }

    fn data_relocation(&self, kind: u32) -> Option<DataRelocation> {
        Some(match elf::RelocationType(kind) {
            elf::R_AARCH64_NONE | elf::R_AARCH64_TLS_DTPREL => DataRelocation::Nothing,
            elf::R_AARCH64_ABS64 => DataRelocation::Address64,
            elf::R_AARCH64_ABS32 => DataRelocation::Address32,
            elf::R_AARCH64_PREL32 => DataRelocation::Distance32,
            _ => return None,
        })
    }

    fn is_second_half(&self, kind: u32) -> bool {
        let kind = elf::RelocationType(kind);
        scale_of(kind).is_some()
            || matches!(
                kind,
                elf::R_AARCH64_ADD_ABS_LO12_NC | elf::R_AARCH64_LD64_GOT_LO12_NC
            )
    }

    fn help(&self, refused: Refused) -> &'static str {
        match refused {
            Refused::ThreadLocal => help::THREAD_LOCAL,
            Refused::TextRelocation(_) => help::PIC_AARCH64,
            Refused::DirectExternal(_) => help::DIRECT_EXTERNAL,
            Refused::GotRelative(_) => help::GOT_RELATIVE_AARCH64,
            Refused::Unsupported(_) | Refused::UnknownKind(_) => help::UNSUPPORTED_AARCH64,
            Refused::Malformed => help::MALFORMED,
        }
    }

    fn addend_is_part_of_target(&self, kind: u32) -> bool {
        let kind = elf::RelocationType(kind);
        is_of_code(kind) || matches!(kind, elf::R_AARCH64_ABS64 | elf::R_AARCH64_ABS32)
    }

    fn offsets_from_symbol(&self, kind: u32, _at: Bytes<'_>, addend: i64) -> Vec<i64> {
        match elf::RelocationType(kind) {
            // The distance from the field itself, or from the start of its table: the addend then is the field's offset.
            elf::R_AARCH64_PREL32 | elf::R_AARCH64_PREL64 | elf::R_AARCH64_PLT32 => vec![0, addend],
            _ => vec![addend],
        }
    }

    fn classify(&self, kind: u32, at: Bytes<'_>, addend: i64) -> Result<Option<Classified>, Refused> {
        let kind = elf::RelocationType(kind);
        if kind == elf::R_AARCH64_NONE {
            return Ok(None);
        }
        if let Some((len, patched)) = Self::classify_data(kind) {
            return match at.holds(len) {
                true => Ok(Some(patched.at(at.offset, len))),
                false => Err(Refused::Malformed),
            };
        }
        if !is_of_code(kind) {
            return Err(refused(kind));
        }
        let word = word_at(at).ok_or(Refused::Malformed)?;
        let mut classified = Self::classify_code(kind, word)?.at(at.offset, 4);
        if addend != 0 && classified.external.is_ok() {
            classified.external = Err(Refused::Unsupported("an offset from an external symbol"));
        }
        Ok(Some(classified))
    }

    fn apply(&self, form: Form, code: &mut [u8], patch: &Patch) -> Result<(), Unfit> {
        let value = i128::from(patch.target) + i128::from(patch.addend);
        let place = i128::from(patch.address);
        match form {
            ADDRESS_64 => {
                // The install relocation carries the addend.
                code.fill(0);
                return Ok(());
            }
            DISTANCE_32 => {
                let distance = i32::try_from(value - place);
                let distance = distance.map_err(|_| Unfit::TooFar("a distance beyond 32 bits"))?;
                return write(code, &distance.to_le_bytes());
            }
            DISTANCE_64 => {
                let distance = i64::try_from(value - place);
                let distance = distance.map_err(|_| Unfit::TooFar("a distance beyond 64 bits"))?;
                return write(code, &distance.to_le_bytes());
            }
            _ => {}
        }
        let bytes: [u8; 4] = (*code).try_into().map_err(|_| Unfit::Form)?;
        let word = patched(form, u32::from_le_bytes(bytes), patch)?;
        write(code, &word.to_le_bytes())
    }

    fn thunk_len(&self, got_offset: u32) -> u64 {
        match got_offset <= MAX_ENTRY {
            true => 12,
            false => 16,
        }
    }

    fn thunk(&self, at: u64, slot: u64, got_offset: u32) -> Option<Vec<u8>> {
        let distance = i128::from(slot) - i128::from(at);
        let mut words = vec![0x5800_0010 | words(distance, 19, 5, "").ok()?]; // ldr x16, slot
        if got_offset > MAX_ENTRY {
            words.push(0x9140_0210 | (got_offset >> 12 & 0xfff) << 10); // add x16, x16, #.., lsl #12
        }
        words.push(0xf940_0210 | entry_immediate(got_offset)); // ldr x16, [x16, #..]
        words.push(0xd61f_0200); // br x16
        Some(words.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    // No place needs code of its own.
    fn stub_len(&self, _code: &[u8], _got_offset: u32) -> u64 {
        0
    }

    fn stub(&self, _code: &[u8], _place: u64, _at: u64, _slot: u64, _got_offset: u32) -> Option<Vec<u8>> {
        None
    }
}

/// The instruction at a field.
fn word_at(at: Bytes<'_>) -> Option<u32> {
    if !at.text || !at.offset.is_multiple_of(4) {
        return None;
    }
    let bytes = at.bytes.get(at.offset..at.offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn write(code: &mut [u8], bytes: &[u8]) -> Result<(), Unfit> {
    if code.len() != bytes.len() {
        return Err(Unfit::Form);
    }
    code.copy_from_slice(bytes);
    Ok(())
}

/// An instruction that refers to what the patch says.
fn patched(form: Form, word: u32, patch: &Patch) -> Result<u32, Unfit> {
    const BRANCH: &str = "a branch reaches 128 MiB";
    const CONDITIONAL: &str = "a conditional branch and a literal load reach 1 MiB";
    const TEST: &str = "`tbz` and `tbnz` reach 32 KiB";
    const ADR: &str = "`adr` reaches 1 MiB";
    const ADRP: &str = "`adrp` reaches 4 GiB";
    const ADRP_OF_SMALL: &str =
        "`adrp` reaches 1 MiB in an image of less than that, which can begin within a page";
    let place = i128::from(patch.address);
    let value = i128::from(patch.target) + i128::from(patch.addend);
    let distance = value - place;
    let page = value & !0xfff;
    // The lowest 12 bits of the target. They are the same from every base at which `PAGE` is right.
    let low_bits = (value & 0xfff) as u32;
    let adr = |value: i128| address_immediate(value).ok_or(Unfit::TooFar(ADR));
    Ok(match form {
        BRANCH_26 => word & 0xfc00_0000 | words(distance, 26, 0, BRANCH)?,
        WORDS_19 => word & 0xff00_001f | words(distance, 19, 5, CONDITIONAL)?,
        BRANCH_14 => word & 0xfff8_001f | words(distance, 14, 5, TEST)?,
        PAGE => match address_immediate(page - place) {
            Some(immediate) => 0x1000_0000 | word & 0x1f | immediate,
            // Only what an offset puts outside the image is so far away there.
            None if !patch.base_align.is_multiple_of(PAGE_OF_ADRP) => {
                return Err(Unfit::TooFar(ADRP_OF_SMALL));
            }
            None => {
                let pages = (page - (place & !0xfff)) >> 12;
                0x9000_0000 | word & 0x1f | address_immediate(pages).ok_or(Unfit::TooFar(ADRP))?
            }
        },
        ADDRESS => 0x1000_0000 | word & 0x1f | adr(distance)?,
        LITERAL_TO_ADDRESS => 0x1000_0000 | word & 0x1f | adr(distance)?,
        ADD_LOW => word & 0xffc0_03ff | low_bits << 10,
        LOAD_TO_ADD => 0x9100_0000 | word & 0x3ff | low_bits << 10,
        LOAD_SLOT => 0x5800_0000 | word & 0x1f | words(distance, 19, 5, CONDITIONAL)?,
        LOAD_ENTRY => word & 0xffc0_03ff | entry_immediate(patch.got_offset),
        Form(form) => {
            let scale = form.checked_sub(LOW_OF_1).filter(|scale| *scale <= 4);
            let scale = scale.ok_or(Unfit::Form)?;
            if !low_bits.is_multiple_of(1 << scale) {
                return Err(Unfit::Misaligned(
                    "a load or store can only name a multiple of its size",
                ));
            }
            word & 0xffc0_03ff | (low_bits >> scale) << 10
        }
    })
}

/// A distance in words.
fn words(distance: i128, bits: u32, shift: u32, reach: &'static str) -> Result<u32, Unfit> {
    if distance & 3 != 0 {
        return Err(Unfit::Misaligned(
            "a branch or a literal load can only name a multiple of 4",
        ));
    }
    signed(distance >> 2, bits, shift).ok_or(Unfit::TooFar(reach))
}

/// The immediate of a load from the GOT: what of the offset [`AArch64::thunk`] does not add before.
fn entry_immediate(got_offset: u32) -> u32 {
    let offset = match got_offset <= MAX_ENTRY {
        true => got_offset,
        false => got_offset & 0xfff,
    };
    (offset / 8) << 10
}

#[cfg(test)]
mod tests;
