//! Installing an image: its bytes go from the private copy into the arena, with the words that relocation replaces.

use std::sync::{Arc, OnceLock};

use ifunc_abi::image::{Image, ImageFlags, Relocation};

use super::cache::Record;
use super::validate::memory_of;
use super::{ImageProperties, InstalledImage, ValidImage};
use crate::arena::{Arena, ArenaError, Range, Word};
use crate::debug::{DebugRegistry, Placement};
use crate::entrance::Door;
use crate::got::GotMemory;
use crate::page::page_size;
use crate::symbols::Bound;

/// Writes an image and its GOT into the arena.
pub(super) fn install(
    arena: &mut Arena,
    gots: &Arc<GotMemory>,
    debug: &DebugRegistry,
    valid: &ValidImage<'_>,
    bound: &Bound,
    record: &Record,
) -> Result<InstalledImage, ArenaError> {
    let (image, addresses) = (valid.image(), &*bound.got);
    let keeps_float_control = image.flags().contains(ImageFlags::KEEPS_FLOAT_CONTROL);
    let got = gots.allocate(addresses)?;
    let rw = image.rw_range().map(|(at, len)| (at as usize, len as usize));
    let align = if rw.is_some() {
        page_size()
    } else {
        image.rx_align()
    };
    let code = place(arena, memory_of(image), align, rw.is_some(), |arena, range| {
        let (words, rw_bytes) = relocate(image, arena.address(range), got.address(), addresses);
        arena.write(range, image.rx(), &words)?;
        if let Some((at, len)) = rw {
            arena.map_anonymous(range, at, len, &rw_bytes)?;
        }
        Ok(())
    })?;
    Ok(InstalledImage {
        debug: debug.register(&Placement {
            id: &valid.id,
            image,
            base: arena.address(&code),
            code: arena.bytes(&code, image.rx().len()),
        }),
        properties: ImageProperties::of(valid.id, image),
        door: Door::new(!keeps_float_control || bound.may_set_float_control),
        kept: Arc::clone(&record.kept),
        file: arena.file(),
        code,
        got,
        imports: Arc::clone(&record.imports),
        signature: OnceLock::new(),
        remote: None,
    })
}

/// Allocates a range and writes it, or gives it back.
fn place(
    arena: &mut Arena,
    len: usize,
    align: usize,
    whole_pages: bool,
    write: impl FnOnce(&mut Arena, &mut Range) -> Result<(), ArenaError>,
) -> Result<Range, ArenaError> {
    let mut range = arena.allocate(len, align, whole_pages)?;
    match write(arena, &mut range) {
        Ok(()) => Ok(range),
        Err(error) => {
            // SAFETY: the address was given to no code yet.
            unsafe { arena.free(range) };
            Err(error)
        }
    }
}

/// What an image is at `base`: the words that differ in its read-execute part, by ascending offset, and its read-write part.
/// [`Image::parse`] has checked that every offset is inside, and that no two words overlap.
pub(crate) fn relocate(
    image: &Image<'_>,
    base: usize,
    got: usize,
    imports: &[usize],
) -> (Vec<(usize, Word)>, Vec<u8>) {
    let (mut words, mut rw) = (Vec::new(), image.rw().to_vec());
    let rw_at = image.rw_range().map_or(usize::MAX, |(at, _)| at as usize);
    let mut put = |offset: u32, value: usize| {
        let (offset, word) = (offset as usize, (value as u64).to_le_bytes());
        match offset.checked_sub(rw_at) {
            None => words.push((offset, word)),
            Some(at) => rw[at..at + word.len()].copy_from_slice(&word),
        }
    };
    if let Some(slot) = image.slot() {
        put(slot, got);
    }
    for relocation in image.relocations() {
        match relocation {
            Relocation::Relative { offset, addend } => put(offset, base.wrapping_add_signed(addend as isize)),
            Relocation::Import {
                offset,
                import,
                addend,
            } => put(
                offset,
                imports[import as usize].wrapping_add_signed(addend as isize),
            ),
        }
    }
    words.sort_unstable_by_key(|(offset, _)| *offset);
    (words, rw)
}

#[cfg(test)]
mod tests {
    use ifunc_abi::image::{EntryPart, ImageParts, ImportFlags, ImportPart};

    use super::*;
    use crate::arch::ARCH;
    use crate::image::original::Kept;

    #[test]
    fn each_word_is_relocated_where_it_is() {
        let parts = ImageParts {
            entries: vec![EntryPart::new("add")],
            arch: ARCH,
            rx_align_log2: 4,
            rx: vec![0xc3; 40],
            rw_at: 4096,
            rw: vec![1; 24],
            rw_mem: 24,
            slot: Some(8),
            imports: vec![ImportPart {
                symbol: "cos".into(),
                flags: ImportFlags::DATA,
                fingerprint: 0,
            }],
            relocations: vec![
                Relocation::Relative {
                    offset: 32,
                    addend: 16,
                },
                Relocation::Relative {
                    offset: 4096,
                    addend: -8,
                },
                Relocation::Import {
                    offset: 4112,
                    import: 0,
                    addend: 3,
                },
            ],
            ..ImageParts::default()
        };
        let bytes = parts.encode().unwrap();
        let image = Image::parse(&bytes).unwrap();
        let (replaced, rw) = relocate(&image, 0x7000, 0x900, &[0x4000]);
        assert_eq!(replaced.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [8, 32]);
        let mut rx = image.rx().to_vec();
        for (at, word) in replaced {
            rx[at..at + word.len()].copy_from_slice(&word);
        }
        let words = |bytes: &[u8]| -> Vec<u64> {
            let words = bytes.chunks_exact(8);
            words
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                .collect()
        };
        const CODE: u64 = 0xc3c3_c3c3_c3c3_c3c3;
        const DATA: u64 = 0x0101_0101_0101_0101;
        assert_eq!(words(&rx), [CODE, 0x900, CODE, CODE, 0x7010]);
        assert_eq!(words(&rw), [0x6ff8, DATA, 0x4003]);
        // What is kept of it: all but the code, and the two words in that.
        let kept = Kept::of(&image, &bytes);
        assert_eq!(kept.footprint(), bytes.len() - 40 + 2 * 12);
        let file = std::fs::File::from(
            rustix::fs::memfd_create("installed", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        std::os::unix::fs::FileExt::write_all_at(&file, &rx, 100).unwrap();
        assert_eq!(kept.restore(&file, 100).unwrap(), bytes);
    }
}
