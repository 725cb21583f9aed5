//! TLS where this crate is built without its feature `tls`: its addresses are known, and lead nowhere.

use std::time::Instant;

use super::address::HostPort;
use super::{ConnectConfig, ConnectError, Link, ListenConfig, ListenError, Listener};

/// What a user of such an address is told.
const PROBLEM: &str = "this program was built without TLS, which addresses `tls://` need; help: build `ifunc-rt` with its feature `tls`, or use `shm:NAME` for a process of this host";

pub(super) fn listen(_: &HostPort, _: ListenConfig) -> Result<Box<dyn Listener>, ListenError> {
    Err(ListenError::Library {
        problem: PROBLEM.into(),
    })
}

pub(super) fn connect(_: &HostPort, _: &ConnectConfig, _: Instant) -> Result<Link, ConnectError> {
    Err(ConnectError::Library {
        problem: PROBLEM.into(),
    })
}

/// TLS around one message of each side: there is none, and keys prove nothing.
#[cfg(feature = "ucx")]
pub(super) mod once {
    use std::net::SocketAddr;
    use std::os::fd::BorrowedFd;
    use std::time::Instant;

    use crate::keys::{PublicKey, TlsKeys};
    use crate::policy::Connect;
    use crate::transport::{ConnectError, ListenError, Peer};

    /// What a process that has keys is told.
    const PROBLEM: &str = "this process has a key, and its program was built without TLS, by which it is proved; help: build `ifunc-rt` with its feature `tls`, or leave the key out (IFUNC_TLS_KEY, `TargetBuilder::tls`, `SourceOptions::tls`)";

    pub(in crate::transport) enum Server {}

    impl Server {
        pub(in crate::transport) fn new(_: &str, _: TlsKeys, _: &Connect) -> Result<Self, ListenError> {
            Err(ListenError::Library {
                problem: PROBLEM.into(),
            })
        }

        pub(in crate::transport) fn key(&self) -> PublicKey {
            match *self {}
        }
    }

    #[derive(Default)]
    pub(in crate::transport) struct Asked;

    impl Asked {
        pub(in crate::transport) fn advance(
            &mut self,
            _: BorrowedFd<'_>,
            server: &Server,
            _: impl FnMut(&[u8]) -> Result<(), &'static str>,
        ) -> Result<bool, Option<String>> {
            match *server {}
        }

        pub(in crate::transport) fn admit(
            self,
            server: &Server,
            _: &Connect,
            _: Option<SocketAddr>,
        ) -> Option<(Encrypted, Result<Peer, String>)> {
            match *server {}
        }
    }

    pub(in crate::transport) enum Encrypted {}

    impl Encrypted {
        pub(in crate::transport) fn send(&mut self, _: BorrowedFd<'_>, _: &[u8]) -> bool {
            match *self {}
        }

        pub(in crate::transport) fn send_last(self, _: BorrowedFd<'_>, _: &[u8]) -> bool {
            match self {}
        }

        pub(in crate::transport) fn receive(
            &mut self,
            _: BorrowedFd<'_>,
            _: impl FnMut(&[u8]) -> Result<(), &'static str>,
        ) -> Result<(), Option<&'static str>> {
            match *self {}
        }
    }

    pub(in crate::transport) fn ask(
        _: (&str, &str),
        _: &TlsKeys,
        _: BorrowedFd<'_>,
        _: &[u8],
        _: impl FnMut(BorrowedFd<'_>) -> Result<(), ConnectError>,
        _: impl FnMut(&[u8]) -> Result<bool, &'static str>,
        _: impl FnMut() -> Option<Instant>,
    ) -> Result<(Peer, Encrypted), ConnectError> {
        Err(ConnectError::Library {
            problem: PROBLEM.into(),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Source, Target};

    #[test]
    fn addresses_of_tls_are_refused_with_help() {
        let listening = Target::builder().listen("tls://127.0.0.1:0").map(drop);
        let connecting = Source::connect("tls://127.0.0.1:1").map(drop);
        for error in [
            listening.unwrap_err().to_string(),
            connecting.unwrap_err().to_string(),
        ] {
            assert!(
                error.contains("help: build `ifunc-rt` with its feature `tls`"),
                "{error}"
            );
        }
    }
}
