//! Reassembly of bodies that arrive in fragments.
//!
//! What an unfinished body takes is [agreed with the host](Host::hold), which has one budget for all its connections. A body
//! that the host does not keep is still received: its fragments are counted and dropped, and its last frame is refused with the
//! host's reason.

use std::mem;

use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;
use ifunc_abi::travel::TravelHead;

use crate::buffer::AlignedBuffer;
use crate::host::Host;
use crate::link::Body;

/// The body that is being reassembled. The fragments of one body are consecutive frames of one direction.
#[derive(Debug)]
pub(crate) struct Assembly {
    /// Number that the sender gave the body, and length of the whole.
    current: Option<(u32, usize)>,
    received: usize,
    buffer: AlignedBuffer,
    /// The first bytes of the current body, also of one that is not kept: they name the call that is refused.
    front: Front,
    /// Why the current body is not kept.
    refused: Option<Refusal>,
    /// Bodies begun so far.
    begun: u64,
}

/// The first bytes of a body.
pub(crate) type Front = [u8; TravelHead::SIZE];

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

impl Default for Assembly {
    fn default() -> Self {
        Self {
            current: None,
            received: 0,
            buffer: AlignedBuffer::default(),
            front: [0; TravelHead::SIZE],
            refused: None,
            begun: 0,
        }
    }
}

impl Assembly {
    /// Appends a fragment of body `number`, whose whole has `total` bytes. A new number discards the body before: its
    /// sender gave it up.
    pub(crate) fn fragment(
        &mut self,
        host: &mut impl Host,
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
            self.clear(host);
            self.current = Some((number, len));
            self.begun += 1;
        }
        self.append(host, part, len)
    }

    /// Bytes that are kept of the current body.
    pub(crate) fn len(&self) -> usize {
        if self.refused.is_some() { 0 } else { self.received }
    }

    /// Which body is unfinished and kept, counted from the first one.
    pub(crate) fn unfinished(&self) -> Option<u64> {
        (self.current.is_some() && self.refused.is_none()).then_some(self.begun)
    }

    /// The first bytes of the current body, and zeros if it has fewer.
    pub(crate) fn front(&self) -> &Front {
        &self.front
    }

    /// Appends the last fragment and returns the whole body, or why it was not kept.
    pub(crate) fn finish(
        &mut self,
        host: &mut impl Host,
        part: impl Body,
    ) -> Result<Result<&[u8], Refusal>, AssemblyError> {
        let (_, len) = self.current.ok_or(AssemblyError::Missing)?;
        self.append(host, part, len)?;
        if self.received != len {
            return Err(AssemblyError::Length);
        }
        if let Some(refusal) = &self.refused {
            return Ok(Err(refusal.clone()));
        }
        self.buffer.resize(len);
        Ok(Ok(self.buffer.as_slice()))
    }

    /// Hands over the memory of the current body, which is whole. It is [`clear`](Self::clear)ed next.
    pub(crate) fn take(&mut self) -> AlignedBuffer {
        mem::take(&mut self.buffer)
    }

    /// Drops the current body and its memory.
    pub(crate) fn clear(&mut self, host: &mut impl Host) {
        self.current = None;
        self.received = 0;
        self.refused = None;
        self.front = [0; TravelHead::SIZE];
        self.buffer = AlignedBuffer::default();
        // No host refuses to take memory back.
        let _ = host.hold(0);
    }

    /// Drops what is kept of the current body. Its last frame is refused with this reason.
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.refused = Some(refusal);
        self.buffer = AlignedBuffer::default();
    }

    fn append(&mut self, host: &mut impl Host, part: impl Body, len: usize) -> Result<(), AssemblyError> {
        let end = self
            .received
            .checked_add(part.len())
            .filter(|&end| end <= len)
            .ok_or(AssemblyError::Length)?;
        if self.refused.is_none()
            && end > self.buffer.len()
            && let Err(refusal) = self.grow(host, end, len)
        {
            self.refuse(refusal);
            let _ = host.hold(0);
        }
        if let Some(front) = self.front.get_mut(self.received..)
            && let Some(part) = part.slice(0, part.len().min(front.len()))
        {
            part.copy_to(&mut front[..part.len()]);
        }
        if self.refused.is_none() {
            part.copy_to(&mut self.buffer.as_mut_slice()[self.received..end]);
        }
        self.received = end;
        Ok(())
    }

    /// Makes room for the first `end` of `len` bytes. Memory grows with the bytes that arrived, not with the length that the peer
    /// announced; doubling bounds the copies of a long body.
    fn grow(&mut self, host: &mut impl Host, end: usize, len: usize) -> Result<(), Refusal> {
        let size = end.max(self.buffer.len() * 2).min(len);
        host.hold(size)?;
        self.buffer.try_resize(size).ok_or_else(|| no_memory(size))
    }
}

