//! Where the targets of these tests listen: `IFUNC_TRANSPORT` says how frames travel, shared memory unless it is set.
//!
//! With `E2E_HOST`, an address of another host, and `E2E_ENTER`, the command that starts a program there
//! (`nsenter --net=FILE`), targets run on that host: `cargo xtask two-hosts` makes such hosts of network namespaces.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// How frames travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Loopback,
    Shm,
    /// TLS, UCX's active messages, or its puts: the scheme of the address.
    Network(&'static str),
}

impl Transport {
    /// What `IFUNC_TRANSPORT` says.
    fn asked_for() -> Option<Self> {
        let name = std::env::var("IFUNC_TRANSPORT").ok()?;
        Some(match &*name {
            "loopback" => Self::Loopback,
            "shm" => Self::Shm,
            "tls" => Self::Network("tls"),
            "ucx" => Self::Network("ucx"),
            "ucx-put" => Self::Network("ucx-put"),
            other => panic!("IFUNC_TRANSPORT={other}: loopback, shm, tls, ucx or ucx-put"),
        })
    }

    /// What targets in processes of their own are tested over.
    pub fn chosen() -> Self {
        Self::asked_for().unwrap_or(Self::Shm)
    }

    /// An address that no other test has.
    fn unique(self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{}-{number}", std::process::id());
        match self {
            Self::Loopback => format!("loopback:{name}"),
            Self::Shm => format!("shm:{name}"),
            Self::Network(scheme) => match std::env::var("E2E_HOST") {
                // No other program listens on that host.
                Ok(host) => format!("{scheme}://{host}:{}", port(number)),
                Err(_) => format!("{scheme}://127.0.0.1:{}", free_port()),
            },
        }
    }
}

/// A port below the range from which the kernel chooses ports. While a target is killed and started again, its port is free,
/// and the kernel gives it to no other process.
fn port(number: u32) -> u16 {
    let many = std::process::id().wrapping_mul(37).wrapping_add(number) % 12_000;
    20_000 + u16::try_from(many).unwrap()
}

fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let port = port(NEXT.fetch_add(1, Ordering::Relaxed));
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// An address for a target in a process of its own; `None`, which is said, over a transport within one process.
pub fn unique() -> Option<String> {
    match Transport::chosen() {
        Transport::Loopback => not_tested("it needs two processes"),
        other => Some(other.unique()),
    }
}

/// An address of shared memory; `None`, which is said, where the tests are run over something else. `why` it has to be
/// shared memory.
pub fn unique_shm(why: &str) -> Option<String> {
    match Transport::chosen() {
        Transport::Shm => Some(Transport::Shm.unique()),
        _ => not_tested(why),
    }
}

/// An address for a target in the process of the test, where everything can be asked for. On a network the target chooses the port:
/// [`Target::address`](ifunc_rt::Target::address) tells it.
pub fn unique_within() -> String {
    match Transport::asked_for().unwrap_or(Transport::Loopback) {
        Transport::Network(scheme) => format!("{scheme}://127.0.0.1:0"),
        other => other.unique(),
    }
}

/// Says it where the test harness does not catch it.
fn not_tested(why: &str) -> Option<String> {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let over = std::env::var("IFUNC_TRANSPORT").unwrap_or_default();
    let _ = writeln!(std::io::stdout(), "not tested over {over}: {test}: {why}");
    None
}

/// A command on the host where the targets run.
pub fn over_there(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let enter = std::env::var("E2E_ENTER").unwrap_or_default();
    let mut words = enter.split_whitespace();
    match words.next() {
        None => Command::new(program),
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(program);
            command
        }
    }
}
