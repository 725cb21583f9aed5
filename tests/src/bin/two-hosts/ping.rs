//! How long a message takes from host to host, without anything of UCX or ifunc: a byte goes to and fro over TCP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::Failure;

/// How long is measured, and the most round trips.
const TIME: Duration = Duration::from_millis(400);
const MOST: usize = 20_000;
/// A peer that takes longer is gone.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends back what the first peer sends to this address, until it is gone.
///
/// # Errors
/// The address is not this host's.
pub(crate) fn echo(address: &str) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)?;
    println!("listening");
    let (mut peer, _) = listener.accept()?;
    let mut byte = prepared(&peer)?;
    while peer.read(&mut byte)? > 0 {
        peer.write_all(&byte)?;
    }
    Ok(())
}

/// Prints the quartiles of half a round trip to this address, in microseconds.
///
/// # Errors
/// No [`echo`] listens there, or it does not answer.
pub(crate) fn ping(address: &str) -> Result<(), Failure> {
    let mut peer = TcpStream::connect(address)?;
    let mut byte = prepared(&peer)?;
    let mut halves = Vec::new();
    let began = Instant::now();
    while halves.len() < MOST && began.elapsed() < TIME {
        let sent = Instant::now();
        peer.write_all(&byte)?;
        peer.read_exact(&mut byte)?;
        halves.push(sent.elapsed() / 2);
    }
    halves.sort();
    let [low, median, high] =
        [1, 2, 3].map(|quarter| halves[halves.len() * quarter / 4].as_nanos() as f64 / 1e3);
    println!("one way {median:.1} µs ({low:.1} – {high:.1})");
    Ok(())
}

/// Prepares a connection; the byte to send.
fn prepared(peer: &TcpStream) -> Result<[u8; 1], Failure> {
    peer.set_nodelay(true)?;
    peer.set_read_timeout(Some(TIMEOUT))?;
    Ok([0])
}