/// The allocator has no memory for `bytes` bytes of a peer's.
#[cold]
pub(crate) fn no_memory(bytes: usize) -> Refusal {
    let detail = format!("it has no memory for a body of {bytes} bytes");
    Refusal::new(Rejection::Resources, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::NoHost;

    #[test]
    fn fragments_make_the_body_or_an_error() {
        let (mut assembly, host) = (Assembly::default(), &mut NoHost);
        assert_eq!(assembly.finish(host, &b"x"[..]), Err(AssemblyError::Missing));
        assembly.fragment(host, 1, 5, &b"ab"[..], 100).unwrap();
        assembly.fragment(host, 1, 5, &b"cd"[..], 100).unwrap();
        assert_eq!(assembly.finish(host, &b"e"[..]), Ok(Ok(&b"abcde"[..])));
        assembly.clear(host);
        assembly.fragment(host, 2, 3, &b"ab"[..], 100).unwrap();
        assert_eq!(
            assembly.fragment(host, 2, 3, &b"cd"[..], 100),
            Err(AssemblyError::Length)
        );
        assembly.fragment(host, 3, 4, &b"ab"[..], 100).unwrap();
        assert_eq!(assembly.finish(host, &b"c"[..]), Err(AssemblyError::Length));
        let too_large = AssemblyError::TooLarge { len: 101, limit: 100 };
        assert_eq!(assembly.fragment(host, 4, 101, &b""[..], 100), Err(too_large));
    }

    #[test]
    fn a_new_number_discards_the_body_before() {
        let (mut assembly, host) = (Assembly::default(), &mut NoHost);
        assembly.fragment(host, 1, 4, &b"ab"[..], 100).unwrap();
        assembly.fragment(host, 2, 4, &b"xy"[..], 100).unwrap();
        assert_eq!((assembly.len(), assembly.unfinished()), (2, Some(2)));
        assert_eq!(assembly.finish(host, &b"zw"[..]), Ok(Ok(&b"xyzw"[..])));
    }

    #[test]
    fn a_body_that_is_not_kept_is_received_to_its_end_and_refused() {
        let (mut assembly, host) = (Assembly::default(), &mut NoHost);
        assembly.fragment(host, 1, 4, &b"ab"[..], 100).unwrap();
        assert_eq!(assembly.front()[..4], *b"ab\0\0");
        let why = Refusal::new(Rejection::Quota, "it took too long");
        assembly.refuse(why.clone());
        assert_eq!((assembly.len(), assembly.unfinished()), (0, None));
        assembly.fragment(host, 1, 4, &b"c"[..], 100).unwrap();
        assert_eq!(
            assembly.fragment(host, 1, 4, &b"de"[..], 100),
            Err(AssemblyError::Length)
        );
        assert_eq!(assembly.finish(host, &b"d"[..]), Ok(Err(why)));
        assert_eq!(assembly.front()[..5], *b"abcd\0");
        assembly.clear(host);
        assembly.fragment(host, 2, 2, &b"x"[..], 100).unwrap();
        assert_eq!(assembly.finish(host, &b"y"[..]), Ok(Ok(&b"xy"[..])));
    }

    /// A host with a budget, which records what a connection asks for.
    struct Budget {
        max: usize,
        held: Vec<usize>,
    }

    impl Host for Budget {
        type Image = ();

        fn install(&mut self, _: crate::host::Install<'_>) -> Result<Vec<()>, Refusal> {
            unreachable!("nothing is installed")
        }

        fn has_id(&mut self, (): &(), _: &ifunc_abi::ImageId) -> bool {
            false
        }

        fn invoke<B: Body>(
            &mut self,
            (): &(),
            _: crate::host::Invocation<'_, B>,
            _: Option<&mut [u8]>,
        ) -> Result<usize, Box<crate::host::Failed>> {
            unreachable!("nothing runs")
        }

        fn stats(&mut self, _: u32, _: usize) -> (ifunc_abi::status::Status, Vec<u8>) {
            unreachable!("nothing is asked")
        }

        fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
            self.held.push(bytes);
            match bytes <= self.max {
                true => Ok(()),
                false => Err(Refusal::new(Rejection::Quota, "too much")),
            }
        }

        fn observe(&mut self, _: crate::host::Event) {}
    }

    #[test]
    fn memory_doubles_with_what_arrived_and_is_asked_for_before() {
        let mut assembly = Assembly::default();
        let host = &mut Budget {
            max: 1000,
            held: Vec::new(),
        };
        for number in 0..9_u8 {
            assembly
                .fragment(host, 1, 1000, &[number; 100][..], 1000)
                .unwrap();
            assert_eq!(assembly.len(), 100 * (usize::from(number) + 1));
            assert_eq!(assembly.unfinished(), Some(1));
        }
        let whole = assembly.finish(host, &[9; 100][..]).unwrap().unwrap();
        assert_eq!(
            whole,
            (0..1000).map(|byte| (byte / 100) as u8).collect::<Vec<_>>()
        );
        assert_eq!(host.held, [0, 100, 200, 400, 800, 1000]);
        assembly.clear(host);
        assert_eq!((assembly.len(), assembly.unfinished()), (0, None));
        assert_eq!(host.held.pop(), Some(0));
    }

    #[test]
    fn a_body_above_the_budget_gives_its_memory_back_and_asks_for_no_more() {
        let mut assembly = Assembly::default();
        let host = &mut Budget {
            max: 250,
            held: Vec::new(),
        };
        for part in 0..4 {
            assembly.fragment(host, 7, 500, &[1; 100][..], 500).unwrap();
            assert_eq!(assembly.len(), [100, 200, 0, 0][part]);
            assert_eq!(assembly.unfinished(), [Some(1), Some(1), None, None][part]);
        }
        assert_eq!(host.held, [0, 100, 200, 400, 0]);
        let refused = assembly.finish(host, &[1; 100][..]).unwrap().unwrap_err();
        assert_eq!(refused, Refusal::new(Rejection::Quota, "too much"));
        assert_eq!(host.held.len(), 5);
        assert_eq!(assembly.front(), &[1; TravelHead::SIZE]);
        // The next body is another one, and its first bytes are its own.
        assembly.fragment(host, 8, 3, &b"ab"[..], 500).unwrap();
        assert_eq!(assembly.unfinished(), Some(2));
        assert_eq!(assembly.front()[..3], *b"ab\0");
        assert_eq!(host.held[5..], [0, 2]);
    }

    #[test]
    fn a_host_without_memory_says_for_how_much() {
        let expected = Refusal::new(Rejection::Resources, "it has no memory for a body of 7 bytes");
        assert_eq!(no_memory(7), expected);
    }
}
