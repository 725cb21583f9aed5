//! What the fuzz targets reach of puts.

use super::layout::Layout;
use super::offer::Offer;
use crate::transport::RingSize;

/// Takes the bytes for the offer of a ring of this size.
pub(crate) fn offer(bytes: &[u8], size: RingSize) {
    if let Ok(offer) = Offer::decode(bytes, Layout::new(size)) {
        assert_eq!(offer.encode(), bytes);
    }
}
