//! Images: parsing and everything that it promises.

use std::ops::Range;

use ifunc_abi::about::About;
use ifunc_abi::image::{Image, ImageParts, MAX_ENTRIES, Relocation};
use ifunc_abi::meta;
use ifunc_abi::slices::{Slice, Slices, agree, encode};

/// An image that parses keeps to its bounds, and has the same parts after it was encoded again.
pub fn run(data: &[u8]) {
    let _ = Image::parse_first(data);
    slices(data);
    let Ok(image) = Image::parse(data) else {
        // What builders read of libraries.
        let _ = meta::records(data).take(100).filter(Result::is_ok).count();
        if let Some(about) = About::new(data) {
            let _ = (about.entry("a").payload(), about.import("a"));
        }
        return;
    };
    bounds(&image);
    let parts = ImageParts::from(&image);
    let encoded = parts
        .encode()
        .expect("the parts of an image are those of an image");
    let again = ImageParts::from(&Image::parse(&encoded).expect("it was encoded"));
    assert_eq!(format!("{parts:?}"), format!("{again:?}"));
}

/// A table of slices that parses is what its slices encode to, and any two images in it can be compared.
fn slices(data: &[u8]) {
    let _ = Slices::parse_first(data);
    let Ok(slices) = Slices::parse(data) else { return };
    let all: Vec<Slice<'_>> = slices.all().collect();
    assert_eq!(encode(&all).expect("it was parsed"), data);
    let images: Vec<Image<'_>> = slices
        .native()
        .filter_map(|slice| Image::parse(slice.bytes).ok())
        .collect();
    for (one, other) in images.iter().zip(images.iter().skip(1)) {
        assert_eq!(agree(one, other).is_ok(), agree(other, one).is_ok());
    }
}

/// Every offset of the image is inside: where it is entered, and where its installation writes.
fn bounds(image: &Image<'_>) {
    let (rx, rw) = (image.rx().len() as u64, image.rw().len() as u64);
    let rw_range = image.rw_range();
    let rw_at = rw_range.map_or(u64::MAX, |(at, _)| at.into());
    assert!(rw_range.map_or(rw == 0, |(at, len)| u64::from(at) >= rx && rw <= u64::from(len)));
    let is_inside = |range: &Range<u64>| {
        range.end <= rx || (rw_at <= range.start && range.end <= rw_at.saturating_add(rw))
    };
    let mut names: Vec<&str> = Vec::new();
    for entry in image.entries() {
        assert!(u64::from(entry.main) < rx && entry.batch.is_none_or(|batch| u64::from(batch) < rx));
        assert!(entry.payload_align.is_power_of_two() && entry.payload_align <= 64);
        names.push(entry.name);
    }
    assert!((1..=MAX_ENTRIES).contains(&names.len()) && names.is_sorted_by(|a, b| a < b));
    let mut written: Vec<Range<u64>> = image.slot().into_iter().map(eight).collect();
    let imports = image.imports().count();
    for relocation in image.relocations() {
        if let Relocation::Import { import, .. } = relocation {
            assert!((import as usize) < imports);
        }
        written.push(eight(relocation.offset()));
    }
    written.sort_by_key(|range| range.start);
    assert!(written.iter().all(is_inside), "a relocation outside of the image");
    assert!(
        written.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "relocations overlap"
    );
}

fn eight(offset: u32) -> Range<u64> {
    let offset = u64::from(offset);
    offset..offset + 8
}
