//! What the kernel says of processes: the time that they had a processor, and the bytes that crossed the loopback device.

use std::io::ErrorKind;

use anyhow::{Context, Result};
use rustix::io::Errno;

/// The time that the threads of a process have had a processor, in nanoseconds. Those that have ended do not count.
pub(crate) fn time_of(process: u32) -> Result<f64> {
    let mut time = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = match std::fs::read_to_string(thread?.path().join("schedstat")) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => continue,
            text => text.with_context(|| format!("reading a schedstat of process {process}"))?,
        };
        let first = text.split_whitespace().next().context("an empty schedstat")?;
        time += first.parse::<u64>()?;
    }
    Ok(time as f64)
}

/// The bytes that have crossed the loopback device, with their headers and acknowledgements.
pub(crate) fn loopback_bytes() -> Result<u64> {
    let devices = std::fs::read_to_string("/proc/net/dev").context("reading /proc/net/dev")?;
    let line = devices
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("lo:"));
    let received = line.and_then(|line| line.split_whitespace().next());
    Ok(received.context("there is no device `lo`")?.parse()?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn work_and_bytes_are_counted() {
        let (time, bytes) = (time_of(std::process::id()).unwrap(), loopback_bytes().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut receiver = listener.accept().unwrap().0;
        sender.write_all(&[1; 10_000]).unwrap();
        receiver.read_exact(&mut [0; 10_000]).unwrap();
        assert!(loopback_bytes().unwrap() >= bytes + 10_000);
        let began = Instant::now();
        // As long as it takes: other programs may have the processors.
        while time_of(std::process::id()).unwrap() < time + 1e7 {
            assert!(began.elapsed() < Duration::from_secs(60), "10 ms of work");
        }
    }
}
