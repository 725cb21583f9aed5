//! Reassembly of bodies that arrive in fragments.

use crate::buffer::AlignedBuffer;
use crate::link::Body;

/// The body that is being reassembled. The fragments of one body are consecutive frames of one direction.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// Number that the sender gave the body, and length of the whole.
    current: Option<(u32, usize)>,
    received: usize,
    buffer: AlignedBuffer,
}

/// Why fragments do not form a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AssemblyError {
    #[error("a body of {len} bytes in fragments, the limit is {limit}")]
    TooLarge { len: u64, limit: usize },
    #[error("fragments that do not make the length they state")]
    Length,
    #[error("a last fragment without a first")]
    Missing,
}

impl Assembly {
    /// Bytes of memory that stay allocated between two bodies.
    const KEPT: usize = 1 << 20;

    /// Appends a fragment of body `number`, whose whole has `total` bytes. A new number discards the body before: its
    /// sender gave it up.
    pub(crate) fn fragment(
        &mut self,
        number: u32,
        total: u64,
        part: impl Body,
        limit: usize,
    ) -> Result<(), AssemblyError> {
        let len = usize::try_from(total)
            .ok()
            .filter(|&len| len <= limit)
            .ok_or(AssemblyError::TooLarge { len: total, limit })?;
        if self.current != Some((number, len)) {
            self.current = Some((number, len));
            self.received = 0;
            // Memory grows with the bytes that arrived, not with the length that the peer announced.
            self.buffer.shrink(Self::KEPT);
        }
        self.append(part, len)
    }

    /// Bytes of the current body that have arrived.
    pub(crate) fn len(&self) -> usize {
        self.received
    }

    /// Appends the last fragment and returns the whole body.
    pub(crate) fn finish(&mut self, part: impl Body) -> Result<&[u8], AssemblyError> {
        let (_, len) = self.current.ok_or(AssemblyError::Missing)?;
        self.append(part, len)?;
        if self.received != len {
            return Err(AssemblyError::Length);
        }
        self.buffer.resize(len);
        Ok(self.buffer.as_slice())
    }

    /// Drops the current body.
    pub(crate) fn clear(&mut self) {
        self.current = None;
        self.received = 0;
        self.buffer.shrink(Self::KEPT);
    }

    fn append(&mut self, part: impl Body, len: usize) -> Result<(), AssemblyError> {
        let end = self
            .received
            .checked_add(part.len())
            .filter(|&end| end <= len)
            .ok_or(AssemblyError::Length)?;
        if end > self.buffer.len() {
            // Doubling bounds the copies of a long body.
            self.buffer.resize(end.max(self.buffer.len() * 2).min(len));
        }
        part.copy_to(&mut self.buffer.as_mut_slice()[self.received..end]);
        self.received = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_make_the_body_or_an_error() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.finish(&b"x"[..]), Err(AssemblyError::Missing));
        assembly.fragment(1, 5, &b"ab"[..], 100).unwrap();
        assembly.fragment(1, 5, &b"cd"[..], 100).unwrap();
        assert_eq!(assembly.finish(&b"e"[..]), Ok(&b"abcde"[..]));
        assembly.clear();
        assembly.fragment(2, 3, &b"ab"[..], 100).unwrap();
        assert_eq!(
            assembly.fragment(2, 3, &b"cd"[..], 100),
            Err(AssemblyError::Length)
        );
        assembly.fragment(3, 4, &b"ab"[..], 100).unwrap();
        assert_eq!(assembly.finish(&b"c"[..]), Err(AssemblyError::Length));
        let too_large = AssemblyError::TooLarge { len: 101, limit: 100 };
        assert_eq!(assembly.fragment(4, 101, &b""[..], 100), Err(too_large));
    }

    #[test]
    fn a_new_number_discards_the_body_before() {
        let mut assembly = Assembly::default();
        assembly.fragment(1, 4, &b"ab"[..], 100).unwrap();
        assembly.fragment(2, 4, &b"xy"[..], 100).unwrap();
        assert_eq!(assembly.len(), 2);
        assert_eq!(assembly.finish(&b"zw"[..]), Ok(&b"xyzw"[..]));
    }
}
