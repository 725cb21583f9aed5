//! A type alias that hides `'static`: such a payload would outlive its frame.
//# error: is not general enough

#![no_std]

use ifunc::prelude::*;

pub struct Word<'a>(&'a [u8]);

impl<'a> Payload<'a> for Word<'a> {
    type Source = [u8];
    const TEXT: Text = Text::new().str("word/1");

    fn bound(source: &[u8]) -> usize {
        source.len()
    }

    fn encode(_: &[u8], _: &mut [u8]) -> Result<usize, EncodeError> {
        Err(EncodeError::Refused)
    }

    fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Self(payload))
    }
}

pub type Kept = Word<'static>;

#[ifunc(codec = custom)]
pub fn leak(word: Kept, length: &mut u64) {
    *length = word.0.len() as u64;
}
