//! How much of a connection one poll processes, so that connections share a thread fairly.

use ifunc_abi::frame::{FrameFlags, Header, Kind};

/// Units in one poll: small frames and entries of batches, or [`BYTES`] bytes of bodies.
pub(crate) const UNITS: usize = 64;
/// Bytes of bodies that cost as much as [`UNITS`] small invocations: what a processor copies in that time.
const BYTES: usize = 256 << 10;
/// Units of an `Install`, however small its image is.
const INSTALL: u32 = 8;
/// Factor by which the invocations of the next poll grow after a poll that used up its quantum.
const GROWTH: u32 = 4;

/// Units of an invocation in a frame of its own. After an idle poll it is dearer: a poll has room for few of them then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Price(u32);

impl Price {
    /// The price at which one poll has room for so many small invocations, at most [`UNITS`].
    #[inline]
    pub(crate) fn for_invocations(invocations: usize) -> Self {
        Self((UNITS / invocations.clamp(1, UNITS)) as u32)
    }

    /// The price after a poll that used up its quantum.
    #[inline]
    pub(crate) fn next(self) -> Self {
        Self((self.0 / GROWTH).max(1))
    }
}

/// Units of so many bytes of bodies.
#[inline]
fn units_of(bytes: usize) -> u32 {
    (bytes / (BYTES / UNITS)) as u32
}

/// The budget of one poll.
#[derive(Debug)]
pub(crate) struct Quantum {
    /// Units used. Half a word: two counters of one size would be added in a vector, which takes longer.
    used: u32,
    /// Frames and entries of batches processed.
    pub(crate) processed: usize,
    price: Price,
}

impl Quantum {
    #[inline]
    pub(crate) fn new(price: Price) -> Self {
        Self {
            used: 0,
            processed: 0,
            price,
        }
    }

    /// Charges an entry of a batch, or a small frame.
    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.charge_units(1, bytes);
    }

    /// Ends the poll after what it processes now.
    pub(crate) fn exhaust(&mut self) {
        self.used = self.used.max(UNITS as u32);
    }

    /// Charges an invocation that came in a frame of its own.
    #[inline]
    pub(crate) fn charge_invocation(&mut self, bytes: usize) {
        self.charge_units(self.price.0, bytes);
    }

    #[inline]
    fn charge_units(&mut self, units: u32, bytes: usize) {
        self.used += units + units_of(bytes);
        self.processed += 1;
    }

    /// Charges any other request. `assembled` is the number of bytes that came in fragments before.
    #[cold]
    pub(crate) fn charge_request(&mut self, header: Header, bytes: usize, assembled: usize) {
        self.charge(bytes);
        match header.kind {
            Kind::Install => {
                self.used += INSTALL - 1;
                if header.flags.contains(FrameFlags::ASSEMBLED) {
                    // The whole image is hashed, validated and copied.
                    self.used += units_of(assembled);
                }
            }
            // A page of statistics sums the counters of all sources.
            Kind::Stats => self.used += UNITS as u32 - 1,
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.used >= UNITS as u32
    }
}
