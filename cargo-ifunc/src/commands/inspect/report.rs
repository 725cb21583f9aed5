//! The report of an image; its fields are those of `--json`.

use ifunc_abi::about::About;
use ifunc_abi::image::{
    AARCH64_FEATURES, ARCH_AARCH64, ARCH_X86_64, Entry, EntryFlags, Image, ImageFlags, Import, ImportFlags,
    ImportKind, Relocation,
};
use ifunc_abi::machine::Machine;
use ifunc_build::LibraryImage;
use serde::Serialize;

use super::prototype;

/// The properties of an image.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The ifunc whose library it is; of an image by itself the names of its entries.
    pub(super) name: String,
    /// BLAKE3 of the image, in hexadecimal.
    pub(super) id: String,
    pub(super) abi: u16,
    /// Which slice of its library it is; `None`: the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slice: Option<Slice>,
    pub(super) arch: String,
    /// CPU features that the code needs beyond the architecture's baseline.
    pub(super) cpu_features: Vec<String>,
    pub(super) flags: Vec<&'static str>,
    /// Length of the image.
    pub(super) image_bytes: usize,
    /// The read-execute part: text, read-only data, the slot.
    pub(super) code_bytes: usize,
    /// Initialised bytes of the read-write part.
    pub(super) data_bytes: usize,
    /// The read-write part in memory.
    pub(super) data_memory_bytes: u32,
    /// Offset of the slot, which holds the GOT's address, in the code.
    pub(super) slot: Option<u32>,
    pub(super) entries: Vec<EntryReport>,
    pub(super) imports: Vec<ImportReport>,
    pub(super) relocations: Vec<RelocationReport>,
    /// Shared libraries needed on the target.
    pub(super) needed: Vec<String>,
    /// Offset in the program that embeds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offset: Option<usize>,
    #[serde(skip)]
    pub(super) machine: Machine,
}

/// A slice of a library.
#[derive(Debug, Serialize)]
pub(super) struct Slice {
    /// Its index in the table.
    pub(super) index: usize,
    /// Number of slices.
    pub(super) count: usize,
    /// The machines that it is for.
    pub(super) machine: String,
}

/// Numbers the images of one name: they are the slices of a library.
pub(super) fn number_slices(reports: &mut [Report]) {
    for slices in reports.chunk_by_mut(|one, other| one.name == other.name && one.offset.is_none()) {
        let count = slices.len();
        for (index, report) in slices.iter_mut().enumerate().filter(|_| count > 1) {
            let machine = report.machine.to_string();
            report.slice = Some(Slice {
                index,
                count,
                machine,
            });
        }
    }
}

/// An entry: an ifunc of the image.
#[derive(Debug, Serialize)]
pub(super) struct EntryReport {
    pub(super) name: String,
    /// Offset of `NAME_main` in the code.
    pub(super) main: u32,
    /// Offset of `NAME_batch` in the code.
    pub(super) batch: Option<u32>,
    pub(super) flags: Vec<&'static str>,
    pub(super) payload_align: usize,
    pub(super) payload: Type,
    pub(super) target: Type,
    pub(super) answer: Type,
    /// Argument order of `NAME_payload_init`: `bound` or `max-size`.
    pub(super) convention: Option<String>,
}

