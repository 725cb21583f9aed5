//! The first message of each side, inside the encrypted stream: two bytes of length, then a hello or a refusal of
//! [`ifunc_abi::hello`]. After a target's hello come the sizes of the rings that the credits count.

use ifunc_abi::hello::{Hello, TransportTag};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::transport::handshake::{Declined, NO_KNOWN_FORM, StatedRings, parse_answer, refusal};
use crate::transport::{ListenConfig, RingSize};

/// What these messages are marked by.
pub(super) const TAG: TransportTag = TransportTag::TLS;
/// Bytes of the length.
const PREFIX: usize = 2;
/// Longest message.
const LONGEST: usize = 2048;

/// A message that is arriving.
#[derive(Debug, Default)]
pub(super) struct Incoming(Vec<u8>);

impl Incoming {
    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// The message is longer than any, or something follows it: the peer waits for an answer first.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        if self.0.len() + bytes.len() > PREFIX + LONGEST {
            return Err("a first message that is too long");
        }
        self.0.extend_from_slice(bytes);
        match self.len() {
            Some(len) if self.0.len() > PREFIX + len => Err("more than a first message"),
            _ => Ok(()),
        }
    }

    /// Bytes of the message, if its length is there.
    fn len(&self) -> Option<usize> {
        let (len, _) = <[u8; PREFIX]>::read_from_prefix(&self.0).ok()?;
        Some(u16::from_le_bytes(len).into())
    }

    /// The message, if all of it is there.
    pub(super) fn message(&self) -> Option<&[u8]> {
        let len = self.len()?;
        self.0[PREFIX..].get(..len)
    }
}

fn message(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).expect("no message is that long");
    [&len.to_le_bytes(), bytes].concat()
}

/// The message of a source.
pub(super) fn of_source(hello: &Hello) -> Vec<u8> {
    message(&hello.encode(TAG))
}

/// The message of a target that takes the connection.
pub(super) fn of_target(config: &ListenConfig, node: Option<u32>) -> Vec<u8> {
    let hello = Hello { node, ..config.hello };
    let rings = StatedRings::new(config.to_target, config.to_source);
    message(&[&hello.encode(TAG)[..], rings.as_bytes()].concat())
}

/// The message of a target that does not take the connection; `is_busy`: at this moment.
pub(super) fn of_refusal(is_busy: bool, why: &str) -> Vec<u8> {
    message(&refusal(TAG, is_busy, why))
}

/// What a target answered: its hello, and the rings to the target and to the source.
pub(super) fn parse(message: &[u8], max_ring: usize) -> Result<(Hello, [RingSize; 2]), Declined> {
    let (hello, rest) = parse_answer(TAG, message)?;
    let rings = StatedRings::read_from_bytes(rest).map_err(|_| NO_KNOWN_FORM)?;
    Ok((hello, rings.sizes(max_ring)?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_in_pieces_and_nothing_follows_it() {
        let config = ListenConfig::with_hello(crate::hello::invoking(7));
        let sent = of_target(&config, Some(3));
        let mut incoming = Incoming::default();
        for byte in &sent {
            assert_eq!(incoming.message(), None);
            incoming.take(&[*byte]).unwrap();
        }
        let (hello, rings) = parse(incoming.message().unwrap(), 1 << 30).unwrap();
        assert_eq!((hello.node, hello.limits.max_answer), (Some(3), 7));
        assert_eq!(rings, [config.to_target, config.to_source]);
        assert!(incoming.take(&[0]).is_err());
        let mut long = Incoming::default();
        assert!(long.take(&[0xff; PREFIX + LONGEST]).is_ok() && long.take(&[0]).is_err());
        assert_eq!(
            parse(&of_refusal(true, "why")[PREFIX..], 0).unwrap_err(),
            Declined::Busy("why".into())
        );
        let few = parse(incoming.message().unwrap(), 1 << 10).unwrap_err();
        assert!(matches!(few, Declined::RingTooLarge { max: 1024, .. }));
    }
}
