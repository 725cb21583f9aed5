//! What the fuzz targets reach of this crate, which its users do not: only built with `--cfg fuzzing`, which libFuzzer's builds set.

use ifunc_abi::image::Image;

use crate::frame::{Head, Layout, Seen};
use crate::slot::Slot;
use crate::sum::{self, Stripes};

/// A frame with this payload and image; `None`: it would be too long.
#[must_use]
pub fn encode(payload: &[u8], image: &[u8], entry: u16) -> Option<Vec<u8>> {
    let layout = Layout::new(payload.len(), 16, image.len())?;
    let head = Head::new(layout, entry, sum::of(image));
    let mut bytes = vec![0; layout.len()];
    bytes[..32].copy_from_slice(&head.bytes());
    bytes[layout.payload_at..][..payload.len()].copy_from_slice(payload);
    bytes[layout.image_at()..][..image.len()].copy_from_slice(image);
    // SAFETY: the bytes are this function's.
    head.seal(unsafe { Slot::new(bytes.as_mut_ptr(), bytes.len()) });
    Some(bytes)
}

/// Takes what lies in a buffer for a frame, as a poll does up to where it would install and run the code. Returns the parts of one that is
/// whole and unchanged: payload, image, entry.
#[must_use]
pub fn poll(buffer: &mut [u8]) -> Option<(Vec<u8>, Vec<u8>, u16)> {
    // SAFETY: the buffer is the caller's, and nothing else uses it meanwhile.
    let slot = unsafe { Slot::new(buffer.as_mut_ptr(), buffer.len()) };
    let seen = match Head::read(slot) {
        Seen::Storing(stripes) => crate::images::here(|here| here.storing.follow(slot, stripes))?,
        seen => seen,
    };
    let Seen::Head(head) = seen else { return None };
    let layout = head.layout;
    assert!(layout.len() <= slot.len() && layout.payload_at + layout.payload_len <= layout.image_at());
    assert!(layout.image_at() + layout.image_len <= layout.trailer_at());
    if head.stated(slot)? != head.sum(slot, Stripes::new()) {
        return None;
    }
    let payload = slot.to_vec(layout.payload_at, layout.payload_len)?;
    let image = slot.to_vec(layout.image_at(), layout.image_len)?;
    if sum::of(&image) != head.image_sum {
        return None;
    }
    let _ = Image::parse(&image);
    head.take(slot);
    assert_eq!(Head::read(slot), Seen::Nothing, "it is taken once");
    Some((payload, image, head.entry))
}
