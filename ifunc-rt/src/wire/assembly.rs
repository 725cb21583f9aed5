//! Bodies that came in parts.

use crate::transport::Body;
use ifunc_proto::buffer::AlignedBuffer;
use ifunc_proto::link::Body as _;

/// One body under way. Its parts are consecutive frames of one direction.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// Number that the sender gave it and length of the whole.
    current: Option<(u32, usize)>,
    received: usize,
    buffer: AlignedBuffer,
}

/// Why parts make no whole.
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
    /// Memory that is kept from one body to the next.
    const KEEP: usize = 1 << 20;

    /// Takes a part of body `number`, whose whole is `total` bytes long. A new number discards what was under way: its
    /// sender gave up.
    pub(crate) fn part(
        &mut self,
        number: u32,
        total: u64,
        part: &Body<'_>,
        limit: usize,
    ) -> Result<(), AssemblyError> {
        let len = usize::try_from(total)
            .ok()
            .filter(|&len| len <= limit)
            .ok_or(AssemblyError::TooLarge { len: total, limit })?;
        if self.current != Some((number, len)) {
            self.current = Some((number, len));
            self.received = 0;
            // Not `len` at once: memory follows the bytes that really came.
            self.buffer.shrink(Self::KEEP);
        }
        self.append(part, len)
    }

    /// Bytes that have come of the body under way.
    pub(crate) fn len(&self) -> usize {
        self.received
    }

    /// Takes the last part and gives the whole.
    pub(crate) fn finish(&mut self, part: &Body<'_>) -> Result<&AlignedBuffer, AssemblyError> {
        let (_, len) = self.current.ok_or(AssemblyError::Missing)?;
        self.append(part, len)?;
        if self.received != len {
            return Err(AssemblyError::Length);
        }
        self.buffer.resize(len);
        Ok(&self.buffer)
    }

    /// Forgets the body: it was consumed, or its sender gave up.
    pub(crate) fn clear(&mut self) {
        self.current = None;
        self.received = 0;
        self.buffer.shrink(Self::KEEP);
    }

    fn append(&mut self, part: &Body<'_>, len: usize) -> Result<(), AssemblyError> {
        let end = self.received + part.len();
        if end > len {
            return Err(AssemblyError::Length);
        }
        if end > self.buffer.len() {
            // Doubling, so that a long body is not copied once a fragment.
            self.buffer
                .resize(end.max(self.buffer.len() * 2).min(len.max(end)));
        }
        part.copy_to(&mut self.buffer.as_mut_slice()[self.received..end]);
        self.received = end;
        Ok(())
    }
}
