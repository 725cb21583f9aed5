//! Connections by the thousand of which no source makes anything.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::{shm, tls};
use crate::Result;
use crate::random::Random;

/// Connections that one attacker holds at a time.
const HELD: usize = 400;

/// Opens connections and says nothing, or nonsense, on them.
pub(super) fn silent(address: &str, random: &mut Random) -> Result {
    let (mut sockets, mut streams): (Vec<OwnedFd>, Vec<TcpStream>) = (Vec::new(), Vec::new());
    for _ in 0..HELD {
        let nonsense = random.one_in(2).then(|| {
            let len = random.below(300);
            random.bytes(len)
        });
        match address.strip_prefix("shm:") {
            Some(name) => {
                let Ok(socket) = shm::knock(name) else { break };
                if let Some(nonsense) = nonsense {
                    shm::say(&socket, &nonsense);
                }
                sockets.push(socket);
            }
            None => {
                let Ok(mut stream) = tls::knock(address) else {
                    break;
                };
                if let Some(nonsense) = nonsense {
                    let _ = stream.write_all(&nonsense);
                }
                streams.push(stream);
            }
        }
    }
    std::thread::sleep(Duration::from_millis(random.below(200) as u64));
    Ok(())
}

/// Begins handshakes, and sends a byte of each now and then.
pub(super) fn slowly(address: &str, random: &mut Random) -> Result {
    let hello = tls::first_record()?;
    let mut streams = Vec::new();
    for _ in 0..50 {
        streams.push(tls::knock(address)?);
    }
    for byte in hello.iter().take(40 + random.below(100)) {
        streams.retain_mut(|stream| stream.write_all(&[*byte]).is_ok());
        if streams.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
