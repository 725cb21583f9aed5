//! Images that the simulated nodes send. They are no code: the host only compares their bytes.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::LazyLock;

use ifunc_abi::ImageId;
use ifunc_proto::caller::Image;

use crate::rng::{Rng, mix};

/// Number of different images.
pub(crate) const COUNT: usize = 16;

/// One image.
pub(crate) struct Data {
    pub(crate) index: u8,
    id: ImageId,
    bytes: Vec<u8>,
    is_idempotent: bool,
    /// Every node refuses it.
    pub(crate) is_refused: bool,
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, bytes, .. } = self;
        write!(f, "{index}, {} bytes", bytes.len())
    }
}

static IMAGES: LazyLock<Vec<Data>> = LazyLock::new(|| {
    const LENGTHS: [usize; COUNT] = [
        0, 1, 8, 10, 30, 60, 64, 90, 120, 200, 260, 400, 650, 900, 1300, 2600,
    ];
    let image = |index: usize| {
        let mut rng = Rng::new(mix(index as u64 + 1));
        let mut id = [0; 32];
        id.fill_with(|| rng.next() as u8);
        Data {
            index: index as u8,
            id,
            bytes: (0..LENGTHS[index]).map(|_| rng.next() as u8).collect(),
            is_idempotent: index % 3 == 1,
            is_refused: index % 5 == 3,
        }
    };
    (0..COUNT).map(image).collect()
});

/// An image, as its source holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentImage(pub(crate) &'static Data);

impl SentImage {
    pub(crate) fn new(index: usize) -> Self {
        Self(&IMAGES[index])
    }

    /// The image that was sent under this id.
    pub(crate) fn find(id: &ImageId) -> Option<Self> {
        IMAGES.iter().find(|data| data.id == *id).map(Self)
    }
}

impl Image for SentImage {
    fn id(&self) -> &ImageId {
        &self.0.id
    }

    fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    fn is_idempotent(&self) -> bool {
        self.0.is_idempotent
    }
}

/// An image, as a target installed it. Counts itself.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) image: SentImage,
    count: Rc<Cell<usize>>,
}

impl Installed {
    pub(crate) fn new(image: SentImage, count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        let count = Rc::clone(count);
        Self { image, count }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}
