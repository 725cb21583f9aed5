//! What the fuzz targets reach of this transport.

use super::exchange::Incoming;
use super::exchange::acceptor::worker_of;
use super::exchange::notices::Channel;
use super::handshake::{Hello, LONGEST, Mode, Welcome};
use super::header::{HEADER, Head, Name};
use super::packed::{Entries, LENGTHS, NAME, append};
use super::put::fuzzing::offer;

/// Takes the bytes for a packed message. Its entries are decoded as they were if they are packed again.
fn packed(message: &[u8]) {
    if !LENGTHS.contains(&message.len()) {
        return;
    }
    let word_of = |bytes: &[u8], at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let entries = Entries::new(message.len(), |at| word_of(message, at));
    let entries: Vec<_> = entries.map_while(Result::ok).collect();
    let (mut again, mut end) = ([0; LENGTHS.end], NAME);
    for (entry, body) in &entries {
        let head = Head {
            sequence: entry.number.into(),
            len: entry.len as u32,
            words: entry.words,
            credits: entry.credits,
            to: Name::NONE,
        };
        // Words that need not follow are left out: it is no longer.
        end = append(&mut again, end, &head, &message[body.clone()]).expect("room for what was there");
    }
    let mut decoded = Entries::new(end, |at| word_of(&again, at));
    for (entry, body) in entries {
        let (same, at) = decoded.next().and_then(Result::ok).expect("an entry");
        assert_eq!((same, &again[at]), (entry, &message[body]));
    }
    assert!(decoded.next().is_none());
}

/// Takes the bytes for notices over a socket. Those that are whole are what was sent, but for their headers' spare bytes.
fn notices(message: &[u8]) {
    let mut channel = Channel::default();
    let mut bodies = 0;
    for piece in message.chunks(61) {
        channel.push(piece);
        while let Ok(Some((_, _, body))) = channel.next() {
            assert!(body.len() <= LONGEST);
            bodies += HEADER + body.len();
        }
    }
    assert!(bodies <= message.len());
}

/// Takes the bytes for the header of an active message, for notices, for a handshake message from either side, and for a message of the exchange
/// before it.
pub(crate) fn handshake(message: &[u8]) {
    if let Some(header) = message.first_chunk::<HEADER>() {
        let head = Head::decode(header);
        assert_eq!(head.encode(), *header);
        assert_eq!(head.is_notice(), !matches!(head.as_notice(), Ok(None)));
        let _ = head.is_of_the_handshake();
    }
    packed(message);
    let mut incoming = Incoming::default();
    let taken = message
        .chunks(7)
        .try_for_each(|piece| incoming.take(piece).map(drop));
    assert!(incoming.message().len() <= message.len());
    if taken.is_ok() && incoming.is_whole() {
        assert_eq!(incoming.message(), message);
    }
    for mode in [Mode::Messages, Mode::Puts] {
        if worker_of(&mut { mode }, message).is_ok() {
            assert!(taken.is_ok() && incoming.is_whole(), "the address of a worker");
        }
        if let Ok(hello) = Hello::decode(mode, message) {
            assert_eq!(Hello::decode(mode, &hello.encode(mode)), Ok(hello));
        }
        if let Ok((welcome, name, ring)) = Welcome::decode(mode, message) {
            assert!(welcome.to_target.is_valid() && welcome.to_source.is_valid());
            let again = [welcome.encode(mode, name), ring.to_vec()].concat();
            assert_eq!(Welcome::decode(mode, &again), Ok((welcome, name, ring)));
            offer(ring, welcome.to_target);
        }
    }
    notices(message);
    offer(
        message,
        crate::transport::RingSize {
            slots: 4,
            data: 1 << 16,
        },
    );
}
