//! What the handshakes of all transports share: a target's answer to a hello, and the ring sizes that are in it.

use std::time::Duration;

use ifunc_abi::hello::{self, Hello, HelloError, Message, Opening, TransportTag};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ConnectError, RingSize};

/// Time in which a connected peer must send its hello.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Most connections that a target has not accepted.
pub(super) const MOST_WAITING: usize = 1024;
/// The reason of a target that has so many.
pub(super) const TOO_MANY_WAIT: &str = "it does not take the connections that wait already";
/// Longest reason of a refusal.
const LONGEST_REASON: usize = 1000;

/// Why a target's answer makes no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Declined {
    /// The target never takes this connection.
    Refused(String),
    /// The target may take the connection a moment later.
    Busy(String),
    /// The target speaks this version.
    Version(u32),
    /// A ring of the connection would take so many bytes, and the source takes at most `max`.
    RingTooLarge { bytes: usize, max: usize },
    /// What answers does not follow the protocol.
    Malformed(&'static str),
}

impl Declined {
    /// The error of a source that connects to `address`.
    pub(super) fn into_error(self, address: String) -> ConnectError {
        match self {
            Self::Refused(reason) => ConnectError::Refused { address, reason },
            Self::Busy(reason) => ConnectError::Busy { address, reason },
            Self::Version(theirs) => ConnectError::Version {
                address,
                theirs,
                ours: hello::WIRE_VERSION,
            },
            Self::RingTooLarge { bytes, max } => ConnectError::Ring { address, bytes, max },
            Self::Malformed(problem) => ConnectError::Protocol { address, problem },
        }
    }
}

/// Parses a target's answer: its hello, and what follows it.
pub(super) fn parse_answer(transport: TransportTag, message: &[u8]) -> Result<(Hello, &[u8]), Declined> {
    let reason = |why| String::from_utf8_lossy(why).into_owned();
    Err(match hello::parse(transport, message) {
        Ok(Message::Hello(hello, rest)) => return Ok((hello, rest)),
        Ok(Message::Refused(why)) => Declined::Refused(reason(why)),
        Ok(Message::Busy(why)) => Declined::Busy(reason(why)),
        Err(error) => declined_by(error),
    })
}

/// What an answer means that is none.
pub(super) fn declined_by(error: HelloError) -> Declined {
    match error {
        HelloError::Version(theirs) => Declined::Version(theirs),
        HelloError::NoHello => Declined::Malformed("it does not say what it is"),
        HelloError::Transport(_) => Declined::Malformed("it answers in terms of another transport"),
        HelloError::Form => NO_KNOWN_FORM,
    }
}

/// What follows the hello is not what the transport sends.
pub(super) const NO_KNOWN_FORM: Declined = Declined::Malformed("its answer is of no known form");

/// A target's message that it does not take the connection; `is_busy`: at this moment.
pub(super) fn refusal(transport: TransportTag, is_busy: bool, why: &str) -> Vec<u8> {
    [Opening::refusal(transport, is_busy).as_bytes(), cut(why)].concat()
}

/// A reason, of which the end is left out where it is too long.
pub(super) fn cut(why: &str) -> &[u8] {
    &why.as_bytes()[..why.floor_char_boundary(LONGEST_REASON)]
}

/// Slots and data bytes of the rings to the target and to the source, as an answer states them.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct StatedRings([[U32; 2]; 2]);

impl StatedRings {
    pub(super) fn new(to_target: RingSize, to_source: RingSize) -> Self {
        Self([to_target, to_source].map(|RingSize { slots, data }| [slots.into(), data.into()]))
    }

    /// The sizes, which are valid, and of `max` bytes at most.
    pub(super) fn sizes(self, max: usize) -> Result<[RingSize; 2], Declined> {
        let sizes = self.0.map(|[slots, data]| RingSize {
            slots: slots.get(),
            data: data.get(),
        });
        if !sizes.iter().all(|size| size.is_valid()) {
            return Err(Declined::Malformed("its rings are of sizes that cannot be"));
        }
        match sizes.iter().map(|size| size.bytes()).max() {
            Some(bytes) if bytes > max => Err(Declined::RingTooLarge { bytes, max }),
            _ => Ok(sizes),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ring_may_be_as_large_as_the_source_takes() {
        let [small, large] = [1 << 16, 1 << 17].map(|data| RingSize { slots: 4, data });
        for (to_target, to_source) in [(small, large), (large, small)] {
            let stated = StatedRings::new(to_target, to_source);
            let bytes = large.bytes();
            assert_eq!(stated.sizes(bytes), Ok([to_target, to_source]));
            let too_large = Declined::RingTooLarge {
                bytes,
                max: bytes - 1,
            };
            assert_eq!(stated.sizes(bytes - 1), Err(too_large));
        }
        let odd = RingSize { slots: 3, ..small };
        for stated in [StatedRings::new(odd, small), StatedRings::new(small, odd)] {
            assert!(matches!(stated.sizes(usize::MAX), Err(Declined::Malformed(_))));
        }
    }

    #[test]
    fn a_reason_is_cut_between_two_letters() {
        let why = "é".repeat(LONGEST_REASON);
        for (is_busy, declined) in [
            (false, Declined::Refused as fn(String) -> Declined),
            (true, Declined::Busy),
        ] {
            let message = refusal(TransportTag::UCX, is_busy, &why);
            assert_eq!(
                parse_answer(TransportTag::UCX, &message),
                Err(declined("é".repeat(LONGEST_REASON / 2)))
            );
        }
        let short = refusal(TransportTag::UCX, false, "no");
        assert_eq!(
            parse_answer(TransportTag::UCX, &short),
            Err(Declined::Refused("no".into()))
        );
    }
}