/// A type: its fingerprint and its text.
#[derive(Debug, Serialize)]
pub(super) struct Type {
    /// In hexadecimal; `None`: not stated (C).
    pub(super) fingerprint: Option<String>,
    /// `None`: not stated, or not available in a bare image.
    pub(super) text: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ImportReport {
    pub(super) symbol: String,
    /// `function` or `variable`; `symbol`: the image takes its address, and does not state what it is (C).
    pub(super) kind: &'static str,
    /// Whether it may be missing on the target.
    pub(super) weak: bool,
    pub(super) fingerprint: Option<String>,
    pub(super) signature: Option<String>,
    /// The C prototype.
    pub(super) prototype: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum RelocationReport {
    Relative {
        offset: u32,
        addend: i32,
    },
    Import {
        offset: u32,
        symbol: String,
        addend: i64,
    },
}

impl Report {
    pub(super) fn new(library: &LibraryImage, image: &Image<'_>) -> Self {
        let about = library.about();
        let imports: Vec<_> = image
            .imports()
            .map(|import| ImportReport::new(&import, &about))
            .collect();
        let relocations = image.relocations().map(|relocation| match relocation {
            Relocation::Relative { offset, addend } => RelocationReport::Relative { offset, addend },
            Relocation::Import {
                offset,
                import,
                addend,
            } => RelocationReport::Import {
                offset,
                symbol: imports[import as usize].symbol.clone(),
                addend,
            },
        });
        Self {
            name: library.name.clone(),
            id: hex(&library.id()),
            abi: image.header().abi.get(),
            slice: None,
            machine: image.machine(),
            arch: arch(image.arch()),
            cpu_features: cpu_features(image.arch(), image.cpu_features()),
            flags: flags(image.flags()),
            image_bytes: library.image.len(),
            code_bytes: image.rx().len(),
            data_bytes: image.rw().len(),
            data_memory_bytes: image.rw_range().map_or(0, |(_, len)| len),
            slot: image.slot(),
            entries: image
                .entries()
                .map(|entry| EntryReport::new(&entry, &about))
                .collect(),
            relocations: relocations.collect(),
            needed: image.needed().map(Into::into).collect(),
            imports,
            offset: None,
        }
    }
}

impl EntryReport {
    fn new(entry: &Entry<'_>, about: &About<'_>) -> Self {
        let about = about.entry(entry.name);
        Self {
            name: entry.name.to_owned(),
            main: entry.main,
            batch: entry.batch,
            flags: entry_flags(entry.flags),
            payload_align: entry.payload_align,
            payload: Type::new(entry.payload, about.payload()),
            target: Type::new(entry.target, about.target()),
            answer: Type::new(entry.answer, about.answer()),
            convention: about.convention().map(Into::into),
        }
    }
}

impl Type {
    fn new(fingerprint: u64, text: Option<&str>) -> Self {
        Self {
            fingerprint: stated(fingerprint),
            text: text.map(Into::into),
        }
    }
}

impl ImportReport {
    fn new(import: &Import<'_>, about: &About<'_>) -> Self {
        let signature = about.import(import.symbol);
        Self {
            symbol: import.symbol.to_owned(),
            kind: match import.kind() {
                ImportKind::Function => "function",
                ImportKind::Variable => "variable",
                ImportKind::Unknown => "symbol",
            },
            weak: import.flags.contains(ImportFlags::WEAK),
            fingerprint: stated(import.fingerprint),
            signature: signature.map(Into::into),
            prototype: signature.and_then(|signature| prototype::of(import.symbol, signature)),
        }
    }
}

fn stated(fingerprint: u64) -> Option<String> {
    (fingerprint != 0).then(|| format!("{fingerprint:016x}"))
}

fn arch(machine: u16) -> String {
    match machine {
        ARCH_X86_64 => "x86_64".into(),
        ARCH_AARCH64 => "aarch64".into(),
        other => format!("elf-{other}"),
    }
}

fn cpu_features(machine: u16, bits: u64) -> Vec<String> {
    let set = (0..u64::BITS).filter(|bit| bits >> bit & 1 == 1);
    set.map(|bit| match (machine, bit) {
        (ARCH_X86_64, 0..=2) => format!("x86-64-v{}", bit + 2),
        (ARCH_AARCH64, bit) if (bit as usize) < AARCH64_FEATURES.len() => {
            AARCH64_FEATURES[bit as usize].into()
        }
        _ => format!("bit-{bit}"),
    })
    .collect()
}

fn flags(flags: ImageFlags) -> Vec<&'static str> {
    let known = [
        (ImageFlags::PINNED, "pinned"),
        (ImageFlags::KEEPS_FLOAT_CONTROL, "keeps-float-control"),
    ];
    known
        .into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, name)| name)
        .collect()
}

fn entry_flags(flags: EntryFlags) -> Vec<&'static str> {
    let known = [
        (EntryFlags::IGNORE_RESULT, "ignore-result"),
        (EntryFlags::IDEMPOTENT, "idempotent"),
        (EntryFlags::SHARED, "shared"),
    ];
    known
        .into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, name)| name)
        .collect()
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
