//! What is on the stream after the hellos: heads of 32 bytes, each followed by its body.
//!
//! Four little-endian 64-bit words. The first three are those of [`ifunc_abi::frame`].
//!
//! | word | frame | credits alone |
//! |---|---|---|
//! | 0 | sequence and length of the body | 0 |
//! | 1 | as there: its low byte, the kind, is not 0 | 0 |
//! | 2 | token | 0 |
//! | 3 | credits: frames released in bits 0–31, units of [`BODY_ALIGN`] bytes in 32–63; both wrap | the same |

use ifunc_abi::frame::{BODY_ALIGN, commit_word, split_commit_word};
use zerocopy::little_endian::U64;

use crate::transport::window::Credits;

/// Length of a head.
pub(super) const HEAD: usize = 32;

/// Units of data that a body takes.
pub(super) fn units(len: usize) -> u64 {
    len.div_ceil(BODY_ALIGN) as u64
}

/// The low halves of the credits that a side has released since the connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Released {
    pub(super) frames: u32,
    pub(super) data: u32,
}

impl From<Credits> for Released {
    fn from(credits: Credits) -> Self {
        Self {
            frames: credits.frames as u32,
            data: credits.data as u32,
        }
    }
}

/// The words of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) sequence: u32,
    pub(super) len: u32,
    pub(super) words: [u64; 2],
    pub(super) released: Released,
}

impl Head {
    /// Credits, and no frame.
    pub(super) fn credits(released: Released) -> Self {
        Self {
            sequence: 0,
            len: 0,
            words: [0; 2],
            released,
        }
    }

    /// Whether a frame follows. `None`: it is of no known form.
    pub(super) fn is_frame(&self) -> Option<bool> {
        match self.words[0] as u8 {
            0 => (*self == Self::credits(self.released)).then_some(false),
            _ => Some(true),
        }
    }

    pub(super) fn encode(&self) -> [u8; HEAD] {
        let Released { frames, data } = self.released;
        let words = [
            commit_word(self.sequence, self.len),
            self.words[0],
            self.words[1],
            u64::from(data) << 32 | u64::from(frames),
        ];
        zerocopy::transmute!(words.map(U64::new))
    }

    pub(super) fn decode(bytes: &[u8; HEAD]) -> Self {
        let words: [U64; HEAD / 8] = zerocopy::transmute!(*bytes);
        let [first, second, third, released] = words.map(U64::get);
        let (sequence, len) = split_commit_word(first);
        Self {
            sequence,
            len,
            words: [second, third],
            released: Released {
                frames: released as u32,
                data: (released >> 32) as u32,
            },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_body_takes_whole_units() {
        assert_eq!([0, 1, 64, 65, 1 << 20].map(units), [0, 1, 1, 2, 1 << 14]);
    }

    #[test]
    fn heads_are_decoded_as_they_were_encoded() {
        let released = Released {
            frames: u32::MAX,
            data: 7,
        };
        let frame = Head {
            sequence: 3,
            len: 1 << 20,
            words: [0x0102_0304_0506_0701, u64::MAX - 1],
            released,
        };
        assert_eq!(Head::decode(&frame.encode()), frame);
        assert_eq!(frame.is_frame(), Some(true));
        let credits = Head::credits(released);
        assert_eq!(Head::decode(&credits.encode()), credits);
        assert_eq!(credits.is_frame(), Some(false));
        assert_eq!(Head { len: 1, ..credits }.is_frame(), None);
        assert_eq!(
            Head {
                words: [7 << 8, 0],
                ..credits
            }
            .is_frame(),
            None
        );
    }
}
