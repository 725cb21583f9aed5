//! Images whose machine code is written out here.

use std::sync::{Arc, RwLock};

use ifunc::payload::{DecodeError, EncodeError, Ifunc};
use ifunc_abi::image::{EntryFlags, EntryPart, ImageParts, ImportFlags, ImportPart, Relocation};
use ifunc_abi::text::Text;

use super::machine::{self, ARCH, RW_AT};
use crate::fingerprint;

/// The same image with a function for batches.
pub(crate) fn with_batch(mut image: ImageParts) -> ImageParts {
    image.entries[0].batch = Some(machine::append_batch(&mut image.rx, image.entries[0].main));
    image
}

/// The typed handle of `add`, as the attribute would write it.
pub(crate) enum Add {}

static U64: Text = Text::new().str("u64");

impl Ifunc for Add {
    type Payload<'a> = u64;
    type Target = u64;
    type Answer = u64;
    const NAME: &'static str = "add";
    const PAYLOAD: &'static Text = &U64;
    const TARGET: &'static Text = &U64;
    const ANSWER: &'static Text = &U64;
    const ALIGN: usize = 8;
    const IDEMPOTENT: bool = false;

    fn bound(_: &u64) -> usize {
        8
    }

    fn encode(payload: &u64, out: &mut [u8]) -> Result<usize, EncodeError> {
        out[..8].copy_from_slice(&payload.to_le_bytes());
        Ok(8)
    }

    fn decode_answer(bytes: &[u8]) -> Result<u64, DecodeError> {
        bytes
            .try_into()
            .map(u64::from_le_bytes)
            .map_err(|_| DecodeError::Length)
    }
}

/// An image whose only entry is changed.
pub(crate) fn with_entry(mut image: ImageParts, change: impl FnOnce(&mut EntryPart)) -> ImageParts {
    change(&mut image.entries[0]);
    image
}

/// An image whose only entry has this name.
pub(crate) fn named(name: &str, image: ImageParts) -> ImageParts {
    with_entry(image, |entry| entry.name = name.into())
}

/// `add`: adds the payload to the target and answers the sum.
pub(crate) fn add() -> ImageParts {
    ImageParts {
        entries: vec![EntryPart {
            payload: fingerprint::of("u64"),
            target: fingerprint::of("u64"),
            answer: fingerprint::of("u64"),
            payload_align_log2: 3,
            ..EntryPart::new("add")
        }],
        arch: ARCH,
        rx_align_log2: 4,
        rx: machine::add(),
        ..ImageParts::default()
    }
}

/// As [`add`], of an image that may send to other nodes.
pub(crate) fn travels() -> ImageParts {
    ImageParts {
        imports: vec![import("__ifunc_send")],
        ..add()
    }
}

/// Two entries in one image: `begins` forwards to `ends` on node 0, which answers eight bytes.
pub(crate) fn forwards() -> ImageParts {
    let (mut rx, slot) = machine::forwards();
    let end = rx.len() as u32;
    rx.extend(machine::answers());
    let entry = |name: &str, main: u32| EntryPart {
        main,
        answer: fingerprint::of("u64"),
        ..EntryPart::new(name)
    };
    ImageParts {
        entries: vec![entry("begins", 0), entry("ends", end)],
        slot: Some(slot),
        imports: vec![import("__ifunc_forward")],
        rx,
        ..add()
    }
}

/// `add` that may be run again.
pub(crate) fn add_again() -> ImageParts {
    with_entry(add(), |entry| entry.flags = EntryFlags::IDEMPOTENT)
}

/// Replaces the target by the payload, may be run again.
pub(crate) fn set() -> ImageParts {
    let image = ImageParts {
        rx: machine::set(),
        ..named("set", add())
    };
    with_entry(image, |entry| entry.flags = EntryFlags::IDEMPOTENT)
}

/// Panics through the slot.
pub(crate) fn panics() -> ImageParts {
    let (rx, slot) = machine::panics();
    ImageParts {
        entries: vec![EntryPart::new("panics")],
        arch: ARCH,
        rx_align_log2: 4,
        slot: Some(slot),
        rx,
        imports: vec![import("__ifunc_panic")],
        ..ImageParts::default()
    }
}

/// Adds the payload to an atomic target and answers the sum, on several threads.
pub(crate) fn adds_shared() -> ImageParts {
    let rx = machine::adds_shared();
    let image = ImageParts { rx, ..add() };
    with_entry(image, |entry| {
        entry.flags = EntryFlags::SHARED;
        entry.target = 0;
    })
}

/// Calls the import `meet`.
pub(crate) fn meets() -> ImageParts {
    let (rx, slot) = machine::meets();
    ImageParts {
        entries: vec![EntryPart {
            flags: EntryFlags::SHARED,
            ..EntryPart::new("meets")
        }],
        arch: ARCH,
        rx_align_log2: 4,
        slot: Some(slot),
        rx,
        imports: vec![import("meet")],
        ..ImageParts::default()
    }
}

