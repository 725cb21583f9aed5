//! A listening target.

use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use super::acceptor::Acceptor;
use super::credentials;
use crate::keys::TlsKeys;
use crate::policy::Connect;
use crate::transport::address::{Address, HostPort};
use crate::transport::{Key, Link, ListenConfig, ListenError, Listener};

/// A listening target.
struct TlsListener {
    address: Address,
    acceptor: Arc<Acceptor>,
}

/// Listens at `at`.
pub(in crate::transport) fn listen(
    at: &HostPort,
    config: ListenConfig,
) -> Result<Box<dyn Listener>, ListenError> {
    let address = Address::Tls(at.clone()).to_string();
    let failed = |doing: String| move |source| ListenError::Io { doing, source };
    let connect = config.connect.get();
    let keys = TlsKeys::or_env(connect.tls.as_ref()).map_err(|problem| ListenError::Keys {
        address: address.clone(),
        problem,
    })?;
    let tls = server(&address, &keys, &connect)?;
    let resolved = at
        .resolve()
        .map_err(failed(format!("looking for the host of `{at}`")))?;
    let socket = TcpListener::bind(resolved).map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => ListenError::InUse {
            address: address.clone(),
            holder: None,
        },
        _ => failed(format!("listening at `{address}`"))(source),
    })?;
    let bound = socket
        .set_nonblocking(true)
        .and_then(|()| socket.local_addr())
        .map_err(failed(format!("listening at `{address}`")))?;
    let acceptor = Acceptor::new(socket.into(), config, keys.clone(), tls)
        .map_err(failed("starting the thread that watches connections".into()))?;
    tracing::info!(address = %bound, key = %keys.key().public(), "listening by TLS");
    Ok(Box::new(TlsListener {
        address: Address::Tls(HostPort {
            host: bound.ip().to_string(),
            port: bound.port(),
        }),
        acceptor,
    }))
}

/// What a target that listens at `address` answers handshakes by.
pub(super) fn server(
    address: &str,
    keys: &TlsKeys,
    connect: &Connect,
) -> Result<credentials::Server, ListenError> {
    let problem = |problem| ListenError::Keys {
        address: address.to_owned(),
        problem,
    };
    if keys.has_no_peers() && !connect.has_keys() {
        return Err(problem(
            "its policy admits no key and no certificate, so no source could connect; help: `Policy::connect_key`, `Policy::connect_certificate`, or name the files of the sources' public keys in IFUNC_TLS_PEERS".into(),
        ));
    }
    credentials::Server::new(keys).map_err(|error| problem(error.to_string()))
}

impl Listener for TlsListener {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn set_node(&mut self, node: Option<u32>) {
        self.acceptor.set_node(node);
    }

    fn accept(&mut self) -> Option<Link> {
        self.acceptor.accept()
    }

    fn doorbell(&self) -> BorrowedFd<'_> {
        self.acceptor.doorbell.as_fd()
    }

    fn ready(&mut self, keys: &mut Vec<Key>) {
        self.acceptor.doorbell.ready(|number| keys.push(Key::of(number)));
    }

    fn fence(&self) {
        // A connection is parked, and its arrivals are counted, in an order that its lock gives.
    }

    fn arm(&mut self) {
        self.acceptor.doorbell.arm();
    }

    fn disarm(&mut self) {
        self.acceptor.doorbell.disarm();
    }

    /// A poll is a system call.
    fn pace(&self) -> u32 {
        8
    }
}
