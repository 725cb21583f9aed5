//! Images whose machine code is written out here.

use std::sync::{Arc, RwLock};

use ifunc::payload::{DecodeError, EncodeError, Ifunc};
use ifunc_abi::image::{ARCH_X86_64, EntryFlags, EntryPart, ImageParts, ImportFlags, ImportPart, Relocation};
use ifunc_abi::text::Text;

use crate::fingerprint;

/// ```text
/// cmp rsi, 8 ; jne bad ; mov rax, [rdi] ; add rax, [rdx] ; mov [rdx], rax
/// test rcx, rcx ; jz ok ; mov rdi, [rcx+16] ; test rdi, rdi ; jz ok ; mov [rdi], rax ; mov qword [rcx+32], 8
/// ok: xor eax, eax ; ret
/// bad: mov eax, 1 ; ret
/// ```
const ADD: &[u8] = &[
    0x48, 0x83, 0xfe, 0x08, 0x75, 0x27, 0x48, 0x8b, 0x07, 0x48, 0x03, 0x02, 0x48, 0x89, 0x02, 0x48, 0x85,
    0xc9, 0x74, 0x14, 0x48, 0x8b, 0x79, 0x10, 0x48, 0x85, 0xff, 0x74, 0x0b, 0x48, 0x89, 0x07, 0x48, 0xc7,
    0x41, 0x20, 0x08, 0x00, 0x00, 0x00, 0x31, 0xc0, 0xc3, 0x90, 0x90, 0xb8, 0x01, 0x00, 0x00, 0x00, 0xc3,
];

/// What the C driver of the builder writes beside `X_main` (`gcc -Os`, for one that returns a status). The four bytes at
/// [`CALL`] are the distance to `X_main`.
const BATCH: &[u8] = &[
    0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0x41, 0x54, 0x45, 0x31, 0xe4, 0x55, 0x48, 0x89, 0xcd, 0x53, 0x48,
    0x89, 0xfb, 0x48, 0x83, 0xec, 0x38, 0x48, 0x8b, 0x47, 0x10, 0x4c, 0x8b, 0x7f, 0x08, 0x4c, 0x8b, 0x6f,
    0x28, 0x4c, 0x8b, 0x47, 0x30, 0x48, 0x89, 0x54, 0x24, 0x10, 0x4c, 0x8b, 0x4f, 0x38, 0x4c, 0x8b, 0x5f,
    0x18, 0x48, 0x89, 0x44, 0x24, 0x08, 0x44, 0x8b, 0x77, 0x20, 0x44, 0x89, 0xe0, 0x45, 0x39, 0xf4, 0x73,
    0x0e, 0x4d, 0x85, 0xed, 0x74, 0x1e, 0x85, 0xc0, 0x74, 0x0c, 0x4d, 0x39, 0xc8, 0x73, 0x07, 0x31, 0xc0,
    0xe9, 0x80, 0x00, 0x00, 0x00, 0x31, 0xd2, 0x4c, 0x89, 0x6d, 0x10, 0x4c, 0x89, 0x4d, 0x18, 0x48, 0x89,
    0x55, 0x20, 0xff, 0xc0, 0x48, 0x8b, 0x54, 0x24, 0x10, 0x48, 0x8b, 0x74, 0x24, 0x08, 0x48, 0x89, 0xe9,
    0x89, 0x43, 0x24, 0x4c, 0x89, 0xff, 0x4c, 0x89, 0x5c, 0x24, 0x28, 0x4c, 0x89, 0x4c, 0x24, 0x20, 0x4c,
    0x89, 0x44, 0x24, 0x18, 0xe8, 0x00, 0x00, 0x00, 0x00, 0x85, 0xc0, 0x75, 0x45, 0x4d, 0x85, 0xed, 0x4c,
    0x8b, 0x44, 0x24, 0x18, 0x4c, 0x8b, 0x4c, 0x24, 0x20, 0x4c, 0x8b, 0x5c, 0x24, 0x28, 0x74, 0x26, 0x48,
    0x8b, 0x45, 0x20, 0x49, 0x39, 0xc1, 0x72, 0xa1, 0x48, 0x8b, 0x53, 0x40, 0x42, 0x89, 0x04, 0xa2, 0x48,
    0x83, 0xc0, 0x07, 0x48, 0x83, 0xe0, 0xf8, 0x49, 0x39, 0xc0, 0x49, 0x0f, 0x46, 0xc0, 0x49, 0x01, 0xc5,
    0x49, 0x29, 0xc0, 0x4d, 0x01, 0xdf, 0x49, 0xff, 0xc4, 0xe9, 0x63, 0xff, 0xff, 0xff, 0x48, 0x83, 0xc4,
    0x38, 0x5b, 0x5d, 0x41, 0x5c, 0x41, 0x5d, 0x41, 0x5e, 0x41, 0x5f, 0xc3,
];
const CALL: usize = 0x8d;