/// Counts its own invocations in a static and answers the count.
pub(crate) fn counts() -> ImageParts {
    let rx = machine::counts();
    ImageParts {
        entries: vec![EntryPart::new("counts")],
        arch: ARCH,
        rx_align_log2: 4,
        rx,
        rw_at: RW_AT,
        rw: 100u64.to_le_bytes().to_vec(),
        rw_mem: 64,
        ..ImageParts::default()
    }
}

/// Answers as many bytes as the payload's number, each the lowest byte of that number.
pub(crate) fn fills() -> ImageParts {
    let rx = machine::fills();
    let image = ImageParts {
        rx,
        ..named("fills", add())
    };
    with_entry(image, |entry| entry.target = 0)
}

/// Wants its payload at a multiple of 64, and fails elsewhere.
pub(crate) fn wants_alignment() -> ImageParts {
    let image = ImageParts {
        rx: machine::wants_alignment(),
        ..named("wants_alignment", add())
    };
    with_entry(image, |entry| {
        entry.target = 0;
        entry.payload_align_log2 = 6;
    })
}

/// Three entries in one image: `count` is [`counts`], `reset` sets its counter to the payload, and `panics` is [`panics`].
pub(crate) fn several() -> ImageParts {
    const RESET: usize = 64;
    const PANICS: usize = 96;
    let mut image = counts();
    image.rx.resize(RESET, 0xcc);
    image.rx.extend(machine::resets(RESET as u32));
    image.rx.resize(PANICS, 0xcc);
    let panics = panics();
    let slot = panics.slot.map(|slot| slot + PANICS as u32);
    image.rx.extend(panics.rx);
    image.entries = vec![
        EntryPart::new("count"),
        EntryPart {
            main: PANICS as u32,
            ..EntryPart::new("panics")
        },
        EntryPart {
            flags: EntryFlags::IDEMPOTENT,
            main: RESET as u32,
            payload: fingerprint::of("u64"),
            payload_align_log2: 3,
            ..EntryPart::new("reset")
        },
    ];
    ImageParts {
        slot,
        imports: panics.imports,
        ..image
    }
}

/// Everything an image can have, for mutations: imports, both kinds of relocations, read-write pages.
pub(crate) fn everything() -> ImageParts {
    ImageParts {
        slot: Some(64),
        rx: {
            let mut rx = machine::add();
            rx.resize(160, 0);
            rx
        },
        rw_at: RW_AT,
        rw: vec![1; 48],
        rw_mem: 4096,
        imports: vec![
            import("memcpy"),
            import("__ifunc_alloc"),
            ImportPart {
                symbol: "not_there".into(),
                flags: ImportFlags::WEAK,
                fingerprint: 5,
            },
        ],
        relocations: vec![
            Relocation::Relative {
                offset: 72,
                addend: 16,
            },
            Relocation::Relative {
                offset: 80,
                addend: RW_AT as i32,
            },
            Relocation::Relative {
                offset: RW_AT,
                addend: 0,
            },
            Relocation::Import {
                offset: 88,
                import: 0,
                addend: 0,
            },
            Relocation::Import {
                offset: RW_AT + 8,
                import: 2,
                addend: 8,
            },
        ],
        ..add()
    }
}

/// Calls [`tell_test`] with the payload, and answers the payload.
pub(crate) fn tells() -> ImageParts {
    let (rx, slot) = machine::tells();
    let export = ifunc::host::EXPORTS
        .iter()
        .find(|export| export.name() == "tell_test");
    let signature = export.expect("it stands below").signature();
    ImageParts {
        slot: Some(slot),
        rx,
        imports: vec![ImportPart {
            symbol: "tell_test".into(),
            flags: ImportFlags::NONE,
            fingerprint: fingerprint::of(signature),
        }],
        ..add()
    }
}

/// Receives the lower half of a payload of [`tells`]; the upper half is its index.
type Told = Arc<dyn Fn(u32) + Send + Sync>;

static TOLD: RwLock<Vec<Told>> = RwLock::new(Vec::new());

/// Payloads of [`tells`] that call `told` with their lower half have this number in their upper half.
pub(crate) fn when_told(told: impl Fn(u32) + Send + Sync + 'static) -> u64 {
    let mut all = TOLD.write().unwrap();
    all.push(Arc::new(told));
    (all.len() as u64 - 1) << 32
}

#[ifunc::export]
fn tell_test(message: u64) {
    let told = Arc::clone(&TOLD.read().unwrap()[(message >> 32) as usize]);
    told(message as u32);
}

pub(crate) fn import(symbol: &str) -> ImportPart {
    ImportPart {
        symbol: symbol.into(),
        flags: ImportFlags::NONE,
        fingerprint: 0,
    }
}
