use super::*;

const ADRP_X3: u32 = 0x9000_0003;
const LDR_X5_X3: u32 = 0xf940_0065;

fn classify(kind: elf::RelocationType, word: u32, addend: i64) -> Result<Classified, Refused> {
    let bytes = word.to_le_bytes();
    let at = Bytes {
        bytes: &bytes,
        offset: 0,
        text: true,
    };
    AArch64.classify(kind.0, at, addend).map(Option::unwrap)
}

/// A word that is patched for a place, a target and an entry.
fn apply(form: Form, word: u32, address: u64, target: u64, got_offset: u32) -> Result<u32, Unfit> {
    apply_at(PAGE_OF_ADRP, form, word, address, target, got_offset)
}

/// The same in an image whose base is a multiple of this.
fn apply_at(
    base_align: u64,
    form: Form,
    word: u32,
    address: u64,
    target: u64,
    got_offset: u32,
) -> Result<u32, Unfit> {
    let mut code = word.to_le_bytes();
    let patch = Patch {
        address,
        target,
        addend: 0,
        got_offset,
        base_align,
    };
    AArch64.apply(form, &mut code, &patch)?;
    Ok(u32::from_le_bytes(code))
}

#[test]
fn halves_of_a_load_from_the_got_are_patched_alike() {
    let page = classify(elf::R_AARCH64_ADR_GOT_PAGE, ADRP_X3, 0).unwrap();
    let load = classify(elf::R_AARCH64_LD64_GOT_LO12_NC, LDR_X5_X3, 0).unwrap();
    assert_eq!(page.internal.form, PAGE);
    assert_eq!(load.internal.form, LOAD_TO_ADD);
    let external = |classified: Classified| classified.external.unwrap();
    let (page, load) = (external(page), external(load));
    assert_eq!(
        (page.form, page.method),
        (LOAD_SLOT, External::Slot { far: PAGE })
    );
    assert_eq!(
        (load.form, load.method),
        (LOAD_ENTRY, External::Slot { far: low(3) })
    );
    // ldr x3, +0x40; ldr x5, [x3, #24]
    assert_eq!(apply(LOAD_SLOT, ADRP_X3, 0x100, 0x140, 24), Ok(0x5800_0203));
    assert_eq!(apply(LOAD_ENTRY, LDR_X5_X3, 0x104, 0x140, 24), Ok(0xf940_0c65));
    // adr x3, of the page of 0x2abc; add x5, x3, #0xabc
    assert_eq!(apply(PAGE, ADRP_X3, 0x2100, 0x2abc, 0), Ok(0x10ff_f803));
    assert_eq!(apply(LOAD_TO_ADD, LDR_X5_X3, 0x2104, 0x2abc, 0), Ok(0x912a_f065));
    // ldr x5, [x3, #0xab8] of an entry of the image
    assert_eq!(apply(low(3), LDR_X5_X3, 0x2104, 0x2ab8, 0), Ok(0xf945_5c65));
}

#[test]
fn pages_beyond_adr_are_reached_by_adrp() {
    assert_eq!(apply(PAGE, ADRP_X3, 0x1000, 0x10_0000, 0), Ok(0x107f_8003), "adr");
    assert_eq!(
        apply(PAGE, ADRP_X3, 0x1004, 0x20_0123, 0),
        Ok(0xf000_0fe3),
        "adrp, 0x1ff pages"
    );
    assert_eq!(
        apply(PAGE, ADRP_X3, 0x20_0000, 0x123, 0),
        Ok(0x90ff_f003),
        "adrp, -0x200 pages"
    );
    let far = apply(PAGE, ADRP_X3, 0, 1 << 33, 0);
    assert_eq!(far, Err(Unfit::TooFar("`adrp` reaches 4 GiB")));
    // Where the base may lie within a page, its offset would be added.
    let small = |target| apply_at(4, PAGE, ADRP_X3, 0x1000, target, 0);
    assert_eq!(small(0x10_0000), Ok(0x107f_8003), "adr");
    assert!(matches!(small(0x20_0123), Err(Unfit::TooFar(_))));
}

