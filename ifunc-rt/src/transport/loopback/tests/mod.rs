use std::time::{Duration, Instant};

use ifunc_abi::frame::{Header, Kind, Limits};
use ifunc_proto::link::Body as _;

use crate::transport::address::Address;
use crate::transport::{
    ConnectError, Link, LinkError, ListenConfig, ListenError, Listener, RingSize, connect, listen,
};

mod shuffle;
pub(in super::super) use shuffle::shuffled;

fn config(slots: u32, shuffle: Option<u64>) -> ListenConfig {
    let limits = Limits {
        max_payload: 1 << 20,
        max_image: 1 << 20,
        max_answer: 1 << 20,
    };
    let size = RingSize { slots, data: 1 << 16 };
    ListenConfig {
        to_target: size,
        to_source: size,
        shuffle,
        ..ListenConfig::new(limits)
    }
}

fn pair(name: &str, config: ListenConfig) -> (Box<dyn Listener>, Link, Link) {
    let address = Address::Loopback(name.to_owned());
    let mut listener = listen(&address, config).unwrap();
    let source = connect(&address, Instant::now()).unwrap();
    let target = listener.accept().unwrap();
    (listener, source, target)
}

fn send(link: &mut Link, body: &[u8]) -> Option<u32> {
    let room = link.tx().reserve(body.len(), 8).unwrap()?;
    room.copy_from_slice(body);
    Some(link.tx().commit(Header::new(Kind::Exec, 1, 2), body.len()))
}

fn receive(link: &mut Link) -> Option<(u32, Vec<u8>)> {
    let arrived = link.rx().peek().unwrap()?;
    let mut body = Vec::new();
    arrived.body.append_to(&mut body);
    let sequence = arrived.sequence;
    link.rx().release();
    Some((sequence, body))
}

#[test]
fn names_are_taken_once_and_freed() {
    let (listener, mut source, target) = pair("names", config(2, None));
    let address = Address::Loopback("names".into());
    assert_eq!(listener.address(), address.to_string());
    assert!(matches!(
        listen(&address, config(2, None)),
        Err(ListenError::InUse { .. })
    ));
    drop((listener, target));
    assert!(matches!(
        connect(&address, Instant::now()),
        Err(ConnectError::NobodyListens { .. })
    ));
    assert!(source.waiter.is_peer_closed());
    assert!(matches!(source.rx().peek(), Err(LinkError::Closed)));
    assert!(matches!(source.tx().reserve(0, 1), Err(LinkError::Closed)));
    let (_again, _source, _target) = pair("names", config(2, None));
}

#[test]
fn credits_come_back_when_settled() {
    let (_listener, mut source, mut target) = pair("credits", config(8, None));
    for n in 1..=8 {
        assert_eq!(send(&mut source, &[n; 100]), Some(n.into()));
    }
    assert_eq!(send(&mut source, &[9]), None);
    assert_eq!(receive(&mut target), Some((1, vec![1; 100])));
    assert_eq!(send(&mut source, &[9]), None);
    target.rx().settle();
    assert_eq!(send(&mut source, &[9]), Some(9));
}

#[test]
fn shuffled_frames_all_arrive_at_most_as_many_early_as_there_are_credits() {
    let (_listener, mut source, mut target) = pair("shuffle", config(8, Some(7)));
    let (mut sent, mut seen, mut in_order) = (0u32, Vec::new(), true);
    while seen.len() < 500 {
        while sent < 500 && send(&mut source, &sent.to_le_bytes()).is_some() {
            sent += 1;
        }
        let (sequence, body) = receive(&mut target).unwrap();
        assert_eq!(body, (sequence - 1).to_le_bytes());
        let oldest = (1..).find(|n| !seen.contains(n)).unwrap();
        assert!(sequence - oldest < 8);
        in_order &= sequence == oldest;
        seen.push(sequence);
        target.rx().settle();
    }
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(1..=500) && !in_order);
}

#[test]
fn what_was_sent_before_leaving_arrives() {
    let (_listener, mut source, mut target) = pair("leaving", config(8, None));
    send(&mut source, b"last words").unwrap();
    drop(source);
    assert_eq!(receive(&mut target).unwrap().1, b"last words");
    assert!(matches!(target.rx().peek(), Err(LinkError::Closed)));
}

#[test]
fn a_sleeper_is_rung() {
    let (mut listener, mut source, mut target) = pair("sleeper", config(8, None));
    listener.arm();
    assert!(target.rx().arm());
    let ringer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        send(&mut source, b"wake").unwrap();
        source
    });
    assert!(crate::os::wait_readable(
        listener.doorbell(),
        Instant::now() + Duration::from_secs(10)
    ));
    listener.arm();
    let mut source = ringer.join().unwrap();
    assert!(!target.rx().arm());
    receive(&mut target).unwrap();
    assert!(source.rx().arm());
    send(&mut target, b"answer").unwrap();
    let began = Instant::now();
    source.waiter.sleep(began + Duration::from_secs(120), None);
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(receive(&mut source).unwrap().1, b"answer");
}
