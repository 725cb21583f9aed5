//! A relay between a source and a target that changes, cuts and repeats what passes.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

/// What the relay does to one record from the source, beside passing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Flip,
    Repeat,
    Cut,
    Drop,
    Garbage,
}

/// A relay to one target.
pub(super) struct Relay {
    pub(super) address: String,
    change: Sender<Change>,
}

impl Relay {
    /// Relays one connection. A change is made to the next record that the source sends.
    pub(super) fn to(target: &str) -> Self {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tls://{}", listening.local_addr().unwrap());
        let target = target.trim_start_matches("tls://").to_owned();
        let (change, changes) = channel();
        std::thread::spawn(move || {
            let (source, _) = listening.accept().unwrap();
            let target = TcpStream::connect(target).unwrap();
            let (mut from, mut to) = (target.try_clone().unwrap(), source.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            relay(source, &target, &changes);
            let _ = target.shutdown(Shutdown::Write);
        });
        Self { address, change }
    }

    pub(super) fn change(&self, change: Change) {
        self.change.send(change).unwrap();
    }
}

fn relay(mut source: TcpStream, mut target: &TcpStream, changes: &Receiver<Change>) {
    let mut head = [0; 5];
    while source.read_exact(&mut head).is_ok() {
        let mut record = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        if source.read_exact(&mut record).is_err() {
            return;
        }
        let mut record = [&head[..], &record].concat();
        match changes.try_recv() {
            Ok(Change::Flip) => *record.last_mut().unwrap() ^= 1,
            Ok(Change::Repeat) => record = record.repeat(2),
            Ok(Change::Drop) => continue,
            Ok(Change::Garbage) => record = b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            Ok(Change::Cut) => {
                let _ = target.write_all(&record[..record.len() / 2]);
                // For both sides: a source alone would notice it only when nothing that it sends is taken any more.
                let _ = source.shutdown(Shutdown::Both);
                return;
            }
            Err(_) => {}
        }
        if target.write_all(&record).is_err() {
            return;
        }
    }
}
