//! A link of a stated speed: a relay that passes on no more bytes per second, in each direction.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are passed on at once.
const PIECE: usize = 64 << 10;

/// Relays connections to `to` at so many bits per second. Returns the address to which the client connects instead.
///
/// # Errors
/// There is no port.
pub(crate) fn limited(to: &str, bits_per_second: u64) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let to = to.to_owned();
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else { continue };
            let Ok(server) = TcpStream::connect(&to) else {
                continue;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let Ok((from_client, from_server)) = client
                .try_clone()
                .and_then(|from| Ok((from, server.try_clone()?)))
            else {
                continue;
            };
            thread::spawn(move || pass(from_client, server, bits_per_second));
            thread::spawn(move || pass(from_server, client, bits_per_second));
        }
    });
    Ok(address)
}

/// Passes on what arrives, no faster than the link.
fn pass(mut from: TcpStream, mut to: TcpStream, bits_per_second: u64) {
    let mut piece = vec![0; PIECE];
    // When the link has sent what it was given.
    let mut idle_at = Instant::now();
    loop {
        let len = match from.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(len) => len,
        };
        let takes = Duration::from_secs_f64(len as f64 * 8.0 / bits_per_second as f64);
        idle_at = idle_at.max(Instant::now()) + takes;
        thread::sleep(idle_at.saturating_duration_since(Instant::now()));
        if to.write_all(&piece[..len]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
