//! What systemd is told: `Type=notify` of the unit.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state, such as `READY=1`, to the service manager, if there is one.
///
/// # Errors
/// The system's, of a socket that the service manager named.
pub fn notify(state: &str) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state.as_bytes(), &address)
        .map(drop)
}

/// As [`notify`], and only logs an error.
pub(crate) fn tell(state: &str) {
    if let Err(error) = notify(state) {
        tracing::warn!(%error, state, "the service manager cannot be told");
    }
}

/// The time at which the configuration is read again, as systemd wants it.
pub(crate) fn reloading() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    format!("RELOADING=1\nMONOTONIC_USEC={microseconds}")
}
