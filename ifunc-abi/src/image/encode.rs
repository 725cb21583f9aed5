//! Encoding of images, the inverse of [`Image::parse`](super::Image::parse).

#![cfg(feature = "alloc")]

use alloc::string::String;
use alloc::vec::Vec;

use zerocopy::IntoBytes;

use super::{
    EntryFlags, Image, ImageError, ImageFlags, ImportFlags, MAGIC, NO_BATCH, NO_SLOT, RawEntry, RawHeader,
    RawImport, RawImportReloc, RawRelative, RawStr, Relocation,
};
use crate::{ABI_VERSION, Fingerprint};

/// An entry to encode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPart {
    /// Name of the ifunc.
    pub name: String,
    /// Flags.
    pub flags: EntryFlags,
    /// Offset of `X_main` in `rx`.
    pub main: u32,
    /// Offset of `X_batch` in `rx`, if there is one.
    pub batch: Option<u32>,
    /// Fingerprint of the payload type; 0: not stated.
    pub payload: Fingerprint,
    /// Fingerprint of the target type; 0: not stated.
    pub target: Fingerprint,
    /// Fingerprint of the answer type; 0: not stated.
    pub answer: Fingerprint,
    /// Log2 of the payload's alignment.
    pub payload_align_log2: u8,
}

impl EntryPart {
    /// An entry at offset 0 whose types are not stated.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }
}

impl From<super::Entry<'_>> for EntryPart {
    fn from(entry: super::Entry<'_>) -> Self {
        Self {
            name: entry.name.into(),
            flags: entry.flags,
            main: entry.main,
            batch: entry.batch,
            payload: entry.payload,
            target: entry.target,
            answer: entry.answer,
            payload_align_log2: entry.payload_align.trailing_zeros() as u8,
        }
    }
}

/// An import to encode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportPart {
    /// The symbol.
    pub symbol: String,
    /// Flags.
    pub flags: ImportFlags,
    /// Fingerprint of the signature; 0: not stated.
    pub fingerprint: Fingerprint,
}

/// The parts of an image, to encode.
#[derive(Clone, Debug, Default)]
pub struct ImageParts {
    /// ELF `e_machine`.
    pub arch: u16,
    /// Flags.
    pub flags: ImageFlags,
    /// CPU features that the code needs; see [`RawHeader::cpu_features`].
    pub cpu_features: u64,
    /// The entries, in any order; [`encode`](Self::encode) sorts them by name.
    pub entries: Vec<EntryPart>,
    /// Offset of the slot in `rx`; `None` if no code reaches an import.
    pub slot: Option<u32>,
    /// Log2 of the alignment of `rx`.
    pub rx_align_log2: u8,
    /// The read-execute part.
    pub rx: Vec<u8>,
    /// Offset of the read-write part in the image's address space; 0 if there is none.
    pub rw_at: u32,
    /// The initialised bytes of the read-write part.
    pub rw: Vec<u8>,
    /// Length of the read-write part in memory, in bytes.
    pub rw_mem: u32,
    /// The imports, in GOT order.
    pub imports: Vec<ImportPart>,
    /// The install relocations, in any order; [`encode`](Self::encode) sorts them.
    pub relocations: Vec<Relocation>,
    /// Sonames of needed shared libraries.
    pub needed: Vec<String>,
}

impl From<&Image<'_>> for ImageParts {
    fn from(image: &Image<'_>) -> Self {
        let (rw_at, rw_mem) = image.rw_range().unwrap_or_default();
        Self {
            arch: image.arch(),
            flags: image.flags(),
            cpu_features: image.cpu_features(),
            entries: image.entries().map(EntryPart::from).collect(),
            slot: image.slot(),
            rx_align_log2: image.header().rx_align_log2,
            rx: image.rx().into(),
            rw_at,
            rw: image.rw().into(),
            rw_mem,
            imports: image
                .imports()
                .map(|import| ImportPart {
                    symbol: import.symbol.into(),
                    flags: import.flags,
                    fingerprint: import.fingerprint,
                })
                .collect(),
            relocations: image.relocations().collect(),
            needed: image.needed().map(Into::into).collect(),
        }
    }
}

