//! Handshake messages of every transport, as both sides parse them.

use ifunc_abi::hello::{Exchange, Message, TransportTag, parse};

const TAGS: [TransportTag; 4] = [
    TransportTag::SHM,
    TransportTag::UCX,
    TransportTag::UCX_PUT,
    TransportTag::TLS,
];

/// The first byte chooses the transport, the others are the message. A message with a hello is encoded as it was.
pub fn run(data: &[u8]) {
    let Some((&first, message)) = data.split_first() else {
        return;
    };
    let tag = TAGS[usize::from(first) % TAGS.len()];
    if let Ok(Message::Hello(hello, rest)) = parse(tag, message) {
        let encoded = hello.encode(tag);
        assert_eq!([&encoded[..], rest].concat(), message);
    }
    if let Ok(exchange) = Exchange::parse(tag, message) {
        assert_eq!(Exchange::len(message), Ok(Some(message.len())));
        let mut encoded = Vec::new();
        exchange.encode(tag, &mut encoded);
        assert_eq!(encoded, message);
    }
    ifunc_rt::fuzzing::handshakes(message);
}