#[test]
fn an_instruction_has_the_relocation_of_its_kind() {
    for (kind, word) in [
        (elf::R_AARCH64_CALL26, ADRP_X3),
        (elf::R_AARCH64_ADR_GOT_PAGE, 0x1000_0003),
        (elf::R_AARCH64_LD64_GOT_LO12_NC, 0xb940_0065), // ldr w5
        (elf::R_AARCH64_LDST32_ABS_LO12_NC, LDR_X5_X3),
        (elf::R_AARCH64_LDST8_ABS_LO12_NC, 0x3dc0_0065), // ldr q5
        (elf::R_AARCH64_ADD_ABS_LO12_NC, 0x9140_0065),   // add .., lsl #12
        (elf::R_AARCH64_TSTBR14, 0x3400_0000),           // cbz
        (elf::R_AARCH64_CONDBR19, 0x3600_0000),          // tbz
        (elf::R_AARCH64_GOT_LD_PREL19, 0x1800_0000),     // ldr w0
    ] {
        assert_eq!(classify(kind, word, 0), Err(Refused::Malformed), "{kind:?}");
    }
    let nop = 0xd503_201f_u32.to_le_bytes();
    for (bytes, offset, text) in [(&nop[..], 0, false), (&nop[..3], 0, true), (&[0; 8], 2, true)] {
        let at = Bytes { bytes, offset, text };
        let refused = AArch64.classify(elf::R_AARCH64_CALL26.0, at, 0);
        assert_eq!(refused, Err(Refused::Malformed), "{offset} {text}");
    }
}

#[test]
fn imports_are_never_reached_directly() {
    let external = |kind, word, addend| classify(kind, word, addend).unwrap().external;
    assert_eq!(
        external(elf::R_AARCH64_CALL26, 0x9400_0000, 0).unwrap().method,
        External::Thunk
    );
    for (kind, word) in [
        (elf::R_AARCH64_ADR_PREL_PG_HI21, ADRP_X3),
        (elf::R_AARCH64_ADD_ABS_LO12_NC, 0x9100_0065),
        (elf::R_AARCH64_LDST64_ABS_LO12_NC, LDR_X5_X3),
        (elf::R_AARCH64_ADR_PREL_LO21, 0x1000_0000),
        (elf::R_AARCH64_LD_PREL_LO19, 0x5800_0000),
        (elf::R_AARCH64_PREL32, 0),
        (elf::R_AARCH64_PLT32, 0),
    ] {
        let refused = external(kind, word, 0);
        assert!(matches!(refused, Err(Refused::DirectExternal(_))), "{kind:?}");
    }
    for (kind, word) in [
        (elf::R_AARCH64_CALL26, 0x9400_0000),
        (elf::R_AARCH64_ADR_GOT_PAGE, ADRP_X3),
        (elf::R_AARCH64_LD64_GOT_LO12_NC, LDR_X5_X3),
    ] {
        let refused = external(kind, word, 8);
        assert!(matches!(refused, Err(Refused::Unsupported(_))), "{kind:?}");
    }
}

#[test]
fn distances_in_data_reach_targets_and_entries_of_the_got() {
    let entry = classify(elf::R_AARCH64_GOTPCREL32, 0, 0).unwrap();
    assert_eq!(entry.internal.method, Internal::GotEntry);
    assert_eq!(entry.external.unwrap().method, External::GotEntry);
    assert_eq!(apply(DISTANCE_32, 0, 0x100, 0xfc, 0), Ok(u32::MAX - 3));
    let far = apply(DISTANCE_32, 0, 0, 1 << 31, 0);
    assert_eq!(far, Err(Unfit::TooFar("a distance beyond 32 bits")));
    assert_eq!(
        apply(DISTANCE_64, 0, 0, 8, 0),
        Err(Unfit::Form),
        "four bytes of eight"
    );
    let bytes = [0; 4];
    let at = Bytes {
        bytes: &bytes,
        offset: 0,
        text: false,
    };
    let cut_off = AArch64.classify(elf::R_AARCH64_ABS64.0, at, 0);
    assert_eq!(cut_off, Err(Refused::Malformed));
}

