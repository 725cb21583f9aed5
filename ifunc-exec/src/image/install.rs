//! Installing an image: relocate in a private buffer, write into the arena.

use ifunc_abi::image::{Image, Relocation};

use super::validate::memory_of;
use super::{ImageProperties, InstalledImage, ValidImage};
use crate::arena::{Arena, ArenaError, PAGE, Range};
use crate::debug::{DebugRegistry, Placement};

/// Writes an image and its GOT into the arena.
pub(super) fn install(
    arena: &mut Arena,
    debug: &DebugRegistry,
    valid: &ValidImage<'_>,
    addresses: &[usize],
) -> Result<InstalledImage, ArenaError> {
    let image = valid.image();
    let got = write_got(arena, addresses)?;
    let got_address = got.as_ref().map_or(0, |range| arena.address(range));
    match place(arena, image, got_address, addresses) {
        Ok((code, bytes)) => {
            let base = arena.address(&code);
            Ok(InstalledImage {
                debug: debug.register(&Placement {
                    id: valid.id(),
                    image,
                    base,
                    code: &bytes,
                }),
                properties: ImageProperties {
                    id: *valid.id(),
                    name: image.name().to_owned(),
                    flags: image.flags(),
                    payload_align: image.payload_align(),
                    target: image.target(),
                },
                main: std::ptr::with_exposed_provenance(base + image.entry() as usize),
                original: valid.bytes().clone(),
                code,
                got,
                got_address,
            })
        }
        Err(error) => {
            if let Some(got) = got {
                // SAFETY: no code refers to the GOT: the image was not installed.
                unsafe { arena.free(got) };
            }
            Err(error)
        }
    }
}

fn write_got(arena: &mut Arena, addresses: &[usize]) -> Result<Option<Range>, ArenaError> {
    if addresses.is_empty() {
        return Ok(None);
    }
    let bytes: Vec<u8> = addresses
        .iter()
        .flat_map(|address| address.to_le_bytes())
        .collect();
    let range = arena.allocate(bytes.len(), 8, false)?;
    match arena.write(&range, &bytes) {
        Ok(()) => Ok(Some(range)),
        Err(error) => {
            // SAFETY: the address was given to no code yet.
            unsafe { arena.free(range) };
            Err(error)
        }
    }
}

fn place(
    arena: &mut Arena,
    image: &Image<'_>,
    got: usize,
    addresses: &[usize],
) -> Result<(Range, Vec<u8>), ArenaError> {
    let rw = image.rw_range().map(|(at, len)| (at as usize, len as usize));
    let align = if rw.is_some() { PAGE } else { image.rx_align() };
    let mut range = arena.allocate(memory_of(image), align, rw.is_some())?;
    let (rx_bytes, rw_bytes) = relocate(image, arena.address(&range), got, addresses);
    let written = arena.write(&range, &rx_bytes).and_then(|()| match rw {
        Some((at, len)) => arena.map_anonymous(&mut range, at, len, &rw_bytes),
        None => Ok(()),
    });
    match written {
        Ok(()) => Ok((range, rx_bytes)),
        Err(error) => {
            // SAFETY: the address was given to no code yet.
            unsafe { arena.free(range) };
            Err(error)
        }
    }
}

/// Both parts of an image as they are at `base`. [`Image::parse`] has checked that every offset is inside.
fn relocate(image: &Image<'_>, base: usize, got: usize, imports: &[usize]) -> (Vec<u8>, Vec<u8>) {
    let (mut rx, mut rw) = (image.rx().to_vec(), image.rw().to_vec());
    let rw_at = image.rw_range().map_or(usize::MAX, |(at, _)| at as usize);
    let mut put = |offset: u32, value: usize| {
        let offset = offset as usize;
        let (part, at) = if offset < rw_at {
            (&mut rx, offset)
        } else {
            (&mut rw, offset - rw_at)
        };
        part[at..at + 8].copy_from_slice(&(value as u64).to_le_bytes());
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
    (rx, rw)
}
