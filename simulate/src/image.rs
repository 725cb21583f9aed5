//! Images that the simulated nodes send. They are no code: the host only compares their bytes.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::LazyLock;

use ifunc_abi::ImageId;
use ifunc_abi::machine::Machine;
use ifunc_proto::caller::{Image, ImageBytes};

use crate::rng::{Rng, mix};

/// Number of different images.
const COUNT: usize = 16;

/// One image.
pub(crate) struct Data {
    pub(crate) index: u8,
    id: ImageId,
    bytes: Vec<u8>,
    pub(crate) entries: u8,
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
            entries: [1, 2, 1, 1, 4][index % 5],
            is_refused: index % 5 == 3,
        }
    };
    (0..COUNT).map(image).collect()
});

/// An entry of an image, as its source holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentImage {
    pub(crate) image: &'static Data,
    pub(crate) entry: u8,
}

impl SentImage {
    /// One of the entries of an image.
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let image = &IMAGES[rng.below(COUNT)];
        let entry = rng.below(image.entries.into()) as u8;
        Self { image, entry }
    }

    /// An entry of the image with this index.
    pub(crate) fn of(index: usize, draw: u64) -> Self {
        let image = &IMAGES[index];
        let entry = (draw % u64::from(image.entries)) as u8;
        Self { image, entry }
    }

    /// The entries of the image that was sent under this id.
    pub(crate) fn find(id: &ImageId) -> Option<impl Iterator<Item = Self>> {
        let image = IMAGES.iter().find(|data| data.id == *id)?;
        Some((0..image.entries).map(move |entry| Self { image, entry }))
    }

    /// The index of the image whose id begins so.
    pub(crate) fn index_of(start: u32) -> Option<u8> {
        let mut images = IMAGES.iter();
        let image = images.find(|image| image.id[..4] == start.to_le_bytes())?;
        Some(image.index)
    }

    /// Which image and which of its entries.
    pub(crate) fn key(&self) -> (u8, u8) {
        (self.image.index, self.entry)
    }
}

impl Image for SentImage {
    fn id(&self) -> &ImageId {
        &self.image.id
    }

    fn bytes(&self) -> &[u8] {
        &self.image.bytes
    }

    /// With the image after this one, as a slice for other machines: what a link carries beside an image must change nothing.
    fn send_to<R>(
        &self,
        _machine: Machine,
        send: impl FnOnce(ImageBytes<'_>, Vec<ImageBytes<'_>>) -> R,
    ) -> Result<R, String> {
        let as_sent = |data: &'static Data| ImageBytes {
            id: &data.id,
            bytes: &data.bytes,
            signature: None,
        };
        let other = &IMAGES[(usize::from(self.image.index) + 1) % COUNT];
        let companion = self.image.index.is_multiple_of(3).then(|| as_sent(other));
        Ok(send(as_sent(self.image), Vec::from_iter(companion)))
    }

    fn entries(&self) -> u8 {
        self.image.entries
    }

    fn entry(&self) -> u8 {
        self.entry
    }

    fn is_idempotent(&self) -> bool {
        (self.image.index + self.entry) % 3 == 1
    }
}

/// An entry of an image, as a target installed it. Counts itself.
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
