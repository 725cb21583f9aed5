//! Relocation as an installation applies it.

use ifunc_abi::image::{Image, Relocation};
use ifunc_exec::fuzzing::relocate;

/// The last eight bytes choose the address of the image, the others are the image. What no relocation writes stays as it was; what one
/// writes is what it says.
pub fn run(data: &[u8]) {
    let Some((bytes, last)) = data.split_last_chunk::<8>() else {
        return;
    };
    let Ok(image) = Image::parse(bytes) else { return };
    let base = u64::from_le_bytes(*last) as usize;
    let got = base ^ 0x5555_5550;
    let imports: Vec<usize> = (0..image.imports().count())
        .map(|index| base.wrapping_mul(index + 3))
        .collect();
    let (rx, rw) = relocate(&image, base, got, &imports);
    let (mut expected_rx, mut expected_rw) = (image.rx().to_vec(), image.rw().to_vec());
    let rw_at = image.rw_range().map(|(at, _)| at as usize);
    let mut write = |offset: u32, value: usize| {
        let offset = offset as usize;
        let place = match rw_at {
            Some(rw_at) if offset >= rw_at => expected_rw.get_mut(offset - rw_at..),
            _ => expected_rx.get_mut(offset..),
        };
        let place = place.and_then(|place| place.first_chunk_mut::<8>());
        *place.expect("a relocation writes inside of its image") = (value as u64).to_le_bytes();
    };
    if let Some(slot) = image.slot() {
        write(slot, got);
    }
    for relocation in image.relocations() {
        match relocation {
            Relocation::Relative { offset, addend } => write(offset, base.wrapping_add(addend as usize)),
            Relocation::Import {
                offset,
                import,
                addend,
            } => write(offset, imports[import as usize].wrapping_add(addend as usize)),
        }
    }
    assert!(
        rx == expected_rx && rw == expected_rw,
        "another image than its relocations make"
    );
}
