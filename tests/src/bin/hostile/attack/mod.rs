//! The attackers: peers that the target admits, and strangers, who send what no source sends.

mod frames;
mod knock;
mod ring;
mod shm;
mod tls;

use std::time::{Duration, Instant};

use crate::random::Random;
use crate::{Result, say};

/// A connection on which an attacker sends frames by hand.
pub(crate) trait Wire {
    /// Sends a frame if the target gave credit for it, or as if it had. `false`: the target has ended the connection.
    fn send(&mut self, words: [u64; 2], body: &[u8]) -> bool;

    /// Gives back credits for what the target sent, or lies about them.
    fn credit(&mut self, random: &mut Random);
}

/// What attackers do on `shm`.
pub(crate) const SHM: [&str; 7] = [
    "garbage",
    "flood",
    "fragments",
    "scribble",
    "bitmap",
    "knock",
    "descriptors",
];
/// What attackers do on `tls`.
pub(crate) const TLS: [&str; 7] = [
    "garbage",
    "flood",
    "fragments",
    "garble",
    "loris",
    "knock",
    "strangers",
];

/// Attacks the target until the driver kills this process. Says now and then how often.
pub(crate) fn run(kind: &str, address: &str, seed: &str) -> Result {
    let mut random = Random::new(seed.parse()?);
    let mut attempts = 0_u64;
    let mut said = Instant::now();
    loop {
        // An attempt that the target refuses, or ends, is one: an attacker goes on.
        let _ = attempt(kind, address, &mut random);
        attempts += 1;
        if said.elapsed() > Duration::from_millis(200) {
            said = Instant::now();
            say(&format!("attempts={attempts}"));
        }
    }
}

fn attempt(kind: &str, address: &str, random: &mut Random) -> Result {
    let name = address.strip_prefix("shm:");
    match (kind, name) {
        ("knock", _) => knock::silent(address, random),
        ("scribble", Some(name)) => ring::scribble(&mut shm::Raw::connect(name)?, random),
        ("bitmap", Some(name)) => ring::clear_bitmap(&shm::Raw::connect(name)?),
        ("descriptors", Some(name)) => shm::send_descriptors(name, random),
        ("garble", None) => tls::garble(address, random),
        ("loris", None) => knock::slowly(address, random),
        ("strangers", None) => tls::stranger(address, random),
        (_, Some(name)) => attack(kind, &mut shm::Raw::connect(name)?, random),
        (_, None) => attack(kind, &mut tls::Raw::connect(address, tls::Key::Admitted)?, random),
    }
}

/// Frames on a connection that the target admitted.
fn attack(kind: &str, wire: &mut impl Wire, random: &mut Random) -> Result {
    let until = Instant::now() + Duration::from_millis(200 + random.below(2000) as u64);
    let sends = match kind {
        "flood" => frames::flood,
        "fragments" => frames::fragments,
        _ => frames::garbage,
    };
    while Instant::now() < until && sends(wire, random) {
        wire.credit(random);
    }
    Ok(())
}