impl ImageParts {
    /// Encodes the image.
    ///
    /// # Errors
    /// The error that [`Image::parse`] reports for the encoded bytes: `encode` never returns an invalid
    /// image.
    pub fn encode(&self) -> Result<Vec<u8>, ImageError> {
        let too_many = |field, value: usize| ImageError::OutOfRange {
            field,
            value: value as u64,
        };
        let mut strings = String::new();
        let mut intern = |s: &str, flags: u16| -> Result<RawStr, ImageError> {
            let at = u32::try_from(strings.len()).map_err(|_| too_many("strings_len", strings.len()))?;
            let len = u16::try_from(s.len()).map_err(|_| ImageError::Name { table: "strings" })?;
            strings.push_str(s);
            Ok(RawStr {
                at: at.into(),
                len: len.into(),
                flags: flags.into(),
            })
        };
        let mut by_name: Vec<&EntryPart> = self.entries.iter().collect();
        by_name.sort_by(|a, b| a.name.cmp(&b.name));
        let entries = by_name
            .into_iter()
            .map(|entry| {
                let name = intern(&entry.name, 0)?;
                Ok(RawEntry {
                    name_at: name.at,
                    name_len: u8::try_from(entry.name.len())
                        .map_err(|_| ImageError::Name { table: "entries" })?,
                    payload_align_log2: entry.payload_align_log2,
                    flags: entry.flags.bits().into(),
                    main: entry.main.into(),
                    batch: entry.batch.unwrap_or(NO_BATCH).into(),
                    payload: entry.payload.into(),
                    target: entry.target.into(),
                    answer: entry.answer.into(),
                })
            })
            .collect::<Result<Vec<_>, ImageError>>()?;
        let imports = self
            .imports
            .iter()
            .map(|import| {
                Ok(RawImport {
                    symbol: intern(&import.symbol, import.flags.bits())?,
                    fingerprint: import.fingerprint.into(),
                })
            })
            .collect::<Result<Vec<_>, ImageError>>()?;
        let needed = self
            .needed
            .iter()
            .map(|s| intern(s, 0))
            .collect::<Result<Vec<_>, _>>()?;
        let mut relocations = self.relocations.clone();
        relocations.sort_unstable_by_key(|r| r.offset());
        let mut relatives = Vec::new();
        let mut import_relocs = Vec::new();
        for relocation in relocations {
            match relocation {
                Relocation::Relative { offset, addend } => {
                    relatives.push(RawRelative {
                        offset: offset.into(),
                        addend: addend.into(),
                    });
                }
                Relocation::Import {
                    offset,
                    import,
                    addend,
                } => import_relocs.push(RawImportReloc {
                    offset: offset.into(),
                    import: import.into(),
                    addend: addend.into(),
                }),
            }
        }

        let size32 = |field, n: usize| u32::try_from(n).map_err(|_| too_many(field, n));
        let size16 = |field, n: usize| u16::try_from(n).map_err(|_| too_many(field, n));
        let mut header = RawHeader {
            magic: MAGIC,
            abi: ABI_VERSION.into(),
            arch: self.arch.into(),
            flags: self.flags.bits().into(),
            total_len: 0.into(),
            cpu_features: self.cpu_features.into(),
            slot: self.slot.unwrap_or(NO_SLOT).into(),
            rx_len: size32("rx_len", self.rx.len())?.into(),
            rw_at: self.rw_at.into(),
            rw_len: size32("rw_len", self.rw.len())?.into(),
            rw_mem: self.rw_mem.into(),
            rx_align_log2: self.rx_align_log2,
            reserved: 0,
            entry_count: size16("entry_count", entries.len())?.into(),
            import_count: size16("import_count", imports.len())?.into(),
            needed_count: size16("needed_count", needed.len())?.into(),
            relative_count: size32("relative_count", relatives.len())?.into(),
            import_reloc_count: size32("import_reloc_count", import_relocs.len())?.into(),
            strings_len: size32("strings_len", strings.len())?.into(),
        };
        let parts: [&[u8]; 8] = [
            entries.as_bytes(),
            imports.as_bytes(),
            relatives.as_bytes(),
            import_relocs.as_bytes(),
            needed.as_bytes(),
            strings.as_bytes(),
            &self.rx,
            &self.rw,
        ];
        let total = size_of::<RawHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        header.total_len = size32("total_len", total)?.into();
        let mut out = Vec::with_capacity(total);
        out.extend_from_slice(header.as_bytes());
        for part in parts {
            out.extend_from_slice(part);
        }
        Image::parse(&out)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;
    use core::mem::offset_of;

    use proptest::prelude::*;

    use super::*;

    fn parts() -> ImageParts {
        ImageParts {
            entries: vec![
                EntryPart {
                    flags: EntryFlags::SHARED,
                    main: 16,
                    batch: Some(24),
                    payload_align_log2: 3,
                    ..EntryPart::new("visit")
                },
                EntryPart {
                    payload: 1,
                    target: 2,
                    answer: 3,
                    ..EntryPart::new("add")
                },
            ],
            arch: super::super::ARCH_X86_64,
            rx_align_log2: 6,
            rx: vec![0xc3; 64],
            slot: Some(56),
            rw_at: 4096,
            rw: vec![1; 16],
            rw_mem: 32,
            imports: vec![ImportPart {
                symbol: "put".into(),
                flags: ImportFlags::WEAK,
                fingerprint: 4,
            }],
            relocations: vec![
                Relocation::Import {
                    offset: 4096,
                    import: 0,
                    addend: -8,
                },
                Relocation::Relative {
                    offset: 8,
                    addend: 16,
                },
                Relocation::Relative {
                    offset: 4104,
                    addend: 4096,
                },
            ],
            needed: vec!["libz.so.1".into()],
            ..ImageParts::default()
        }
    }

    #[test]
    fn parsing_inverts_encoding() {
        let bytes = parts().encode().unwrap();
        let image = Image::parse(&bytes).unwrap();
        assert_eq!((size_of::<RawHeader>(), size_of::<RawEntry>()), (64, 40));
        assert_eq!((image.slot(), image.rw_range()), (Some(56), Some((4096, 32))));
        let entries: Vec<_> = image.entries().map(EntryPart::from).collect();
        let [visit, add] = &*parts().entries else {
            panic!("two entries")
        };
        assert_eq!(entries, [add.clone(), visit.clone()]);
        assert_eq!(
            image
                .entry("visit")
                .map(|(index, entry)| (index, entry.payload_align)),
            Some((1, 8))
        );
        assert_eq!(image.entry("vis"), None);
        assert_eq!(
            image.imports().next(),
            Some(super::super::Import {
                symbol: "put",
                flags: ImportFlags::WEAK,
                fingerprint: 4
            })
        );
        assert_eq!(image.needed().next(), Some("libz.so.1"));
        assert_eq!(image.relocations().count(), 3);
        assert_eq!(image.rx().len(), 64);
        assert_eq!(image.rw(), &[1; 16]);
    }

    #[test]
    fn invalid_parts_are_refused() {
        let refused = |change: fn(&mut ImageParts)| {
            let mut parts = parts();
            change(&mut parts);
            parts.encode().unwrap_err().stage()
        };
        use super::super::Stage::{Layout, Relocations, Tables};
        assert_eq!(refused(|p| p.entries[0].name = "1x".into()), Tables);
        assert_eq!(refused(|p| p.entries[0].name = "x".repeat(256)), Tables);
        assert_eq!(refused(|p| p.entries[0].name = "add".into()), Tables);
        assert_eq!(refused(|p| p.entries.clear()), Layout);
        assert_eq!(refused(|p| p.entries[0].main = 64), Layout);
        assert_eq!(refused(|p| p.entries[0].batch = Some(64)), Layout);
        assert_eq!(refused(|p| p.entries[0].payload_align_log2 = 7), Layout);
        assert_eq!(refused(|p| p.entries[1].main = 16), Layout);
        let numbered = |n: u32| EntryPart {
            main: n,
            ..EntryPart::new(alloc::format!("f{n}"))
        };
        let with = |count: u32| ImageParts {
            rx: vec![0xc3; 128],
            rw_at: 4096,
            slot: None,
            entries: (0..count).map(numbered).collect(),
            ..parts()
        };
        assert!(with(64).encode().is_ok());
        assert_eq!(with(65).encode().unwrap_err().stage(), Layout);
        assert_eq!(refused(|p| p.imports[0].symbol = "a b".into()), Tables);
        assert_eq!(refused(|p| p.needed[0] = "../x".into()), Tables);
        assert_eq!(refused(|p| p.slot = Some(60)), Layout);
        assert_eq!(refused(|p| p.rw_at = 0), Layout);
        assert_eq!(refused(|p| p.rw_mem = 8), Layout);
        assert_eq!(refused(|p| p.rw_mem = u32::MAX), Layout);
        assert_eq!(
            refused(|p| p.relocations.push(Relocation::Relative {
                offset: 50,
                addend: 0
            })),
            Relocations
        );
        assert_eq!(
            refused(|p| p.relocations.push(Relocation::Relative { offset: 4, addend: 0 })),
            Relocations
        );
        assert_eq!(
            refused(|p| p.relocations.push(Relocation::Relative {
                offset: 4108,
                addend: 0
            })),
            Relocations
        );
        assert_eq!(
            refused(|p| p.relocations.push(Relocation::Import {
                offset: 16,
                import: 1,
                addend: 0
            })),
            Relocations
        );
        assert_eq!(
            refused(|p| p.relocations.push(Relocation::Import {
                offset: 12,
                import: 0,
                addend: 0
            })),
            Relocations
        );
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = parts().encode().unwrap();
        for len in 0..bytes.len() {
            assert!(Image::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn each_defect_has_its_error() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = parts().encode().unwrap();
            bytes[at] = byte;
            let error = Image::parse(&bytes).unwrap_err();
            (error, error.to_string())
        };
        let refused = |change: fn(&mut ImageParts)| {
            let mut parts = parts();
            change(&mut parts);
            let error = parts.encode().unwrap_err();
            (error, error.to_string())
        };
        let truncated = Image::parse(b"IFNC").unwrap_err();
        let (version, flags) = (offset_of!(RawHeader, abi), offset_of!(RawHeader, flags));
        let length = offset_of!(RawHeader, total_len);
        for ((error, text), expected, part) in [
            (
                (truncated, truncated.to_string()),
                ImageError::Truncated { len: 4 },
                "4 bytes are too few for an image header",
            ),
            (
                changed(0, b'X'),
                ImageError::Magic,
                "the first bytes are not `IFNC`",
            ),
            (
                changed(version, 0xff),
                ImageError::AbiVersion { found: 0xff },
                "image uses ABI 255, this version supports",
            ),
            (
                refused(|p| p.imports[0].symbol = "a b".into()),
                ImageError::Name { table: "imports" },
                "a name in `imports` is not valid",
            ),
            (
                refused(|p| p.entries[0].name = "add".into()),
                ImageError::EntryOrder { index: 1 },
                "entry 1 is out of order",
            ),
            (
                refused(|p| p.relocations.push(Relocation::Relative { offset: 4, addend: 0 })),
                ImageError::Relocation {
                    table: "relative",
                    index: 1,
                    offset: 8,
                },
                "relocation 1 of `relative` at 0x8 is outside",
            ),
        ] {
            assert_eq!(error, expected);
            assert!(text.contains(part), "{text}");
        }
        let unknown = changed(flags + 3, 0x80);
        assert!(
            matches!(unknown.0, ImageError::UnknownBits { field: "flags", .. })
                && unknown.1.contains("field `flags`")
        );
        let length = changed(length + 2, 1);
        assert!(matches!(length.0, ImageError::Length { .. }) && length.1.contains("its parts add up to"));
        let empty = refused(|p| p.entries.clear());
        assert!(
            matches!(empty.0, ImageError::OutOfRange { value: 0, .. })
                && empty.1.contains("out of range: 0x0")
        );
        let same = refused(|p| p.entries[1].main = p.entries[0].main);
        assert!(
            matches!(
                same.0,
                ImageError::SameMain {
                    first: 0,
                    second: 1,
                    ..
                }
            ) && same.1.contains("entries 0 and 1")
        );
    }

    /// Entries with distinct names and mains in 4096 bytes of code.
    fn entries() -> impl Strategy<Value = Vec<EntryPart>> {
        let entry = (
            0..16u32,
            prop::option::of(0..4096u32),
            0..8u16,
            any::<[u64; 3]>(),
            0..=6u8,
        );
        prop::collection::btree_map("[a-z][a-z0-9_]{0,20}", entry, 1..=64).prop_map(|all| {
            let mut entries = Vec::new();
            for (number, (name, (at, batch, flags, texts, payload_align_log2))) in all.into_iter().enumerate()
            {
                let [payload, target, answer]: [u64; 3] = texts;
                entries.push(EntryPart {
                    name,
                    flags: EntryFlags::from_bits(flags).unwrap(),
                    main: number as u32 * 64 + at,
                    batch,
                    payload,
                    target,
                    answer,
                    payload_align_log2,
                });
            }
            entries
        })
    }

    fn several() -> impl Strategy<Value = ImageParts> {
        let import = ("[a-zA-Z_][a-zA-Z0-9_]{0,20}", 0..8u16, any::<u64>());
        let imports = prop::collection::vec(import, 1..20).prop_map(|all| {
            let import = |(symbol, flags, fingerprint)| ImportPart {
                symbol,
                flags: ImportFlags::from_bits(flags).unwrap(),
                fingerprint,
            };
            all.into_iter().map(import).collect()
        });
        (entries(), imports).prop_map(|(entries, imports)| ImageParts {
            entries,
            imports,
            rx: vec![0xc3; 4096],
            ..parts()
        })
    }

    /// All that an image states.
    fn taken_apart(bytes: &[u8]) -> Result<ImageParts, ImageError> {
        let image = Image::parse(bytes)?;
        for entry in image.entries() {
            assert_eq!(image.entry(entry.name).map(|(_, found)| found), Some(entry));
        }
        Ok(ImageParts::from(&image))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn images_with_several_entries_survive(parts in several()) {
            let bytes = parts.encode().unwrap();
            let again = taken_apart(&bytes).unwrap();
            // Entries are by name, which they were; relocations are sorted.
            prop_assert_eq!(&again.entries, &parts.entries);
            prop_assert_eq!(&again.imports, &parts.imports);
            prop_assert_eq!(again.encode().unwrap(), bytes);
        }

        /// Bytes of a peer: an image as parsed has what an encoder could have written, or is refused.
        #[test]
        fn changed_bytes_are_parsed_or_refused(
            parts in several(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            in_tables in any::<bool>(),
        ) {
            let mut bytes = parts.encode().unwrap();
            let tables = bytes.len() - parts.rx.len() - parts.rw.len();
            let reach = if in_tables { tables } else { bytes.len() };
            for (at, byte) in changes {
                let at = at.index(reach);
                bytes[at] = byte;
            }
            if let Ok(again) = taken_apart(&bytes) {
                let encoded = again.encode().unwrap();
                prop_assert_eq!(taken_apart(&encoded).unwrap().encode().unwrap(), encoded);
            }
        }
    }
}
