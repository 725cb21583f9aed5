//! Addresses: `loopback:NAME`, `shm:NAME`, `tls://HOST:PORT`, `ucx://HOST:PORT`, `ucx-put://HOST:PORT`, `ucx-worker:HEX`.

use std::fmt;
#[cfg(any(feature = "ucx", feature = "tls"))]
use std::io;
use std::net::IpAddr;
#[cfg(any(feature = "ucx", feature = "tls"))]
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

pub(crate) use super::worker_address::WorkerAddress;

/// Where a target listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A target in the same process.
    Loopback(String),
    /// A target on the same host, by the name of its socket in the user's runtime directory.
    Shm(String),
    /// A target on any host, over TLS: both sides prove who they are by their [keys](crate::keys::TlsKeys).
    Tls(HostPort),
    /// A target on any host that UCX reaches.
    Ucx(HostPort),
    /// A target that is known by the address of its UCX worker, for launchers: there is no listener and no port. `None`, for a
    /// target: of the worker that it makes; its address is known when it listens.
    UcxWorker(Option<WorkerAddress>),
    /// The same, with frames that are put into the receiver's memory: for RDMA hardware.
    UcxPut(HostPort),
}

/// A host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name or an IPv4 or IPv6 address, without brackets.
    pub host: String,
    /// The port; 0, for a target: any that is free.
    pub port: u16,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The part before the colon is no transport of this version.
    #[error(
        "`{0}` names no transport; help: write `shm:NAME` for a process of this host, `tls://HOST:PORT` for one of any host, `ucx://HOST:PORT` (or `ucx-put://HOST:PORT`) for one of a network whose hosts trust each other, `ucx-worker:` for one that tells its address itself, `loopback:NAME` for this process"
    )]
    Scheme(String),
    /// The part after the colon is no name.
    #[error(
        "`{0}` is not a name: 1 to 64 letters, digits, `-`, `_` and `.`, not starting with `.`; help: write `shm:counter`"
    )]
    Name(String),
    /// What follows `tls://`, `ucx://` or `ucx-put://` is no host and port.
    #[error(
        "`{0}` is not a host and a port; help: write `ucx://127.0.0.1:0` (any free port of this host), `ucx://host.example:4711`, `ucx://[::1]:4711`"
    )]
    HostPort(String),
    /// What follows `ucx-worker:` is no worker's address.
    #[error(
        "`ucx-worker:{begins}…` ({len} characters) is not what a target said its address is: {problem}; help: copy it whole, or write `ucx-worker:` alone to listen"
    )]
    Worker {
        /// How it begins, after the colon.
        begins: String,
        /// How long it is, after the colon.
        len: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// What a transport knows of the peers that connect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Knows {
    /// Their users, which the kernel reports.
    pub(crate) users: bool,
    /// The addresses of their hosts.
    pub(crate) addresses: bool,
    /// Their keys, which they prove to hold.
    pub(crate) keys: bool,
}