/// The same image with a function for batches.
pub(crate) fn with_batch(mut image: ImageParts) -> ImageParts {
    let at = image.rx.len().next_multiple_of(16);
    image.rx.resize(at, 0xcc);
    image.rx.extend_from_slice(BATCH);
    let main = image.entries[0].main as i32;
    let distance = main - (at + CALL + 4) as i32;
    image.rx[at + CALL..][..4].copy_from_slice(&distance.to_le_bytes());
    image.entries[0].batch = Some(at as u32);
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
        arch: ARCH_X86_64,
        rx_align_log2: 4,
        rx: ADD.to_vec(),
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

/// `add` that may be run again.
pub(crate) fn add_again() -> ImageParts {
    with_entry(add(), |entry| entry.flags = EntryFlags::IDEMPOTENT)
}

/// Replaces the target by the payload, may be run again: `mov rax, [rdi] ; mov [rdx], rax ; xor eax, eax ; ret`.
pub(crate) fn set() -> ImageParts {
    let image = ImageParts {
        rx: vec![0x48, 0x8b, 0x07, 0x48, 0x89, 0x02, 0x31, 0xc0, 0xc3],
        ..named("set", add())
    };
    with_entry(image, |entry| entry.flags = EntryFlags::IDEMPOTENT)
}

/// Panics through the slot: `mov rax, [rip+slot] ; lea rdi, [rip+text] ; mov esi, 4 ; lea rdx, [rip+file] ; mov ecx, 4 ;
/// mov r8d, 7 ; mov r9d, 9 ; call [rax]`.
pub(crate) fn panics() -> ImageParts {
    let mut rx = vec![
        0x50, // push rax: aligns the stack
        0x48, 0x8b, 0x05, 0x38, 0, 0, 0, // mov rax, [rip+0x38] → 0x40
        0x48, 0x8d, 0x3d, 0x39, 0, 0, 0, // lea rdi, [rip+0x39] → 0x48
        0xbe, 4, 0, 0, 0, // mov esi, 4
        0x48, 0x8d, 0x15, 0x31, 0, 0, 0, // lea rdx, [rip+0x31] → 0x4c
        0xb9, 4, 0, 0, 0, // mov ecx, 4
        0x41, 0xb8, 7, 0, 0, 0, // mov r8d, 7
        0x41, 0xb9, 9, 0, 0, 0, // mov r9d, 9
        0xff, 0x10, // call [rax]
    ];
    rx.resize(0x48, 0xcc);
    rx.extend_from_slice(b"ouchx.rs");
    ImageParts {
        entries: vec![EntryPart::new("panics")],
        arch: ARCH_X86_64,
        rx_align_log2: 4,
        slot: Some(0x40),
        rx,
        imports: vec![import("__ifunc_panic")],
        ..ImageParts::default()
    }
}

/// Adds the payload to an atomic target and answers the sum, on several threads: `mov rax, [rdi] ; mov r8, rax ;
/// lock xadd [rdx], rax ; add rax, r8 ; …`.
pub(crate) fn adds_shared() -> ImageParts {
    let rx = vec![
        0x48, 0x8b, 0x07, 0x49, 0x89, 0xc0, 0xf0, 0x48, 0x0f, 0xc1, 0x02, 0x4c, 0x01, 0xc0, // the sum
        0x48, 0x8b, 0x79, 0x10, // mov rdi, [rcx+16]
        0x48, 0x85, 0xff, 0x74, 0x0b, // test rdi, rdi ; jz done
        0x48, 0x89, 0x07, // mov [rdi], rax
        0x48, 0xc7, 0x41, 0x20, 8, 0, 0, 0, // mov qword [rcx+32], 8
        0x31, 0xc0, 0xc3, // done: xor eax, eax ; ret
    ];
    let image = ImageParts { rx, ..add() };
    with_entry(image, |entry| {
        entry.flags = EntryFlags::SHARED;
        entry.target = 0;
    })
}

/// Calls the import `meet`: `push rax ; mov rax, [rip+slot] ; call [rax] ; pop rax ; xor eax, eax ; ret`.
pub(crate) fn meets() -> ImageParts {
    let mut rx = vec![
        0x50, 0x48, 0x8b, 0x05, 0x10, 0, 0, 0, 0xff, 0x10, 0x58, 0x31, 0xc0, 0xc3,
    ];
    rx.resize(0x20, 0xcc);
    ImageParts {
        entries: vec![EntryPart {
            flags: EntryFlags::SHARED,
            ..EntryPart::new("meets")
        }],
        arch: ARCH_X86_64,
        rx_align_log2: 4,
        slot: Some(0x18),
        rx,
        imports: vec![import("meet")],
        ..ImageParts::default()
    }
}

/// Counts its own invocations in a static and answers the count: `inc qword [rip+counter] ; …`.
pub(crate) fn counts() -> ImageParts {
    let rx = vec![
        0x48, 0xff, 0x05, 0xf9, 0x0f, 0, 0, // inc qword [rip+0xff9] → 0x1000
        0x48, 0x8b, 0x05, 0xf2, 0x0f, 0, 0, // mov rax, [rip+0xff2] → 0x1000
        0x48, 0x8b, 0x79, 0x10, // mov rdi, [rcx+16]
        0x48, 0x85, 0xff, 0x74, 0x0b, // test rdi, rdi ; jz done
        0x48, 0x89, 0x07, // mov [rdi], rax
        0x48, 0xc7, 0x41, 0x20, 8, 0, 0, 0, // mov qword [rcx+32], 8
        0x31, 0xc0, 0xc3, // done: xor eax, eax ; ret
    ];
    ImageParts {
        entries: vec![EntryPart::new("counts")],
        arch: ARCH_X86_64,
        rx_align_log2: 4,
        rx,
        rw_at: 4096,
        rw: 100u64.to_le_bytes().to_vec(),
        rw_mem: 64,
        ..ImageParts::default()
    }
}

/// Answers as many bytes as the payload's number, each the lowest byte of that number: `mov rax, [rdi] ; …`.
pub(crate) fn fills() -> ImageParts {
    let rx = vec![
        0x48, 0x8b, 0x07, // mov rax, [rdi]
        0x48, 0x8b, 0x79, 0x10, // mov rdi, [rcx+16]
        0x48, 0x85, 0xff, 0x74, 0x0f, // test rdi, rdi ; jz done
        0x48, 0x89, 0x41, 0x20, // mov [rcx+32], rax
        0x48, 0x3b, 0x41, 0x18, 0x77, 0x05, // cmp rax, [rcx+24] ; ja done
        0x48, 0x89, 0xc1, 0xf3, 0xaa, // mov rcx, rax ; rep stosb
        0x31, 0xc0, 0xc3, // done: xor eax, eax ; ret
    ];
    let image = ImageParts {
        rx,
        ..named("fills", add())
    };
    with_entry(image, |entry| entry.target = 0)
}

/// Wants its payload at a multiple of 64, and fails elsewhere: `test dil, 63 ; jnz bad ; xor eax, eax ; ret ; bad: mov eax, 1 ; ret`.
pub(crate) fn wants_alignment() -> ImageParts {
    let image = ImageParts {
        rx: vec![
            0x40, 0xf6, 0xc7, 0x3f, 0x75, 0x03, 0x31, 0xc0, 0xc3, 0xb8, 1, 0, 0, 0, 0xc3,
        ],
        ..named("wants_alignment", add())
    };
    with_entry(image, |entry| {
        entry.target = 0;
        entry.payload_align_log2 = 6;
    })
}

/// Three entries in one image: `count` is [`counts`], `reset` sets its counter to the payload (`mov rax, [rdi] ; mov [rip+counter],
/// rax ; xor eax, eax ; ret`), and `panics` is [`panics`].
pub(crate) fn several() -> ImageParts {
    const RESET: usize = 64;
    const PANICS: usize = 96;
    let mut image = counts();
    image.rx.resize(RESET, 0xcc);
    image.rx.extend([0x48, 0x8b, 0x07, 0x48, 0x89, 0x05]);
    image.rx.extend((4096 - (RESET as i32 + 10)).to_le_bytes());
    image.rx.extend([0x31, 0xc0, 0xc3]);
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
            let mut rx = ADD.to_vec();
            rx.resize(160, 0);
            rx
        },
        rw_at: 4096,
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
                addend: 4096,
            },
            Relocation::Relative {
                offset: 4096,
                addend: 0,
            },
            Relocation::Import {
                offset: 88,
                import: 0,
                addend: 0,
            },
            Relocation::Import {
                offset: 4104,
                import: 2,
                addend: 8,
            },
        ],
        ..add()
    }
}

