//! What is still valid, and what is not any more: each limit of an image from both sides.

use alloc::vec;
use alloc::vec::Vec;

use super::{
    EntryFlags, EntryPart, Image, ImageError, ImageFlags, ImageParts, ImportFlags, ImportPart, RawHeader,
    Relocation,
};

/// 64 bytes of code with a slot at 56, and at 4096 a read-write part of 16 bytes, and 32 in memory.
fn parts() -> ImageParts {
    ImageParts {
        entries: vec![EntryPart::new("f")],
        rx: vec![0xc3; 64],
        rx_align_log2: 3,
        slot: Some(56),
        rw_at: 4096,
        rw: vec![1; 16],
        rw_mem: 32,
        imports: vec![ImportPart {
            symbol: "put".into(),
            flags: ImportFlags::NONE,
            fingerprint: 0,
        }],
        ..ImageParts::default()
    }
}

/// The field that a change of the parts makes invalid, if any.
fn wrong(change: impl FnOnce(&mut ImageParts)) -> Option<&'static str> {
    let mut parts = parts();
    change(&mut parts);
    match parts.encode() {
        Ok(_) => None,
        Err(ImageError::OutOfRange { field, .. }) => Some(field),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn each_limit_of_the_layout_is_exact() {
    assert_eq!(wrong(|_| ()), None);
    for (slot, expected) in [
        (Some(0), None),
        (Some(48), None),
        (Some(52), Some("slot")),
        (Some(64), Some("slot")),
        (Some(0xffff_fff8), Some("slot")),
        (None, None),
    ] {
        assert_eq!(wrong(|p| p.slot = slot), expected, "slot {slot:?}");
    }
    for (log2, with_slot, without) in [
        (0, Some("rx_align_log2"), None),
        (2, Some("rx_align_log2"), None),
        (3, None, None),
        (12, None, None),
        (13, Some("rx_align_log2"), Some("rx_align_log2")),
    ] {
        assert_eq!(wrong(|p| p.rx_align_log2 = log2), with_slot, "{log2}");
        let alone = |p: &mut ImageParts| (p.slot, p.rx_align_log2) = (None, log2);
        assert_eq!(wrong(alone), without, "{log2}, no slot");
    }
    for (len, mem, expected) in [
        (0, 32, None),
        (32, 32, None),
        (33, 32, Some("rw_len")),
        (1, 0, Some("rw_len")),
        (0, i32::MAX as u32 - 4096, None),
        (0, i32::MAX as u32 - 4095, Some("rw_mem")),
        (0, u32::MAX, Some("rw_mem")),
    ] {
        let change = |p: &mut ImageParts| (p.rw, p.rw_mem) = (vec![0; len], mem);
        assert_eq!(wrong(change), expected, "{len} of {mem} bytes");
    }
    for (rx, at, expected) in [
        (64, 0, Some("rw_at")),
        (64, 4095, Some("rw_at")),
        (64, 65536, None),
        (64, 65536 + 4096, Some("rw_at")),
        (4096, 4096, None),
        (4097, 4096, Some("rw_at")),
        (65536, 65536, None),
        (65537, 2 * 65536, None),
    ] {
        let change = |p: &mut ImageParts| (p.rx, p.rw_at) = (vec![0; rx], at);
        assert_eq!(wrong(change), expected, "{at} after {rx} bytes");
    }
    let none = |at| move |p: &mut ImageParts| (p.rw, p.rw_mem, p.rw_at) = (Vec::new(), 0, at);
    assert_eq!((wrong(none(0)), wrong(none(4096))), (None, Some("rw_at")));
}

#[test]
fn each_limit_of_an_entry_is_exact() {
    for (main, batch, align, expected) in [
        (63, None, 0, None),
        (64, None, 0, Some("main")),
        (0, Some(63), 0, None),
        (0, Some(64), 0, Some("batch")),
        (0, None, 6, None),
        (0, None, 7, Some("payload_align_log2")),
    ] {
        let change = |p: &mut ImageParts| {
            p.entries[0] = EntryPart {
                main,
                batch,
                payload_align_log2: align,
                ..EntryPart::new("f")
            };
        };
        assert_eq!(wrong(change), expected, "{main} {batch:?} {align}");
    }
}

/// Every pair of a relocation and an import's beside each other, compared with the statement of what is valid.
#[test]
fn relocations_are_apart_and_inside() {
    let offsets: Vec<u32> = [0..3, 7..10, 15..18, 47..51, 55..58, 63..66]
        .into_iter()
        .chain([4087..4090, 4095..4098, 4103..4107, 4111..4114])
        .flatten()
        .collect();
    for (slot, rw) in [(Some(56), 16), (Some(48), 16), (None, 16), (None, 0)] {
        let is_inside = |at: u32| {
            let apart = slot.is_none_or(|slot: u32| at + 8 <= slot || slot + 8 <= at);
            apart && (at + 8 <= 64 || at >= 4096 && at + 8 <= 4096 + rw && rw > 0)
        };
        for &relative in &offsets {
            for &import in &offsets {
                let parts = ImageParts {
                    slot,
                    rw: vec![0; rw as usize],
                    relocations: vec![
                        Relocation::Relative {
                            offset: relative,
                            addend: 0,
                        },
                        Relocation::Import {
                            offset: import,
                            import: 0,
                            addend: 0,
                        },
                    ],
                    ..parts()
                };
                let valid = is_inside(relative) && is_inside(import) && relative.abs_diff(import) >= 8;
                assert_eq!(parts.encode().is_ok(), valid, "{slot:?} {rw} {relative} {import}");
            }
        }
    }
}

/// As above, of two relocations in one table, and of many in both.
#[test]
fn relocations_of_a_table_are_apart() {
    let relative = |offset| Relocation::Relative { offset, addend: 0 };
    let import = |offset| Relocation::Import {
        offset,
        import: 0,
        addend: 0,
    };
    let is_valid = |relocations: Vec<Relocation>| {
        let parts = ImageParts {
            rx: vec![0; 4096],
            relocations,
            ..parts()
        };
        parts.encode().is_ok()
    };
    for distance in 0..20 {
        assert_eq!(
            is_valid(vec![relative(16), relative(16 + distance)]),
            distance >= 8
        );
        assert_eq!(is_valid(vec![import(16), import(16 + distance)]), distance >= 8);
    }
    // The slot, at 56, is apart.
    let free = || (0..4112_u32).step_by(8).filter(|&at| at != 56);
    let both = |at: u32| {
        if at.is_multiple_of(16) {
            relative(at)
        } else {
            import(at)
        }
    };
    assert!(is_valid(free().map(both).collect()));
    assert!(is_valid(vec![
        relative(0),
        relative(1024),
        import(1032),
        import(2048)
    ]));
    let beyond = |at: u32| Relocation::Import {
        offset: 0,
        import: at,
        addend: 0,
    };
    assert!(!is_valid(vec![beyond(1)]) && is_valid(vec![beyond(0)]));
}

#[test]
fn flags_are_sets() {
    let (a, b) = (EntryFlags::IDEMPOTENT, EntryFlags::SHARED);
    let both = a.union(b);
    assert_eq!((both.bits(), a.bits(), b.bits()), (6, 2, 4));
    assert!(both.contains(a) && both.contains(b) && !a.contains(both) && !a.contains(b));
    assert_eq!(both.union(a), both);
    assert_eq!((a.union_if(false, b), a.union_if(true, b)), (a, both));
    assert_eq!(EntryFlags::from_bits(7).map(EntryFlags::bits), Some(7));
    assert_eq!(EntryFlags::from_bits(8), None);
    assert_eq!(
        (ImageFlags::from_bits(1), ImageFlags::from_bits(4)),
        (Some(ImageFlags::PINNED), None)
    );
    assert!(ImportFlags::from_bits(7).is_some() && ImportFlags::from_bits(8).is_none());
}

#[test]
fn what_an_image_states_is_read() {
    let mut parts = parts();
    parts.rx_align_log2 = 5;
    let relative = |offset| Relocation::Relative { offset, addend: 1 };
    parts.relocations = vec![relative(16), relative(8)];
    parts.entries[0].payload_align_log2 = 4;
    let bytes = parts.encode().unwrap();
    let image = Image::parse(&bytes).unwrap();
    assert_eq!((image.rx_align(), image.relocation_count()), (32, 2));
    assert_eq!(image.entry("f").map(|(_, entry)| entry.payload_align), Some(16));
    assert_eq!(image.relocations().next().map(Relocation::offset), Some(8));
    assert_eq!((image.slot(), image.travels()), (Some(56), false));
    for symbol in crate::symbols::TRAVEL_IMPORTS {
        parts.imports[0].symbol = (*symbol).into();
        assert!(
            Image::parse(&parts.encode().unwrap()).unwrap().travels(),
            "{symbol}"
        );
    }
    use super::ImportKind::{Function, Unknown, Variable};
    for (flags, kind) in [
        (ImportFlags::NONE, Unknown),
        (ImportFlags::WEAK, Unknown),
        (ImportFlags::FUNCTION, Function),
        (ImportFlags::DATA, Variable),
    ] {
        parts.imports[0].flags = flags;
        let bytes = parts.encode().unwrap();
        let import = Image::parse(&bytes).unwrap().imports().next();
        assert_eq!(import.map(|import| import.kind()), Some(kind));
    }
}

#[test]
fn each_part_of_an_image_is_read() {
    let bytes = ImageParts {
        flags: ImageFlags::PINNED,
        arch: 62,
        cpu_features: 5,
        relocations: vec![
            Relocation::Relative { offset: 0, addend: 8 },
            Relocation::Relative { offset: 8, addend: 8 },
            Relocation::Import {
                offset: 16,
                import: 0,
                addend: 0,
            },
        ],
        ..parts()
    }
    .encode()
    .unwrap();
    let image = Image::parse(&bytes).unwrap();
    assert_eq!(
        (image.flags(), image.arch(), image.cpu_features()),
        (ImageFlags::PINNED, 62, 5)
    );
    assert_eq!((image.relocation_count(), image.relocations().count()), (3, 3));
    assert_eq!(
        (image.slot(), image.rx_align(), image.rw_range()),
        (Some(56), 8, Some((4096, 32)))
    );
    assert_eq!((image.rx(), image.rw()), (&[0xc3; 64][..], &[1; 16][..]));
}

#[test]
fn the_length_is_that_of_the_parts_and_of_the_bytes() {
    let bytes = parts().encode().unwrap();
    let length = |stated: usize, found: &[u8]| {
        let mut found = found.to_vec();
        let at = core::mem::offset_of!(RawHeader, total_len);
        found[at..at + 4].copy_from_slice(&(stated as u32).to_le_bytes());
        match Image::parse(&found) {
            Ok(_) => None,
            Err(ImageError::Length { stated, parts, found }) => Some((stated, parts, found)),
            Err(other) => panic!("{other}"),
        }
    };
    let len = bytes.len();
    let longer = [&bytes[..], &[0]].concat();
    let (exact, more) = (len as u64, len as u64 + 1);
    assert_eq!(length(len, &bytes), None);
    assert_eq!(length(len, &longer), Some((exact, exact, more)));
    assert_eq!(length(len + 1, &bytes), Some((more, exact, exact)));
    assert_eq!(length(len + 1, &longer), Some((more, exact, more)));
}