#[test]
fn places_say_how_far_they_reach() {
    let far = |form, word, distance: u64| {
        let ahead = apply(form, word, 0, distance - 4, 0).is_ok();
        let back = apply(form, word, distance, 0, 0).is_ok();
        let behind = matches!(apply(form, word, 0, distance, 0), Err(Unfit::TooFar(_)));
        let before = matches!(apply(form, word, distance + 4, 0, 0), Err(Unfit::TooFar(_)));
        (ahead, back, behind, before)
    };
    for (form, word, distance) in [
        (BRANCH_26, 0x9400_0000, 1 << 27),
        (WORDS_19, 0x5400_0000, 1 << 20),
        (BRANCH_14, 0x3600_0000, 1 << 15),
        (ADDRESS, 0x1000_0000, 1 << 20),
        (LOAD_SLOT, ADRP_X3, 1 << 20),
    ] {
        assert_eq!(far(form, word, distance), (true, true, true, true), "{form:?}");
    }
    assert!(matches!(
        apply(BRANCH_26, 0x9400_0000, 0, 6, 0),
        Err(Unfit::Misaligned(_))
    ));
    assert!(matches!(
        apply(low(3), LDR_X5_X3, 0, 0x2ab4, 0),
        Err(Unfit::Misaligned(_))
    ));
    assert_eq!(apply(Form(200), 0, 0, 0, 0), Err(Unfit::Form));
}

#[test]
fn other_bits_of_an_instruction_stay() {
    // tbz w7, #31, +8 and cbnz w9, -4 and b.lo +16
    assert_eq!(apply(BRANCH_14, 0x36f8_0007, 0, 8, 0), Ok(0x36f8_0047));
    assert_eq!(apply(WORDS_19, 0x3500_0009, 8, 4, 0), Ok(0x35ff_ffe9));
    assert_eq!(apply(WORDS_19, 0x5400_0003, 0, 16, 0), Ok(0x5400_0083));
    // str q9, [x8, #0x10] and prfm with its operation
    assert_eq!(apply(low(4), 0x3d80_0109, 0, 0x1010, 0), Ok(0x3d80_0509));
    assert_eq!(apply(low(3), 0xf980_0020, 0, 0x1010, 0), Ok(0xf980_0820));
}

#[test]
fn thunks_have_the_length_that_the_layout_knows() {
    for got_offset in [0, 8, MAX_ENTRY, MAX_ENTRY + 8, 0x7_fff8] {
        let thunk = AArch64.thunk(0, 0x100, got_offset).unwrap();
        assert_eq!(AArch64.thunk_len(got_offset), thunk.len() as u64, "{got_offset}");
    }
    let words = |thunk: Vec<u8>| -> Vec<u32> {
        let (words, _) = thunk.as_chunks();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    };
    let near = words(AArch64.thunk(0x40, 0x80, 16).unwrap());
    assert_eq!(near, [0x5800_0210, 0xf940_0a10, 0xd61f_0200]);
    // add x16, x16, #0x12, lsl #12; ldr x16, [x16, #0x348]
    let far = words(AArch64.thunk(0x40, 0x80, 0x1_2348).unwrap());
    assert_eq!(far, [0x5800_0210, 0x9140_4a10, 0xf941_a610, 0xd61f_0200]);
    assert_eq!(AArch64.thunk(0, 1 << 20, 8), None, "beyond a literal load");
}

#[test]
fn large_images_and_far_entries_do_without_the_slot() {
    assert!(AArch64.reaches_slot(0, MAX_ENTRY));
    assert!(!AArch64.reaches_slot(0, MAX_ENTRY + 8));
    assert!(AArch64.reaches_slot((1 << 20) - 4096, 0));
    assert!(!AArch64.reaches_slot(1 << 20, 0));
    assert_eq!(
        [(1 << 20) - 1, 1 << 20].map(|extent| AArch64.base_align(extent)),
        [4, 4096]
    );
}

#[test]
fn every_kind_of_thread_local_variables_is_known() {
    for kind in (512..=573).chain([1028, 1029, 1030, 1031]) {
        let at = Bytes {
            bytes: &[0; 8],
            offset: 0,
            text: true,
        };
        let refused = AArch64.classify(kind, at, 0);
        assert_eq!(refused, Err(Refused::ThreadLocal), "{kind}");
    }
}