/// Calls [`tell_test`] with the payload, and answers the payload: `call [rax]` with the GOT's address from the slot.
pub(crate) fn tells() -> ImageParts {
    let mut rx = vec![
        0x53, 0x41, 0x54, // push rbx ; push r12
        0x48, 0x83, 0xec, 0x08, // sub rsp, 8
        0x48, 0x89, 0xcb, // mov rbx, rcx
        0x4c, 0x8b, 0x27, // mov r12, [rdi]
        0x4c, 0x89, 0xe7, // mov rdi, r12
        0x48, 0x8b, 0x05, 0x29, 0, 0, 0, // mov rax, [rip+0x29] → 0x40
        0xff, 0x10, // call [rax]
        0x48, 0x85, 0xdb, 0x74, 0x14, // test rbx, rbx ; jz done
        0x48, 0x8b, 0x7b, 0x10, // mov rdi, [rbx+16]
        0x48, 0x85, 0xff, 0x74, 0x0b, // test rdi, rdi ; jz done
        0x4c, 0x89, 0x27, // mov [rdi], r12
        0x48, 0xc7, 0x43, 0x20, 8, 0, 0, 0, // mov qword [rbx+32], 8
        0x31, 0xc0, // done: xor eax, eax
        0x48, 0x83, 0xc4, 0x08, // add rsp, 8
        0x41, 0x5c, 0x5b, 0xc3, // pop r12 ; pop rbx ; ret
    ];
    rx.resize(0x48, 0xcc);
    let export = ifunc::host::EXPORTS
        .iter()
        .find(|export| export.name() == "tell_test");
    let signature = export.expect("it stands below").signature();
    ImageParts {
        slot: Some(0x40),
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