impl Address {
    /// What the transport knows of the peers that connect to a target; `has_keys`: one that has keys of its own.
    pub(crate) fn knows(&self, has_keys: bool) -> Knows {
        let by_exchange = matches!(self, Self::Ucx(_) | Self::UcxPut(_));
        Knows {
            users: matches!(self, Self::Loopback(_) | Self::Shm(_)),
            addresses: matches!(self, Self::Tls(_)) || by_exchange,
            keys: matches!(self, Self::Tls(_)) || by_exchange && has_keys,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let Some((scheme, name)) = text.split_once(':') else {
            return Err(AddressError::Scheme(text.into()));
        };
        let fits = (1..=64).contains(&name.len())
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        let checked = || {
            if fits {
                Ok(name.to_owned())
            } else {
                Err(AddressError::Name(name.into()))
            }
        };
        match scheme {
            "loopback" => Ok(Self::Loopback(checked()?)),
            "shm" => Ok(Self::Shm(checked()?)),
            "tls" => name_of_host(scheme, text).map(Self::Tls),
            "ucx" => name_of_host(scheme, text).map(Self::Ucx),
            "ucx-put" => name_of_host(scheme, text).map(Self::UcxPut),
            "ucx-worker" if name.is_empty() => Ok(Self::UcxWorker(None)),
            "ucx-worker" => name.parse().map(Some).map(Self::UcxWorker),
            _ => Err(AddressError::Scheme(text.into())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(name) => write!(f, "loopback:{name}"),
            Self::Shm(name) => write!(f, "shm:{name}"),
            Self::Tls(at) => write!(f, "tls://{at}"),
            Self::Ucx(at) => write!(f, "ucx://{at}"),
            Self::UcxPut(at) => write!(f, "ucx-put://{at}"),
            Self::UcxWorker(None) => f.write_str("ucx-worker:"),
            Self::UcxWorker(Some(worker)) => write!(f, "ucx-worker:{worker}"),
        }
    }
}

impl Address {
    /// Whether it means something on the host of the target alone.
    pub(crate) fn is_of_one_host(&self) -> bool {
        match self {
            Self::Loopback(_) | Self::Shm(_) => true,
            Self::Tls(at) | Self::Ucx(at) | Self::UcxPut(at) => match at.host.parse::<IpAddr>() {
                Ok(ip) => ip.is_loopback(),
                Err(_) => at.host == "localhost",
            },
            // UCX alone can tell.
            Self::UcxWorker(_) => false,
        }
    }

    /// Why a source that is given this address reaches no target.
    pub(crate) fn nowhere(&self) -> Option<&'static str> {
        let at = match self {
            Self::Tls(at) | Self::Ucx(at) | Self::UcxPut(at) => at,
            Self::UcxWorker(None) => {
                return Some("names no worker; help: publish what the target says that its address is");
            }
            Self::Loopback(_) | Self::Shm(_) | Self::UcxWorker(Some(_)) => return None,
        };
        if at.port == 0 {
            return Some("has no port; help: publish what the target says that its address is");
        }
        let anywhere = at.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        anywhere.then_some(
            "is not the address of a host; help: let the target listen at one that the others reach it by",
        )
    }
}

fn name_of_host(scheme: &str, text: &str) -> Result<HostPort, AddressError> {
    let wrong = || AddressError::HostPort(text.into());
    let rest = text
        .strip_prefix(scheme)
        .and_then(|rest| rest.strip_prefix("://"));
    let rest = rest.ok_or_else(wrong)?;
    let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').filter(|inner| inner.contains(':')),
        None => Some(host).filter(|host| !host.contains(':')),
    };
    let host = host
        .filter(|host| !host.is_empty() && !host.contains(['/', '[', ']', '@', ' ']))
        .ok_or_else(wrong)?;
    // `parse` takes a sign.
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
    Ok(HostPort {
        host: host.to_owned(),
        port,
    })
}

#[cfg(any(feature = "ucx", feature = "tls"))]
impl HostPort {
    /// An address of the host, of IPv4 if it has one.
    pub(crate) fn resolve(&self) -> io::Result<SocketAddr> {
        let all: Vec<_> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        let four = all.iter().find(|address| address.is_ipv4());
        four.or(all.first())
            .copied()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(any(feature = "ucx", feature = "tls"))]
    #[test]
    fn hosts_are_resolved() {
        let at = HostPort {
            host: "::1".into(),
            port: 7,
        };
        assert_eq!(at.resolve().unwrap(), "[::1]:7".parse().unwrap());
    }

    #[test]
    fn hosts_and_ports_are_read_and_written() {
        for text in [
            "ucx://127.0.0.1:0",
            "ucx://host-1.example:4711",
            "ucx://[::1]:65535",
            "ucx://[fe80::1%lo]:1",
            "ucx-put://127.0.0.1:0",
            "tls://[::1]:7000",
            "shm:name",
            "loopback:a.b",
            "ucx-worker:",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        for text in [
            "ucx:name",
            "ucx://",
            "ucx://host",
            "ucx://:1",
            "ucx://::1:2",
            "ucx://[host]:1",
            "ucx://host:65536",
            "ucx://host:+1",
            "ucx://host:",
            "ucx://a/b:1",
            "ucx-put://host",
            "ucx-put:host:1",
            "tls:host:1",
            "tls://host",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error, AddressError::HostPort(text.into()));
            assert!(error.to_string().contains("help: write `ucx://127.0.0.1:0`"));
        }
        let loopback: Address = "ucx://[::1]:7".parse().unwrap();
        let Address::Ucx(at) = loopback else {
            panic!("{loopback}")
        };
        assert_eq!((at.host.as_str(), at.port), ("::1", 7));
    }
}
